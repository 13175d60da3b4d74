// The cpu accelerator's own Winograd convolution, against sums in fp64. Covered are forward and
// gradient, odd sizes, every padding, a bias, more channels than a panel. The bits are the same for
// any number of threads. Compiled here for the generic level; conformance runs the others.

#include <math.h>

#include "accelerators/cpu/kernels/matmul/winograd.c"
#include "tests/unit/test.h"

// What tile.c promises, in plain loops.
void td_tile_product(const struct td_tile *t) {
    for (int64_t i = 0; i < t->m; i++) {
        for (int64_t j = 0; j < t->n; j++) {
            const float *b = t->b + j / PANEL * t->b_panel + j % PANEL;
            float sum = t->add ? t->c[i * t->c_row + j] : 0;
            for (int64_t p = 0; p < t->k; p++) {
                sum += t->a[i * t->a_row + p * t->a_col] * b[p * t->b_row];
            }
            t->c[i * t->c_row + j] = sum;
        }
    }
}

// All units one after the other, on one thread's scratch.
void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg) {
    (void)n_threads, (void)work;
    fn(arg, 0, n);
}

int32_t td_parallel_index(void) {
    return 0;
}

static float value(int64_t i, int64_t prime) {
    return (float)(i * prime % 2003) / 1000 - 1;
}

static float *fill(int64_t n, int64_t prime) {
    float *x = aligned_alloc(64, td_align_up((size_t)n * sizeof *x + 64, 64));
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = value(i, prime);
    }
    return x;
}

// Element of an image in blocks of channels.
static int64_t at(int64_t channels, int64_t h, int64_t w, int64_t n, int64_t c, int64_t y,
                  int64_t x) {
    return (((n * (channels / LANES) + c / LANES) * h + y) * w + x) * LANES + c % LANES;
}

static double expected(const struct td_winograd *p, const float *x, const float *weights, int64_t n,
                       int64_t o, int64_t row, int64_t col) {
    double sum = 0;
    for (int64_t c = 0; c < p->c; c++) {
        for (int64_t t = 0; t < TAPS; t++) {
            int64_t y = row + t / 3 - p->pad[0], z = col + t % 3 - p->pad[1];
            if (y < 0 || y >= p->h || z < 0 || z >= p->w) continue;
            int64_t w =
                p->gradient ? (c * p->o + o) * TAPS + TAPS - 1 - t : (o * p->c + c) * TAPS + t;
            sum += (double)x[at(p->c, p->h, p->w, n, c, y, z)] * weights[w];
        }
    }
    return sum;
}

static void expect_convolution(struct td_winograd p, bool biased) {
    const int64_t y_elems = p.n * p.o * p.out_h * p.out_w;
    float *x = fill(p.n * p.c * p.h * p.w, 7919), *w = fill(p.c * p.o * TAPS, 104729);
    float *bias = fill(p.o, 611953), *y = fill(y_elems + 1, 1), *again = fill(y_elems, 1);
    const float after = y[y_elems];
    p.n_threads = 1;
    void *scratch = aligned_alloc(64, td_align_up(td_winograd_scratch_bytes(&p), 64));
    assert_non_null(scratch);
    memset(scratch, 0xff, td_winograd_scratch_bytes(&p)); // NaN: nothing unwritten is read
    td_winograd_run(&p, x, w, biased ? bias : NULL, y, scratch);
    assert_true(y[y_elems] == after);
    for (int64_t i = 0; i < y_elems; i++) {
        int64_t col = i % p.out_w, row = i / p.out_w % p.out_h;
        int64_t o = i / p.out_w / p.out_h % p.o, n = i / p.out_w / p.out_h / p.o;
        double want = expected(&p, x, w, n, o, row, col) + (biased ? bias[o] : 0);
        double got = y[at(p.o, p.out_h, p.out_w, n, o, row, col)];
        assert_true(fabs(got - want) <= 3e-6 * (double)p.c);
    }
    p.n_threads = 5; // fewer tiles a turn
    free(scratch);
    scratch = aligned_alloc(64, td_align_up(td_winograd_scratch_bytes(&p), 64));
    td_winograd_run(&p, x, w, biased ? bias : NULL, again, scratch);
    assert_memory_equal(again, y, (size_t)y_elems * sizeof *y);
    free(scratch);
    free(x);
    free(w);
    free(bias);
    free(y);
    free(again);
}

static void each_size(bool gradient, bool biased) {
    static const int64_t sizes[][5] = {// n, c, o, h, w
                                       {1, LANES, LANES, 4, 4},
                                       {2, LANES, 2 * LANES, 7, 5},
                                       {3, 2 * LANES, LANES, 3, 14},
                                       {5, 3 * LANES, 5 * LANES, 8, 9},
                                       {1, LANES, LANES, 3, 3}};
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        for (int64_t pad = 0; pad <= 2; pad++) {
            struct td_winograd p = {.n = sizes[i][0],
                                    .c = sizes[i][1],
                                    .o = sizes[i][2],
                                    .h = sizes[i][3],
                                    .w = sizes[i][4],
                                    .out_h = sizes[i][3] + 2 * pad - 2,
                                    .out_w = sizes[i][4] + 2 - 2, // the other side: pad 1
                                    .pad = {pad, 1},
                                    .gradient = gradient};
            expect_convolution(p, biased);
        }
    }
}

static void test_results_are_those_of_fp64_when_forward(void **state) {
    (void)state;
    each_size(false, false);
}

static void test_bias_is_added_when_there_is_one(void **state) {
    (void)state;
    each_size(false, true);
}

static void test_results_are_those_of_fp64_when_a_gradient(void **state) {
    (void)state;
    each_size(true, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_those_of_fp64_when_forward),
        cmocka_unit_test(test_bias_is_added_when_there_is_one),
        cmocka_unit_test(test_results_are_those_of_fp64_when_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
