// Files: whole or not at all, nothing left over, caps, trees with links, and a lock that names
// its holder. Every test has a scratch directory of its own.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/base/files/lock_holder.h"
#include "tests/unit/scratch_rig.h"

static void test_file_is_replaced_whole_when_written(void **state) {
    const char *path = in(state, "f");
    struct stat st;
    TD_AUTO_BUF text;
    td_buf_init(&text, 100);
    mode_t before = umask(022);
    assert_ok(td_fs_write(path, "old", 3, 0600, TD_FS_WRITE_DURABLE));
    umask(027);
    assert_ok(td_fs_write(path, "newer", 5, 0666, 0));
    umask(before);
    assert_ok(td_fs_read(path, 100, &text));
    assert_string_equal(td_buf_cstr(&text), "newer");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(count_entries(*state), 1);
}

static void test_nothing_is_left_when_the_disk_is_full(void **state) {
    const char *path = in(state, "f");
    assert_ok(td_fs_write(path, "old", 3, 0600, 0));
    struct rlimit before, tiny;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tiny = before;
    tiny.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    static char big[10000];
    td_status s = td_fs_write(path, big, sizeof big, 0600, TD_FS_WRITE_DURABLE);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(td_status_class(s), TD_CLASS_DISK);
    assert_fails(s, TD_RESOURCE_EXHAUSTED, path);
    assert_int_equal(count_entries(*state), 1);
    TD_AUTO_BUF text;
    td_buf_init(&text, 100);
    assert_ok(td_fs_read(path, 100, &text));
    assert_string_equal(td_buf_cstr(&text), "old");
}

// In the middle of its bytes: the kernel ends it at the limit.
static void test_nothing_is_left_when_the_writer_is_killed(void **state) {
    const char *path = in(state, "f");
    for (int n_before = 0; n_before < 2; n_before++) {
        pid_t pid = fork();
        if (pid == 0) {
            static char big[10000];
            const struct rlimit tiny = {4096, 4096};
            signal(SIGXFSZ, SIG_DFL);
            if (setrlimit(RLIMIT_FSIZE, &tiny)) _exit(2);
            td_status_free(td_fs_write(path, big, sizeof big, 0600, TD_FS_WRITE_DURABLE));
            _exit(1);
        }
        int end;
        assert_int_equal(waitpid(pid, &end, 0), pid);
        assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGXFSZ);
        assert_int_equal(count_entries(*state), n_before);
        assert_ok(td_fs_write(path, "old", 3, 0600, 0)); // what the next one would replace
    }
}

static void test_directory_stays_when_it_has_the_name(void **state) {
    assert_ok(td_fs_mkdirs(in(state, "d/sub"), 0700));
    assert_fails(td_fs_write(in(state, "d"), "x", 1, 0600, 0), TD_FAILED_PRECONDITION, "/d'");
    assert_int_equal(count_entries(*state), 1);
    assert_int_equal(count_entries(in(state, "d")), 1);
}

static void test_write_says_why_when_the_place_is_impossible(void **state) {
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_fails(td_fs_write(in(state, "no/f"), "", 0, 0600, 0), TD_NOT_FOUND, "no/f");
    assert_fails(td_fs_write(longest, "", 0, 0600, 0), TD_FAILED_PRECONDITION, "too long");
    assert_fails(td_fs_mkdirs(longest, 0700), TD_FAILED_PRECONDITION, "too long");
}

static void test_read_is_refused_when_over_the_cap_or_no_file(void **state) {
    const char *path = in(state, "f");
    TD_AUTO_BUF text;
    td_buf_init(&text, 8);
    assert_ok(td_fs_write(path, "12345678", 8, 0600, 0));
    assert_fails(td_fs_read(path, 7, &text), TD_RESOURCE_EXHAUSTED, path);
    td_buf_clear(&text);
    assert_ok(td_fs_read(path, 8, &text)); // fits exactly, the buffer too
    assert_string_equal(td_buf_cstr(&text), "12345678");
    assert_fails(td_fs_read(in(state, "absent"), 9, &text), TD_NOT_FOUND, "absent");
    assert_fails(td_fs_read(*state, 9, &text), TD_FAILED_PRECONDITION, "regular file");
    assert_int_equal(mkfifo(in(state, "fifo"), 0600), 0);
    assert_fails(td_fs_read(in(state, "fifo"), 9, &text), TD_FAILED_PRECONDITION, "regular file");
    td_buf_clear(&text);
    assert_ok(td_fs_write(path, "", 0, 0600, 0));
    assert_ok(td_fs_read(path, 8, &text));
    assert_int_equal(text.len, 0);
}

static void test_directories_are_made_when_missing(void **state) {
    assert_ok(td_fs_mkdirs(in(state, "a/b//c/"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "a/b/c"), 0700));
    assert_true(td_fs_exists(in(state, "a/b/c")));
    assert_ok(td_fs_write(in(state, "a/file"), "", 0, 0600, 0));
    assert_fails(td_fs_mkdirs(in(state, "a/file/x"), 0700), TD_FAILED_PRECONDITION,
                 "is not a directory");
    assert_fails(td_fs_mkdirs("", 0700), TD_INVALID_ARGUMENT, "empty");
    assert_ok(td_fs_rename(in(state, "a/b"), in(state, "d")));
    assert_true(td_fs_exists(in(state, "d/c")));
    assert_fails(td_fs_rename(in(state, "a/b"), in(state, "e")), TD_NOT_FOUND, "a/b");
}

static void test_links_are_not_followed_when_a_tree_is_removed(void **state) {
    assert_ok(td_fs_mkdirs(in(state, "keep/x"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "tree/sub"), 0700));
    assert_int_equal(symlink("../keep", in(state, "tree/link")), 0);
    assert_int_equal(symlink("keep", in(state, "root-link")), 0);
    assert_ok(td_fs_write(in(state, "tree/sub/f"), "1", 1, 0400, 0));
    assert_ok(td_fs_remove_tree(in(state, "tree")));
    assert_ok(td_fs_remove_tree(in(state, "root-link")));
    assert_false(td_fs_exists(in(state, "tree")));
    assert_true(td_fs_exists(in(state, "keep/x")));
    assert_ok(td_fs_remove_tree(in(state, "tree")));
    assert_ok(td_fs_write(in(state, "f"), "1", 1, 0600, 0));
    assert_ok(td_fs_remove_tree(in(state, "f/below/a/file")));
    assert_ok(td_fs_remove_tree(in(state, "f")));
}

static void test_removal_stops_when_a_tree_is_too_deep(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s/deep", (char *)*state);
    for (int i = 0; i < 110; i++) {
        snprintf(path + strlen(path), sizeof path - strlen(path), "/d");
    }
    assert_ok(td_fs_mkdirs(path, 0700));
    assert_fails(td_fs_remove_tree(in(state, "deep")), TD_FAILED_PRECONDITION, "deeper than 100");
    assert_ok(td_fs_rename(in(state, "deep/d/d/d/d/d/d/d/d/d/d/d/d"), in(state, "rest")));
}

static void test_lock_names_its_holder_when_taken(void **state) {
    const char *path = in(state, "lock");
    int fd = -1, other = -1;
    char name[64], host[64] = "";
    gethostname(host, sizeof host - 1);
    assert_ok(td_fs_lock(path, "traind", &fd));
    snprintf(name, sizeof name, "held by pid %d (traind on %.20s", (int)getpid(), host);
    td_status s = td_fs_lock(path, "traind node", &other);
    assert_string_equal(td_status_reason(s), "LOCK_HELD");
    assert_fails(s, TD_FAILED_PRECONDITION, name);
    assert_int_equal(other, -1);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    assert_ok(td_fs_lock(path, "x", &fd));
    close(fd);
}

static void test_lock_is_free_when_its_holder_was_killed(void **state) {
    const char *path = in(state, "lock");
    int ready[2], fd;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        td_status s = td_fs_lock(path, "child", &fd);
        if (!s && write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    char name[64];
    snprintf(name, sizeof name, "pid %d (child", (int)pid);
    assert_fails(td_fs_lock(path, "me", &fd), TD_FAILED_PRECONDITION, name);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_ok(td_fs_lock(path, "me", &fd));
    close(fd);
    close(ready[0]);
    close(ready[1]);
}

// A child that holds the lock until its end of the pipe is closed.
static pid_t hold_in_child(const char *path, int *out_let_go) {
    int ready[2], let_go[2], fd;
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(let_go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(let_go[1]);
        td_status s = td_fs_lock(path, "child", &fd);
        if (!s && write(ready[1], "x", 1) == 1) (void)!read(let_go[0], &byte, 1);
        _exit(1);
    }
    close(let_go[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    *out_let_go = let_go[1];
    return pid;
}

static void test_lock_is_taken_when_its_holder_ends_within_the_wait(void **state) {
    int fd, let_go;
    struct lock_ender e;
    pid_t pid = hold_in_child(in(state, "lock"), &let_go);
    lock_ender_begin(&e, in(state, "lock"), let_go);
    assert_ok(td_fs_lock_within(in(state, "lock"), "me", TD_TEST_WAIT_NS, &fd));
    assert_true(lock_ender_finish(&e)); // in the kernel, not by trying again
    waitpid(pid, NULL, 0);
    close(fd);
}

static void test_nothing_waits_for_a_lock_any_more_when_its_deadline_has_passed(void **state) {
    int fd, other, let_go;
    pid_t pid = hold_in_child(in(state, "lock"), &let_go);
    char name[64];
    snprintf(name, sizeof name, "held by pid %d (child", (int)pid);
    td_status s = td_fs_lock_within(in(state, "lock"), "me", TD_NS_PER_MS, &fd);
    assert_string_equal(td_status_reason(s), "LOCK_HELD");
    assert_fails(s, TD_FAILED_PRECONDITION, name);
    close(let_go);
    waitpid(pid, NULL, 0);
    assert_ok(td_fs_lock(in(state, "lock"), "me", &fd)); // what had waited would hold it now
    assert_fails(td_fs_lock(in(state, "lock"), "me", &other), TD_FAILED_PRECONDITION, "held by");
    close(fd);
}

static void test_path_begins_at_the_root_when_it_is_made_absolute(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"/a/b", "/a/b"}, {"//a/./b/", "/a/b"}, {"/a/../b", "/b"},
        {"/..", "/"},     {"/", "/"},           {"/a/b/../..", "/"},
    };
    char cwd[TD_FS_PATH_BYTES], out[TD_FS_PATH_BYTES], want[TD_FS_PATH_BYTES + 8];
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        assert_ok(td_fs_absolute(rows[i][0], out, sizeof out));
        assert_string_equal(out, rows[i][1]);
    }
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/st", cwd);
    assert_ok(td_fs_absolute("x/.././st", out, sizeof out));
    assert_string_equal(out, want);
    assert_ok(td_fs_absolute(".", out, sizeof out));
    assert_string_equal(out, cwd);
    assert_fails(td_fs_absolute("/abc", out, 4), TD_INVALID_ARGUMENT, "longer than 3");
    assert_ok(td_fs_absolute("/abc", out, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_begins_at_the_root_when_it_is_made_absolute),
        test_in_scratch(test_file_is_replaced_whole_when_written),
        test_in_scratch(test_nothing_is_left_when_the_disk_is_full),
        test_in_scratch(test_nothing_is_left_when_the_writer_is_killed),
        test_in_scratch(test_directory_stays_when_it_has_the_name),
        test_in_scratch(test_write_says_why_when_the_place_is_impossible),
        test_in_scratch(test_read_is_refused_when_over_the_cap_or_no_file),
        test_in_scratch(test_directories_are_made_when_missing),
        test_in_scratch(test_links_are_not_followed_when_a_tree_is_removed),
        test_in_scratch(test_removal_stops_when_a_tree_is_too_deep),
        test_in_scratch(test_lock_names_its_holder_when_taken),
        test_in_scratch(test_lock_is_free_when_its_holder_was_killed),
        test_in_scratch(test_lock_is_taken_when_its_holder_ends_within_the_wait),
        test_in_scratch(test_nothing_waits_for_a_lock_any_more_when_its_deadline_has_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
