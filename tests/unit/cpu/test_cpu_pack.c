// Packs of weights for products. Every element is where the layout says, rounded like everywhere
// else or not at all. Zeroes are where the weights end within a block. Other layouts are refused.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.c"
#include "accelerators/cpu/kernels/matmul/pack.c"
#include "accelerators/cpu/kernels/matmul/panels.c"
#include "accelerators/cpu/onednn/pack_match.c"
#include "tests/unit/test.h"

int32_t td_parallel_threads(void) {
    return 2;
}

void td_parallel(int32_t n_threads, int64_t n, int64_t grain, td_range_fn *fn, const void *arg) {
    (void)n_threads, (void)grain;
    fn(arg, 0, n);
}

// Two ranges, as two threads would get them.
void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg) {
    (void)n_threads, (void)work;
    fn(arg, 0, n / 2);
    fn(arg, n / 2, n);
}

static struct td_md_view plain(int64_t rows, int64_t cols, dnnl_data_type_t type) {
    return (struct td_md_view){
        .ndims = 2, .type = type, .blocked = true, .dims = {rows, cols}, .strides = {cols, 1}};
}

static void set_blocks(struct td_md_view *v, int64_t high, int64_t wide, int n,
                       const int64_t blks[3], const int64_t idxs[3]) {
    v->strides[0] = high;
    v->strides[1] = wide;
    v->inner_nblks = n;
    for (int i = 0; i < n; i++) {
        v->inner_blks[i] = blks[i];
        v->inner_idxs[i] = idxs[i];
    }
}

// As oneDNN describes AB8b64a2b (bf16) and AB16b64a (f32), with any number of rows in a block.
static struct td_md_view packed(int64_t rows, int64_t cols, dnnl_data_type_t type, int64_t block) {
    struct td_md_view d = plain(rows, cols, type);
    const bool half = type == dnnl_bf16;
    const int64_t blks[] = {half ? 8 : 16, block, 2}, idxs[] = {1, 0, 1};
    set_blocks(&d, cols * block, block * COLS, half ? 3 : 2, blks, idxs);
    return d;
}

// As oneDNN describes BA16a64b2a, with any number of columns in a block.
static struct td_md_view paired(int64_t rows, int64_t cols, int64_t block) {
    struct td_md_view d = plain(rows, cols, dnnl_bf16);
    const int64_t high = (rows + 31) / 32, blks[] = {16, block, 2}, idxs[] = {0, 1, 0};
    set_blocks(&d, 32 * block, high * 32 * block, 3, blks, idxs);
    return d;
}

enum { MOST_ROWS = 192, N_COLS = 80 };
static float values[MOST_ROWS * N_COLS];
static uint16_t halves[MOST_ROWS * N_COLS];

static void fill(void) {
    for (int i = 0; i < MOST_ROWS * N_COLS; i++) {
        values[i] = (float)(i - 3000) * 1.0009765625f;
    }
    values[17] = NAN;
    values[18] = -INFINITY;
    for (int i = 0; i < MOST_ROWS * N_COLS; i++) {
        halves[i] = td_bf16_of_f32(values[i]);
    }
}

// Where an element is, counted in elements.
static int64_t place(int64_t r, int64_t c, int64_t block, bool half) {
    int64_t first = (r / block * (N_COLS / COLS) + c / COLS) * block * COLS;
    c %= COLS;
    r %= block;
    return first + (half ? c / 2 * 2 * block + r * 2 + c % 2 : c * block + r);
}

// Every element at its place, zeroes in the rows that fill up the last block.
static void expect_packed(int64_t rows, int64_t block, dnnl_data_type_t from, dnnl_data_type_t to) {
    static uint32_t out[MOST_ROWS * N_COLS];
    struct td_md_view a = plain(rows, N_COLS, from), b = packed(rows, N_COLS, to, block);
    struct td_pack_shape s = td_pack_shape_of(&a, &b);
    assert_int_equal(s.cols, N_COLS);
    memset(out, 0xff, sizeof out);
    td_pack_rows(&s, from == dnnl_f32 ? (const void *)values : halves, out);
    for (int64_t r = 0; r < (rows + block - 1) / block * block; r++) {
        for (int64_t c = 0; c < N_COLS; c++) {
            int64_t at = place(r, c, block, to == dnnl_bf16), i = r * N_COLS + c;
            uint32_t bits = 0;
            if (r < rows && to == dnnl_f32) memcpy(&bits, &values[i], sizeof bits);
            if (r < rows && to == dnnl_bf16) bits = halves[i];
            assert_int_equal(to == dnnl_f32 ? out[at] : ((uint16_t *)out)[at], bits);
        }
    }
}

static void test_weights_lie_in_pairs_of_columns_when_packed_as_bf16(void **state) {
    (void)state;
    fill();
    expect_packed(128, 64, dnnl_f32, dnnl_bf16);
    expect_packed(128, 64, dnnl_bf16, dnnl_bf16);
    expect_packed(96, 48, dnnl_f32, dnnl_bf16);
}

static void test_weights_lie_in_columns_when_packed_as_fp32(void **state) {
    (void)state;
    fill();
    expect_packed(128, 64, dnnl_f32, dnnl_f32);
    expect_packed(32, 16, dnnl_f32, dnnl_f32);
}

static void test_last_block_is_filled_with_zeroes_when_rows_end_in_it(void **state) {
    static const int64_t rows[] = {1, 16, 17, 65, 127, 145};
    (void)state;
    fill();
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        expect_packed(rows[i], 64, dnnl_f32, dnnl_bf16);
        expect_packed(rows[i], 64, dnnl_bf16, dnnl_bf16);
        expect_packed(rows[i], 64, dnnl_f32, dnnl_f32);
    }
}

static void expect_paired(int64_t rows, int64_t cols, int64_t block, dnnl_data_type_t from) {
    static uint16_t out[MOST_ROWS * 2 * N_COLS];
    const int64_t high = (rows + 31) / 32 * 32, wide = (cols + block - 1) / block * block;
    struct td_md_view a = plain(rows, cols, from), b = paired(rows, cols, block);
    struct td_pack_shape s = td_pack_shape_of(&a, &b);
    assert_int_equal(s.cols, cols);
    memset(out, 0xff, sizeof out);
    td_pack_rows(&s, from == dnnl_f32 ? (const void *)values : halves, out);
    for (int64_t r = 0; r < high; r++) {
        for (int64_t c = 0; c < wide; c++) {
            int64_t at = (c / block * (high / 32) + r / 32) * 32 * block;
            at += r % 32 / 2 * 2 * block + c % block * 2 + r % 2;
            assert_int_equal(out[at], r < rows && c < cols ? halves[r * cols + c] : 0);
        }
    }
    assert_int_equal(out[high * wide], 0xffff); // and nothing after it
}

static void test_weights_lie_in_pairs_of_rows_when_products_sum_over_rows(void **state) {
    static const int64_t rows[] = {1, 16, 31, 33, 48, 64, 111};
    (void)state;
    fill();
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        expect_paired(rows[i], 80, 16, dnnl_f32);
        expect_paired(rows[i], 64, 64, dnnl_bf16);
        expect_paired(rows[i], 80, 64, dnnl_f32); // a quarter of a block is left over
        expect_paired(rows[i], 75, 48, dnnl_bf16);
    }
}

static void expect_refused(const struct td_md_view *plain_of, const struct td_md_view *layout) {
    assert_int_equal(td_pack_shape_of(plain_of, layout).cols, 0);
}

static void test_layout_is_left_to_the_library_when_it_is_another(void **state) {
    (void)state;
    struct td_md_view a = plain(128, 80, dnnl_f32), b = packed(128, 80, dnnl_bf16, 64);
    struct td_md_view c = plain(128, 88, dnnl_f32), d = packed(128, 88, dnnl_bf16, 64);
    expect_refused(&c, &d); // five and a half blocks of columns
    expect_refused(&a, &a);
    d = packed(128, 80, dnnl_f32, 64);
    c = plain(128, 80, dnnl_bf16);
    expect_refused(&c, &d); // it would widen
    d = paired(128, 80, 64);
    d.type = dnnl_f32;
    expect_refused(&a, &d); // fp32 has no pairs
    d = packed(128, 80, dnnl_f32, 64);
    b.inner_blks[1] = 8;
    expect_refused(&a, &b);
    d.inner_idxs[0] = 0;
    expect_refused(&a, &d);
    a.strides[0] = 1;
    a.strides[1] = 128;
    b = packed(128, 80, dnnl_bf16, 64);
    expect_refused(&a, &b); // stored in columns
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_lie_in_pairs_of_columns_when_packed_as_bf16),
        cmocka_unit_test(test_weights_lie_in_columns_when_packed_as_fp32),
        cmocka_unit_test(test_weights_lie_in_pairs_of_rows_when_products_sum_over_rows),
        cmocka_unit_test(test_last_block_is_filled_with_zeroes_when_rows_end_in_it),
        cmocka_unit_test(test_layout_is_left_to_the_library_when_it_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
