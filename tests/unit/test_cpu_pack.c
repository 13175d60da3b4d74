// Packs of fp32 weights for bf16 products: every element where the layout says, rounded like
// everywhere else; what fills no block is refused.

#include <math.h>

#include "accelerators/cpu/pack.c"
#include "tests/unit/test.h"

int32_t td_parallel_threads(void) {
    return 2;
}

// Two ranges, as two threads would get them.
void td_parallel_units(int32_t n_threads, int64_t n, td_range_fn *fn, const void *arg) {
    (void)n_threads;
    fn(arg, 0, n / 2);
    fn(arg, n / 2, n);
}

static dnnl_memory_desc_t plain(int64_t rows, int64_t cols) {
    return (dnnl_memory_desc_t){.ndims = 2,
                                .dims = {rows, cols},
                                .data_type = dnnl_f32,
                                .format_kind = dnnl_blocked,
                                .format_desc.blocking.strides = {cols, 1}};
}

// As oneDNN describes AB8b64a2b.
static dnnl_memory_desc_t packed(int64_t rows, int64_t cols) {
    dnnl_memory_desc_t d = plain(rows, cols);
    d.data_type = dnnl_bf16;
    d.format_desc.blocking = (dnnl_blocking_desc_t){.strides = {cols * ROWS, (int64_t)ROWS * COLS},
                                                    .inner_nblks = 3,
                                                    .inner_blks = {8, 64, 2},
                                                    .inner_idxs = {1, 0, 1}};
    return d;
}

static void test_weights_lie_in_pairs_of_columns_when_packed(void **state) {
    (void)state;
    enum { N_ROWS = 128, N_COLS = 80 };
    static float from[N_ROWS * N_COLS];
    static uint16_t to[N_ROWS * N_COLS];
    dnnl_memory_desc_t a = plain(N_ROWS, N_COLS), b = packed(N_ROWS, N_COLS);
    struct td_pack_shape s = td_pack_shape_of(&a, &b);
    assert_int_equal(s.cols, N_COLS);
    for (int i = 0; i < N_ROWS * N_COLS; i++) {
        from[i] = (float)(i - 3000) * 1.0009765625f;
    }
    from[17] = NAN;
    from[18] = -INFINITY;
    td_pack_rows(&s, from, to);
    for (int64_t r = 0; r < N_ROWS; r++) {
        for (int64_t c = 0; c < N_COLS; c++) {
            int64_t block = (r / 64 * (N_COLS / 16) + c / 16) * 64 * 16;
            int64_t at = block + c % 16 / 2 * 128 + r % 64 * 2 + c % 2;
            assert_int_equal(to[at], td_bf16_of_f32(from[r * N_COLS + c]));
        }
    }
}

static void test_layout_is_left_to_the_library_when_it_is_another(void **state) {
    (void)state;
    dnnl_memory_desc_t a = plain(128, 80), b = packed(128, 80);
    dnnl_memory_desc_t few = plain(96, 80), few_packed = packed(96, 80);
    assert_int_equal(td_pack_shape_of(&few, &few_packed).cols, 0); // one and a half blocks
    assert_int_equal(td_pack_shape_of(&a, &a).cols, 0);
    a.data_type = dnnl_bf16;
    assert_int_equal(td_pack_shape_of(&a, &b).cols, 0); // of bf16 parameters
    a = plain(128, 80);
    b.format_desc.blocking.inner_blks[1] = 32;
    assert_int_equal(td_pack_shape_of(&a, &b).cols, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_lie_in_pairs_of_columns_when_packed),
        cmocka_unit_test(test_layout_is_left_to_the_library_when_it_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
