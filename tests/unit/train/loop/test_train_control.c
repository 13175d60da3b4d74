// Control flags: what ranks raise, and what they all read from the sum.

#include "tests/unit/test.h"
#include "tests/unit/train/loop/golden.h"

#include "engine/train/rank/group/control.h"
#include "lib/base/clock.h"

static void sum(const float *a, const float *b, float *out) {
    for (int i = 0; i < TD_CONTROL_FLAGS; i++) {
        out[i] = a[i] + b[i];
    }
}

static void test_all_read_the_same_when_only_one_rank_saw_the_wish(void **state) {
    (void)state;
    static const struct {
        int32_t stop;
        bool want_stop, want_save, want_now;
    } rows[] = {
        {TD_STOP_NONE, false, false, false},
        {TD_STOP_CHECKPOINT, true, true, false},
        {TD_STOP_NOW, true, false, true},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_rank_page pages[2] = {0};
        struct td_control c[2];
        float flags[2][TD_CONTROL_FLAGS], all[TD_CONTROL_FLAGS];
        for (int r = 0; r < 2; r++) {
            td_control_init(&c[r], &pages[r], r == 0, 0, 0);
        }
        atomic_store(&pages[1].stop, rows[i].stop);
        for (int r = 0; r < 2; r++) {
            td_control_raise(&c[r], flags[r], true);
        }
        sum(flags[0], flags[1], all);
        assert_true(all[TD_CONTROL_RANKS] == 2);
        struct td_agreement a = td_control_read(all);
        assert_int_equal(a.stop, rows[i].want_stop);
        assert_int_equal(a.save, rows[i].want_save);
        assert_int_equal(a.now, rows[i].want_now);
    }
}

static void test_a_request_is_honoured_once_and_only_where_a_step_follows(void **state) {
    (void)state;
    struct td_rank_page page = {0};
    struct td_control zero;
    float flags[TD_CONTROL_FLAGS];
    atomic_store(&page.checkpoint_request, 3); // while it is loading
    td_control_init(&zero, &page, true, 0, 0);
    td_control_raise(&zero, flags, false); // in a validation: not lost
    assert_false(td_control_read(flags).save);
    td_control_raise(&zero, flags, true);
    assert_true(td_control_read(flags).save);
    td_control_raise(&zero, flags, true);
    assert_false(td_control_read(flags).save);
}

// One step of two ranks; returns whether they save at its boundary.
static bool step_of_two(struct td_control c[2], _Atomic int32_t *late_request) {
    for (int r = 0; r < 2; r++) {
        td_control_raise(&c[r], c[r].flags, true);
    }
    if (late_request) atomic_fetch_add(late_request, 1); // after its flags have left
    sum(c[0].flags, c[1].flags, c[0].flags);
    memcpy(c[1].flags, c[0].flags, sizeof c[1].flags);
    bool saves[2];
    for (int r = 0; r < 2; r++) {
        td_control_agreed(&c[r]);
        saves[r] = td_control_take(&c[r]).save;
    }
    assert_true(saves[0] == saves[1]);
    return saves[0];
}

// A signal to all processes of a job reaches them within moments, of which a step may be one.
static void test_ranks_save_once_when_the_wish_reaches_each_at_another_moment(void **state) {
    (void)state;
    struct td_rank_page pages[2] = {0};
    struct td_control c[2];
    for (int r = 0; r < 2; r++) {
        td_control_init(&c[r], &pages[r], r == 0, 0, 0);
    }
    assert_false(step_of_two(c, NULL));
    for (int first = 0; first < 2; first++) {
        atomic_fetch_add(&pages[first].checkpoint_request, 1);
        assert_true(step_of_two(c, &pages[!first].checkpoint_request));
        assert_false(step_of_two(c, NULL));
    }
    atomic_fetch_add(&pages[1].checkpoint_request, 1); // of one that is not the first
    assert_true(step_of_two(c, NULL));
    assert_false(step_of_two(c, NULL));
}

static void test_timer_is_raised_when_the_time_is_up(void **state) {
    (void)state;
    struct td_rank_page page = {0};
    struct td_control c;
    float flags[TD_CONTROL_FLAGS];
    td_clock_fake(1000 * TD_NS_PER_S, 0);
    td_control_init(&c, &page, true, 90, 30 * TD_NS_PER_S);
    td_control_raise(&c, flags, true);
    assert_false(td_control_read(flags).timer);
    td_clock_fake(1060 * TD_NS_PER_S, 0);
    td_control_raise(&c, flags, true);
    assert_true(td_control_read(flags).timer);
    td_clock_fake(-1, -1);
}

// Plays the steps of a golden row; returns how many saves it has.
static int save_by_clock(const struct td_json *row) {
    struct td_rank_page page = {0};
    struct td_control zero, other;
    float flags[TD_CONTROL_FLAGS];
    const int64_t start_ns = 1000 * TD_NS_PER_S,
                  interval_s = td_json_int(td_json_get(row, "interval"), 0);
    const struct td_json *want = td_json_get(row, "saved")->first;
    int64_t step = 0;
    int saves = 0;
    td_clock_fake(start_ns, 0);
    td_control_init(&zero, &page, true, 0, 0);
    td_control_init(&other, &page, false, 0, 0);
    td_control_save_every(&zero, interval_s);
    td_control_save_every(&other, interval_s);
    for (const struct td_json *at = td_json_get(row, "at")->first; at; at = at->next) {
        td_clock_fake(start_ns + td_json_int(at, 0) * TD_NS_PER_S, 0);
        td_control_raise(&other, flags, true);
        assert_false(td_control_read(flags).due); // one clock decides
        td_control_raise(&zero, flags, false);
        assert_false(td_control_read(flags).due); // a validation does not use it up
        td_control_raise(&zero, flags, true);
        const bool is_due = td_control_read(flags).due;
        const bool wanted = want && td_json_int(want, 0) == ++step;
        if (is_due != wanted) fail_msg("interval %d: step %d", (int)interval_s, (int)step);
        assert_false(td_control_read(flags).save); // it is periodic, and may be left out
        if (!is_due) continue;
        td_control_saved(&zero);
        want = want->next;
        saves++;
    }
    assert_null(want);
    td_clock_fake(-1, -1);
    return saves;
}

static void test_checkpoint_is_due_when_lightning_s_is(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    const struct td_json *root = td_golden_read("tests/golden/loop.json", &a);
    int saves = 0;
    for (const struct td_json *r = td_json_get(root, "time_interval")->first; r; r = r->next) {
        saves += save_by_clock(r);
    }
    assert_true(saves > 40);
}

static void test_time_counts_from_the_last_checkpoint_when_something_else_saved(void **state) {
    (void)state;
    struct td_rank_page page = {0};
    struct td_control c;
    float flags[TD_CONTROL_FLAGS];
    td_clock_fake(1000 * TD_NS_PER_S, 0);
    td_control_init(&c, &page, true, 0, 0);
    td_control_save_every(&c, 10);
    td_clock_fake(1009 * TD_NS_PER_S, 0);
    td_control_saved(&c); // asked for, say
    td_clock_fake(1018 * TD_NS_PER_S, 0);
    td_control_raise(&c, flags, true);
    assert_false(td_control_read(flags).due);
    td_clock_fake(1019 * TD_NS_PER_S, 0);
    td_control_raise(&c, flags, true);
    assert_true(td_control_read(flags).due);
    td_control_raise(&c, flags, true); // not again at the next step, if it was left out
    assert_false(td_control_read(flags).due);
    td_clock_fake(-1, -1);
}

static void test_abort_is_class_collective(void **state) {
    (void)state;
    struct td_rank_page page = {0};
    struct td_control c;
    td_control_init(&c, &page, true, 0, 0);
    assert_ok(td_control_check_abort(&c));
    atomic_store(&page.abort, 1);
    td_status s = td_control_check_abort(&c);
    assert_int_equal(td_status_class(s), TD_CLASS_COLLECTIVE);
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_read_the_same_when_only_one_rank_saw_the_wish),
        cmocka_unit_test(test_a_request_is_honoured_once_and_only_where_a_step_follows),
        cmocka_unit_test(test_ranks_save_once_when_the_wish_reaches_each_at_another_moment),
        cmocka_unit_test(test_timer_is_raised_when_the_time_is_up),
        cmocka_unit_test(test_checkpoint_is_due_when_lightning_s_is),
        cmocka_unit_test(test_time_counts_from_the_last_checkpoint_when_something_else_saved),
        cmocka_unit_test(test_abort_is_class_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
