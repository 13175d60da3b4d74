// Dataset `tokens`: windows of llm.c's, NumPy's and bare files, across files and at their ends,
// with strides. Refused are ids past the vocabulary and damaged files, by file and offset. Ids of
// another width are refused by the knob that says it.

#include "tests/unit/workloads/dataset_rig.h"

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

// What numpy.save writes of n ids first, first + 1, ... of this descr.
static size_t put_npy(uint8_t *out, const char *descr, const char *order, const char *shape,
                      int64_t first, int n) {
    enum { NPY_HEADER = 128 };
    const int width = descr[2] - '0';
    memset(out, ' ', NPY_HEADER);
    memcpy(out, "\x93NUMPY\1\0\x76", 10); // a literal of 118 bytes follows
    out[9] = 0;
    int len = snprintf((char *)out + 10, NPY_HEADER - 10,
                       "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr, order, shape);
    out[10 + len] = ' ';
    out[NPY_HEADER - 1] = '\n';
    for (int i = 0; i < n; i++) {
        int64_t id = first + i;
        memcpy(out + NPY_HEADER + i * width, &id, (size_t)width);
    }
    return NPY_HEADER + (size_t)(n * width);
}

// Bare ids first, first + 1, ...
static size_t put_bare(uint8_t *out, size_t width, int64_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int64_t id = first + (int64_t)i;
        memcpy(out + i * width, &id, width);
    }
    return n * width;
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
        {"a multiple of 2: the length: expected 1102, found 1103", 1, 0, 40, 1,
         0}, // no header: nanoGPT's
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
        snprintf(text, sizeof text, "offset %zu: token id: expected 0 to 49999, found 50000",
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

static void check_opens(const char *dir, const char *knobs, int64_t rows, int32_t first) {
    struct td_dataset *d = NULL;
    assert_ok(rig_open(&td_dataset_tokens, dir, knobs, NULL, &d));
    assert_int_equal(ops()->length(d, TD_SPLIT_TRAIN), rows);
    for (int64_t i = 0; i < rows; i++) {
        check_row(d, TD_SPLIT_TRAIN, i, 4, first + (int32_t)i * 4);
    }
    ops()->close(d);
}

static void test_arrays_of_numpy_give_their_ids_in_every_type(void **state) {
    static const char *const descr[] = {"<u2", "<u4", "<i4", "<i8"};
    uint8_t data[4096];
    for (size_t i = 0; i < TD_COUNTOF(descr); i++) {
        rig_write(*state, "a.npy", data, put_npy(data, descr[i], "False", "(70,)", 900, 70));
        check_opens(*state, "{\"train\":[\"$/a.npy\"],\"block_size\":4}", 17, 900);
    }
    rig_write(*state, "a.npy", data, put_npy(data, "<i8", "False", "(10, 7)", 900, 70));
    check_opens(*state, "{\"train\":[\"$/a.npy\"],\"block_size\":4,\"token_bytes\":8}", 17, 900);
}

static void check_refused(const char *dir, const char *knobs, const char *what) {
    struct td_dataset *d = NULL;
    rig_refuses(rig_open(&td_dataset_tokens, dir, knobs, NULL, &d), TD_DATA_LOSS, what);
    assert_null(d);
}

static void test_array_is_refused_when_it_holds_no_ids(void **state) {
    static const struct {
        const char *descr, *order, *shape, *what;
        int64_t first;
    } cases[] = {
        {"<f4", "False", "(70,)",
         "type of the ids: expected u2, u4, i4 or i8 (ids.astype('<u4')), found f4", 0},
        {"<u8", "False", "(70,)", "found u8", 0},
        {"<i2", "False", "(70,)", "found i2", 0},
        {"|u1", "False", "(70,)", "found u1", 0},
        {">i4", "False", "(70,)", "found '>i4'", 0},
        {"<u2", "True", "(10, 7)", "found Fortran order", 0},
        {"<u2", "False", "(71,)", "bytes of the elements that the header promises", 0},
        {"<i4", "False", "(70,)", "offset 128: token id: expected 0 to 999, found -2", -2},
        {"<i8", "False", "(70,)", "offset 128: token id: expected 0 to 999, found -2", -2},
        {"<i8", "False", "(70,)", "found 4294967301", 4294967301},
        {"<u4", "False", "(70,)", "offset 208: token id: expected 0 to 999, found 1000", 980},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        uint8_t data[4096];
        rig_write(
            *state, "a.npy", data,
            put_npy(data, cases[i].descr, cases[i].order, cases[i].shape, cases[i].first, 70));
        check_refused(*state, "{\"train\":[\"$/a.npy\"],\"block_size\":4,\"vocab_size\":1000}",
                      cases[i].what);
    }
    uint8_t data[4096];
    rig_write(*state, "a.npy", data, put_npy(data, "<u4", "False", "(70,)", 0, 70));
    check_refused(*state, "{\"train\":[\"$/a.npy\"],\"block_size\":4,\"token_bytes\":2}",
                  "data.token_bytes is for files without a header: leave it out");
}

static void test_bare_ids_have_the_width_that_the_knob_says(void **state) {
    static const size_t width[] = {2, 4, 8};
    uint8_t data[4096];
    char knobs[160];
    for (size_t i = 0; i < TD_COUNTOF(width); i++) {
        snprintf(knobs, sizeof knobs,
                 "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"token_bytes\":%zu}", width[i]);
        rig_write(*state, "a.bin", data, put_bare(data, width[i], 900, 70));
        check_opens(*state, knobs, 17, 900);
        rig_write(*state, "a.bin", data, put_bare(data, width[i], 900, 70) - 1);
        check_refused(*state, knobs, "bytes, a multiple of");
        rig_write(*state, "a.bin", data, put_bare(data, width[i], 50200, 70));
        check_refused(*state, knobs, "token id: expected 0 to 50256, found 50257");
    }
    rig_write(*state, "a.bin", data, put_bare(data, 8, -1, 70));
    check_refused(*state, knobs, "offset 0: token id: expected 0 to 50256, found -1");
    rig_write(*state, "a.bin", data, put_llmc(data, 20240520, 1, 40, 2));
    check_refused(*state, knobs, "by data.token_bytes and by the header: expected 8, found 2");
    struct td_dataset *d = NULL;
    td_status s =
        rig_open(&td_dataset_tokens, *state,
                 "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"token_bytes\":3}", NULL, &d);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT, "data.token_bytes: expected 2, 4 or 8, found 3");
}

// Ids of 4 and 8 bytes would be read as id, 0, id, 0.
static void test_bare_ids_are_refused_when_they_look_wider_than_2_bytes(void **state) {
    static uint8_t data[1 << 12];
    rig_write(*state, "a.bin", data, put_bare(data, 4, 0, 32));
    check_refused(*state, "{\"train\":[\"$/a.bin\"],\"block_size\":4}",
                  "set data.token_bytes: 4 (or 2, if these really are ids of 2 bytes)");
    check_opens(*state, "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"token_bytes\":4}", 7, 0);
    rig_write(*state, "a.bin", data, put_bare(data, 8, 0, 16));
    check_refused(*state, "{\"train\":[\"$/a.bin\"],\"block_size\":4}", "set data.token_bytes: 8");
    // A vocabulary above 2^16: the upper half of an id is 0 or 1.
    rig_write(*state, "a.bin", data, put_bare(data, 4, 65520, 40));
    check_refused(*state, "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"vocab_size\":131072}",
                  "every second number is at most 1, as in ids of 4 bytes");
    struct td_dataset *d = NULL; // too few to judge, or said to be right
    rig_write(*state, "a.bin", data, put_bare(data, 4, 0, 31));
    assert_ok(rig_open(&td_dataset_tokens, *state, "{\"train\":[\"$/a.bin\"],\"block_size\":4}",
                       NULL, &d));
    ops()->close(d);
    rig_write(*state, "a.bin", data, put_bare(data, 4, 0, 40));
    assert_ok(rig_open(&td_dataset_tokens, *state,
                       "{\"train\":[\"$/a.bin\"],\"block_size\":4,\"token_bytes\":2}", NULL, &d));
    ops()->close(d);
}

static void test_bare_ids_are_refused_when_the_file_is_of_another_kind(void **state) {
    static const struct {
        const char *sign, *what;
        size_t n;
    } cases[] = {
        {"PK\3\4", "found a zip archive (.npz, .zip, .pt)", 4},
        {"\x1f\x8b\x08\0", "found compressed by gzip", 4},
        {"\xfd"
         "7zXZ\0",
         "found compressed by xz", 6},
        {"\x28\xb5\x2f\xfd", "found compressed by zstd", 4},
        {"ARROW1\0\0", "found an Arrow file", 8},
        {"\x89HDF\r\n\x1a\n", "found an HDF5 file", 8},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        char data[64] = {0};
        memcpy(data, cases[i].sign, cases[i].n);
        rig_write(*state, "a.bin", data, sizeof data);
        check_refused(*state, "{\"train\":[\"$/a.bin\"],\"block_size\":4}", cases[i].what);
    }
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
        test_in_scratch(test_arrays_of_numpy_give_their_ids_in_every_type),
        test_in_scratch(test_array_is_refused_when_it_holds_no_ids),
        test_in_scratch(test_bare_ids_have_the_width_that_the_knob_says),
        test_in_scratch(test_bare_ids_are_refused_when_they_look_wider_than_2_bytes),
        test_in_scratch(test_bare_ids_are_refused_when_the_file_is_of_another_kind),
        test_in_scratch(test_open_refuses_when_files_or_knobs_are_missing),
        test_in_scratch(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
