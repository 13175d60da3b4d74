// Initial values: in range, with the right moments, and keyed by (seed, name, element) alone; bad
// ranges are refused with the tensor's name.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/rank/state/init.h"
#include "lib/base/rng.h"

enum { N = 20000 };

static struct td_state_info tensor(const char *name, int64_t n, enum td_init_kind kind, double a,
                                   double b) {
    return (struct td_state_info){
        .name = name, .shape = {.n_dims = 1, .dim = {n}}, .init = {kind, a, b}};
}

static void fill(uint64_t seed, struct td_state_info info, float *out) {
    assert_ok(td_init_fill(seed, &info, out));
}

static void test_values_depend_on_seed_name_and_element_when_filled_in_any_order(void **state) {
    (void)state;
    static float a[N], b[N], again[N];
    struct td_state_info weight = tensor("fc1.weight", N, TD_INIT_UNIFORM, -1, 1);
    struct td_state_info bias = tensor("fc1.bias", N, TD_INIT_UNIFORM, -1, 1);
    fill(1, weight, a);
    fill(1, bias, b);
    fill(1, weight, again);
    assert_memory_equal(a, again, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    fill(2, weight, b);
    assert_memory_not_equal(a, b, sizeof a);
    weight.shape.dim[0] = 7; // a shorter tensor of that name begins alike
    fill(1, weight, b);
    assert_memory_equal(a, b, 7 * sizeof *a);
    weight.shape = (struct td_shape){.n_dims = 2, .dim = {70, 100}};
    fill(1, weight, b);
    assert_memory_equal(a, b, 7000 * sizeof *a);
}

static void moments(const float *v, double *out_mean, double *out_deviation) {
    double n = N, sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        sum += v[i];
    }
    for (int i = 0; i < N; i++) {
        squares += (v[i] - sum / n) * (v[i] - sum / n);
    }
    *out_mean = sum / n;
    *out_deviation = sqrt(squares / n);
}

static void test_values_have_the_asked_distribution_when_random(void **state) {
    (void)state;
    static float v[N];
    double mean, deviation;
    fill(5, tensor("w", N, TD_INIT_UNIFORM, -0.25, 0.75), v);
    for (int i = 0; i < N; i++) {
        assert_true(v[i] >= -0.25f && v[i] < 0.75f);
    }
    moments(v, &mean, &deviation);
    assert_true(fabs(mean - 0.25) < 0.01 && fabs(deviation - 1 / sqrt(12)) < 0.01);
    fill(5, tensor("w", N, TD_INIT_NORMAL, 2, 0.5), v);
    for (int i = 0; i < N; i++) {
        assert_true(isfinite(v[i]));
    }
    moments(v, &mean, &deviation);
    assert_true(fabs(mean - 2) < 0.02 && fabs(deviation - 0.5) < 0.01);
}

static void test_normal_values_are_those_of_the_formula(void **state) {
    (void)state;
    static float v[N];
    const struct td_philox_key key = td_philox_key_of(9, "w");
    fill(9, tensor("w", N, TD_INIT_NORMAL, 0, 1), v);
    for (int i = 0; i < N; i++) {
        double a = 1.0 - (double)td_philox_uniform(key, 2 * (uint64_t)i);
        double b = (double)td_philox_uniform(key, 2 * (uint64_t)i + 1);
        assert_true(fabs((double)v[i] - sqrt(-2 * log(a)) * cos(2 * acos(-1.0) * b)) < 2e-6);
    }
}

static void test_values_are_the_constant_when_not_random(void **state) {
    (void)state;
    float v[3] = {9, 9, 9};
    fill(1, tensor("w", 2, TD_INIT_ZERO, 5, 5), v);
    assert_true(v[0] == 0 && v[1] == 0 && v[2] == 9);
    fill(1, tensor("w", 2, TD_INIT_CONST, 0.5, 0), v);
    assert_true(v[0] == 0.5f && v[1] == 0.5f && v[2] == 9);
    fill(1, tensor("w", 0, TD_INIT_UNIFORM, 0, 1), v); // an empty tensor is fine
    struct td_state_info scalar = tensor("w", 0, TD_INIT_CONST, 3, 0);
    scalar.shape = (struct td_shape){0};
    fill(1, scalar, v);
    assert_true(v[0] == 3 && v[1] == 0.5f);
}

static void test_upper_end_is_never_reached_when_the_range_is_narrow(void **state) {
    (void)state;
    static float v[N];
    fill(1, tensor("w", N, TD_INIT_UNIFORM, 1, 1 + 0x1p-23), v); // one value in the range
    for (int i = 0; i < N; i++) {
        assert_true(v[i] == 1.0f);
    }
}

static void test_fill_fails_when_the_range_makes_no_sense(void **state) {
    (void)state;
    float v = 9;
    const struct td_state_info bad[] = {
        tensor("w", 1, TD_INIT_UNIFORM, 1, 1), tensor("w", 1, TD_INIT_UNIFORM, 0, INFINITY),
        tensor("w", 1, TD_INIT_UNIFORM, NAN, 1), tensor("w", 1, TD_INIT_NORMAL, 0, -1),
        tensor("w", 1, (enum td_init_kind)99, 0, 1)};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_fails(td_init_fill(1, &bad[i], &v), TD_INVALID_ARGUMENT, "'w'");
        assert_true(v == 9);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_depend_on_seed_name_and_element_when_filled_in_any_order),
        cmocka_unit_test(test_values_have_the_asked_distribution_when_random),
        cmocka_unit_test(test_normal_values_are_those_of_the_formula),
        cmocka_unit_test(test_values_are_the_constant_when_not_random),
        cmocka_unit_test(test_upper_end_is_never_reached_when_the_range_is_narrow),
        cmocka_unit_test(test_fill_fails_when_the_range_makes_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
