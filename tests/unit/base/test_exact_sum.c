// Exact sums: the order of what is added never shows, also not between additions that were kept as
// doubles; and the value is the nearest double.

#include "lib/base/floats/exact_sum.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/base/rng.h"
#include "tests/unit/test.h"

enum { MOST = 64 };

static double sum_of(const double *x, size_t n) {
    struct td_exact_sum s = {0};
    for (size_t i = 0; i < n; i++) {
        td_exact_sum_add(&s, x[i]);
    }
    return td_exact_sum_value(&s);
}

// As a database does it: between two additions the sum is a few doubles.
static double kept_sum_of(const double *x, size_t n) {
    double part[TD_EXACT_PARTS];
    size_t parts = 0;
    for (size_t i = 0; i < n; i++) {
        struct td_exact_sum s = {0};
        for (size_t k = 0; k < parts; k++) {
            td_exact_sum_add(&s, part[k]);
        }
        td_exact_sum_add(&s, x[i]);
        parts = td_exact_sum_parts(&s, part);
        assert_true(part[0] == td_exact_sum_value(&s));
    }
    return part[0];
}

static bool same(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static void test_value_is_the_nearest_double_ties_to_even(void **state) {
    (void)state;
    const double ulp = DBL_EPSILON, tiny = DBL_TRUE_MIN;
    const struct {
        double x[4], value;
    } rows[] = {
        {{0.1, 0.2, 0.3, 0}, 0.6},
        {{1, ulp / 2, 0, 0}, 1},                       // a tie, to even
        {{1, ulp / 2, tiny, 0}, 1 + ulp},              // past it by the least there is
        {{1 + ulp, ulp / 2, 0, 0}, 1 + 2 * ulp},       // a tie, to even
        {{1 + ulp, ulp / 2, -tiny, 0}, 1 + ulp},       //
        {{1e308, 1e308, -1e308, -1e308}, 0},           // no overflow on the way
        {{1e16, 1, -1e16, 1}, 2},                      //
        {{-1e300, 1e-300, 1e300, 0}, 1e-300},          //
        {{tiny, tiny, -3 * tiny, 0}, -tiny},           //
        {{DBL_MAX, DBL_MAX, 0, 0}, INFINITY},          //
        {{DBL_MAX, -tiny, 0, 0}, DBL_MAX},             //
        {{INFINITY, 1, 2, 3}, INFINITY},               //
        {{-INFINITY, DBL_MAX, DBL_MAX, 0}, -INFINITY}, //
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        double got = sum_of(rows[i].x, 4);
        if (got != rows[i].value) fail_msg("row %zu: %.17g, not %.17g", i, got, rows[i].value);
    }
    assert_true(isnan(sum_of((double[]){INFINITY, -INFINITY}, 2)));
    assert_true(isnan(sum_of((double[]){1, (double)NAN, INFINITY}, 3)));
}

static uint64_t bits(struct td_mt19937 *g) {
    uint64_t high = td_mt19937_u32(g);
    return high << 32 | td_mt19937_u32(g);
}

static double any_double(struct td_mt19937 *g, int spread) {
    double x = ldexp((double)(bits(g) >> 11) + 1, -53);
    int exponent = (int)(bits(g) % (uint64_t)(2 * spread + 1)) - spread;
    return ldexp(bits(g) & 1 ? x : -x, exponent);
}

static void test_order_never_shows(void **state) {
    (void)state;
    static const int spreads[] = {0, 4, 40, 200, 1000};
    struct td_mt19937 g;
    td_mt19937_init(&g, 5);
    for (int round = 0; round < 500; round++) {
        double x[MOST];
        size_t n = 2 + (size_t)(bits(&g) % (MOST - 2));
        for (size_t i = 0; i < n; i++) {
            x[i] = any_double(&g, spreads[round % 5]);
        }
        const double first = sum_of(x, n);
        for (int again = 0; again < 4; again++) {
            for (size_t i = n - 1; i > 0; i--) {
                size_t k = (size_t)(bits(&g) % (i + 1));
                double t = x[i];
                x[i] = x[k];
                x[k] = t;
            }
            assert_true(same(sum_of(x, n), first));
            assert_true(same(kept_sum_of(x, n), first));
        }
    }
}

static void test_two_doubles_are_enough_for_values_of_a_size(void **state) {
    (void)state;
    struct td_exact_sum s = {0};
    double part[TD_EXACT_PARTS];
    struct td_mt19937 g;
    td_mt19937_init(&g, 7);
    for (int i = 0; i < 1000; i++) {
        td_exact_sum_add(&s, any_double(&g, 8));
    }
    assert_in_range(td_exact_sum_parts(&s, part), 1, 2);
    assert_int_equal(td_exact_sum_parts(&(struct td_exact_sum){0}, part), 1);
    assert_true(part[0] == 0);
}

static void test_mean_is_over_sums_and_counts(void **state) {
    (void)state;
    struct td_exact_mean m = {0};
    assert_true(isnan(td_exact_mean_value(&m)));
    assert_true(td_exact_mean_add(&m, 0.1, 1));
    assert_null(m.exact); // one has no order
    assert_true(td_exact_mean_add(&m, 0.2, 1) && td_exact_mean_add(&m, 0.3, 1));
    assert_true(same(m.sum, 0.6) && m.count == 3);
    assert_true(same(td_exact_mean_value(&m), 0.6 / 3));
    td_exact_mean_settle(&m);
    assert_true(td_exact_mean_add(&m, 1.4, 1));
    assert_true(td_exact_mean_value(&m) == 0.5);
    td_exact_mean_finish(&m);
    assert_true(isnan(td_exact_mean_value(&m)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_is_the_nearest_double_ties_to_even),
        cmocka_unit_test(test_order_never_shows),
        cmocka_unit_test(test_two_doubles_are_enough_for_values_of_a_size),
        cmocka_unit_test(test_mean_is_over_sums_and_counts),
    };
    return cmocka_run_group_tests_name("exact_sum", tests, NULL, NULL);
}
