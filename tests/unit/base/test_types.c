// Element types and shapes: every dtype has its row, shapes compare and count.
// The safetensors names are what the Python package knows.

#include "tests/unit/test.h"

static void test_dtype_row_is_whole_when_any_dtype(void **state) {
    (void)state;
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        assert_true(td_dtype_bytes((enum td_dtype)t) >= 1);
        assert_true(strlen(td_dtype_name((enum td_dtype)t)) > 0);
        assert_true(strlen(td_dtype_safetensors((enum td_dtype)t)) > 0);
    }
    assert_string_equal(td_dtype_safetensors(TD_BF16), "BF16");
    assert_string_equal(td_dtype_name(TD_F32), "f32");
    assert_int_equal(td_dtype_bytes(TD_I64), 8);
}

static void test_shape_counts_and_compares_when_dims_vary(void **state) {
    (void)state;
    struct td_shape scalar = {0}, a = {2, {3, 4}}, b = {2, {3, 4}}, c = {3, {3, 4, 0}};
    assert_int_equal(td_shape_elems(&scalar), 1);
    assert_int_equal(td_shape_elems(&a), 12);
    assert_int_equal(td_shape_elems(&c), 0);
    assert_true(td_shape_equal(&a, &b));
    assert_false(td_shape_equal(&a, &c));
    b.dim[7] = 99; // after n_dims: no part of the shape
    assert_true(td_shape_equal(&a, &b));
}

static void test_shape_is_cut_when_there_is_no_room(void **state) {
    (void)state;
    const struct td_shape scalar = {0}, two = {2, {3, 45}};
    char text[16];
    td_shape_print(&scalar, text, sizeof text);
    assert_string_equal(text, "()");
    td_shape_print(&two, text, sizeof text);
    assert_string_equal(text, "(3, 45)");
    td_shape_print(&two, text, 6);
    assert_string_equal(text, "(3, 4");
}

static void test_shape_has_no_bytes_when_its_product_overflows(void **state) {
    (void)state;
    const struct td_shape scalar = {0}, empty = {3, {3, 0, 4}}, negative = {2, {3, -4}};
    const struct td_shape most = {2, {INT64_C(1) << 60, 7}}, over = {2, {INT64_C(1) << 60, 8}};
    const struct td_shape hidden = {3, {0, INT64_C(1) << 60, 8}};
    size_t bytes;
    assert_true(td_shape_bytes(&scalar, 4, &bytes) && bytes == 4);
    assert_true(td_shape_bytes(&empty, 4, &bytes) && bytes == 0);
    assert_true(td_shape_bytes(&most, 1, &bytes) && bytes == (size_t)7 << 60);
    assert_false(td_shape_bytes(&over, 1, &bytes));
    assert_false(td_shape_bytes(&hidden, 1, &bytes));
    assert_false(td_shape_bytes(&most, 2, &bytes));
    assert_false(td_shape_bytes(&negative, 1, &bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_row_is_whole_when_any_dtype),
        cmocka_unit_test(test_shape_counts_and_compares_when_dims_vary),
        cmocka_unit_test(test_shape_is_cut_when_there_is_no_room),
        cmocka_unit_test(test_shape_has_no_bytes_when_its_product_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
