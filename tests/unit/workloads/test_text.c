// Dataset `text`: bytes of one file, of a gzipped one and of a folder, and the end of it for
// validation. Also the decoded image in the cache, used again and made again when a file changes.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/base/machine/proc.h"
#include "tests/unit/workloads/dataset_rig.h"

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz";

static const struct td_dataset_ops *ops(void) {
    return td_dataset_text.ops;
}

static void gzip_file(const char *dir, const char *name) {
    const char *const argv[] = {"gzip", "-n", rig_path(dir, name), NULL};
    struct td_proc_options o = {.path = "/bin/gzip", .argv = argv};
    struct td_proc p;
    int status;
    assert_ok(td_proc_spawn(&o, &p));
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_int_equal(status, 0);
    close(p.pidfd);
}

// Row `index` of training: block bytes from the text's `first`-th letter on.
static void check_row(struct td_dataset *d, enum td_split split, int64_t index, int64_t block,
                      const char *text) {
    int32_t x[16], y[16];
    assert_ok(ops()->gather(d, split, &index, 1, (void *[]){x, y}));
    for (int64_t t = 0; t < block; t++) {
        assert_int_equal(x[t], text[t]);
        assert_int_equal(y[t], text[t + 1]);
    }
}

static void check_alphabet(struct td_dataset *d) {
    struct td_field f[8];
    assert_int_equal(ops()->fields(d, f), 2);
    assert_int_equal(f[0].n_classes, 256);
    assert_int_equal(ops()->length(d, TD_SPLIT_TRAIN), 4); // 21 letters, rows of 5
    assert_int_equal(ops()->length(d, TD_SPLIT_VAL), 0);   // 5 letters: no target for the last
    check_row(d, TD_SPLIT_TRAIN, 3, 5, "pqrstu");
}

static const char knobs[] = "{\"path\":\"$/t\",\"block_size\":5,\"val_fraction\":0.2}";

static void test_rows_are_the_bytes_when_plain_gzipped_or_a_folder(void **state) {
    const char *dir = *state;
    struct td_dataset *d;
    rig_write(dir, "t", alphabet, 26);
    assert_ok(rig_open(&td_dataset_text, dir, knobs, NULL, &d));
    check_alphabet(d);
    ops()->close(d);

    gzip_file(dir, "t"); // now t.gz
    assert_ok(rig_open(&td_dataset_text, dir,
                       "{\"path\":\"$/t.gz\",\"block_size\":5,\"val_fraction\":0.2}", NULL, &d));
    check_alphabet(d);
    ops()->close(d);

    assert_ok(td_fs_mkdirs(rig_path(dir, "t/sub"), 0700));
    rig_write(dir, "t/b", alphabet + 3, 4);
    rig_write(dir, "t/a", alphabet, 3);
    rig_write(dir, "t/.skipped", "!!!!", 4); // a file of a name with a dot
    rig_write(dir, "t/empty", "", 0);
    rig_write(dir, "t/sub/c", alphabet + 7, 19);
    gzip_file(dir, "t/sub/c");
    assert_ok(rig_open(&td_dataset_text, dir, knobs, NULL, &d));
    check_alphabet(d);
    ops()->close(d);
}

static void test_text_is_cut_when_limited_and_split(void **state) {
    const char *dir = *state;
    struct td_dataset *d;
    rig_write(dir, "t", alphabet, 26);
    assert_ok(rig_open(&td_dataset_text, dir,
                       "{\"path\":\"$/t\",\"block_size\":2,\"val_fraction\":0.5,"
                       "\"limit_bytes\":10}",
                       NULL, &d));
    assert_int_equal(ops()->length(d, TD_SPLIT_TRAIN), 2);
    assert_int_equal(ops()->length(d, TD_SPLIT_VAL), 2);
    check_row(d, TD_SPLIT_TRAIN, 1, 2, "cde");
    check_row(d, TD_SPLIT_VAL, 0, 2, "fgh");
    check_row(d, TD_SPLIT_TEST, 1, 2, "hij");
    ops()->close(d);
}

static int files_in(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        n += e->d_name[0] != '.' && !strstr(e->d_name, ".seen");
    }
    closedir(dir);
    return n;
}

static void test_image_is_made_once_when_there_is_a_cache(void **state) {
    const char *dir = *state;
    char cache[256];
    struct td_dataset *d;
    snprintf(cache, sizeof cache, "%s/cache", dir);
    assert_ok(td_fs_mkdirs(rig_path(dir, "t"), 0700));
    rig_write(dir, "t/a", alphabet, 20);
    rig_write(dir, "t/b", alphabet + 20, 6);
    for (int i = 0; i < 2; i++) {
        assert_ok(rig_open(&td_dataset_text, dir, knobs, cache, &d));
        check_alphabet(d);
        ops()->close(d);
        assert_int_equal(files_in(cache), 1);
    }
}

// Whatever became of a file, size and time may be what they were (rsync -t, cp -p, tar).
static void test_image_is_replaced_when_a_file_is_another(void **state) {
    const char *dir = *state;
    char cache[256];
    struct td_dataset *d;
    struct stat st;
    snprintf(cache, sizeof cache, "%s/cache", dir);
    assert_ok(td_fs_mkdirs(rig_path(dir, "t"), 0700));
    rig_write(dir, "t/a", alphabet, 20);
    rig_write(dir, "t/b", alphabet + 20, 6);
    assert_ok(rig_open(&td_dataset_text, dir, knobs, cache, &d));
    ops()->close(d);
    assert_int_equal(stat(rig_path(dir, "t/b"), &st), 0);
    rig_write(dir, "t/b", "ABCDEF", 6);
    assert_int_equal(
        utimensat(AT_FDCWD, rig_path(dir, "t/b"), (struct timespec[]){st.st_atim, st.st_mtim}, 0),
        0);
    assert_ok(rig_open(&td_dataset_text, dir, knobs, cache, &d));
    check_row(d, TD_SPLIT_TRAIN, 3, 5, "pqrstA");
    ops()->close(d);
    assert_int_equal(files_in(cache), 1);
    rig_write(dir, "t/c", "GHIJKL", 6); // one more
    assert_ok(rig_open(&td_dataset_text, dir, knobs, cache, &d));
    check_row(d, TD_SPLIT_TRAIN, 4, 5, "ABCDEF");
    ops()->close(d);
    assert_int_equal(files_in(cache), 1);
}

static void test_image_leaves_when_nobody_used_it_for_a_month(void **state) {
    const char *dir = *state;
    static const char *const names[] = {
        "cache/npz-0123456789abcdef0123456789abcdef.bin", // as older builds named them
        "cache/text-0123456789abcdef0123456789abcdef-0123456789abcdef0123456789abcdef.bin",
        "cache/rates-cpu.json"};
    const struct timespec now = {.tv_nsec = UTIME_NOW};
    char cache[256];
    struct td_dataset *d;
    snprintf(cache, sizeof cache, "%s/cache", dir);
    assert_ok(td_fs_mkdirs(cache, 0700));
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        rig_write(dir, names[i], "x", 1);
        const struct timespec then = {.tv_sec = 1600000000};
        assert_int_equal(
            utimensat(AT_FDCWD, rig_path(dir, names[i]), (struct timespec[]){then, then}, 0), 0);
    }
    static const char gone[] = "cache/npz-fedcba9876543210fedcba9876543210.bin"; // no time at all
    assert_int_equal(symlink("nowhere", rig_path(dir, gone)), 0);
    char note[160]; // a note of its last use keeps it
    snprintf(note, sizeof note, "%s.seen", names[1]);
    rig_write(dir, note, "x", 1);
    (void)utimensat(AT_FDCWD, rig_path(dir, note), (struct timespec[]){now, now}, 0);
    assert_ok(td_fs_mkdirs(rig_path(dir, "t"), 0700));
    rig_write(dir, "t/a", alphabet, 20);
    rig_write(dir, "t/b", alphabet + 20, 6);
    assert_ok(rig_open(&td_dataset_text, dir, knobs, cache, &d));
    ops()->close(d);
    struct stat st;
    assert_int_not_equal(lstat(rig_path(dir, gone), &st), 0);
    assert_int_not_equal(access(rig_path(dir, names[0]), F_OK), 0);
    assert_int_equal(access(rig_path(dir, names[1]), F_OK), 0);
    assert_int_equal(access(rig_path(dir, names[2]), F_OK), 0);
}

static void test_open_refuses_when_there_is_nothing_to_train_on(void **state) {
    const char *dir = *state;
    struct td_dataset *d = NULL;
    td_status s = rig_open(&td_dataset_text, dir, knobs, NULL, &d);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_fails(s, TD_NOT_FOUND, "/t'");
    assert_ok(td_fs_mkdirs(rig_path(dir, "t"), 0700));
    rig_refuses(rig_open(&td_dataset_text, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "files that are not empty, at least: expected 1, found 0");
    rig_write(dir, "t/a", alphabet, 6);
    rig_refuses(rig_open(&td_dataset_text, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "bytes to train on, at least: expected 6, found 5");
    s = rig_open(&td_dataset_text, dir, "{\"path\":\"$/t\",\"block_size\":5,\"val_fraction\":1}",
                 NULL, &d);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT, "val_fraction");
    assert_null(d);
}

static void test_open_refuses_when_a_file_is_no_text(void **state) {
    const char *dir = *state;
    struct td_dataset *d = NULL;
    static const char array[40] = "\x93NUMPY\1", zip[40] = "PK\3\4";
    rig_write(dir, "t", array, sizeof array);
    rig_refuses(rig_open(&td_dataset_text, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "kind of file: expected text, plain or gzipped, found an array of NumPy (.npy)");
    assert_int_equal(unlink(rig_path(dir, "t")), 0);
    assert_ok(td_fs_mkdirs(rig_path(dir, "t"), 0700));
    rig_write(dir, "t/a", alphabet, 26);
    rig_write(dir, "t/b", zip, sizeof zip);
    rig_refuses(rig_open(&td_dataset_text, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "found a zip archive");
    assert_null(d);
}

static td_status open_once(void *arg) {
    struct td_dataset *d;
    TD_TRY(rig_open(&td_dataset_text, arg, knobs, NULL, &d));
    ops()->close(d);
    return TD_OK;
}

static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    assert_ok(td_fs_mkdirs(rig_path(*state, "t"), 0700));
    rig_write(*state, "t/a", alphabet, 20);
    rig_write(*state, "t/b", alphabet, 6);
    td_test_failing_allocations(open_once, *state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_rows_are_the_bytes_when_plain_gzipped_or_a_folder),
        test_in_scratch(test_text_is_cut_when_limited_and_split),
        test_in_scratch(test_image_is_made_once_when_there_is_a_cache),
        test_in_scratch(test_image_is_replaced_when_a_file_is_another),
        test_in_scratch(test_image_leaves_when_nobody_used_it_for_a_month),
        test_in_scratch(test_open_refuses_when_there_is_nothing_to_train_on),
        test_in_scratch(test_open_refuses_when_a_file_is_no_text),
        test_in_scratch(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
