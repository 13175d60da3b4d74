// Values of a command's metrics: what replaces, what closes, what is a repeat; the order in which
// they leave; and sets of steps.

#include "daemon/launcher/command/talk_values.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/rng.h"
#include "tests/unit/test.h"

static struct td_mono at_ms(int64_t ms) {
    return (struct td_mono){1000 * TD_NS_PER_S + ms * TD_NS_PER_MS};
}

static enum td_talk_said say(struct td_talk_values *v, int64_t ms, const char *name, int step,
                             double value) {
    struct td_metric_point p = {.step = step, .sum = value, .count = 1};
    snprintf(p.name, sizeof p.name, "%s", name);
    return td_talk_values_say(v, &p, at_ms(ms), TD_TALK_OPEN_NS);
}

// What leaves: "loss@1=2 ".
static const char *left(struct td_talk_values *v, int64_t ms, bool all) {
    static char text[512];
    struct td_metric_point p;
    size_t len = 0;
    text[0] = '\0';
    while (td_talk_values_take(v, at_ms(ms), all, &p)) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s@%d=%g ", p.name, p.step, p.sum);
        assert_true(len < sizeof text);
    }
    return text;
}

static void test_value_is_replaced_until_its_name_s_next_step(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    assert_int_equal(say(&v, 0, "loss", 1, 1), TD_TALK_TAKEN);
    assert_int_equal(say(&v, 10, "loss", 1, 2), TD_TALK_TAKEN);
    assert_string_equal(left(&v, 20, false), "");
    assert_int_equal(say(&v, 30, "loss", 2, 3), TD_TALK_TAKEN);
    assert_string_equal(left(&v, 30, false), "loss@1=2 ");
    assert_int_equal(say(&v, 40, "loss", 1, 9), TD_TALK_REPEATED);
    assert_int_equal(say(&v, 50, "loss", 2, 4), TD_TALK_TAKEN); // a repeat closes nothing
    assert_int_equal(v.dropped, 1);
    assert_string_equal(left(&v, 60, true), "loss@2=4 ");
    td_talk_values_finish(&v);
}

static void test_value_is_closed_after_a_second(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    say(&v, 0, "loss", 1, 1);
    say(&v, 999, "loss", 1, 2);
    assert_string_equal(left(&v, 999, false), "");
    assert_int_equal(say(&v, 1000, "loss", 1, 3), TD_TALK_REPEATED);
    assert_string_equal(left(&v, 1000, false), "loss@1=2 ");
    assert_int_equal(say(&v, 1001, "loss", 1, 3), TD_TALK_REPEATED);
    assert_int_equal(v.dropped, 2);
    td_talk_values_finish(&v);
}

static void test_name_that_is_new_at_a_step_is_taken_late_and_at_lower_steps(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    for (int step = 10; step <= 50; step += 10) {
        assert_int_equal(say(&v, step, "loss", step, step), TD_TALK_TAKEN);
    }
    assert_int_equal(say(&v, 9000, "val", 20, 7), TD_TALK_TAKEN);
    assert_int_equal(say(&v, 9001, "loss", 15, 8), TD_TALK_TAKEN);
    assert_int_equal(say(&v, 9002, "loss", 20, 9), TD_TALK_REPEATED);
    assert_string_equal(left(&v, 9003, true),
                        "loss@10=10 loss@20=20 loss@30=30 loss@40=40 loss@50=50 val@20=7 "
                        "loss@15=8 ");
    td_talk_values_finish(&v);
}

static void test_values_leave_in_the_order_in_which_they_were_first_said(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    say(&v, 0, "loss", 1, 1);
    say(&v, 1, "val", 1, 2);
    say(&v, 2, "loss", 2, 3);
    say(&v, 3, "loss", 3, 4);
    assert_string_equal(left(&v, 4, false), "loss@1=1 "); // val may still be replaced
    say(&v, 5, "val", 1, 5);
    assert_string_equal(left(&v, 1001, false), "val@1=5 loss@2=3 ");
    assert_string_equal(left(&v, 1003, false), "loss@3=4 ");
    td_talk_values_finish(&v);
}

static void test_values_and_names_have_a_bound(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    struct td_metric_point p;
    char name[32];
    for (int i = 0; i < TD_TALK_NAMES; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(say(&v, 0, name, 1, 1), TD_TALK_TAKEN);
    }
    assert_int_equal(say(&v, 0, "one more", 1, 1), TD_TALK_FULL);
    assert_int_equal(v.dropped, 1);
    (void)say(&v, 0, "m0", 1, 5); // open still
    for (int i = 2; v.n <= TD_TALK_OPEN; i++) {
        assert_int_equal(say(&v, 0, "m1", i, 1), TD_TALK_TAKEN);
    }
    assert_true(td_talk_values_take(&v, at_ms(0), false, &p)); // before its time
    assert_string_equal(p.name, "m0");
    assert_true(p.sum == 5);
    assert_int_equal(say(&v, 0, "m0", 1, 6), TD_TALK_REPEATED);
    td_talk_values_finish(&v);
}

static void test_long_irregular_run_loses_old_steps_and_no_value(void **state) {
    (void)state;
    struct td_talk_values v = {0};
    struct td_metric_point p;
    int last = 0;
    for (int step = 0; step < 100; step++) {
        assert_int_equal(say(&v, 0, "loss", step, 1), TD_TALK_TAKEN);
    }
    for (int i = 0; i < 2 * TD_TALK_RUNS + 1000; i++) { // 0 1 3 4 6 7: a run for two of them
        last = i / 2 * 3 + i % 2;
        assert_int_equal(say(&v, 0, "a", last, 1), TD_TALK_TAKEN);
        assert_true(v.n_runs <= TD_TALK_RUNS + 1);
        while (v.n > 1) {
            assert_true(td_talk_values_take(&v, at_ms(0), true, &p));
        }
    }
    assert_int_equal(say(&v, 0, "new", 1, 1), TD_TALK_TAKEN);
    assert_int_equal(v.dropped, 0);
    assert_int_equal(say(&v, 5000, "a", last, 1), TD_TALK_REPEATED);
    assert_int_equal(say(&v, 5000, "a", last - 300, 1), TD_TALK_REPEATED);
    assert_int_equal(say(&v, 5000, "loss", 50, 1), TD_TALK_REPEATED);
    assert_int_equal(say(&v, 5000, "a", 0, 1), TD_TALK_TAKEN); // forgotten
    td_talk_values_finish(&v);
}

// ---- sets of steps ------------------------------------------------------------------------------
static void test_regular_steps_are_one_run(void **state) {
    (void)state;
    struct td_step_set s = {0};
    for (int step = 0; step < 1000000; step += 10) {
        assert_true(td_step_set_add(&s, step));
    }
    assert_int_equal(s.n_runs, 1);
    assert_false(td_step_set_add(&s, 500) || td_step_set_has(&s, 505));
    for (int step = 5; step < 1000000; step += 10) { // late, in order
        assert_true(td_step_set_add(&s, step));
    }
    assert_int_equal(s.n_runs, 1);
    assert_true(td_step_set_add(&s, INT32_MAX) && td_step_set_has(&s, INT32_MAX));
    td_step_set_finish(&s);
}

static void test_set_has_what_was_added_and_nothing_else(void **state) {
    enum { STEPS = 300 };
    (void)state;
    struct td_mt19937 g;
    td_mt19937_init(&g, 3);
    for (int round = 0; round < 50; round++) {
        struct td_step_set s = {0};
        bool has[STEPS] = {0};
        for (int i = 0; i < 2 * STEPS; i++) {
            int step = (int)(td_mt19937_u32(&g) % STEPS);
            if (round % 2) step -= step % 7;
            assert_int_equal(td_step_set_add(&s, step), !has[step]);
            has[step] = true;
            assert_int_equal(td_step_set_has(&s, i % STEPS), has[i % STEPS]);
        }
        for (int step = 0; step < STEPS; step++) {
            assert_int_equal(td_step_set_has(&s, step), has[step]);
        }
        for (size_t i = 1; i < s.n_runs; i++) {
            assert_true(s.run[i - 1].last < s.run[i].first);
        }
        td_step_set_finish(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_is_replaced_until_its_name_s_next_step),
        cmocka_unit_test(test_value_is_closed_after_a_second),
        cmocka_unit_test(test_name_that_is_new_at_a_step_is_taken_late_and_at_lower_steps),
        cmocka_unit_test(test_values_leave_in_the_order_in_which_they_were_first_said),
        cmocka_unit_test(test_values_and_names_have_a_bound),
        cmocka_unit_test(test_long_irregular_run_loses_old_steps_and_no_value),
        cmocka_unit_test(test_regular_steps_are_one_run),
        cmocka_unit_test(test_set_has_what_was_added_and_nothing_else),
    };
    return cmocka_run_group_tests_name("launcher_talk_values", tests, NULL, NULL);
}
