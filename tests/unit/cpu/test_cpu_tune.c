// Kernel choices of the cpu accelerator: what is measured stays, in the cache and in the job. The
// race is between ways that spin for known times, a hundredfold apart.

#include "accelerators/cpu/tune.c"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/unit/test.h"

static const char *const names[] = {"slow", "fast", "absent"};

struct race_rig {
    int runs[3];
    int fastest;
    int64_t others_ns; // 0: a millisecond
};

static td_status spin(void *arg, int way) {
    struct race_rig *r = arg;
    r->runs[way]++;
    if (way == 2) return td_fail(TD_UNIMPLEMENTED, "not on this processor");
    struct td_mono begin = td_mono_now();
    int64_t ns = way == r->fastest ? 10000 : r->others_ns ? r->others_ns : 1000000;
    while (td_mono_now().ns - begin.ns < ns) {}
    return TD_OK;
}

static int pick(struct td_tune *t, const char *key, struct race_rig *r, int n) {
    int way = -1;
    memset(r->runs, 0, sizeof r->runs);
    assert_ok(td_tune_pick(t, key, names, n, NULL, spin, r, &way));
    return way;
}

static void assert_text(struct td_tune *t, const char *want) {
    const char *text;
    assert_ok(td_tune_text(t, &text));
    assert_string_equal(text, want);
}

static void test_fastest_way_is_taken_when_nothing_is_known(void **state) {
    TD_AUTO(td_tune) *t = NULL;
    struct race_rig r = {.fastest = 1};
    assert_ok(td_tune_create(*state, "m", &t));
    assert_true(td_tune_measures(t, "conv 3x3", names, 3));
    assert_int_equal(pick(t, "conv 3x3", &r, 3), 1);
    assert_true(r.runs[0] > MIN_RUNS && r.runs[1] > MIN_RUNS && r.runs[2] == 1);
    r.fastest = 0;
    assert_int_equal(pick(t, "conv 3x3", &r, 3), 1); // known now
    assert_int_equal(r.runs[0] + r.runs[1], 0);
    assert_int_equal(pick(t, "conv 5x5", &r, 3), 0);
    assert_text(t, "conv 3x3=fast\nconv 5x5=slow\n");
}

static void test_slow_start_has_to_be_made_up_for(void **state) {
    static const bool starts_slowly[] = {false, true};
    TD_AUTO(td_tune) *t = NULL;
    struct race_rig r = {.fastest = 1, .others_ns = 80000};
    int way = -1;
    assert_ok(td_tune_create(*state, "m", &t));
    assert_ok(td_tune_pick(t, "small", names, 2, starts_slowly, spin, &r, &way));
    assert_int_equal(way, 0);
    r.others_ns = 1000000;
    assert_ok(td_tune_pick(t, "large", names, 2, starts_slowly, spin, &r, &way));
    assert_int_equal(way, 1);
}

// One computes, the other gives its core away, as one does whose core others take.
static td_status compute_or_wait(void *arg, int way) {
    struct pollfd none = {.fd = -1};
    const int64_t begin_ns = td_thread_cpu_ns();
    (void)arg;
    if (way == 1) return poll(&none, 1, 20) == 0 ? TD_OK : td_fail(TD_INTERNAL, "poll");
    while (td_thread_cpu_ns() - begin_ns < TD_NS_PER_MS) {}
    return TD_OK;
}

static void test_time_that_others_took_is_not_a_ways_when_it_computes_alone(void **state) {
    for (int alone = 0; alone < 2; alone++) {
        TD_AUTO(td_tune) *t = NULL;
        int way = -1;
        assert_ok(td_tune_create(*state, alone ? "alone" : "a team", &t));
        if (alone) td_tune_time_thread(t);
        assert_ok(td_tune_pick(t, "k", names, 2, NULL, compute_or_wait, NULL, &way));
        assert_int_equal(way, alone);
    }
}

static _Atomic bool competitor_stops;
static void *compete(void *arg) {
    while (!atomic_load(&competitor_stops)) {}
    return arg;
}

static td_status compute_for_long(void *arg, int way) {
    struct td_mono begin = td_mono_now();
    ++*(int *)arg;
    while (td_mono_now().ns - begin.ns < 50 * TD_NS_PER_MS) {}
    return way == 0 ? TD_OK : td_fail(TD_INTERNAL, "way %d", way);
}

// Two threads on one core: each loses it to the other within 50 ms.
static void test_disturbed_run_decided_for_the_life_of_a_job(void **state) {
    TD_AUTO(td_tune) *t = NULL;
    cpu_set_t all, one;
    pthread_t competitor;
    int n_runs = 0;
    int64_t ns = 0;
    assert_ok(td_tune_create(*state, "m", &t));
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&competitor, NULL, compete, NULL), 0);
    assert_ok(time_way(t, compute_for_long, &n_runs, 0, MAX_TRIES, &ns));
    atomic_store(&competitor_stops, true);
    assert_int_equal(pthread_join(competitor, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(n_runs, MAX_TRIES);
    assert_true(ns >= 50 * TD_NS_PER_MS);
}

static void test_choice_is_read_again_when_the_machine_is_the_same(void **state) {
    struct race_rig r = {.fastest = 1};
    const char *const machines[] = {"m", "m", "another"};
    for (int i = 0; i < 3; i++) {
        TD_AUTO(td_tune) *t = NULL;
        assert_ok(td_tune_create(*state, machines[i], &t));
        assert_text(t, ""); // known, but nobody asked
        assert_int_equal(pick(t, "a=b", &r, 2), 1);
        assert_int_equal(r.runs[1] > 0, i != 1);
        td_tune_save(t);
        td_tune_save(t); // no news
    }
}

static void test_what_others_measured_stays_when_the_cache_is_written(void **state) {
    TD_AUTO(td_tune) *a = NULL, *b = NULL, *c = NULL;
    struct race_rig r = {.fastest = 1};
    assert_ok(td_tune_create(*state, "m", &a));
    assert_ok(td_tune_create(*state, "m", &b));
    pick(a, "ka", &r, 2);
    pick(b, "kb", &r, 2);
    td_tune_save(a);
    td_tune_save(b);
    assert_ok(td_tune_create(*state, "m", &c));
    assert_false(td_tune_measures(c, "ka", names, 2));
    assert_false(td_tune_measures(c, "kb", names, 2));
}

static void test_frozen_choice_wins_when_the_cache_says_otherwise(void **state) {
    struct race_rig r = {.fastest = 1};
    for (int i = 0; i < 2; i++) {
        TD_AUTO(td_tune) *t = NULL;
        assert_ok(td_tune_create(*state, "m", &t));
        if (i == 1) assert_ok(td_tune_adopt(t, "k=slow\ngone=by\n"));
        assert_int_equal(pick(t, "k", &r, 2), i == 0 ? 1 : 0);
        pick(t, "other", &r, 2);
        assert_text(t, i == 0 ? "k=fast\nother=fast\n" : "k=slow\nother=fast\n");
        td_tune_save(t);
    }
    TD_AUTO(td_tune) *t = NULL; // what is frozen in one job is nothing to the next
    assert_ok(td_tune_create(*state, "m", &t));
    assert_int_equal(pick(t, "k", &r, 2), 1);
}

static void test_first_way_is_taken_when_nothing_may_be_measured(void **state) {
    (void)state;
    TD_AUTO(td_tune) *t = NULL;
    struct race_rig r = {.fastest = 1};
    assert_ok(td_tune_create(NULL, "m", &t));
    assert_int_equal(pick(t, "k", &r, 2), 0);
    assert_int_equal(r.runs[0] + r.runs[1], 0);
    assert_text(t, "k=slow\n"); // the job freezes it all the same
    assert_ok(td_tune_adopt(t, "l=unknown\n"));
    assert_int_equal(pick(t, "l", &r, 2), 0); // of a build with other kernels
    assert_text(t, "k=slow\nl=slow\n");
}

static void test_damaged_cache_is_as_none_and_bad_lines_are_refused(void **state) {
    TD_AUTO(td_tune) *t = NULL, *again = NULL;
    struct race_rig r = {.fastest = 1};
    assert_ok(td_tune_create(*state, "m", &t));
    pick(t, "k", &r, 2);
    td_tune_save(t);
    assert_ok(td_fs_write(t->path, "\x01\x02=\n", 4, 0644, 0));
    assert_ok(td_tune_create(*state, "m", &again));
    assert_true(td_tune_measures(again, "k", names, 2));
    assert_fails(td_tune_adopt(t, "k\n"), TD_INVALID_ARGUMENT, "'k'");
    assert_fails(td_tune_adopt(t, "=x\n"), TD_INVALID_ARGUMENT, "");
    assert_fails(td_tune_adopt(t, "k="), TD_INVALID_ARGUMENT, "");
}

// ---- previews -----------------------------------------------------------------------------------
struct report {
    int n;
    enum td_choice_state state;
    int32_t way;
    char key[32];
};

static td_status keep_report(void *arg, const struct td_choice_info *c) {
    struct report *report = arg;
    report->n++;
    report->state = c->state;
    report->way = c->way;
    snprintf(report->key, sizeof report->key, "%s", c->key);
    assert_int_equal(c->n_ways, 2);
    assert_string_equal(c->ways[c->way], names[c->way]);
    return TD_OK;
}

// What a preview of t says of a key; it may run nothing, so there is no race to run.
static struct report preview_of(struct td_tune *t, const char *key, int want_way) {
    TD_AUTO(td_tune) *preview = NULL;
    struct report report = {0};
    int way = -1;
    assert_ok(td_tune_preview(t, keep_report, &report, &preview));
    assert_false(td_tune_measures(preview, key, names, 2));
    assert_ok(td_tune_pick(preview, key, names, 2, NULL, NULL, NULL, &way));
    assert_int_equal(way, want_way);
    assert_int_equal(report.way, want_way);
    assert_string_equal(report.key, key);
    td_tune_save(preview);
    return report;
}

static void test_preview_tells_what_is_known_when_it_may_not_measure(void **state) {
    TD_AUTO(td_tune) *a = NULL, *b = NULL, *none = NULL;
    struct race_rig r = {.fastest = 1};
    char dir[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(dir, "%s/deep/cache", (const char *)*state));
    assert_ok(td_tune_create(dir, "m", &a));
    assert_int_equal(preview_of(a, "k", 0).state, TD_CHOICE_OPEN);
    assert_int_equal(preview_of(a, "k", 0).state, TD_CHOICE_OPEN); // it kept nothing
    assert_text(a, "");
    assert_false(td_fs_exists(dir));
    assert_int_equal(pick(a, "k", &r, 2), 1);
    assert_int_equal(preview_of(a, "k", 1).state, TD_CHOICE_MEASURED);
    td_tune_save(a);
    assert_ok(td_tune_create(dir, "m", &b));
    assert_int_equal(preview_of(b, "k", 1).state, TD_CHOICE_MEASURED);
    assert_ok(td_tune_adopt(b, "k=slow\nl=gone\n"));
    assert_int_equal(preview_of(b, "k", 0).state, TD_CHOICE_ADOPTED);
    assert_int_equal(preview_of(b, "l", 0).state, TD_CHOICE_OPEN); // of a build with other kernels
    assert_ok(td_tune_create(NULL, "m", &none));
    assert_int_equal(preview_of(none, "k", 0).state, TD_CHOICE_FIRST);
    assert_int_equal(pick(none, "k", &r, 2), 0);
    assert_int_equal(preview_of(none, "k", 0).state, TD_CHOICE_FIRST);
    assert_ok(td_tune_adopt(none, "k=fast\nl=gone\n"));
    assert_int_equal(preview_of(none, "k", 1).state, TD_CHOICE_ADOPTED);
    assert_int_equal(preview_of(none, "l", 0).state, TD_CHOICE_FIRST);
}

static td_status make_one(void *arg) {
    TD_AUTO(td_tune) *t = NULL;
    int way;
    struct race_rig r = {.fastest = 1};
    TD_TRY(td_tune_create(arg, "m", &t));
    TD_TRY(td_tune_adopt(t, "k=slow\n"));
    TD_TRY(td_tune_pick(t, "k", names, 2, NULL, spin, &r, &way));
    TD_TRY(td_tune_pick(t, "l", names, 2, NULL, spin, &r, &way));
    TD_AUTO(td_tune) *preview = NULL;
    struct report report = {0};
    TD_TRY(td_tune_preview(t, keep_report, &report, &preview));
    TD_TRY(td_tune_pick(preview, "k", names, 2, NULL, NULL, NULL, &way));
    const char *text;
    return td_tune_text(t, &text);
}

static void test_tune_fails_cleanly_when_any_allocation_fails(void **state) {
    td_test_failing_allocations(make_one, *state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_fastest_way_is_taken_when_nothing_is_known),
        test_in_scratch(test_slow_start_has_to_be_made_up_for),
        test_in_scratch(test_time_that_others_took_is_not_a_ways_when_it_computes_alone),
        test_in_scratch(test_disturbed_run_decided_for_the_life_of_a_job),
        test_in_scratch(test_choice_is_read_again_when_the_machine_is_the_same),
        test_in_scratch(test_what_others_measured_stays_when_the_cache_is_written),
        test_in_scratch(test_frozen_choice_wins_when_the_cache_says_otherwise),
        test_in_scratch(test_first_way_is_taken_when_nothing_may_be_measured),
        test_in_scratch(test_damaged_cache_is_as_none_and_bad_lines_are_refused),
        test_in_scratch(test_preview_tells_what_is_known_when_it_may_not_measure),
        test_in_scratch(test_tune_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
