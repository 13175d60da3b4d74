// Learning-rate schedules at their corners.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/schedule.h"

static void test_constant_is_constant(void **state) {
    (void)state;
    struct td_schedule_config s = {.kind = TD_SCHEDULE_CONSTANT};
    assert_true(td_schedule_lr(&s, 0.25, 0) == 0.25);
    assert_true(td_schedule_lr(&s, 0.25, 1000000) == 0.25);
}

static void test_warmup_cosine_rises_turns_and_stays_down(void **state) {
    (void)state;
    struct td_schedule_config s = {
        .kind = TD_SCHEDULE_WARMUP_COSINE,
        .warmup_steps = 10,
        .total_steps = 110,
        .min_lr = 0.1,
    };
    assert_true(fabs(td_schedule_lr(&s, 1.0, 0) - 0.1) < 1e-12); // moves from the first step on
    assert_true(fabs(td_schedule_lr(&s, 1.0, 9) - 1.0) < 1e-12);
    assert_true(fabs(td_schedule_lr(&s, 1.0, 10) - 1.0) < 1e-12);
    assert_true(fabs(td_schedule_lr(&s, 1.0, 60) - 0.55) < 1e-12);
    assert_true(td_schedule_lr(&s, 1.0, 110) == 0.1);
    assert_true(td_schedule_lr(&s, 1.0, 100000) == 0.1);
    for (int64_t i = 10; i < 110; i++)
        assert_true(td_schedule_lr(&s, 1.0, i) > td_schedule_lr(&s, 1.0, i + 1));
}

static void test_warmup_cosine_has_no_fall_when_the_warmup_takes_all(void **state) {
    (void)state;
    struct td_schedule_config s = {
        .kind = TD_SCHEDULE_WARMUP_COSINE,
        .warmup_steps = 10,
        .total_steps = 10,
    };
    assert_true(td_schedule_lr(&s, 1.0, 9) == 1.0);
    assert_true(td_schedule_lr(&s, 1.0, 10) == 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_is_constant),
        cmocka_unit_test(test_warmup_cosine_rises_turns_and_stays_down),
        cmocka_unit_test(test_warmup_cosine_has_no_fall_when_the_warmup_takes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
