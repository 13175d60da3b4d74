// Silence: when a rank counts as silent, by a clock that is only a number.

#include "daemon/launcher/watchdog/silence.h"

#include "lib/attempt/rank_page.h"
#include "tests/unit/test.h"

static const struct td_silence_limits limits = {
    .floor_ns = 30 * TD_NS_PER_S, .start_ns = 1200 * TD_NS_PER_S, .stuck_ns = 900 * TD_NS_PER_S};
enum { LOOK_MS = 100 };

struct rig {
    struct td_silence s;
    struct td_silence_page page;
    struct td_mono now;
};

static struct rig make(enum td_rank_phase phase) {
    const struct td_mono now = {1000 * TD_NS_PER_S};
    return (struct rig){.page = {.phase = phase, .heartbeat_ns = now.ns}, .now = now};
}

// Looks for so long; the first change that comes, and when.
static enum td_silence_change look_for(struct rig *r, int64_t ns, int64_t *out_after_ns) {
    int64_t begin_ns = r->now.ns, end_ns = begin_ns + ns;
    while (r->now.ns < end_ns) {
        r->now.ns += LOOK_MS * TD_NS_PER_MS;
        enum td_silence_change change = td_silence_look(&r->s, &limits, r->now, &r->page);
        if (out_after_ns) *out_after_ns = r->now.ns - begin_ns;
        if (change != TD_SILENCE_NONE) return change;
    }
    return TD_SILENCE_NONE;
}

static void step(struct rig *r, int64_t ns) {
    assert_int_equal(look_for(r, ns, NULL), TD_SILENCE_NONE);
    r->page.step++;
    r->page.samples += 32;
    r->page.heartbeat_ns = r->now.ns;
    (void)td_silence_look(&r->s, &limits, r->now, &r->page);
}

static struct rig make_training(int64_t step_ns) {
    struct rig r = make(TD_PHASE_TRAINING);
    for (int i = 0; i < 20; i++) {
        step(&r, step_ns);
    }
    return r;
}

// It was looked at once before and once after its first steps.
static void test_stopped_rank_is_silent_after_thirty_seconds_when_it_has_just_begun(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make(TD_PHASE_TRAINING);
    (void)td_silence_look(&r.s, &limits, r.now, &r.page);
    r.page.step = 19;
    step(&r, 0);
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_int_equal(after_ns, limits.floor_ns);
}

static void
test_stopped_rank_is_silent_after_thirty_seconds_when_its_steps_are_short(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make_training(TD_NS_PER_S / 2);
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_int_equal(after_ns, limits.floor_ns);
    assert_int_equal(look_for(&r, 2000 * TD_NS_PER_S, &after_ns), TD_SILENCE_STUCK);
    assert_int_equal(after_ns, limits.stuck_ns); // from the hint on
    step(&r, 0);
    assert_int_equal(r.s.since.ns, 0);
}

static void test_rank_beats_again_when_anything_of_it_moves(void **state) {
    (void)state;
    struct rig r = make_training(TD_NS_PER_S);
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, NULL), TD_SILENCE_BEGAN);
    r.page.phase = TD_PHASE_VALIDATING;
    r.page.heartbeat_ns++;
    assert_int_equal(td_silence_look(&r.s, &limits, r.now, &r.page), TD_SILENCE_ENDED);
    assert_int_equal(look_for(&r, 29 * TD_NS_PER_S, NULL), TD_SILENCE_NONE);
}

static void test_eight_median_steps_hold_when_steps_are_long(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make_training(10 * TD_NS_PER_S);
    step(&r, 60 * TD_NS_PER_S); // one that validated does not move the median
    assert_int_equal(look_for(&r, 1000 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_int_equal(after_ns, 80 * TD_NS_PER_S);
}

static void test_second_step_is_not_silent_when_the_first_was_long(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make(TD_PHASE_TRAINING);
    step(&r, 90 * TD_NS_PER_S);
    step(&r, 60 * TD_NS_PER_S);
    step(&r, 60 * TD_NS_PER_S);
    assert_int_equal(look_for(&r, 2000 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_int_equal(after_ns, 480 * TD_NS_PER_S);
}

static void test_twenty_minutes_hold_when_there_was_no_step_or_none_is_due(void **state) {
    (void)state;
    static const enum td_rank_phase phases[] = {TD_PHASE_STARTING, TD_PHASE_LOADING,
                                                TD_PHASE_TRAINING, TD_PHASE_SAVING};
    for (size_t i = 0; i < TD_COUNTOF(phases); i++) {
        int64_t after_ns = 0;
        struct rig r = make(phases[i]);
        assert_int_equal(look_for(&r, 2000 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
        assert_int_equal(after_ns, limits.start_ns + LOOK_MS * TD_NS_PER_MS);
    }
    struct rig r = make_training(TD_NS_PER_S);
    r.page.phase = TD_PHASE_SAVING;
    assert_int_equal(look_for(&r, 1000 * TD_NS_PER_S, NULL), TD_SILENCE_NONE);
}

static void test_batches_of_an_evaluation_beat_when_nothing_trains(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make(TD_PHASE_TESTING);
    for (int i = 0; i < 10; i++) {
        r.page.heartbeat_ns++;
        assert_int_equal(look_for(&r, 20 * TD_NS_PER_S, NULL), TD_SILENCE_NONE);
    }
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_true(after_ns < 15 * TD_NS_PER_S);
}

static void beat(struct rig *r, int64_t ns) {
    assert_int_equal(look_for(r, ns, NULL), TD_SILENCE_NONE);
    r->page.heartbeat_ns = r->now.ns;
    (void)td_silence_look(&r->s, &limits, r->now, &r->page);
}

static void test_eight_median_batches_hold_when_those_of_an_evaluation_are_long(void **state) {
    (void)state;
    static const enum td_rank_phase phases[] = {TD_PHASE_TESTING, TD_PHASE_PREDICTING};
    for (size_t i = 0; i < TD_COUNTOF(phases); i++) { // nothing was trained
        int64_t after_ns = 0;
        struct rig r = make(TD_PHASE_LOADING);
        beat(&r, TD_NS_PER_S);
        r.page.phase = phases[i];
        beat(&r, 0);
        beat(&r, 300 * TD_NS_PER_S); // the first is compiled for
        for (int k = 0; k < 5; k++) {
            beat(&r, 60 * TD_NS_PER_S);
        }
        assert_int_equal(look_for(&r, 2000 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
        assert_int_equal(after_ns, 480 * TD_NS_PER_S);
    }
}

static void test_steps_keep_their_own_median_when_batches_of_a_validation_are_short(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make_training(60 * TD_NS_PER_S);
    r.page.phase = TD_PHASE_VALIDATING;
    for (int i = 0; i < 20; i++) {
        beat(&r, TD_NS_PER_S);
    }
    r.page.phase = TD_PHASE_TRAINING;
    step(&r, 60 * TD_NS_PER_S);
    assert_int_equal(look_for(&r, 2000 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_int_equal(after_ns, 480 * TD_NS_PER_S);
}

// The machine slept, or all of it was stopped: who did not look cannot say that nothing moved.
static void test_pause_of_the_observer_does_not_count(void **state) {
    (void)state;
    int64_t after_ns = 0;
    struct rig r = make_training(TD_NS_PER_S);
    assert_int_equal(look_for(&r, 20 * TD_NS_PER_S, NULL), TD_SILENCE_NONE);
    r.now.ns += 3600 * TD_NS_PER_S;
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, &after_ns), TD_SILENCE_BEGAN);
    assert_true(after_ns >= 10 * TD_NS_PER_S);
    assert_int_equal(look_for(&r, 800 * TD_NS_PER_S, NULL), TD_SILENCE_NONE);
    r.now.ns += 3600 * TD_NS_PER_S;
    assert_int_equal(look_for(&r, 200 * TD_NS_PER_S, &after_ns), TD_SILENCE_STUCK);
    assert_true(after_ns >= 100 * TD_NS_PER_S);
}

static void test_stuck_is_never_said_when_the_timeout_is_zero(void **state) {
    (void)state;
    struct td_silence_limits never = limits;
    struct rig r = make_training(TD_NS_PER_S);
    never.stuck_ns = 0;
    assert_int_equal(look_for(&r, 100 * TD_NS_PER_S, NULL), TD_SILENCE_BEGAN);
    for (int i = 0; i < 100000; i++) {
        r.now.ns += TD_NS_PER_S;
        assert_int_equal(td_silence_look(&r.s, &never, r.now, &r.page), TD_SILENCE_NONE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_rank_is_silent_after_thirty_seconds_when_it_has_just_begun),
        cmocka_unit_test(test_stopped_rank_is_silent_after_thirty_seconds_when_its_steps_are_short),
        cmocka_unit_test(test_rank_beats_again_when_anything_of_it_moves),
        cmocka_unit_test(test_eight_median_steps_hold_when_steps_are_long),
        cmocka_unit_test(test_second_step_is_not_silent_when_the_first_was_long),
        cmocka_unit_test(test_twenty_minutes_hold_when_there_was_no_step_or_none_is_due),
        cmocka_unit_test(test_batches_of_an_evaluation_beat_when_nothing_trains),
        cmocka_unit_test(test_eight_median_batches_hold_when_those_of_an_evaluation_are_long),
        cmocka_unit_test(test_steps_keep_their_own_median_when_batches_of_a_validation_are_short),
        cmocka_unit_test(test_pause_of_the_observer_does_not_count),
        cmocka_unit_test(test_stuck_is_never_said_when_the_timeout_is_zero),
    };
    return cmocka_run_group_tests_name("launcher_silence", tests, NULL, NULL);
}
