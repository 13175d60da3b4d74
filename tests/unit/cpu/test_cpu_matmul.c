// The cpu accelerator's own products, against sums in fp64: every type, transposes, borders of
// tiles, blocks and panels, bias and relu, adding, weights in panels. The bits are the same for any
// number of threads. Compiled here for the generic level; conformance runs the others.

#include <math.h>

#include "accelerators/cpu/kernels/convert.c"
#include "accelerators/cpu/kernels/matmul/matmul.c"
#include "accelerators/cpu/kernels/matmul/pack.c"
#include "accelerators/cpu/kernels/matmul/panels.c"
#include "lib/base/floats/floats.h"
#include "tests/unit/test.h"

int32_t td_parallel_threads(void) {
    return 1;
}

// All units one after the other, as one thread would; the split is the product's own.
void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg) {
    (void)n_threads, (void)work;
    fn(arg, 0, n);
}

void td_parallel(int32_t n_threads, int64_t n, int64_t grain, td_range_fn *fn, const void *arg) {
    (void)n_threads, (void)grain;
    fn(arg, 0, n);
}

struct matrices {
    float *a, *b, *bias, *y; // as they are multiplied
    void *given_a, *given_b; // as they are given
    char *given_y;
};

static float value(int64_t i, int64_t prime) {
    return (float)(i * prime % 2003) / 1000 - 1;
}

// n values of a type, and what they are as fp32.
static void *fill(enum td_dtype t, int64_t n, int64_t prime, float **out_values) {
    float *x = calloc((size_t)n + 1, sizeof *x);
    void *given = calloc((size_t)n + 1, td_dtype_bytes(t));
    assert_true(x && given);
    for (int64_t i = 0; i < n; i++) {
        x[i] = value(i, prime);
    }
    td_float_convert(TD_F32, x, n, t, given);
    td_float_convert(t, given, n, TD_F32, x);
    *out_values = x;
    return given;
}

static struct matrices make(const struct td_matmul *p) {
    struct matrices m = {0};
    m.given_a = fill(p->a_type, p->m * p->k, 7919, &m.a);
    m.given_b = fill(p->b_as, p->k * p->n, 104729, &m.b);
    free(fill(p->bias_type, p->n, 611953, &m.bias));
    m.given_y = fill(p->y_type, p->m * p->n, 15485863, &m.y);
    return m;
}

static void matrices_free(struct matrices *m) {
    free(m->a);
    free(m->b);
    free(m->bias);
    free(m->y);
    free(m->given_a);
    free(m->given_b);
    free(m->given_y);
}

// b in panels, if p wants it so; else as it is given. The caller frees what is not given.
static void *second_operand(const struct td_matmul *p, const struct matrices *m) {
    if (!p->packed_b) return m->given_b;
    struct td_pack_shape s = td_matmul_panels(p->n, p->k, p->trans_b, p->b_as, p->b_as);
    void *panels = aligned_alloc(64, td_align_up(td_matmul_panel_bytes(&s), 64));
    assert_non_null(panels);
    memset(panels, 0xff, td_matmul_panel_bytes(&s));
    td_pack_rows(&s, m->given_b, panels);
    return panels;
}

static double expected(const struct td_matmul *p, const struct matrices *m, bool bias, int64_t i,
                       int64_t j) {
    double sum = bias ? m->bias[j] : 0;
    for (int64_t q = 0; q < p->k; q++) {
        double a = p->trans_a ? m->a[q * p->m + i] : m->a[i * p->k + q];
        double b = p->trans_b ? m->b[j * p->k + q] : m->b[q * p->n + j];
        sum += a * b;
    }
    if (p->accumulate) sum += m->y[i * p->n + j];
    return p->act == TD_ACT_RELU && sum < 0 ? 0 : sum;
}

// Runs the product into `y`, which begins as the given one.
static void run_once(const struct td_matmul *p, const struct matrices *m, bool bias, void *y) {
    size_t bytes = (size_t)(p->m * p->n) * td_dtype_bytes(p->y_type);
    void *b = second_operand(p, m), *scratch = aligned_alloc(64, td_matmul_scratch_bytes(p) + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, td_matmul_scratch_bytes(p));
    memcpy(y, m->given_y, bytes);
    float *narrow = calloc((size_t)p->n + 1, sizeof *narrow);
    td_float_convert(TD_F32, m->bias, p->n, p->bias_type, narrow);
    td_matmul_run(p, m->given_a, b, bias ? narrow : NULL, y, scratch);
    free(narrow);
    free(scratch);
    if (b != m->given_b) free(b);
}

static void expect_product(struct td_matmul p, bool bias) {
    struct matrices m = make(&p);
    size_t n = (size_t)(p.m * p.n), bytes = n * td_dtype_bytes(p.y_type);
    char *y = calloc(bytes + 1, 1), *again = calloc(bytes + 1, 1);
    float *got = calloc(n + 1, sizeof *got);
    assert_true(y && again && got);
    y[bytes] = 0x5a;
    p.n_threads = 1;
    run_once(&p, &m, bias, y);
    assert_int_equal(y[bytes], 0x5a); // nothing is written after the result
    td_float_convert(p.y_type, y, (int64_t)n, TD_F32, got);
    double tolerance = p.y_type == TD_F32 ? 2e-6 : p.y_type == TD_F16 ? 1e-3 : 8e-3;
    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            double want = expected(&p, &m, bias, i, j), difference = fabs(got[i * p.n + j] - want);
            assert_true(difference <= tolerance * (sqrt((double)p.k) + fabs(want)));
        }
    }
    for (int32_t threads = 2; threads <= 64; threads = threads * 2 + 1) {
        p.n_threads = threads;
        run_once(&p, &m, bias, again);
        assert_memory_equal(again, y, bytes);
    }
    free(y);
    free(again);
    free(got);
    matrices_free(&m);
}

static const int64_t sizes[][3] = {{1, 1, 1},     {4, 16, 8},     {5, 17, 3},    {61, 33, 300},
                                   {40, 16, 256}, {83, 100, 513}, {7, 1100, 20}, {130, 260, 40}};
static const enum td_dtype types[][2] = {
    {TD_F32, TD_F32}, {TD_BF16, TD_BF16}, {TD_BF16, TD_F32}, {TD_F16, TD_F16}, {TD_F16, TD_F32}};

static void each_product(bool packed, bool accumulate, enum td_act act, bool bias) {
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        for (size_t t = 0; t < TD_COUNTOF(types); t++) {
            for (int trans = 0; trans < 4; trans++) {
                struct td_matmul p = {.m = sizes[s][0],
                                      .n = sizes[s][1],
                                      .k = sizes[s][2],
                                      .trans_a = trans & 1,
                                      .trans_b = trans & 2,
                                      .packed_b = packed,
                                      .accumulate = accumulate,
                                      .act = act,
                                      .a_type = types[t][0],
                                      .b_type = types[t][0],
                                      .b_as = types[t][0],
                                      .bias_type = s % 2 ? types[t][0] : TD_F32,
                                      .y_type = types[t][1]};
                expect_product(p, bias);
            }
        }
    }
}

static void test_products_are_those_of_fp64_when_operands_lie_plain(void **state) {
    (void)state;
    each_product(false, false, TD_ACT_NONE, false);
}

static void test_products_are_those_of_fp64_when_weights_are_packed(void **state) {
    (void)state;
    each_product(true, false, TD_ACT_RELU, true);
}

static void test_products_are_added_when_asked_for(void **state) {
    (void)state;
    each_product(false, true, TD_ACT_NONE, false);
}

// A weight of fp32 that a mixed precision multiplies as 16 bits: packed or not, the same bits.
static void test_weights_are_rounded_alike_when_packed_or_read(void **state) {
    static const enum td_dtype as[] = {TD_BF16, TD_F16};
    enum { M = 9, N = 37, K = 50 };
    (void)state;
    for (size_t t = 0; t < TD_COUNTOF(as); t++) {
        for (int trans = 0; trans < 2; trans++) {
            struct td_matmul p = {.m = M,
                                  .n = N,
                                  .k = K,
                                  .trans_b = trans,
                                  .a_type = as[t],
                                  .b_type = TD_F32,
                                  .b_as = as[t],
                                  .y_type = TD_F32,
                                  .n_threads = 2};
            float a[M * K], b[N * K], y[2][M * N];
            uint16_t given_a[M * K];
            for (int i = 0; i < M * K; i++) {
                a[i] = value(i, 7919);
            }
            for (int i = 0; i < N * K; i++) {
                b[i] = value(i, 104729) * 1.001f;
            }
            td_float_convert(TD_F32, a, M * K, as[t], given_a);
            struct td_pack_shape s = td_matmul_panels(N, K, trans, TD_F32, as[t]);
            float *panels = aligned_alloc(64, td_align_up(td_matmul_panel_bytes(&s), 64));
            void *scratch = aligned_alloc(64, td_align_up(td_matmul_scratch_bytes(&p), 64));
            td_pack_rows(&s, b, panels);
            td_matmul_run(&p, given_a, b, NULL, y[0], scratch);
            p.packed_b = true;
            td_matmul_run(&p, given_a, panels, NULL, y[1], scratch);
            assert_memory_equal(y[0], y[1], sizeof y[0]);
            free(panels);
            free(scratch);
        }
    }
}

// A ruined model must not look sound: relu keeps what is no number.
static void test_not_a_number_stays_when_relu_follows(void **state) {
    (void)state;
    float a[] = {NAN, 1, -1}, b[] = {1, 1}, y[6];
    struct td_matmul p = {.m = 3, .n = 2, .k = 1, .act = TD_ACT_RELU, .n_threads = 1};
    p.a_type = p.b_type = p.b_as = p.y_type = TD_F32;
    void *scratch = aligned_alloc(64, td_align_up(td_matmul_scratch_bytes(&p), 64));
    td_matmul_run(&p, a, b, NULL, y, scratch);
    assert_true(isnan(y[0]) && isnan(y[1]));
    assert_true(y[2] == 1 && y[4] == 0);
    free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_those_of_fp64_when_operands_lie_plain),
        cmocka_unit_test(test_products_are_those_of_fp64_when_weights_are_packed),
        cmocka_unit_test(test_products_are_added_when_asked_for),
        cmocka_unit_test(test_weights_are_rounded_alike_when_packed_or_read),
        cmocka_unit_test(test_not_a_number_stays_when_relu_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
