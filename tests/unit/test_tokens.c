// Dataset `tokens`: windows of llm.c's and nanoGPT's files, across files and at their ends, with
// strides; ids past the vocabulary and damaged files are refused by file and offset.

#include "tests/unit/dataset_rig.h"

enum { HEADER = 1024 };

// llm.c: header, then ids 0, 1, 2, ... of the width.
static size_t put_llmc(uint8_t *out, uint32_t magic, uint32_t version, uint32_t n, size_t width) {
    const uint32_t head[3] = {magic, version, n};
    memset(out, 0, HEADER);
    memcpy(out, head, sizeof head);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(out + HEADER + i * width, &i, width);
    }
    return HEADER + n * width;
}

static size_t put_nanogpt(uint8_t *out, uint16_t first, uint16_t n) {
    for (uint16_t i = 0; i < n; i++) {
        uint16_t id = (uint16_t)(first + i);
        memcpy(out + 2 * (size_t)i, &id, sizeof id);
    }
    return 2 * (size_t)n;
}

static const struct td_dataset_ops *ops(void) {
    return td_dataset_tokens.ops;
}

static void check_row(struct td_dataset *d, enum td_split split, int64_t index, int64_t block,
                      int32_t first) {
    int32_t x[16], y[16];
    assert_ok(ops()->gather(d, split, &index, 1, (void *[]){x, y}));
    for (int64_t t = 0; t < block; t++) {
        assert_int_equal(x[t], first + t);
        assert_int_equal(y[t], first + t + 1);
    }
}

static void test_rows_are_windows_of_each_file_when_there_are_several(void **state) {
    const char *dir = *state;
    uint8_t data[4096];
    struct td_dataset *d;
    struct td_field f[8];
    rig_write(dir, "a.bin", data, put_llmc(data, 20240520, 1, 9, 2));
    rig_write(dir, "b.bin", data, put_llmc(data, 20240801, 7, 8, 4));
    rig_write(dir, "c.bin", data, put_nanogpt(data, 50, 13));
    assert_ok(rig_open(&td_dataset_tokens, dir,
                       "{\"train\":[\"$/a.bin\",\"$/b.bin\",\"$/c.bin\"],\"val\":[\"$/c.bin\"],"
                       "\"block_size\":4,\"vocab_size\":63}",
                       NULL, &d));
    assert_int_equal(ops()->fields(d, f), 2);
    assert_string_equal(f[0].name, "x");
    assert_string_equal(f[1].name, "y");
    for (int i = 0; i < 2; i++) {
        assert_true(f[i].dtype == TD_I32 && f[i].n_classes == 63);
        assert_true(f[i].sample_shape.n_dims == 1 && f[i].sample_shape.dim[0] == 4);
    }
    // 9 tokens: 2 rows and a target; 8: one row, because the second has no last target; 13: 3 rows.
    assert_int_equal(ops()->length(d, TD_SPLIT_TRAIN), 2 + 1 + 3);
    assert_int_equal(ops()->length(d, TD_SPLIT_TEST), 3);
    static const int32_t first[] = {0, 4, 0, 50, 54, 58};
    for (int64_t i = 0; i < 6; i++) {
        check_row(d, TD_SPLIT_TRAIN, i, 4, first[i]);
    }
    check_row(d, TD_SPLIT_VAL, 2, 4, 58);
    int64_t outside = 6;
    int32_t x[4], y[4];
    assert_fails(ops()->gather(d, TD_SPLIT_TRAIN, &outside, 1, (void *[]){x, y}), TD_OUT_OF_RANGE,
                 "sample 6 of 6 in split train");
    ops()->close(d);
}

static void test_each_file_is_a_loader_when_asked(void **state) {
    const char *dir = *state;
    uint8_t data[4096];
    struct td_dataset *d = NULL;
    int64_t samples[TD_LOADERS_MAX];
    rig_write(dir, "a.bin", data, put_nanogpt(data, 0, 9));
    rig_write(dir, "b.bin", data, put_nanogpt(data, 20, 13));
    rig_write(dir, "short.bin", data, put_nanogpt(data, 0, 4));
    assert_ok(rig_open(&td_dataset_tokens, dir,
                       "{\"train\":[\"$/a.bin\"],\"val\":[\"$/a.bin\",\"$/b.bin\"],"
                       "\"block_size\":4,\"vocab_size\":63,\"val_by_file\":true}",
                       NULL, &d));
    assert_int_equal(ops()->loaders(d, TD_SPLIT_VAL, samples), 2);
    assert_true(samples[0] == 2 && samples[1] == 3);
    assert_int_equal(ops()->length(d, TD_SPLIT_VAL), 5);
    check_row(d, TD_SPLIT_VAL, 2, 4, 20); // the first of loader 1
    ops()->close(d);
    assert_ok(rig_open(&td_dataset_tokens, dir,
                       "{\"train\":[\"$/a.bin\"],\"val\":[\"$/a.bin\",\"$/b.bin\"],"
                       "\"block_size\":4,\"vocab_size\":63}",
                       NULL, &d));
    assert_int_equal(ops()->loaders(d, TD_SPLIT_TEST, samples), 1);
    assert_int_equal(samples[0], 5);
    ops()->close(d);
    d = NULL;
    rig_refuses(rig_open(&td_dataset_tokens, dir,
                         "{\"train\":[\"$/a.bin\"],\"val\":[\"$/a.bin\",\"$/short.bin\"],"
                         "\"block_size\":4,\"vocab_size\":63,\"val_by_file\":true}",
                         NULL, &d),
                TD_DATA_LOSS, "short.bin");
    char knobs[512] = "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"vocab_size\":63,"
                      "\"val_by_file\":true,\"val\":[\"$/a.bin\"";
    size_t len = strlen(knobs);
    for (int i = 0; i < TD_LOADERS_MAX; i++) {
        len += (size_t)snprintf(knobs + len, sizeof knobs - len, ",\"$/a.bin\"");
    }
    snprintf(knobs + len, sizeof knobs - len, "]}");
    td_status s = rig_open(&td_dataset_tokens, dir, knobs, NULL, &d);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT, "9 files in data.val; 8 are the most");
    assert_null(d);
}

static void test_rows_overlap_when_the_stride_is_short(void **state) {
    const char *dir = *state;
    uint8_t data[256];
    struct td_dataset *d;
    rig_write(dir, "a.bin", data, put_nanogpt(data, 0, 10));
    assert_ok(rig_open(&td_dataset_tokens, dir,
                       "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"stride\":1}", NULL, &d));
    assert_int_equal(ops()->length(d, TD_SPLIT_TRAIN), 6);
    assert_int_equal(ops()->length(d, TD_SPLIT_VAL), 0);
    check_row(d, TD_SPLIT_TRAIN, 5, 4, 5);
    ops()->close(d);
}

struct damage {
    const char *what; // expected in the message
    uint32_t magic, version, n;
    int64_t cut, size; // bytes taken off; or the whole size
};

static void test_file_is_refused_when_it_is_damaged(void **state) {
    const char *dir = *state;
    static const struct damage cases[] = {
        {"offset 4: version of the token file: expected 1, found 2", 20240520, 2, 40, 0, 0},
        {"offset 4: version of the token file: expected 7, found 1", 20240801, 1, 40, 0, 0},
        {"offset 8: bytes of a file with 40 tokens: expected 1104, found 1103", 20240520, 1, 40, 1,
         0},
        {"offset 8: tokens, at least: expected 1, found 0", 20240520, 1, 0, 0, 0},
        {"offset 900: bytes of llm.c's header: expected 1024, found 900", 20240520, 1, 40, 0, 900},
        {"offset 0: kind of file: expected tokens, found an llm.c model", 20240326, 3, 40, 0, 0},
        {"offset 0: tokens for one row, at least: expected 33, found 32", 20240520, 1, 32, 0, 0},
        {"offset 0: bytes, at least: expected 1, found 0", 0, 0, 0, HEADER, 0},
        {"a multiple of two", 1, 0, 40, 1, 0}, // no header: nanoGPT's
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const struct damage *c = &cases[i];
        uint8_t data[4096];
        struct td_dataset *d = NULL;
        size_t bytes = put_llmc(data, c->magic, c->version, c->n, 2);
        bytes = c->size ? (size_t)c->size : bytes - (size_t)c->cut;
        rig_write(dir, "a.bin", data, bytes);
        td_status s = rig_open(&td_dataset_tokens, dir,
                               "{\"train\":[\"$/a.bin\"],\"block_size\":32}", NULL, &d);
        rig_refuses(s, TD_DATA_LOSS, c->what);
        assert_null(d);
    }
}

static void test_token_is_refused_when_it_is_past_the_vocabulary(void **state) {
    const char *dir = *state;
    static uint8_t data[1 << 18];
    static const struct {
        uint32_t magic, version;
        size_t width, offset;
    } cases[] = {{20240520, 1, 2, 1024 + 2 * 50000}, {20240801, 7, 4, 1024 + 4 * 50000}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_dataset *d = NULL;
        char text[160];
        size_t bytes = put_llmc(data, cases[i].magic, cases[i].version, 50001, cases[i].width);
        rig_write(dir, "a.bin", data, bytes);
        const char *knobs = "{\"train\":[\"$/a.bin\"],\"block_size\":8,\"vocab_size\":50000}";
        td_status s = rig_open(&td_dataset_tokens, dir, knobs, NULL, &d);
        snprintf(text, sizeof text, "offset %zu: token id, at most: expected 49999, found 50000",
                 cases[i].offset);
        rig_refuses(s, TD_DATA_LOSS, text);
        assert_null(d);
    }
}

static void test_open_refuses_when_files_or_knobs_are_missing(void **state) {
    const char *dir = *state;
    struct td_dataset *d = NULL;
    rig_refuses(
        rig_open(&td_dataset_tokens, dir, "{\"train\":[\"$/no.bin\"],\"block_size\":8}", NULL, &d),
        TD_NOT_FOUND, "no.bin");
    static const char *const bad[] = {"{\"block_size\":8}",
                                      "{\"train\":[\"$/a\"],\"block_size\":0}",
                                      "{\"train\":[\"$/a\"],\"block_size\":8,\"stride\":0}"};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        td_status s = rig_open(&td_dataset_tokens, dir, bad[i], NULL, &d);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, "data.");
    }
    assert_null(d);
}

static td_status open_once(void *arg) {
    struct td_dataset *d;
    TD_TRY(
        rig_open(&td_dataset_tokens, arg, "{\"train\":[\"$/a.bin\"],\"block_size\":8}", NULL, &d));
    ops()->close(d);
    return TD_OK;
}

static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    uint8_t data[256];
    rig_write(*state, "a.bin", data, put_nanogpt(data, 0, 20));
    td_test_failing_allocations(open_once, *state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_rows_are_windows_of_each_file_when_there_are_several),
        test_in_scratch(test_each_file_is_a_loader_when_asked),
        test_in_scratch(test_rows_overlap_when_the_stride_is_short),
        test_in_scratch(test_file_is_refused_when_it_is_damaged),
        test_in_scratch(test_token_is_refused_when_it_is_past_the_vocabulary),
        test_in_scratch(test_open_refuses_when_files_or_knobs_are_missing),
        test_in_scratch(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
