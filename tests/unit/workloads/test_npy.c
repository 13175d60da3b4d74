// Dataset `npy`: every element type that is read, and both header versions. Also arrays that must
// be refused: not NumPy's, cut, of foreign types and orders, with labels that are no class.

#include "tests/unit/workloads/dataset_rig.h"

#include <fcntl.h>
#include <math.h>

#include "workloads/datasets/npy_file.h"

// magic, version 1, header padded as NumPy does, elements
static size_t put_npy(uint8_t *out, const char *descr, const char *shape, const void *data,
                      size_t bytes) {
    char header[256];
    int n = snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    while ((10 + n + 1) % 64) {
        header[n++] = ' ';
    }
    header[n++] = '\n';
    const uint8_t prefix[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)n, (uint8_t)(n >> 8)};
    memcpy(out, prefix, sizeof prefix);
    memcpy(out + sizeof prefix, header, (size_t)n);
    memcpy(out + sizeof prefix + n, data, bytes);
    return sizeof prefix + (size_t)n + bytes;
}

static void write_npy(const char *dir, const char *name, const char *descr, const char *shape,
                      const void *data, size_t bytes) {
    uint8_t file[2048];
    rig_write(dir, name, file, put_npy(file, descr, shape, data, bytes));
}

static const struct td_dataset_ops *ops(void) {
    return td_dataset_npy.ops;
}

static const char knobs[] = "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\"}";

static void test_elements_become_numbers_when_of_any_type(void **state) {
    const char *dir = *state;
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff}; // 1, -2, 2^-24, 65504
    static const double doubles[] = {1, -2, 0x1p-24, 3e38};
    static const int8_t i1[] = {1, -2, 3, -128};
    static const int16_t i2[] = {1, -2, 3, -32768};
    static const uint32_t u4[] = {1, 2, 3, 4000000000u};
    static const int64_t i8[] = {1, -2, 3, -(INT64_C(1) << 40)};
    static const float f4[] = {1, -2, 0.5f, 3e38f};
    const struct {
        const char *descr;
        const void *data;
        size_t bytes;
        float last[2];
    } cases[] = {
        {"<f2", halves, sizeof halves, {0x1p-24f, 65504}},
        {"<f8", doubles, sizeof doubles, {0x1p-24f, 3e38f}},
        {"|i1", i1, sizeof i1, {3, -128}},
        {"<i2", i2, sizeof i2, {3, -32768}},
        {"<u4", u4, sizeof u4, {3, 4e9f}},
        {"<i8", i8, sizeof i8, {3, -0x1p40f}},
        {"<f4", f4, sizeof f4, {0.5f, 3e38f}},
    };
    static const int16_t labels[] = {2, 0};
    write_npy(dir, "y.npy", "<i2", "(2, 1)", labels, sizeof labels);
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_dataset *d;
        struct td_field f[8];
        float x[2];
        int32_t y;
        const int64_t second = 1;
        write_npy(dir, "x.npy", cases[i].descr, "(2, 2)", cases[i].data, cases[i].bytes);
        assert_ok(rig_open(&td_dataset_npy, dir, knobs, NULL, &d));
        assert_int_equal(ops()->fields(d, f), 2);
        assert_true(f[0].dtype == TD_F32 && f[0].sample_shape.n_dims == 1);
        assert_int_equal(f[1].n_classes, 3); // the largest label plus one
        assert_ok(ops()->gather(d, TD_SPLIT_TRAIN, &second, 1, (void *[]){x, &y}));
        assert_memory_equal(x, cases[i].last, sizeof x);
        assert_int_equal(y, 0);
        ops()->close(d);
    }
}

static void test_pixels_stay_bytes_when_u1(void **state) {
    const char *dir = *state;
    static const uint8_t pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, labels[] = {1, 2, 0};
    struct td_dataset *d;
    struct td_field f[8];
    uint8_t x[8];
    int32_t y[2];
    const int64_t index[] = {2, 0};
    write_npy(dir, "x.npy", "|u1", "(3, 2, 2)", pixels, sizeof pixels);
    write_npy(dir, "y.npy", "|u1", "(3,)", labels, sizeof labels);
    assert_ok(rig_open(&td_dataset_npy, dir,
                       "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/x.npy\","
                       "\"val_y\":\"$/y.npy\",\"classes\":7}",
                       NULL, &d));
    ops()->fields(d, f);
    assert_true(f[0].dtype == TD_U8 && f[0].sample_shape.dim[1] == 2 && f[1].n_classes == 7);
    assert_int_equal(ops()->length(d, TD_SPLIT_TEST), 3);
    assert_ok(ops()->gather(d, TD_SPLIT_VAL, index, 2, (void *[]){x, y}));
    assert_memory_equal(x, pixels + 8, 4);
    assert_memory_equal(x + 4, pixels, 4);
    assert_true(y[0] == 0 && y[1] == 1);
    int64_t outside = 3;
    assert_fails(ops()->gather(d, TD_SPLIT_VAL, &outside, 1, (void *[]){x, y}), TD_OUT_OF_RANGE,
                 "sample 3 of 3 in split val");
    ops()->close(d);
}

static void test_array_is_refused_when_the_header_is_foreign(void **state) {
    const char *dir = *state;
    static const struct {
        const char *header, *text;
    } cases[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "found '>f4'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "found '|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
         "expected a string, found '['"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "expected True or False"},
        {"{'descr': '<f4', 'shape': (1,), }", "expected descr, fortran_order and shape"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "each key once"},
        {"{'descr': '<f4', 'dtype': 1}", "a key: descr, fortran_order or shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "a dimension, found '-'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }", "',' or ')'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
         "at most 8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999,), }",
         "a dimension below 2^48"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", "nothing after the dict"},
        {"{'descr': '<f4", "the end of a string"},
        {"[1]", "a dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
         "bytes of the elements that the header promises: expected 8, found 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", "expected 0, found 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (281474976710655,281474976710655), }",
         "bytes of the elements that the header promises"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        uint8_t file[512] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0};
        struct td_npy a;
        size_t n = strlen(cases[i].header);
        file[8] = (uint8_t)n;
        memcpy(file + 12, cases[i].header, n);
        rig_write(dir, "x.npy", file, 12 + n + 4);
        rig_refuses(td_npy_open(rig_path(dir, "x.npy"), "x", NULL, &a), TD_DATA_LOSS,
                    cases[i].text);
    }
}

static void test_file_is_refused_when_it_is_no_array(void **state) {
    const char *dir = *state;
    static const struct {
        uint8_t at, value;
        const char *text;
    } cases[] = {{0, 'P', "offset 0: magic"},
                 {6, 0, "offset 6: version"},
                 {6, 4, "offset 6: version"},
                 {9, 0xff, "offset 8: bytes of the header, at most"}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        uint8_t file[512];
        struct td_npy a;
        size_t bytes = put_npy(file, "|u1", "(1,)", "x", 1);
        file[cases[i].at] = cases[i].value;
        rig_write(dir, "x.npy", file, bytes);
        rig_refuses(td_npy_open(rig_path(dir, "x.npy"), "x", NULL, &a), TD_DATA_LOSS,
                    cases[i].text);
    }
    struct td_npy a;
    rig_write(dir, "x.npy", "\x93NUMPY\1", 7);
    rig_refuses(td_npy_open(rig_path(dir, "x.npy"), "x", NULL, &a), TD_DATA_LOSS, "magic");
    write_npy(dir, "x.npy", "|u1", "(281474976710655, 281474976710655, 0)", "", 0);
    rig_refuses(td_npy_open(rig_path(dir, "x.npy"), "x", NULL, &a), TD_DATA_LOSS,
                "that the header promises");
}

static void test_set_is_refused_when_samples_and_labels_do_not_fit(void **state) {
    const char *dir = *state;
    static const float numbers[8] = {0};
    static const int16_t labels[] = {1, 0, 5, -1};
    static const struct {
        const char *x_shape, *y_descr, *y_shape;
        size_t y_bytes;
        const char *knobs, *text;
    } cases[] = {
        {"(8,)", "<i2", "(2,)", 4, NULL,
         "dimensions of the samples, at least: expected 2, found 1"},
        {"(4, 2)", "<i2", "(2,)", 4, NULL, "number of labels: expected 4, found 2"},
        {"(4, 2)", "<i2", "(2, 2)", 8, NULL,
         "shape of the labels: expected (n) or (n, 1) of integers, or floats, which are targets, "
         "found (2, 2)"},
        {"(4, 2)", "<f2", "()", 2, NULL,
         "shape of the targets: expected (n) or (n, k), with something in it, found ()"},
        {"(4, 2)", "<f2", "(2, 2)", 8, NULL, "number of labels: expected 4, found 2"},
        {"(4, 2)", "<i2", "(4,)", 8, NULL, "label 3 is no class; data.classes says"},
        {"(4, 2)", "<i2", "(4,)", 8, "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"classes\":5}",
         "label: expected 0 to 4, found 5"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_dataset *d = NULL;
        write_npy(dir, "x.npy", "<f4", cases[i].x_shape, numbers, sizeof numbers);
        write_npy(dir, "y.npy", cases[i].y_descr, cases[i].y_shape, labels, cases[i].y_bytes);
        rig_refuses(
            rig_open(&td_dataset_npy, dir, cases[i].knobs ? cases[i].knobs : knobs, NULL, &d),
            TD_DATA_LOSS, cases[i].text);
        assert_null(d);
    }
}

static void test_targets_are_numbers_when_y_is_of_floats(void **state) {
    const char *dir = *state;
    static const uint8_t pixels[3] = {1, 2, 3};
    static const double numbers[6] = {0.5, -1, 2, 3, 1e-3, 7};
    static const float same[3] = {4, 5, 6};
    struct td_dataset *d;
    struct td_field f[8];
    uint8_t x[2];
    float y[4];
    const int64_t index[] = {2, 0};
    write_npy(dir, "x.npy", "|u1", "(3, 1)", pixels, sizeof pixels);
    write_npy(dir, "y.npy", "<f8", "(3, 2)", numbers, sizeof numbers);
    assert_ok(rig_open(&td_dataset_npy, dir, knobs, NULL, &d));
    ops()->fields(d, f);
    assert_true(f[1].dtype == TD_F32 && f[1].n_classes == 0);
    assert_true(f[1].sample_shape.n_dims == 1 && f[1].sample_shape.dim[0] == 2);
    assert_ok(ops()->gather(d, TD_SPLIT_TRAIN, index, 2, (void *[]){x, y}));
    assert_memory_equal(y, ((float[]){1e-3f, 7, 0.5f, -1}), sizeof y);
    ops()->close(d);
    write_npy(dir, "y.npy", "<f4", "(3,)", same, sizeof same);
    assert_ok(rig_open(&td_dataset_npy, dir, knobs, NULL, &d));
    ops()->fields(d, f);
    assert_true(f[1].dtype == TD_F32 && f[1].sample_shape.n_dims == 0);
    assert_ok(ops()->gather(d, TD_SPLIT_TRAIN, index, 2, (void *[]){x, y}));
    assert_true(y[0] == 6 && y[1] == 4);
    ops()->close(d);
    assert_fails(rig_open(&td_dataset_npy, dir,
                          "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"classes\":3}", NULL, &d),
                 TD_INVALID_ARGUMENT, "but it holds f4: save it as integers");
    write_npy(dir, "v.npy", "<f4", "(3, 1)", same, sizeof same);
    rig_refuses(rig_open(&td_dataset_npy, dir,
                         "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/x.npy\",\"val_y\":"
                         "\"$/v.npy\"}",
                         NULL, &d),
                TD_DATA_LOSS, "shape and type of targets");
}

static void test_set_is_refused_when_a_sample_is_no_number(void **state) {
    const char *dir = *state;
    enum { SAMPLES = 3000, LAST = 2 * SAMPLES - 1 };
    static float numbers[2 * SAMPLES]; // more than are looked at once
    static double doubles[2] = {0, 1e300};
    static uint8_t labels[SAMPLES], file[64 << 10];
    struct td_dataset *d = NULL;
    numbers[LAST] = (float)NAN;
    rig_write(dir, "x.npy", file, put_npy(file, "<f4", "(3000, 2)", numbers, sizeof numbers));
    rig_write(dir, "y.npy", file, put_npy(file, "|u1", "(3000,)", labels, sizeof labels));
    rig_refuses(rig_open(&td_dataset_npy, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "sample 2999 is no number: ");
    numbers[LAST] = 0;
    rig_write(dir, "x.npy", file, put_npy(file, "<f4", "(3000, 2)", numbers, sizeof numbers));
    assert_ok(rig_open(&td_dataset_npy, dir, knobs, NULL, &d));
    ops()->close(d);
    write_npy(dir, "x.npy", "<f8", "(1, 2)", doubles, sizeof doubles);
    write_npy(dir, "y.npy", "|u1", "(1,)", labels, 1);
    rig_refuses(rig_open(&td_dataset_npy, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "sample 0 does not fit fp32: '");
    rig_refuses(rig_open(&td_dataset_npy, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "x.npy' offset 136: element: expected a finite number of fp32, found 1e+300");
    static const float targets[] = {1, -(float)INFINITY};
    write_npy(dir, "x.npy", "|u1", "(2, 1)", labels, 2);
    write_npy(dir, "y.npy", "<f4", "(2,)", targets, sizeof targets);
    rig_refuses(rig_open(&td_dataset_npy, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "y.npy' offset 132: element: expected a finite number of fp32, found infinity");
}

// A job that computes in fp64 asks for the numbers as they are.
static void test_numbers_are_those_of_the_file_when_asked_for_as_f64(void **state) {
    const char *dir = *state;
    static const double x[] = {1.0 / 3, 1e300}, nan[] = {0, (double)NAN};
    static const int64_t y[] = {0, 1};
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree;
    char text[1200];
    assert_ok(td_arena_create(1 << 20, &arena));
    snprintf(text, sizeof text, "{\"x\":\"%s/x.npy\",\"y\":\"%s/y.npy\"}", dir, dir);
    assert_ok(knobs_of(arena, &td_dataset_npy, text, &tree));
    const struct td_dataset_config config = {
        .struct_bytes = sizeof config, .knobs = tree, .floats = TD_F64};
    struct td_dataset *d = NULL;
    struct td_field fields[8];
    double got[2];
    int32_t labels[2];
    write_npy(dir, "x.npy", "<f8", "(2, 1)", x, sizeof x);
    write_npy(dir, "y.npy", "<i8", "(2,)", y, sizeof y);
    assert_true(ops()->takes_floats);
    assert_ok(ops()->open(&config, &d));
    assert_int_equal(ops()->fields(d, fields), 2);
    assert_true(fields[0].dtype == TD_F64 && fields[1].dtype == TD_I32);
    assert_ok(
        ops()->gather(d, TD_SPLIT_TRAIN, (const int64_t[]){1, 0}, 2, (void *const[]){got, labels}));
    assert_true(got[0] == x[1] && got[1] == x[0] && labels[0] == 1);
    ops()->close(d);
    write_npy(dir, "x.npy", "<f8", "(2, 1)", nan, sizeof nan);
    rig_refuses(ops()->open(&config, &d), TD_DATA_LOSS,
                "element: expected a finite number of fp64, found nan");
}

// Beyond 1 GiB: a file with holes, a NaN in its last row. y: targets there, samples elsewhere.
static void test_rows_are_checked_as_they_are_read_when_the_file_is_large(void **state) {
    const char *dir = *state;
    enum { ROWS = 1025, EACH = 1 << 18 }; // of 1 MiB
    const float nan = (float)NAN;
    static uint8_t small[ROWS], file[2048];
    const size_t header = put_npy(file, "<f4", "(1025, 262144)", "", 0);
    const off_t size = (off_t)header + (off_t)4 * ROWS * EACH, last = (off_t)4 * EACH * (ROWS - 1);
    rig_write(dir, "large.npy", file, header);
    const char *path = rig_path(dir, "large.npy");
    assert_int_equal(truncate(path, size), 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &nan, sizeof nan, (off_t)header + last + 4 * 5), sizeof nan);
    assert_int_equal(close(fd), 0);
    write_npy(dir, "small.npy", "|u1", "(1025, 1)", small, sizeof small);
    static const char *const sets[] = {"{\"x\":\"$/large.npy\",\"y\":\"$/small.npy\"}",
                                       "{\"x\":\"$/small.npy\",\"y\":\"$/large.npy\"}"};
    float *row = td_calloc(EACH, sizeof *row), other[1];
    for (size_t i = 0; i < TD_COUNTOF(sets); i++) {
        struct td_dataset *d;
        void *const out[] = {i ? (void *)other : row, i ? (void *)row : other};
        assert_ok(rig_open(&td_dataset_npy, dir, sets[i], NULL, &d));
        assert_ok(ops()->gather(d, TD_SPLIT_TRAIN, (const int64_t[]){ROWS - 2}, 1, out));
        td_status s = ops()->gather(d, TD_SPLIT_TRAIN, (const int64_t[]){ROWS - 1}, 1, out);
        rig_refuses(s, TD_DATA_LOSS,
                    "large.npy' offset 1073741972: element: expected a finite number of fp32, "
                    "found nan");
        ops()->close(d);
    }
    free(row);
}

static void test_targets_are_refused_when_a_binary_loss_has_no_room_for_them(void **state) {
    const char *dir = *state;
    static const uint8_t pixels[2] = {1, 2};
    static const struct {
        float y[4];
        const char *text; // NULL: taken
    } cases[] = {
        {{0, 1, 0.5f, 1}, NULL},
        {{0, 1, -1, 1}, "sample 1 is out of range: '"},
        {{0, 1, -1, 1}, "y.npy' offset 136: element: expected a number from 0 to 1, found -1"},
        {{0, 1.5f, 0, 1}, "y.npy' offset 132: element: expected a number from 0 to 1, found 1.5"},
        {{0, 2, 0, 1}, "loss bce wants targets of 0 for no and 1 for yes"},
        {{0, 1, 0, (float)NAN}, "sample 1 is no number"},
    };
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(1 << 20, &arena));
    write_npy(dir, "x.npy", "|u1", "(2, 1)", pixels, sizeof pixels);
    char text[1200];
    struct td_json *tree;
    snprintf(text, sizeof text, "{\"x\":\"%s/x.npy\",\"y\":\"%s/y.npy\"}", dir, dir);
    assert_ok(knobs_of(arena, &td_dataset_npy, text, &tree));
    const struct td_targets targets = {.struct_bytes = sizeof targets, .kind = TD_TARGET_BINARY};
    const struct td_dataset_config config = {
        .struct_bytes = sizeof config, .knobs = tree, .targets = &targets};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_dataset *d = NULL;
        write_npy(dir, "y.npy", "<f4", "(2, 2)", cases[i].y, sizeof cases[i].y);
        td_status s = ops()->open(&config, &d);
        if (cases[i].text) {
            rig_refuses(s, TD_DATA_LOSS, cases[i].text);
            continue;
        }
        assert_ok(s);
        ops()->close(d);
    }
}

static void test_labels_need_not_be_classes_when_they_are_ignored(void **state) {
    const char *dir = *state;
    static const uint8_t pixels[3] = {1, 2, 3};
    static const int16_t labels[] = {1, -100, 0};
    static const struct {
        int32_t ignore_index;
        const char *text;
    } cases[] = {{-100, NULL}, {-99, "label 1 is no class"}};
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(1 << 20, &arena));
    write_npy(dir, "x.npy", "|u1", "(3, 1)", pixels, sizeof pixels);
    write_npy(dir, "y.npy", "<i2", "(3,)", labels, sizeof labels);
    char text[1200];
    struct td_json *tree;
    snprintf(text, sizeof text, "{\"x\":\"%s/x.npy\",\"y\":\"%s/y.npy\"}", dir, dir);
    assert_ok(knobs_of(arena, &td_dataset_npy, text, &tree));
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const struct td_targets targets = {
            .struct_bytes = sizeof targets, .ignores = true, .ignore_index = cases[i].ignore_index};
        const struct td_dataset_config config = {
            .struct_bytes = sizeof config, .knobs = tree, .targets = &targets};
        struct td_dataset *d = NULL;
        struct td_field f[8];
        td_status s = ops()->open(&config, &d);
        if (cases[i].text) {
            rig_refuses(s, TD_DATA_LOSS, cases[i].text);
            continue;
        }
        uint8_t x[3];
        int32_t y[3];
        assert_ok(s);
        ops()->fields(d, f);
        assert_int_equal(f[1].n_classes, 2);
        assert_ok(
            ops()->gather(d, TD_SPLIT_TRAIN, (const int64_t[]){0, 1, 2}, 3, (void *[]){x, y}));
        assert_true(y[0] == 1 && y[1] == -100 && y[2] == 0);
        ops()->close(d);
    }
}

static void test_set_is_refused_when_its_samples_are_empty(void **state) {
    const char *dir = *state;
    static const uint8_t labels[] = {0, 0};
    struct td_dataset *d = NULL;
    write_npy(dir, "x.npy", "<f4", "(2, 0)", "", 0);
    write_npy(dir, "y.npy", "|u1", "(2,)", labels, sizeof labels);
    rig_refuses(rig_open(&td_dataset_npy, dir, knobs, NULL, &d), TD_DATA_LOSS,
                "x.npy' offset 0: elements of all samples, at least: expected 1, found 0");
}

// The first number of a split's first sample, and its label.
static void check_first(struct td_dataset *d, enum td_split split, int64_t n, float x, int32_t y) {
    const struct td_dataset_ops *ops = td_dataset_npy.ops;
    float found[2];
    int32_t label;
    int64_t first = 0;
    assert_int_equal(ops->length(d, split), n);
    if (!n) return;
    assert_ok(ops->gather(d, split, &first, 1, (void *[]){found, &label}));
    assert_float_equal(found[0], x, 0);
    assert_int_equal(label, y);
}

static void test_test_arrays_are_the_splits_test_and_predict(void **state) {
    const char *dir = *state;
    const struct td_dataset_ops *ops = td_dataset_npy.ops;
    static const float x[8] = {1}, v[4] = {2}, t[6] = {3};
    static const uint8_t y[4] = {0, 1, 2, 2}, vy[2] = {1}, ty[3] = {2};
    struct td_dataset *d = NULL;
    write_npy(dir, "x.npy", "<f4", "(4, 2)", x, sizeof x);
    write_npy(dir, "y.npy", "|u1", "(4,)", y, sizeof y);
    write_npy(dir, "v.npy", "<f4", "(2, 2)", v, sizeof v);
    write_npy(dir, "vy.npy", "|u1", "(2,)", vy, sizeof vy);
    write_npy(dir, "t.npy", "<f4", "(3, 2)", t, sizeof t);
    write_npy(dir, "ty.npy", "|u1", "(3,)", ty, sizeof ty);
    assert_ok(rig_open(&td_dataset_npy, dir,
                       "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/v.npy\",\"val_y\":"
                       "\"$/vy.npy\",\"test_x\":\"$/t.npy\",\"test_y\":\"$/ty.npy\"}",
                       NULL, &d));
    check_first(d, TD_SPLIT_TRAIN, 4, 1, 0);
    check_first(d, TD_SPLIT_VAL, 2, 2, 1);
    check_first(d, TD_SPLIT_TEST, 3, 3, 2);
    check_first(d, TD_SPLIT_PREDICT, 3, 3, 2);
    ops->close(d);
    assert_ok(rig_open(&td_dataset_npy, dir,
                       "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"test_x\":\"$/t.npy\",\"test_y\":"
                       "\"$/ty.npy\"}",
                       NULL, &d));
    check_first(d, TD_SPLIT_VAL, 0, 0, 0);
    check_first(d, TD_SPLIT_TEST, 3, 3, 2);
    ops->close(d);
    d = NULL;
    assert_fails(rig_open(&td_dataset_npy, dir,
                          "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"test_y\":\"$/ty.npy\"}", NULL,
                          &d),
                 TD_INVALID_ARGUMENT, "data.test_x and data.test_y need each other");
    static const uint8_t four[3] = {3};
    write_npy(dir, "ty.npy", "|u1", "(3,)", four, sizeof four);
    rig_refuses(rig_open(&td_dataset_npy, dir,
                         "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"test_x\":\"$/t.npy\",\"test_y\":"
                         "\"$/ty.npy\"}",
                         NULL, &d),
                TD_DATA_LOSS, "label: expected 0 to 2, found 3");
    assert_null(d);
}

static void test_labels_from_1_are_refused_with_what_to_do(void **state) {
    const char *dir = *state;
    static const float x[6] = {1};
    static const uint8_t labels[2][3] = {{1, 2, 3}, {1, 2, 9}};
    static const char *const words[] = {"labels begin at 0, and the least here is 1: save y - 1",
                                        "data.classes says how many there are"};
    for (int i = 0; i < 2; i++) {
        struct td_dataset *d = NULL;
        write_npy(dir, "x.npy", "<f4", "(3, 2)", x, sizeof x);
        write_npy(dir, "y.npy", "|u1", "(3,)", labels[i], sizeof labels[i]);
        rig_refuses(rig_open(&td_dataset_npy, dir,
                             "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"classes\":3}", NULL, &d),
                    TD_DATA_LOSS, words[i]);
        assert_null(d);
    }
}

// y - 1 would part them from the training labels, which are as they must be.
static void test_labels_of_the_validation_are_not_to_be_shifted(void **state) {
    const char *dir = *state;
    static const float x[6] = {1};
    static const uint8_t y[] = {0, 1, 2}, v[] = {1, 2, 3};
    struct td_dataset *d = NULL;
    write_npy(dir, "x.npy", "<f4", "(3, 2)", x, sizeof x);
    write_npy(dir, "y.npy", "|u1", "(3,)", y, sizeof y);
    write_npy(dir, "v.npy", "|u1", "(3,)", v, sizeof v);
    rig_refuses(rig_open(&td_dataset_npy, dir,
                         "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/x.npy\",\"val_y\":"
                         "\"$/v.npy\"}",
                         NULL, &d),
                TD_DATA_LOSS, "data.classes says how many there are");
    assert_null(d);
}

static void test_validation_is_refused_when_it_is_of_another_shape(void **state) {
    const char *dir = *state;
    static const float numbers[8] = {0};
    static const uint8_t labels[4] = {0};
    struct td_dataset *d = NULL;
    write_npy(dir, "x.npy", "<f4", "(4, 2)", numbers, sizeof numbers);
    write_npy(dir, "v.npy", "<f4", "(4, 2, 1)", numbers, sizeof numbers);
    write_npy(dir, "y.npy", "|u1", "(4,)", labels, sizeof labels);
    rig_refuses(rig_open(&td_dataset_npy, dir,
                         "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/v.npy\",\"val_y\":"
                         "\"$/y.npy\"}",
                         NULL, &d),
                TD_DATA_LOSS, "shape and type of a sample");
    assert_fails(rig_open(&td_dataset_npy, dir,
                          "{\"x\":\"$/x.npy\",\"y\":\"$/y.npy\",\"val_x\":\"$/v.npy\"}", NULL, &d),
                 TD_INVALID_ARGUMENT, "need each other");
    assert_null(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_elements_become_numbers_when_of_any_type),
        test_in_scratch(test_pixels_stay_bytes_when_u1),
        test_in_scratch(test_array_is_refused_when_the_header_is_foreign),
        test_in_scratch(test_file_is_refused_when_it_is_no_array),
        test_in_scratch(test_set_is_refused_when_samples_and_labels_do_not_fit),
        test_in_scratch(test_targets_are_numbers_when_y_is_of_floats),
        test_in_scratch(test_set_is_refused_when_a_sample_is_no_number),
        test_in_scratch(test_numbers_are_those_of_the_file_when_asked_for_as_f64),
        test_in_scratch(test_rows_are_checked_as_they_are_read_when_the_file_is_large),
        test_in_scratch(test_targets_are_refused_when_a_binary_loss_has_no_room_for_them),
        test_in_scratch(test_labels_need_not_be_classes_when_they_are_ignored),
        test_in_scratch(test_set_is_refused_when_its_samples_are_empty),
        test_in_scratch(test_test_arrays_are_the_splits_test_and_predict),
        test_in_scratch(test_labels_from_1_are_refused_with_what_to_do),
        test_in_scratch(test_labels_of_the_validation_are_not_to_be_shifted),
        test_in_scratch(test_validation_is_refused_when_it_is_of_another_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
