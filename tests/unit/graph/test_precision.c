// The loss scale of 16-mixed, as its plugin keeps it: torch's numbers, one call at a time.

#include "tests/unit/test.h"

#include "precisions/precisions.h"
#include "traind/graph.h"
#include "traind/precision.h"

enum { GROWTH = 2000 };
static const struct td_precision_config config = {.struct_bytes = sizeof config};

static const struct td_precision_ops *ops(void) {
    return td_precision_fp16_mixed.ops;
}

static struct td_precision_state state_of(struct td_precision *p) {
    struct td_precision_state s = {0};
    assert_ok(ops()->state_save(p, &s));
    return s;
}

// n gates; each steps if its gradients are finite.
static void gates(struct td_precision *p, int n, bool finite) {
    for (int i = 0; i < n; i++) {
        bool steps = !finite;
        assert_ok(ops()->step_gate(p, finite, &steps));
        assert_true(steps == finite);
    }
}

static void test_scale_doubles_after_2000_clean_steps_and_halves_at_once(void **state) {
    (void)state;
    struct td_precision *p;
    assert_ok(ops()->open(&config, &p));
    assert_true(state_of(p).loss_scale == 65536);
    gates(p, GROWTH - 1, true);
    assert_true(state_of(p).loss_scale == 65536 && state_of(p).clean_steps == GROWTH - 1);
    gates(p, 1, true);
    assert_true(state_of(p).loss_scale == 131072 && state_of(p).clean_steps == 0);
    gates(p, 1, false);
    assert_true(state_of(p).loss_scale == 65536 && state_of(p).skipped_steps == 1);
    double scalars[TD_SCALAR_COUNT] = {0};
    assert_ok(ops()->pre_backward(p, scalars));
    assert_true(scalars[TD_SCALAR_LOSS_SCALE] == 65536);
    ops()->close(p);
}

static void test_clean_steps_are_counted_again_when_one_overflows(void **state) {
    (void)state;
    struct td_precision *p;
    assert_ok(ops()->open(&config, &p));
    gates(p, GROWTH - 1, true);
    gates(p, 1, false);
    assert_int_equal(state_of(p).clean_steps, 0);
    gates(p, GROWTH - 1, true);
    assert_true(state_of(p).loss_scale == 32768);
    gates(p, 1, true);
    assert_true(state_of(p).loss_scale == 65536);
    ops()->close(p);
}

static void test_scaler_goes_on_when_its_state_is_loaded(void **state) {
    (void)state;
    struct td_precision *p;
    const struct td_precision_state saved = {
        .loss_scale = 512, .clean_steps = GROWTH - 1, .skipped_steps = 7};
    const struct td_precision_state of_another_precision = {0};
    assert_ok(ops()->open(&config, &p));
    assert_ok(ops()->state_load(p, &saved));
    assert_ok(ops()->state_load(p, &of_another_precision));
    gates(p, 1, true);
    assert_true(state_of(p).loss_scale == 1024 && state_of(p).skipped_steps == 7);
    ops()->close(p);
}

static void test_run_ends_when_no_scale_is_small_enough(void **state) {
    (void)state;
    struct td_precision *p;
    bool steps;
    assert_ok(ops()->open(&config, &p));
    gates(p, 40, false); // 2^16 to 2^-24
    td_status s = ops()->step_gate(p, false, &steps);
    assert_int_equal(td_status_class(s), TD_CLASS_NUMERIC);
    assert_fails(s, TD_FAILED_PRECONDITION, "41 steps skipped");
    ops()->close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale_doubles_after_2000_clean_steps_and_halves_at_once),
        cmocka_unit_test(test_clean_steps_are_counted_again_when_one_overflows),
        cmocka_unit_test(test_scaler_goes_on_when_its_state_is_loaded),
        cmocka_unit_test(test_run_ends_when_no_scale_is_small_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
