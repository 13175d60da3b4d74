// Learning-rate schedules at their corners; their rates are in tests/golden/schedules.json, which
// tests/scenario/engine/test_s06_parity.py reads.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/config/schedule.h"
#include "lib/spec/knobs.h"

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
    for (int64_t i = 10; i < 110; i++) {
        assert_true(td_schedule_lr(&s, 1.0, i) > td_schedule_lr(&s, 1.0, i + 1));
    }
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

// The spec's names and lengths are the engine's: a worker relies on it.
static void test_names_are_those_of_the_spec_when_all_are_visited(void **state) {
    (void)state;
    unsigned seen = 0;
    for (size_t i = 0; i < td_n_sections; i++) {
        enum td_schedule_kind kind;
        const char *name = td_section_variant_of(&td_sections[i], "lr_scheduler");
        if (!name) continue;
        assert_true(td_schedule_find(name, &kind));
        assert_string_equal(td_schedule_name(kind), name);
        const char *end = td_schedule_end_knob(kind);
        if (end) {
            const struct td_knob *k = td_knob_find(td_sections[i].path, end);
            assert_non_null(k);
            assert_int_equal(k->type, TD_KNOB_INT_OR_AUTO);
        }
        seen |= 1u << kind;
    }
    assert_int_equal(seen, (1u << TD_SCHEDULE_COUNT) - 1);
    enum td_schedule_kind none;
    assert_false(td_schedule_find("triangle", &none));
}

static void test_rates_are_sane_when_lengths_are_extreme(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 3, 1000};
    static const double shares[] = {0, 0.01, 0.5, 1};
    for (unsigned kind = 0; kind < TD_SCHEDULE_COUNT; kind++) {
        for (size_t i = 0; i < TD_COUNTOF(lengths) * TD_COUNTOF(shares) * 2; i++) {
            struct td_schedule_config s = {
                .kind = (enum td_schedule_kind)kind,
                .total_steps = lengths[i % 4],
                .pct_start = shares[i / 4 % 4],
                .three_phase = i / 16,
                .warmup_steps =
                    (int64_t)(i % 3), // 1 and 2 leave nothing for the rest of short ones
                .decay_steps = (int64_t)(i % 2),
                .period_steps = 1,
                .timescale = 1,
                .start_factor = 1,
                .gamma = 0.5,
                .power = 2,
                .div_factor = 25,
                .final_div_factor = 1e4,
            };
            for (int64_t step = 0; step < 2000; step += 1 + step / 8) {
                double lr = td_schedule_lr(&s, 1.0, step);
                if (!(lr >= 0 && lr <= 1)) {
                    fail_msg("%s case %zu step %lld: %g", td_schedule_name(s.kind), i,
                             (long long)step, lr);
                }
            }
        }
    }
}

static void test_one_cycle_stays_at_its_last_rate_when_it_is_over(void **state) {
    (void)state;
    struct td_schedule_config s = {
        .kind = TD_SCHEDULE_ONE_CYCLE,
        .total_steps = 100,
        .pct_start = 0.3,
        .div_factor = 25,
        .final_div_factor = 1e4,
        .decay_curve = TD_CURVE_COSINE,
    };
    assert_true(fabs(td_schedule_lr(&s, 1.0, 0) - 0.04) < 1e-15);
    assert_true(td_schedule_lr(&s, 1.0, 29) == 1.0);
    assert_true(fabs(td_schedule_lr(&s, 1.0, 99) - 4e-6) < 1e-15);
    assert_true(td_schedule_lr(&s, 1.0, 100000) == td_schedule_lr(&s, 1.0, 99));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_is_constant),
        cmocka_unit_test(test_warmup_cosine_rises_turns_and_stays_down),
        cmocka_unit_test(test_warmup_cosine_has_no_fall_when_the_warmup_takes_all),
        cmocka_unit_test(test_names_are_those_of_the_spec_when_all_are_visited),
        cmocka_unit_test(test_rates_are_sane_when_lengths_are_extreme),
        cmocka_unit_test(test_one_cycle_stays_at_its_last_rate_when_it_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
