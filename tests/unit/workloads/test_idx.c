// Dataset `idx`: a small set written here, plain and gzipped, and a table of damaged files, each
// with what its message must say. Also the cache: shared, damaged, out of date, not writable, and
// raced for by two processes.

#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"
#include "tests/unit/plugin/knobs_rig.h"
#include "traind/dataset.h"
#include "workloads/workloads.h"

enum { TRAIN = 10, TEST = 4, ROWS = 3, COLS = 2, SAMPLE = ROWS * COLS };
static const char *const stems[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// ---- files -------------------------------------------------------------------------------------
struct set {
    char dir[64];
    struct td_buf file[4]; // in the order of stems
};

static void put_u32(struct td_buf *b, uint32_t v) {
    const uint8_t be[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    assert_ok(td_buf_append(b, be, sizeof be));
}

static uint8_t pixel(int half, int i, int p) {
    return (uint8_t)(half * 100 + i * SAMPLE + p);
}

static void set_init(struct set *s) {
    snprintf(s->dir, sizeof s->dir, "/tmp/td-idx-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    for (int half = 0; half < 2; half++) {
        int n = half ? TEST : TRAIN;
        struct td_buf *x = &s->file[2 * half], *y = &s->file[2 * half + 1];
        td_buf_init(x, 1 << 20);
        td_buf_init(y, 1 << 20);
        const uint32_t head[] = {0x803, (uint32_t)n, ROWS, COLS};
        for (size_t i = 0; i < TD_COUNTOF(head); i++) {
            put_u32(x, head[i]);
        }
        put_u32(y, 0x801);
        put_u32(y, (uint32_t)n);
        for (int i = 0; i < n; i++) {
            uint8_t label = (uint8_t)((i + half) % 10);
            assert_ok(td_buf_append(y, &label, 1));
            for (int p = 0; p < SAMPLE; p++) {
                uint8_t v = pixel(half, i, p);
                assert_ok(td_buf_append(x, &v, 1));
            }
        }
    }
}

static void set_write_one(const struct set *s, int i, const char *ending, const void *data,
                          size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s%s", s->dir, stems[i], ending);
    assert_ok(td_fs_write(path, data, bytes, 0600, 0));
}

static void set_write(const struct set *s) {
    for (int i = 0; i < 4; i++) {
        set_write_one(s, i, "", s->file[i].data, s->file[i].len);
    }
}

static void set_finish(struct set *s) {
    for (int i = 0; i < 4; i++) {
        td_buf_finish(&s->file[i]);
    }
    assert_ok(td_fs_remove_tree(s->dir));
}

static void remove_file(const struct set *s, int i) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", s->dir, stems[i]);
    assert_int_equal(unlink(path), 0);
}

// gzip by hand: stored blocks for files that are whole, one block of a long run for the bomb.
static uint32_t crc32_of(const uint8_t *p, size_t n) {
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int b = 0; b < 8; b++) {
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
        }
    }
    return ~c;
}

static const uint8_t gz_header[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};

static void gz_store(const struct td_buf *in, struct td_buf *out) {
    uint32_t n = (uint32_t)in->len;
    const uint8_t block[5] = {1, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)};
    assert_ok(td_buf_append(out, gz_header, sizeof gz_header));
    assert_ok(td_buf_append(out, block, sizeof block));
    assert_ok(td_buf_append(out, in->data, in->len));
    assert_ok(td_buf_u32le(out, crc32_of((const uint8_t *)in->data, in->len)));
    assert_ok(td_buf_u32le(out, n));
}

struct bits {
    struct td_buf *out;
    uint32_t word;
    int n;
};

static void put_bits(struct bits *b, uint32_t code, int n) { // Huffman codes go highest bit first
    for (int i = n - 1; i >= 0; i--) {
        b->word |= (code >> i & 1) << b->n++;
        if (b->n < 8) continue;
        uint8_t byte = (uint8_t)b->word;
        assert_ok(td_buf_append(b->out, &byte, 1));
        b->word = 0;
        b->n = 0;
    }
}

// The image header, then `runs` times 258 zeros; no trailer, because nobody should get there.
static void gz_bomb(const struct td_buf *in, int runs, struct td_buf *out) {
    assert_ok(td_buf_append(out, gz_header, sizeof gz_header));
    struct bits b = {.out = out};
    put_bits(&b, 1, 1); // last block
    put_bits(&b, 2, 2); // fixed codes: type 1, which goes lowest bit first
    for (int i = 0; i < 17; i++) {
        uint8_t v = i < 16 ? (uint8_t)in->data[i] : 0;
        assert_true(v < 144);
        put_bits(&b, 0x30u + v, 8);
    }
    for (int i = 0; i < runs; i++) {
        put_bits(&b, 0xc5u << 5, 13); // length 258, distance 1
    }
    put_bits(&b, 0, 7);
    put_bits(&b, 0, 8);
}

// ---- opening -----------------------------------------------------------------------------------
static const struct td_dataset_ops *idx_ops(void) {
    return td_dataset_idx.ops;
}

// ignored: a label that the loss leaves out; below 0: none.
static td_status open_idx_of(const char *dir, const char *cache, int32_t ignored,
                             struct td_dataset **out_dataset) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    char text[512];
    snprintf(text, sizeof text, "{\"name\":\"idx\",\"path\":\"%s\"}", dir);
    struct td_json *knobs;
    TD_TRY(knobs_of(arena, &td_dataset_idx, text, &knobs));
    const struct td_targets targets = {
        .struct_bytes = sizeof targets, .ignores = ignored >= 0, .ignore_index = ignored};
    const struct td_dataset_config config = {
        .struct_bytes = sizeof config, .knobs = knobs, .cache_dir = cache, .targets = &targets};
    return idx_ops()->open(&config, out_dataset);
}

static td_status open_idx(const char *dir, const char *cache, struct td_dataset **out_dataset) {
    return open_idx_of(dir, cache, -1, out_dataset);
}

static td_status check_contents(struct td_dataset *d) {
    struct td_field f[8];
    if (idx_ops()->fields(d, f) != 2 || f[0].dtype != TD_U8 || f[0].sample_shape.dim[0] != ROWS ||
        f[0].sample_shape.dim[1] != COLS || f[1].dtype != TD_I32 || f[1].n_classes != 10 ||
        f[1].sample_shape.n_dims != 0) {
        return td_fail(TD_INTERNAL, "fields");
    }
    for (int split = 0; split < TD_SPLIT_COUNT; split++) {
        int half = split == TD_SPLIT_TRAIN ? 0 : 1, n = half ? TEST : TRAIN;
        if (idx_ops()->length(d, (enum td_split)split) != n) return td_fail(TD_INTERNAL, "length");
        const int64_t index[3] = {n - 1, 0, 2};
        uint8_t x[3 * SAMPLE];
        int32_t y[3];
        TD_TRY(idx_ops()->gather(d, (enum td_split)split, index, 3, (void *[]){x, y}));
        for (int i = 0; i < 3; i++) {
            if (y[i] != (index[i] + half) % 10) return td_fail(TD_INTERNAL, "label %d", i);
            for (int p = 0; p < SAMPLE; p++) {
                if (x[i * SAMPLE + p] == pixel(half, (int)index[i], p)) continue;
                return td_fail(TD_INTERNAL, "pixel %d of sample %d, split %d", p, i, split);
            }
        }
    }
    return TD_OK;
}

static td_status open_and_check(const char *dir, const char *cache) {
    struct td_dataset *d = NULL;
    TD_TRY(open_idx(dir, cache, &d));
    td_status s = check_contents(d);
    idx_ops()->close(d);
    return s;
}

static void test_samples_are_those_of_the_files_when_plain_or_gzipped(void **state) {
    (void)state;
    struct set s;
    set_init(&s);
    set_write(&s);
    assert_ok(open_and_check(s.dir, NULL));
    for (int i = 0; i < 4; i += 3) { // two of the four only as .gz
        TD_AUTO_BUF gz;
        td_buf_init(&gz, 1 << 20);
        gz_store(&s.file[i], &gz);
        remove_file(&s, i);
        set_write_one(&s, i, ".gz", gz.data, gz.len);
    }
    assert_ok(open_and_check(s.dir, NULL));
    struct td_dataset *d;
    assert_ok(open_idx(s.dir, NULL, &d));
    uint8_t x[SAMPLE];
    int32_t y;
    const int64_t outside = TEST;
    td_status st = idx_ops()->gather(d, TD_SPLIT_VAL, &outside, 1, (void *[]){x, &y});
    assert_int_equal(td_status_code(st), TD_OUT_OF_RANGE);
    td_status_free(st);
    idx_ops()->close(d);
    set_finish(&s);
}

// ---- damaged files -----------------------------------------------------------------------------
enum damage { MISSING, CUT, LONGER, PATCH, GZ_CUT, GZ_BOMB, EMPTY, DIRECTORY };
struct bad_case {
    int file;
    enum damage damage;
    size_t at; // CUT, GZ_CUT: new length; PATCH: offset
    uint32_t value;
    enum td_code code;
    const char *parts[4];
};

static const struct bad_case bad_cases[] = {
    {0, MISSING, 0, 0, TD_NOT_FOUND, {"train-images-idx3-ubyte'", "nor with .gz", "data.path"}},
    {3, MISSING, 0, 0, TD_NOT_FOUND, {"t10k-labels-idx1-ubyte'"}},
    {0, EMPTY, 0, 0, TD_DATA_LOSS, {"train-images", "offset 0", "expected 16, found 0"}},
    {0, CUT, 10, 0, TD_DATA_LOSS, {"train-images", "offset 10", "header", "expected 16, found 10"}},
    {0, CUT, 75, 0, TD_DATA_LOSS, {"train-images", "cut short", "expected 76, found 75"}},
    {3, CUT, 8, 0, TD_DATA_LOSS, {"t10k-labels", "offset 8", "expected 12, found 8"}},
    {2, LONGER, 0, 0, TD_DATA_LOSS, {"t10k-images", "offset 40", "expected 40, found 41"}},
    {0,
     PATCH,
     0,
     0x801,
     TD_DATA_LOSS,
     {"train-images", "offset 0", "expected 0x00000803, found 0x00000801"}},
    {1, PATCH, 0, 0xdeadbeef, TD_DATA_LOSS, {"train-labels", "found 0xdeadbeef"}},
    {1,
     PATCH,
     4,
     9,
     TD_DATA_LOSS,
     {"labels do not match", "train-images", "offset 4: number of labels", "expected 10, found 9"}},
    {2,
     PATCH,
     8,
     4,
     TD_DATA_LOSS,
     {"images do not match", "t10k-images", "offset 8: rows", "expected 3, found 4"}},
    {2, PATCH, 12, 1, TD_DATA_LOSS, {"offset 12: columns", "expected 2, found 1"}},
    {0, PATCH, 4, 0, TD_DATA_LOSS, {"offset 4: a dimension", "found 0"}},
    {0,
     PATCH,
     4,
     0xffffffff,
     TD_DATA_LOSS,
     {"train-images", "offset 4", "at most", "found 4294967295"}},
    {0, PATCH, 8, 0x20000000, TD_DATA_LOSS, {"offset 8", "at most"}},
    {1,
     PATCH,
     8,
     0x0a000102,
     TD_DATA_LOSS,
     {"train-labels", "offset 8: label", "expected 9, found 10"}},
    {0, GZ_CUT, 40, 0, TD_DATA_LOSS, {"train-images-idx3-ubyte.gz", "ends inside its gzip data"}},
    {0, GZ_BOMB, 0, 0, TD_DATA_LOSS, {"train-images-idx3-ubyte.gz", "expected 76, found 77"}},
    {1, DIRECTORY, 0, 0, TD_CODE_OK, {"train-labels"}},
};

static void apply(struct set *s, const struct bad_case *k) {
    struct td_buf *f = &s->file[k->file];
    TD_AUTO_BUF gz;
    td_buf_init(&gz, 1 << 24);
    switch (k->damage) {
    case CUT:
        set_write_one(s, k->file, "", f->data, k->at);
        return;
    case EMPTY:
        set_write_one(s, k->file, "", "", 0);
        return;
    case LONGER:
        assert_ok(td_buf_str(f, "?"));
        set_write_one(s, k->file, "", f->data, f->len);
        return;
    case PATCH:
        for (int i = 0; i < 4; i++) {
            f->data[k->at + (size_t)i] = (char)(k->value >> (24 - 8 * i));
        }
        set_write_one(s, k->file, "", f->data, f->len);
        return;
    case MISSING:
        remove_file(s, k->file);
        return;
    case DIRECTORY: {
        char path[256];
        remove_file(s, k->file);
        snprintf(path, sizeof path, "%s/%s", s->dir, stems[k->file]);
        assert_ok(td_fs_mkdirs(path, 0700));
        return;
    }
    case GZ_CUT:
    case GZ_BOMB:
        remove_file(s, k->file);
        if (k->damage == GZ_CUT) gz_store(f, &gz);
        if (k->damage == GZ_BOMB) gz_bomb(f, 1 << 20, &gz); // 1.7 MB that would be 258 MiB
        set_write_one(s, k->file, ".gz", gz.data, k->damage == GZ_CUT ? k->at : gz.len);
        return;
    }
}

static void test_open_names_file_offset_expected_and_found_when_a_file_is_damaged(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(bad_cases); i++) {
        const struct bad_case *k = &bad_cases[i];
        struct set s;
        struct td_dataset *d = NULL;
        set_init(&s);
        set_write(&s);
        apply(&s, k);
        td_status st = open_idx(s.dir, NULL, &d);
        const char *text = td_status_message(st);
        if (!st || (k->code && td_status_code(st) != k->code)) fail_msg("case %zu: %s", i, text);
        if (td_status_class(st) != TD_CLASS_DATA) fail_msg("case %zu: class of: %s", i, text);
        for (size_t p = 0; p < TD_COUNTOF(k->parts) && k->parts[p]; p++) {
            if (!strstr(text, k->parts[p])) {
                fail_msg("case %zu: no '%s' in: %s", i, k->parts[p], text);
            }
        }
        assert_null(d);
        td_status_free(st);
        set_finish(&s);
    }
}

// ---- the cache ---------------------------------------------------------------------------------
// Images in a cache; what is noted beside them is none.
static int count_files(const char *dir, char out_last[512]) {
    DIR *d = opendir(dir);
    int n = 0;
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || strstr(e->d_name, ".seen")) continue;
        snprintf(out_last, 512, "%s/%s", dir, e->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static void test_cache_is_used_renewed_and_not_needed_when_files_change(void **state) {
    (void)state;
    struct set s;
    char cache[128], image[512], path[256];
    set_init(&s);
    set_write(&s);
    snprintf(cache, sizeof cache, "%s/cache/deeper", s.dir);
    for (int i = 0; i < 2; i++) {
        assert_ok(open_and_check(s.dir, cache));
    }
    assert_int_equal(count_files(cache, image), 1);

    struct stat before, after; // a damaged image is decoded again
    assert_int_equal(stat(image, &before), 0);
    int fd = open(image, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, 70), 1);
    close(fd);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(stat(image, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    assert_int_equal(truncate(image, 50), 0);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(count_files(cache, image), 1);

    snprintf(path, sizeof path, "%s/%s", s.dir, stems[1]); // a newer file is another image
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(count_files(cache, image), 1); // it takes the place of the old one

    assert_ok(open_and_check(s.dir, path)); // no directory there: private memory
    set_finish(&s);
}

static void overwrite(const char *path, const char *text, off_t at) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
    close(fd);
}

// A note is made once the image is older than the clock's tick, so it takes some openings.
static void open_until_noted(const char *dir, const char *cache, const char *note) {
    struct td_mono until = td_mono_add(td_mono_now(), 20 * TD_NS_PER_S);
    struct stat st;
    while (stat(note, &st) != 0) {
        assert_true(td_mono_now().ns < until.ns);
        assert_ok(open_and_check(dir, cache));
    }
}

static void test_image_that_was_verified_is_verified_again_when_it_changes(void **state) {
    (void)state;
    struct set s;
    char cache[128], image[512], note[520];
    struct stat before, after;
    set_init(&s);
    set_write(&s);
    snprintf(cache, sizeof cache, "%s/cache", s.dir);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(count_files(cache, image), 1);
    snprintf(note, sizeof note, "%s.seen", image);
    open_until_noted(s.dir, cache, note);

    overwrite(note, "0", 0); // as if of another boot: the image is read again, and is whole
    assert_int_equal(stat(image, &before), 0);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(stat(image, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);

    open_until_noted(s.dir, cache, note);
    overwrite(image, "!", 70);
    assert_ok(open_and_check(s.dir, cache));
    assert_int_equal(stat(image, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino); // made again
    set_finish(&s);
}

static void test_label_need_not_be_a_class_when_it_is_ignored(void **state) {
    (void)state;
    struct set s;
    char cache[128];
    struct td_dataset *d;
    uint8_t x[SAMPLE];
    int32_t y;
    set_init(&s);
    s.file[1].data[8 + 1] = (char)255; // of training sample 1
    set_write(&s);
    snprintf(cache, sizeof cache, "%s/cache", s.dir);
    assert_ok(open_idx_of(s.dir, cache, 255, &d));
    assert_ok(idx_ops()->gather(d, TD_SPLIT_TRAIN, (const int64_t[]){1}, 1, (void *[]){x, &y}));
    assert_int_equal(y, 255);
    idx_ops()->close(d);
    static const int32_t others[] = {-1, 0, 254}; // the image in the cache is not theirs
    for (size_t i = 0; i < TD_COUNTOF(others); i++) {
        assert_fails(open_idx_of(s.dir, cache, others[i], &d), TD_DATA_LOSS,
                     "offset 9: label, at most: expected 9, found 255");
    }
    set_finish(&s);
}

static void spawn_opener(const char *self, const struct set *s, const char *cache,
                         struct td_proc *out_proc) {
    const char *const argv[] = {self, "open", s->dir, cache, NULL};
    const struct td_proc_fd fds[] = {{2, 2}};
    const struct td_proc_options o = {.path = self, .argv = argv, .fds = fds, .n_fds = 1};
    assert_ok(td_proc_spawn(&o, out_proc));
}

static void test_one_image_is_left_when_two_processes_race_for_the_cache(void **state) {
    (void)state;
    char self[4096], cache[128], image[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (int round = 0; round < 10; round++) {
        struct set s;
        struct td_proc proc[2];
        set_init(&s);
        set_write(&s);
        snprintf(cache, sizeof cache, "%s/cache", s.dir);
        for (int i = 0; i < 2; i++) {
            spawn_opener(self, &s, cache, &proc[i]);
        }
        for (int i = 0; i < 2; i++) {
            int status = 0;
            while (waitpid(proc[i].pid, &status, 0) < 0 && errno == EINTR) {
                continue;
            }
            assert_int_equal(status, 0);
            close(proc[i].pidfd);
        }
        assert_int_equal(count_files(cache, image), 1);
        set_finish(&s);
    }
}

struct place {
    const char *dir, *cache;
};
static td_status open_once(void *arg) {
    const struct place *p = arg;
    return open_and_check(p->dir, p->cache);
}
static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    struct set s;
    char cache[128];
    set_init(&s);
    set_write(&s);
    struct place p = {s.dir, NULL};
    td_test_failing_allocations(open_once, &p);
    snprintf(cache, sizeof cache, "%s/cache", s.dir);
    p.cache = cache;
    td_test_failing_allocations(open_once, &p);
    set_finish(&s);
}

static void test_open_is_refused_when_there_is_no_path(void **state) {
    (void)state;
    struct td_dataset *d = NULL;
    td_status st = open_idx("", NULL, &d);
    assert_int_equal(td_status_code(st), TD_INVALID_ARGUMENT);
    assert_int_equal(td_status_class(st), TD_CLASS_BAD_SPEC);
    td_status_free(st);
    idx_ops()->close(NULL);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "open") == 0) {
        td_status s = open_and_check(argv[2], argv[3]);
        if (s) fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return s ? 1 : 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_are_those_of_the_files_when_plain_or_gzipped),
        cmocka_unit_test(test_open_names_file_offset_expected_and_found_when_a_file_is_damaged),
        cmocka_unit_test(test_cache_is_used_renewed_and_not_needed_when_files_change),
        cmocka_unit_test(test_image_that_was_verified_is_verified_again_when_it_changes),
        cmocka_unit_test(test_label_need_not_be_a_class_when_it_is_ignored),
        cmocka_unit_test(test_one_image_is_left_when_two_processes_race_for_the_cache),
        cmocka_unit_test(test_open_fails_cleanly_when_any_allocation_fails),
        cmocka_unit_test(test_open_is_refused_when_there_is_no_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
