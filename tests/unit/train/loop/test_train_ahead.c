// The loop on an accelerator that runs ahead: what is queued before what is read, and what has to
// be done before anything else is queued.

#include "tests/unit/test.h"

#include "engine/train/build.h"
#include "engine/train/plan/sizes.h"
#include "lib/base/files/files.h"
#include "tests/unit/train/rank/train_rig.h"

// ---- an accelerator that writes down its calls --------------------------------------------------
static const struct td_accelerator_ops *base(void) {
    return td_accelerator_far.ops;
}

static char calls[256]; // q: a run was queued, r: one was read
static size_t calls_len;
static td_ticket last_read, tickets[64];
static int runs, stop_at, fail_at; // the run of this number; 0: none
static struct td_rank_page *page;

static void note(char c) {
    assert_true(calls_len + 1 < sizeof calls);
    calls[calls_len++] = c;
    calls[calls_len] = '\0';
}

static td_status seen_run(struct td_executable *e, uint32_t segments,
                          const struct td_buffer *inputs, td_ticket *out_ticket) {
    note('q');
    if (++runs == stop_at) atomic_store(&page->stop, TD_STOP_CHECKPOINT);
    TD_TRY(base()->run(e, segments, inputs, out_ticket));
    tickets[runs] = *out_ticket;
    return TD_OK;
}

static td_status seen_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    TD_TRY(base()->wait(a, ticket, timeout_ns));
    if (ticket <= last_read) return TD_OK;
    last_read = ticket;
    note('r');
    if (!fail_at || ticket < tickets[fail_at]) return TD_OK;
    return td_status_with_class(td_fail(TD_INTERNAL, "the device fell off the bus"),
                                TD_CLASS_DEVICE);
}

static struct td_accel_config opened;
static td_status seen_open(const struct td_accel_config *config, struct td_accelerator **out) {
    opened = *config;
    return base()->open(config, out);
}

static struct td_accelerator_ops seen_ops;
static const struct td_plugin_desc seen =
    TD_PLUGIN_DESC(ACCELERATOR, "seen", "far, with its calls written down", &seen_ops);

static void prepare_seen(struct run *r, const char *dir) {
    seen_ops = *base();
    seen_ops.open = seen_open;
    seen_ops.run = seen_run;
    seen_ops.wait = seen_wait;
    seen_ops.copy_begin = NULL; // else another thread waits, too
    calls_len = 0;
    calls[0] = '\0';
    last_read = 0;
    runs = stop_at = fail_at = 0;
    prepare_run(r, &seen, "single_device", dir);
    page = &r->page;
    r->config.accelerator = "seen";
    r->config.limits.accumulate[0].batches = 1;
    r->config.limits.max_epochs = 2; // of 4 batches
    r->config.limits.val_batches = (struct td_amount){0};
}

static void expect_run(struct run *r, const char *expected, enum td_train_loop_end end,
                       int64_t step) {
    struct td_train_result result;
    assert_ok(td_train(&r->config, &r->io, &r->events, &result));
    assert_string_equal(calls, expected);
    assert_int_equal(result.end, end);
    assert_int_equal(result.step, step);
    dispose(r);
}

// ---- cases -------------------------------------------------------------------------------------
static void
test_run_is_queued_before_the_last_one_is_read_but_at_the_end_of_an_epoch(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    expect_run(&r, "qqrqrqrrqqrqrqrr", TD_LOOP_DONE, 8);
}

static void test_nothing_is_queued_after_a_step_that_is_saved(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.checkpoint.every_n_train_steps = 3;
    expect_run(&r, "qqrqrrqrqqrrqqrr", TD_LOOP_DONE, 8);
}

static void test_nothing_is_queued_after_a_batch_that_is_validated_in_a_window(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.limits.accumulate[0].batches = 4;
    r.config.limits.val_batches = (struct td_amount){.is_fraction = true, .fraction = 1};
    r.config.limits.val_check_interval = (struct td_amount){.batches = 2};
    r.config.limits.max_epochs = 1;
    expect_run(&r, "qqrrqrqqrrqr", TD_LOOP_DONE, 1); // a validation is "qr"
}

static void test_nothing_is_queued_after_the_last_step_of_all(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.limits.max_steps = 6;
    expect_run(&r, "qqrqrqrrqqrr", TD_LOOP_DONE, 6);
}

static void test_stop_is_obeyed_one_step_after_it_was_agreed_on(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    stop_at = 1; // the flags of run 2 carry it, and run 3 is queued when they are read
    expect_run(&r, "qqrqrr", TD_LOOP_STOPPED, 3);
}

static void test_stop_waits_for_the_end_of_its_window(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.limits.accumulate[0].batches = 2;
    stop_at = 1; // run 2 carries it and ends window 1, of which run 3 is not a part
    expect_run(&r, "qqrqrrqr", TD_LOOP_STOPPED, 2);
}

static void test_failed_run_is_named_and_nothing_after_it_is_saved(void **state) {
    struct run r;
    struct td_train_result result;
    char path[TD_FS_PATH_BYTES];
    prepare_seen(&r, *state);
    r.config.checkpoint.every_n_train_steps = 2;
    fail_at = 3;
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    assert_fails(s, TD_INTERNAL, "step 3 (epoch 0): the device fell off the bus");
    assert_string_equal(calls, "qqrrqqrr"); // run 4 is over before its memory goes
    assert_int_equal(result.step, 2);
    assert_ok(td_fs_path(path, "%s/step-2/manifest.json", (char *)*state));
    assert_true(td_fs_exists(path));
    assert_ok(td_fs_path(path, "%s/step-4", (char *)*state));
    assert_false(td_fs_exists(path));
    dispose(&r);
}

static void test_nothing_runs_ahead_where_anomalies_are_looked_for(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.detect_anomaly = true;
    expect_run(&r, "qrqrqrqrqrqrqrqr", TD_LOOP_DONE, 8);
}

static void test_nothing_runs_ahead_where_steps_are_gated(void **state) {
    struct run r;
    prepare_seen(&r, *state);
    r.config.precision = "16-mixed";
    r.config.limits.max_steps = 2;
    expect_run(&r, "qrqrqrqr", TD_LOOP_DONE, 2); // what the gate sees is read, then apply
}

// Contract 14: the device reaches the rank
static void test_rank_opens_the_device_that_it_is_given(void **state) {
    (void)state;
    for (int32_t device = 0; device < 2; device++) {
        struct run r;
        struct td_train_result result;
        prepare_seen(&r, NULL);
        r.config.device = device;
        assert_ok(td_train(&r.config, &r.io, &r.events, &result));
        assert_int_equal(opened.device, device);
        assert_false(opened.plans || opened.profile);
        dispose(&r);
    }
}

static void test_rank_times_kernels_when_a_profile_is_asked_for(void **state) {
    (void)state;
    struct run r;
    struct td_train_result result;
    prepare_seen(&r, NULL);
    r.config.profile = true;
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    assert_true(opened.profile && !opened.plans);
    dispose(&r);
}

static void test_rank_that_is_planned_runs_nothing(void **state) {
    (void)state;
    struct run r;
    struct td_rank *rank = NULL;
    struct td_sizes sizes;
    prepare_seen(&r, NULL);
    assert_ok(td_rank_create_plan(&r.config, &r.io, &r.events, &rank));
    assert_ok(td_sizes_measure(rank, &sizes));
    assert_true(opened.plans && sizes.device_bytes > 0);
    assert_string_equal(calls, "");
    td_rank_destroy(rank);
    dispose(&r);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_run_is_queued_before_the_last_one_is_read_but_at_the_end_of_an_epoch),
        CASE(test_nothing_is_queued_after_a_step_that_is_saved),
        CASE(test_nothing_is_queued_after_a_batch_that_is_validated_in_a_window),
        CASE(test_nothing_is_queued_after_the_last_step_of_all),
        CASE(test_stop_is_obeyed_one_step_after_it_was_agreed_on),
        CASE(test_stop_waits_for_the_end_of_its_window),
        CASE(test_failed_run_is_named_and_nothing_after_it_is_saved),
        CASE(test_nothing_runs_ahead_where_anomalies_are_looked_for),
        CASE(test_nothing_runs_ahead_where_steps_are_gated),
        CASE(test_rank_opens_the_device_that_it_is_given),
        CASE(test_rank_times_kernels_when_a_profile_is_asked_for),
        CASE(test_rank_that_is_planned_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
