// Shards: what was written reads back, and nothing that is damaged is believed.

#include "tests/unit/test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/tensors_file.h"

static const float weights[6] = {1, 2, 3, 4, 5, 6};
static const int64_t step[1] = {42};

static const struct td_tensor tensors[] = {
    {.name = "fc1.weight",
     .dtype = TD_F32,
     .shape = {.n_dims = 2, .dim = {2, 3}},
     .data = weights,
     .bytes = sizeof weights},
    {.name = "empty", .dtype = TD_F32, .shape = {.n_dims = 1, .dim = {0}}, .data = weights},
    {.name = "a \"quoted\" name",
     .dtype = TD_I64,
     .shape = {.n_dims = 0},
     .data = step,
     .bytes = sizeof step},
};

static const char *path_in(const char *dir, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void test_tensors_read_back_as_they_were_written(void **state) {
    const char *path = path_in(*state, "a.safetensors");
    assert_ok(tensors_file(path, tensors, TD_COUNTOF(tensors)));
    struct td_safetensors *f;
    assert_ok(td_safetensors_open(path, &f));
    assert_int_equal(td_safetensors_count(f), 3);
    for (size_t i = 0; i < TD_COUNTOF(tensors); i++) {
        const struct td_tensor *t = td_safetensors_find(f, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_true(td_shape_equal(&t->shape, &tensors[i].shape));
        assert_int_equal(t->bytes, tensors[i].bytes);
        if (t->bytes) assert_memory_equal(t->data, tensors[i].data, t->bytes);
    }
    assert_int_equal((uintptr_t)td_safetensors_at(f, 0)->data % 64, 0);
    assert_null(td_safetensors_find(f, "fc2.weight"));
    const void *all;
    size_t all_bytes;
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    assert_ok(td_fs_read(path, 4096, &text));
    td_safetensors_bytes(f, &all, &all_bytes);
    assert_int_equal(all_bytes, text.len);
    assert_memory_equal(all, text.data, text.len);
    td_safetensors_close(f);
}

// From any address: bytes that do not begin where values have to are copied.
static void test_bytes_in_memory_are_what_the_file_is(void **state) {
    const char *path = path_in(*state, "a.safetensors");
    assert_ok(tensors_file(path, tensors, TD_COUNTOF(tensors)));
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    assert_ok(td_fs_read(path, 4096, &text));
    TD_AUTO_FREE char *memory = malloc(text.len + 1);
    struct td_safetensors *f;
    for (size_t at = 0; at < 2; at++) {
        memcpy(memory + at, text.data, text.len);
        assert_ok(td_safetensors_open_bytes("mine", memory + at, text.len, &f));
        const struct td_tensor *t = td_safetensors_find(f, "fc1.weight");
        assert_non_null(t);
        assert_memory_equal(t->data, weights, sizeof weights);
        assert_int_equal((uintptr_t)t->data % 16, 0);
        td_safetensors_close(f);
    }
    assert_fails(td_safetensors_open_bytes("mine", memory, 0, &f), TD_DATA_LOSS,
                 "'mine': shorter than a header");
    assert_fails(td_safetensors_open_bytes("mine", memory, text.len - 1, &f), TD_DATA_LOSS, "mine");
}

static void put_file(const char *path, const char *header, size_t data_bytes) {
    static const char zeros[256];
    uint64_t n = strlen(header);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &n, 8), 8);
    assert_int_equal(write(fd, header, n), n);
    assert_int_equal(write(fd, zeros, data_bytes), data_bytes);
    close(fd);
}

static void test_open_refuses_damaged_headers(void **state) {
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *why;
    } rows[] = {
        {"[]", 0, "not an object"},
        {"{\"a\":1}", 0, "malformed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", 8, "shard"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
         "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,3,0],"
         "\"data_offsets\":[0,0]}}",
         0, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
         "leave a hole before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4,
         "data_offsets are past the end: the file is cut short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "last tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "data_offsets overlap those of another tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "shard"},
    };
    const char *path = path_in(*state, "bad.safetensors");
    struct td_safetensors *f;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        put_file(path, rows[i].header, rows[i].data_bytes);
        assert_fails(td_safetensors_open(path, &f), TD_DATA_LOSS, rows[i].why);
    }
    assert_fails(td_safetensors_open(path_in(*state, "none"), &f), TD_DATA_LOSS, "none");
}

// Also half bytes, and more dimensions than a tensor of ours can have.
static void test_tensors_of_foreign_types_are_in_the_file_as_they_are(void **state) {
    static const struct {
        const char *name, *foreign;
        size_t bytes;
    } rows[] = {{"a", "of type F8_E4M3", 3},
                {"b", "of type F4", 2},
                {"c", "of too many dimensions", 4},
                {"d", NULL, 4}};
    struct td_safetensors *f;
    const char *path = path_in(*state, "foreign.safetensors");
    put_file(path,
             "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},"
             "\"b\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[3,5]},"
             "\"c\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[5,9]},"
             "\"d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9,13]}}",
             13);
    assert_ok(td_safetensors_open(path, &f));
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const struct td_tensor *t = td_safetensors_find(f, rows[i].name);
        assert_int_equal(t->bytes, rows[i].bytes);
        assert_true(!t->foreign == !rows[i].foreign);
        if (t->foreign) assert_string_equal(t->foreign, rows[i].foreign);
    }
    td_safetensors_close(f);
    put_file(path, "{\"b\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1);
    assert_fails(td_safetensors_open(path, &f), TD_DATA_LOSS, "do not match its shape");
}

static void test_tensors_are_found_when_the_header_has_another_order(void **state) {
    struct td_safetensors *f;
    const char *path = path_in(*state, "order.safetensors");
    put_file(path,
             "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
             "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
             "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
             12);
    assert_ok(td_safetensors_open(path, &f));
    const char *a = td_safetensors_find(f, "a")->data, *b = td_safetensors_find(f, "b")->data;
    assert_ptr_equal(a + 8, b);
    assert_string_equal(td_safetensors_at(f, 0)->name, "b");
    td_safetensors_close(f);
}

static void test_open_refuses_a_header_of_4_gigabytes(void **state) {
    struct td_safetensors *f;
    const char *path = path_in(*state, "long.safetensors");
    static const uint64_t lengths[] = {UINT64_C(1) << 32, UINT64_MAX, 0, 1, 3};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        char bytes[10] = {[8] = '{', [9] = '}'};
        memcpy(bytes, &lengths[i], sizeof lengths[i]);
        assert_ok(td_fs_write(path, bytes, sizeof bytes, 0600, 0));
        assert_fails(td_safetensors_open(path, &f), TD_DATA_LOSS, "header length");
    }
}

static void test_open_refuses_every_truncation(void **state) {
    struct stat st;
    struct td_safetensors *f;
    const char *path = path_in(*state, "cut.safetensors");
    assert_ok(tensors_file(path, tensors, TD_COUNTOF(tensors)));
    assert_int_equal(stat(path, &st), 0);
    while (st.st_size-- > 0) {
        assert_int_equal(truncate(path, st.st_size), 0);
        assert_fails(td_safetensors_open(path, &f), TD_DATA_LOSS, "cut.safetensors");
    }
}

static td_status open_once(void *path) {
    struct td_safetensors *f = NULL;
    td_status s = td_safetensors_open(path, &f);
    td_safetensors_close(f);
    // A parse that ran out of memory is reported as it is, not as damage.
    return s;
}

static void test_open_survives_when_memory_is_out(void **state) {
    char path[4096];
    snprintf(path, sizeof path, "%s/mem.safetensors", (char *)*state);
    assert_ok(tensors_file(path, tensors, TD_COUNTOF(tensors)));
    td_test_failing_allocations(open_once, path);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_tensors_read_back_as_they_were_written),
        CASE(test_bytes_in_memory_are_what_the_file_is),
        CASE(test_open_refuses_damaged_headers),
        CASE(test_tensors_of_foreign_types_are_in_the_file_as_they_are),
        CASE(test_tensors_are_found_when_the_header_has_another_order),
        CASE(test_open_refuses_a_header_of_4_gigabytes),
        CASE(test_open_refuses_every_truncation),
        CASE(test_open_survives_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
