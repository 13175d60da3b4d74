// The far device: nothing that a caller keeps is an address, outputs appear at wait, and what fails
// is reported once, for the run that failed.
// Tags: tsan

#include "accelerators/far/far.h"
#include "lib/base/arena.h"
#include "lib/base/clock.h"
#include "lib/base/json.h"
#include "tests/unit/graph/graph_rig.h"

enum { BATCH = 3 };
static struct rig_mlp net = {.dtype = TD_F32, .n_widths = 3, .width = {5, 4, 3}};

static int add_training(struct rig *r) {
    struct td_optimizer_options opt = {.op = TD_OP_SGD};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, BATCH, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &net,
                                   .optimizer = &opt};
    return rig_add(r, &o);
}

static void test_handles_are_no_addresses(void **state) {
    (void)state;
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    add_training(&r);
    rig_place(&r);
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        assert_int_equal(r.region[i].space, TD_SPACE_DEVICE);
        assert_null(td_buffer_host(r.region[i]));
    }
    rig_close(&r);
}

static void test_outputs_appear_at_wait_and_are_those_of_the_ticket(void **state) {
    (void)state;
    enum { RUNS = 4 };
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[RUNS][BATCH * 5];
    int32_t y[RUNS][BATCH];
    const void *in[RUNS][2];
    double loss[RUNS];
    td_ticket ticket[RUNS];
    r.program[p].outputs[0] = -1;
    for (int i = 0; i < RUNS; i++) {
        rig_batch(&net, i * BATCH, BATCH, x[i], y[i]);
        in[i][0] = x[i];
        in[i][1] = y[i];
        r.scalars[TD_SCALAR_LR] = 0.1 * i; // the host's again when run returns
        assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in[i], &ticket[i]));
        assert_true(r.program[p].outputs[0] == -1);
        assert_true(!i || ticket[i] > ticket[i - 1]);
    }
    for (int i = 0; i < RUNS; i++) {
        assert_ok(r.ops->wait(r.accel, ticket[i], RIG_TIMEOUT_NS));
        loss[i] = r.program[p].outputs[0];
    }
    rig_close(&r);

    rig_open(&r); // one after the other, on the reference
    const int same = add_training(&r);
    rig_place(&r);
    for (int i = 0; i < RUNS; i++) {
        r.scalars[TD_SCALAR_LR] = 0.1 * i;
        rig_run(&r, same, TD_SEGS_ALL, in[i]);
        assert_true(r.program[same].outputs[0] == loss[i]);
    }
    rig_close(&r);
}

static void test_failure_is_of_its_run_and_reported_once(void **state) {
    (void)state;
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5];
    int32_t good[BATCH], bad[BATCH];
    rig_batch(&net, 0, BATCH, x, good);
    memcpy(bad, good, sizeof bad);
    bad[1] = 77;
    const void *in_good[] = {x, good}, *in_bad[] = {x, bad};
    td_ticket first, second, third;
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in_good, &first));
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in_bad, &second));
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in_good, &third));
    assert_ok(r.ops->wait(r.accel, first, RIG_TIMEOUT_NS));
    assert_fails(r.ops->wait(r.accel, second, RIG_TIMEOUT_NS), TD_INVALID_ARGUMENT,
                 "label 77 in row 1");
    assert_fails(r.ops->wait(r.accel, third, RIG_TIMEOUT_NS), TD_FAILED_PRECONDITION,
                 "reported before");
    struct td_buffer here = td_buffer_of_host(x, sizeof x);
    assert_fails(r.ops->copy(r.accel, here, 0, r.region[TD_ROLE_PARAM], 0, 4),
                 TD_FAILED_PRECONDITION, "reported before");
    rig_close(&r);
}

// ---- its knobs ---------------------------------------------------------------------------------
static void open_with(struct rig *r, struct td_arena *a, const char *text) {
    struct td_json *values;
    assert_ok(td_json_parse(a, text, strlen(text), &values));
    const struct td_accel_config config = {
        .struct_bytes = sizeof config, .device = 1, .n_threads = 1, .knobs = values};
    rig_open_with(r, td_accelerator_far.ops, &config);
}

static void test_update_fails_when_it_is_the_one_of_fail_at(void **state) {
    (void)state;
    struct rig r;
    struct td_arena *a;
    assert_ok(td_arena_create(1 << 16, &a));
    open_with(&r, a, "{\"delay_us\":0,\"fail_at\":2,\"copy_delay_us\":0,\"by_tensor\":false}");
    const int p = add_training(&r);
    struct td_compile_options o = {
        .key = rig_key(TD_MODE_EVAL, BATCH, false), .record = rig_record_mlp, .record_arg = &net};
    const int evaluation = rig_add(&r, &o);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5];
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    const void *in[] = {x, y};
    td_ticket t;
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in, &t));
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL & ~(1u << TD_SEG_APPLY), in, &t)); // no update
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_ok(rig_begin(&r, evaluation, TD_SEGS_ALL, in, &t)); // nor this
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in, &t));
    td_status s = r.ops->wait(r.accel, t, RIG_TIMEOUT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    assert_fails(s, TD_FAILED_PRECONDITION, "failed in update 2");
    rig_close(&r);
    td_arena_destroy(a);
}

static void test_run_and_queued_copy_take_the_delay_at_least(void **state) {
    (void)state;
    struct rig r;
    struct td_arena *a;
    assert_ok(td_arena_create(1 << 16, &a));
    open_with(&r, a, "{\"delay_us\":20000,\"fail_at\":0,\"copy_delay_us\":0,\"by_tensor\":false}");
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5];
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    const void *in[] = {x, y};
    const struct td_mono before = td_mono_now();
    td_ticket t;
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in, &t));
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_true(td_mono_now().ns - before.ns >= 20 * TD_NS_PER_MS);
    struct td_buffer here = td_buffer_of_host(x, sizeof x);
    assert_ok(r.ops->copy_begin(r.accel, here, 0, r.region[TD_ROLE_PARAM], 0, sizeof x[0], &t));
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_true(td_mono_now().ns - before.ns >= 40 * TD_NS_PER_MS);
    rig_close(&r);
    td_arena_destroy(a);
}

// ---- copies beside the queue --------------------------------------------------------------------
static struct td_buffer buffer_with(struct rig *r, float value) {
    struct td_buffer b;
    assert_ok(r->ops->mem_alloc(r->accel, sizeof value, &b));
    assert_ok(
        r->ops->copy(r->accel, b, 0, td_buffer_of_host(&value, sizeof value), 0, sizeof value));
    return b;
}

static td_ticket begin_copy(struct rig *r, float *to, struct td_buffer from) {
    td_ticket t;
    const struct td_buffer here = td_buffer_of_host(to, sizeof *to);
    assert_ok(r->ops->copy_begin(r->accel, here, 0, from, 0, sizeof *to, &t));
    return t;
}

static void test_copy_of_what_no_program_has_is_made_by_the_wait_for_it(void **state) {
    (void)state;
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5], got[3] = {-1, -1, -1}, two = 2;
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    const void *in[] = {x, y};
    struct td_buffer b = buffer_with(&r, 1);
    td_ticket run, copy[3];
    copy[0] = begin_copy(&r, &got[0], b);
    copy[1] = begin_copy(&r, &got[1], b);
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in, &run));
    copy[2] = begin_copy(&r, &got[2], b);
    assert_true(copy[0] < copy[1] && copy[1] < run && run < copy[2]);
    assert_ok(r.ops->wait(r.accel, run, RIG_TIMEOUT_NS)); // which says nothing of them
    assert_true(got[0] == -1 && got[1] == -1 && got[2] == -1);
    assert_ok(r.ops->wait(r.accel, copy[1], RIG_TIMEOUT_NS));
    assert_true(got[0] == 1 && got[1] == 1 && got[2] == -1);
    assert_ok(r.ops->copy(r.accel, b, 0, td_buffer_of_host(&two, sizeof two), 0, sizeof two));
    assert_ok(r.ops->wait(r.accel, copy[2], RIG_TIMEOUT_NS));
    assert_true(got[2] == 2); // it was written too early
    assert_ok(r.ops->wait(r.accel, copy[2], RIG_TIMEOUT_NS));
    r.ops->mem_free(r.accel, b);
    rig_close(&r);
}

static void test_copy_after_a_run_that_failed_is_not_made(void **state) {
    (void)state;
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5], got[2] = {-1, -1};
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    y[0] = 77;
    const void *in[] = {x, y};
    struct td_buffer b = buffer_with(&r, 1);
    td_ticket run;
    const td_ticket before = begin_copy(&r, &got[0], b);
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL, in, &run));
    const td_ticket after = begin_copy(&r, &got[1], b);
    assert_fails(r.ops->wait(r.accel, run, RIG_TIMEOUT_NS), TD_INVALID_ARGUMENT, "label 77");
    assert_ok(r.ops->wait(r.accel, before, RIG_TIMEOUT_NS));
    assert_fails(r.ops->wait(r.accel, after, RIG_TIMEOUT_NS), TD_FAILED_PRECONDITION, "before");
    assert_true(got[0] == 1 && got[1] == -1);
    r.ops->mem_free(r.accel, b);
    rig_close(&r);
}

static void test_run_is_refused_when_it_was_opened_for_plans(void **state) {
    (void)state;
    struct rig r;
    const struct td_accel_config config = {
        .struct_bytes = sizeof config, .n_threads = 1, .plans = true};
    rig_open_with(&r, td_accelerator_far.ops, &config);
    const int p = add_training(&r);
    rig_place(&r);
    float x[BATCH * 5];
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    const void *in[] = {x, y};
    td_ticket t;
    assert_fails(rig_begin(&r, p, TD_SEGS_ALL, in, &t), TD_FAILED_PRECONDITION,
                 "opened for plans alone");
    rig_close(&r);
}

// TD_RUN_STEADY is no segment.
static void test_run_of_segments_is_refused_when_others_were_prepared(void **state) {
    (void)state;
    static const uint32_t sets[] = {TD_SEGS_ALL, 1u << TD_SEG_FORWARD}, twice[] = {1, 1};
    const uint32_t pass = 1u << TD_SEG_FORWARD | 1u << TD_SEG_BACKWARD;
    struct rig r;
    rig_open_on(&r, td_accelerator_far.ops, 1);
    const int p = add_training(&r);
    rig_place(&r);
    rig_copy_all(&r, &r.program[p], true);
    float x[BATCH * 5];
    int32_t y[BATCH];
    rig_batch(&net, 0, BATCH, x, y);
    const void *in[] = {x, y};
    td_ticket t;
    assert_ok(rig_begin(&r, p, pass, in, &t)); // not prepared for
    assert_fails(r.ops->prepare(r.program[p].exe, twice, 2), TD_INVALID_ARGUMENT, "there twice");
    assert_ok(r.ops->prepare(r.program[p].exe, sets, 2));
    assert_fails(rig_begin(&r, p, pass, in, &t), TD_FAILED_PRECONDITION,
                 "step 'train' was not prepared for a run of: forward backward");
    assert_ok(rig_begin(&r, p, TD_SEGS_ALL | TD_RUN_STEADY, in, &t));
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    assert_ok(rig_begin(&r, p, 1u << TD_SEG_FORWARD, in, &t));
    assert_ok(r.ops->wait(r.accel, t, RIG_TIMEOUT_NS));
    rig_close(&r);
}

// Contract 19: a device that is not there is refused
static void test_open_is_refused_when_there_is_no_such_device(void **state) {
    (void)state;
    struct td_accelerator *a = NULL;
    const struct td_accelerator_ops *ops = td_accelerator_far.ops;
    const struct td_accel_config config = {
        .struct_bytes = sizeof config, .device = 2, .n_threads = 1};
    assert_fails(ops->open(&config, &a), TD_INVALID_ARGUMENT,
                 "far has 2 devices, none with index 2");
    td_test_over("accelerator", "far");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles_are_no_addresses),
        cmocka_unit_test(test_outputs_appear_at_wait_and_are_those_of_the_ticket),
        cmocka_unit_test(test_failure_is_of_its_run_and_reported_once),
        cmocka_unit_test(test_update_fails_when_it_is_the_one_of_fail_at),
        cmocka_unit_test(test_run_and_queued_copy_take_the_delay_at_least),
        cmocka_unit_test(test_copy_of_what_no_program_has_is_made_by_the_wait_for_it),
        cmocka_unit_test(test_copy_after_a_run_that_failed_is_not_made),
        cmocka_unit_test(test_run_is_refused_when_it_was_opened_for_plans),
        cmocka_unit_test(test_run_of_segments_is_refused_when_others_were_prepared),
        cmocka_unit_test(test_open_is_refused_when_there_is_no_such_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
