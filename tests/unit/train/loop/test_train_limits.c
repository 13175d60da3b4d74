// How often things happen: the arithmetic of limits.h against a table, and against the loop that it
// replaces, played batch by batch.

#include "tests/unit/test.h"

#include "engine/train/config/limits.h"

static struct td_amount count_of(int64_t n) {
    return (struct td_amount){.batches = n};
}
static struct td_amount share_of(double f) {
    return (struct td_amount){.is_fraction = true, .fraction = f};
}

static void test_batches_follow_samples_and_limits(void **state) {
    (void)state;
    static const struct {
        int64_t samples, batch;
        bool drop_last;
        struct td_amount limit;
        int64_t want;
    } rows[] = {
        {100, 10, false, {.is_fraction = true, .fraction = 1}, 10},
        {101, 10, false, {.is_fraction = true, .fraction = 1}, 11},
        {101, 10, true, {.is_fraction = true, .fraction = 1}, 10},
        {9, 10, false, {.is_fraction = true, .fraction = 1}, 1},
        {9, 10, true, {.is_fraction = true, .fraction = 1}, 0},
        {101, 10, false, {.is_fraction = true, .fraction = 0.5}, 5},
        {101, 10, false, {.is_fraction = true, .fraction = 0}, 0},
        {101, 10, false, {.batches = 3}, 3},
        {101, 10, false, {.batches = 1000}, 11},
        {101, 10, false, {.batches = 0}, 0},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        assert_int_equal(
            td_limits_batches(rows[i].samples, rows[i].batch, rows[i].drop_last, rows[i].limit),
            rows[i].want);
    }
}

static void test_window_has_its_real_length_when_the_last_is_short(void **state) {
    (void)state;
    struct td_limits l = {.accumulate = {{0, 4}}, .n_accumulate = 1};
    struct td_epoch e = {.n_batches = 10}, brief = {.n_batches = 2};
    static const int64_t want[] = {4, 4, 4, 4, 4, 4, 4, 4, 2, 2};
    for (int64_t b = 0; b < 10; b++) {
        assert_int_equal(td_limits_window(&l, &e, b), want[b]);
        assert_int_equal(td_limits_begins(&l, &e, b), b % 4 == 0);
        assert_int_equal(td_limits_steps_after(&l, &e, b), b == 3 || b == 7 || b == 9);
    }
    assert_int_equal(td_limits_steps_per_epoch(&l, 0, 10), 3);
    assert_int_equal(td_limits_window(&l, &brief, 0),
                     2); // an epoch shorter than a window: one step
    assert_true(td_limits_steps_after(&l, &brief, 1));
    assert_int_equal(td_limits_steps_per_epoch(&l, 0, 2), 1);
}

// As after a resume with another world or batch size: the place is no multiple of the window.
static void test_first_window_begins_where_the_run_does_when_inside_an_epoch(void **state) {
    (void)state;
    struct td_limits l = {.accumulate = {{0, 4}}, .n_accumulate = 1};
    struct td_epoch e = {.first = 3, .n_batches = 9};
    static const char want[] = "b..eB!";
    for (int64_t b = 3; b < 9; b++) {
        assert_int_equal(td_limits_begins(&l, &e, b), strchr("bB", want[b - 3]) != NULL);
        assert_int_equal(td_limits_steps_after(&l, &e, b), strchr("e!", want[b - 3]) != NULL);
        assert_int_equal(td_limits_window(&l, &e, b), b < 7 ? 4 : 2);
    }
}

// One length from the start, and others from epochs 2 and 3 on.
#define WINDOWS(first)                                                                             \
    {                                                                                              \
        {0, (first)}, {2, 1}, {                                                                    \
            3, 5                                                                                   \
        }                                                                                          \
    }

static void test_windows_have_the_length_of_their_epoch_when_it_changes(void **state) {
    (void)state;
    struct td_limits l = {.accumulate = WINDOWS(3), .n_accumulate = 3};
    static const int64_t length[] = {3, 3, 1, 5, 5}, steps[] = {3, 3, 7, 2, 2};
    for (int64_t i = 0; i < 5; i++) {
        struct td_epoch e = {.index = i, .n_batches = 7};
        assert_int_equal(td_limits_accumulate(&l, i), length[i]);
        assert_int_equal(td_limits_window(&l, &e, 0), length[i]);
        assert_int_equal(td_limits_steps_per_epoch(&l, i, 7), steps[i]);
    }
    assert_true(td_limits_ever_accumulates(&l));
    l = (struct td_limits){.accumulate = WINDOWS(1), .n_accumulate = 2};
    assert_false(td_limits_ever_accumulates(&l));
}

static void test_validation_is_due_by_interval_and_epoch(void **state) {
    (void)state;
    static const struct {
        struct td_amount interval;
        int32_t every_n_epoch;
        int64_t n_batches, epoch;
        const char *want; // a mark for each batch
    } rows[] = {
        {{.is_fraction = true, .fraction = 1}, 1, 5, 0, "....v"},
        {{.is_fraction = true, .fraction = 0.5}, 1, 6, 3, "..v..v"},
        {{.is_fraction = true, .fraction = 0.5}, 1, 5, 0, ".v.v."}, // none at the end
        {{.is_fraction = true, .fraction = 0.01}, 1, 3, 0, "vvv"},
        {{.batches = 2}, 1, 5, 0, ".v.v."},
        {{.batches = 9}, 1, 5, 0, "....."},
        {{.is_fraction = true, .fraction = 1}, 2, 3, 0, "..."},
        {{.is_fraction = true, .fraction = 1}, 2, 3, 1, "..v"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_limits l = {
            .accumulate = {{0, 1}},
            .n_accumulate = 1,
            .val_check_interval = rows[i].interval,
            .check_val_every_n_epoch = rows[i].every_n_epoch,
        };
        struct td_epoch e = {.index = rows[i].epoch, .n_batches = rows[i].n_batches};
        for (int64_t b = 0; b < rows[i].n_batches; b++) {
            assert_int_equal(td_limits_validates_after(&l, &e, b), rows[i].want[b] == 'v');
        }
    }
}

// Plays up to 9 epochs of 7 batches: how many steps there are, and whether one validates.
static int64_t play(const struct td_limits *l, bool *out_validates) {
    int64_t played = 0;
    *out_validates = false;
    for (struct td_epoch e = {.n_batches = 7}; e.index < 9; e.index++) {
        for (int64_t b = 0; b < 7 && !td_limits_reached(l, e.index, played); b++) {
            played += td_limits_steps_after(l, &e, b);
            *out_validates |= td_limits_validates_after(l, &e, b);
        }
    }
    return played;
}

static void test_run_validates_if_the_played_loop_does(void **state) {
    (void)state;
    for (int i = 0; i < 6 * 3 * 8 * 4 * 3 * 3; i++) {
        struct td_limits l = {
            .max_epochs = i % 6 - 1,
            .check_val_every_n_epoch = 1 + i / 6 % 3,
            .max_steps = i / 18 % 8 - 1,
            .accumulate = WINDOWS(1 + i / 144 % 4),
            .val_check_interval = {.batches = 2 + 3 * (i / 576 % 3)},
            .n_accumulate = 1 + (size_t)i / 1728,
        };
        bool validates;
        play(&l, &validates);
        assert_int_equal(td_limits_ever_validates(&l, 7), validates);
    }
}

// At once, however many batches there are.
static void test_validation_of_two_billion_batches_is_known_at_once(void **state) {
    (void)state;
    const int64_t n = INT64_C(1) << 40;
    struct td_limits l = {.max_epochs = 1,
                          .max_steps = -1,
                          .accumulate = WINDOWS(1),
                          .n_accumulate = 1,
                          .check_val_every_n_epoch = 1,
                          .val_check_interval = {.is_fraction = true, .fraction = 1}};
    assert_true(td_limits_ever_validates(&l, n));
    l.max_steps = 1000;
    assert_false(td_limits_ever_validates(&l, n));
    l.val_check_interval = (struct td_amount){.batches = n + 1};
    l.max_steps = -1;
    assert_false(td_limits_ever_validates(&l, n));
}

static void test_total_steps_equal_those_of_the_played_loop(void **state) {
    (void)state;
    for (int i = 0; i < 5 * 13 * 4 * 3; i++) {
        struct td_limits l = {
            .max_epochs = i % 5 - 1,
            .max_steps = i / 5 % 13 - 1,
            .accumulate = WINDOWS(1 + i / 65 % 4),
            .n_accumulate = 1 + (size_t)i / 260,
            .check_val_every_n_epoch = 1,
        };
        bool validates;
        bool known = l.max_epochs >= 0 || l.max_steps >= 0;
        const struct td_epoch first = {.n_batches = 7};
        assert_int_equal(td_limits_total_steps(&l, 0, &first, 7), known ? play(&l, &validates) : 0);
    }
}

// From each place between two windows, whatever was done with other batches and ranks before it.
static void test_total_steps_are_those_done_and_those_left_when_resumed(void **state) {
    (void)state;
    for (int i = 0; i < 5 * 4 * 3 * 6 * 8; i++) {
        struct td_limits l = {
            .max_epochs = i % 5,
            .max_steps = -1,
            .accumulate = WINDOWS(1 + i / 5 % 4),
            .n_accumulate = 1 + (size_t)(i / 20 % 3),
        };
        struct td_epoch e = {.index = i / 60 % 6, .first = i / 360, .n_batches = 7};
        const int64_t done = 11;
        int64_t left = 0;
        for (struct td_epoch p = e; p.index < l.max_epochs; p.index++, p.first = 0) {
            for (int64_t b = p.first; b < 7; b++) {
                left += td_limits_steps_after(&l, &p, b);
            }
        }
        assert_int_equal(td_limits_total_steps(&l, done, &e, 7), done + left);
        l.max_steps = 14;
        assert_int_equal(td_limits_total_steps(&l, done, &e, 7), TD_MIN(done + left, 14));
    }
}

static void test_early_end_waits_for_the_minima(void **state) {
    (void)state;
    struct td_limits l = {.min_epochs = 2, .min_steps = 10};
    assert_false(td_limits_may_stop_early(&l, 1, 100));
    assert_false(td_limits_may_stop_early(&l, 2, 9));
    assert_true(td_limits_may_stop_early(&l, 2, 10));
    assert_int_equal(td_amount_of(count_of(5), 3), 3);
    assert_int_equal(td_amount_of(share_of(0.34), 3), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_follow_samples_and_limits),
        cmocka_unit_test(test_window_has_its_real_length_when_the_last_is_short),
        cmocka_unit_test(test_first_window_begins_where_the_run_does_when_inside_an_epoch),
        cmocka_unit_test(test_windows_have_the_length_of_their_epoch_when_it_changes),
        cmocka_unit_test(test_validation_is_due_by_interval_and_epoch),
        cmocka_unit_test(test_run_validates_if_the_played_loop_does),
        cmocka_unit_test(test_validation_of_two_billion_batches_is_known_at_once),
        cmocka_unit_test(test_total_steps_equal_those_of_the_played_loop),
        cmocka_unit_test(test_total_steps_are_those_done_and_those_left_when_resumed),
        cmocka_unit_test(test_early_end_waits_for_the_minima),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
