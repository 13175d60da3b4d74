// A loop that somebody else owns: the same bits as the loop of a job, and calls in an order that
// cannot be are refused.

#include <math.h>
#include <string.h>

#include "engine/train/build.h"
#include "engine/train/loop/fit.h"
#include "engine/train/loop/manual.h"
#include "tests/unit/train/rank/train_rig.h"
#include "traind/steps.h"

enum { WEIGHTS = 128 };

struct weights {
    float at[WEIGHTS];
    size_t bytes;
};

static void read_weights(struct td_rank *r, struct weights *out) {
    const struct td_buffer *from = &r->memory.region[TD_ROLE_PARAM];
    assert_true(from->bytes <= sizeof out->at);
    out->bytes = from->bytes;
    assert_ok(r->accel_ops->copy(r->accel, td_buffer_of_host(out->at, from->bytes), 0, *from, 0,
                                 from->bytes));
}

static void prepare(struct run *r, const struct td_plugin_desc *own, const char *accelerator,
                    const char *precision, int window) {
    prepare_run(r, own, "single_device", NULL);
    r->config.accelerator = accelerator;
    r->config.precision = precision;
    r->config.limits.max_epochs = 2;
    r->config.limits.accumulate[0].batches = window;
    r->config.limits.val_batches = (struct td_amount){0};
    r->config.optimizer.log_norm = true;
}

static void fit(const char *accelerator, const char *precision, int window, struct weights *out) {
    struct run r;
    struct td_rank *rank;
    struct td_train_loop l;
    enum td_train_loop_end end;
    prepare(&r, NULL, accelerator, precision, window);
    assert_ok(td_rank_create(&r.config, &r.io, &r.events, &rank));
    td_train_loop_init(&l, rank);
    assert_ok(td_train_loop_fit(&l, &end));
    read_weights(rank, out);
    td_rank_destroy(rank);
    dispose(&r);
}

struct manual {
    struct run r;
    struct td_rank *rank;
    struct td_train_loop l;
    struct td_manual m;
};

// Forwards that ran: each moves the buffers of a module that has some.
static int n_forwards;

static td_status counted_run(struct td_executable *e, uint32_t segments,
                             const struct td_buffer *inputs, td_ticket *out_ticket) {
    const struct td_accelerator_ops *base = td_accelerator_reference.ops;
    n_forwards += (segments & 1u << TD_SEG_FORWARD) != 0;
    return base->run(e, segments, inputs, out_ticket);
}

static struct td_accelerator_ops counted_ops;
static const struct td_plugin_desc counted =
    TD_PLUGIN_DESC(ACCELERATOR, "counted", "the reference, with forwards counted", &counted_ops);

static void begin(struct manual *x, const char *accelerator, const char *precision, int window) {
    counted_ops = *(const struct td_accelerator_ops *)td_accelerator_reference.ops;
    counted_ops.run = counted_run;
    n_forwards = 0;
    prepare(&x->r, &counted, accelerator, precision, 1);
    x->r.config.manual = true;
    x->r.config.manual_accumulates = window > 1;
    assert_ok(td_rank_create(&x->r.config, &x->r.io, &x->r.events, &x->rank));
    td_train_loop_init(&x->l, x->rank);
    assert_ok(td_train_loop_settle(&x->l));
    assert_ok(td_epoch_metrics_begin(&x->l.played, x->rank));
    td_manual_init(&x->m, &x->l);
}

static void end(struct manual *x) {
    td_rank_destroy(x->rank);
    dispose(&x->r);
}

// looks: values are read between the calls, so that segments run one by one.
static void loop(struct manual *x, int window, bool looks, struct weights *out) {
    int64_t n, batch = 0;
    bool stepped;
    for (int epoch = 0; epoch < 2; epoch++) {
        for (;;) {
            assert_ok(td_manual_next(&x->m, &n));
            if (n == 0) break;
            double loss, norm;
            assert_int_equal(n, 4);
            assert_ok(td_manual_forward(&x->m, 0, 1.0 / window));
            if (looks) assert_ok(td_manual_value(&x->m, "loss", &loss));
            assert_ok(td_manual_backward(&x->m, -1));
            if (looks) assert_ok(td_manual_value(&x->m, "loss", &loss));
            if (++batch % window) continue;
            if (looks) assert_ok(td_manual_norm(&x->m, 0, &norm));
            assert_ok(td_manual_optimizer_step(&x->m, 0, &stepped));
            if (looks) assert_true(loss > 0 && norm > 0);
        }
    }
    assert_ok(td_manual_drain(&x->m));
    read_weights(x->rank, out);
}

static void expect_same(const char *accelerator, const char *precision, int window, bool looks) {
    struct weights job, own;
    struct manual x;
    fit(accelerator, precision, window, &job);
    begin(&x, accelerator, precision, window);
    loop(&x, window, looks, &own);
    assert_int_equal(x.l.at.step, 8 / window);
    assert_int_equal(x.l.at.epoch, 2);
    assert_int_equal(own.bytes, job.bytes);
    assert_memory_equal(own.at, job.at, job.bytes);
    end(&x);
}

// Contract 1: a plain loop gives the bits of the job
static void test_plain_loop_gives_the_bits_of_a_job(void **state) {
    (void)state;
    static const char *const precisions[] = {"fp32",      "fp64",       "bf16_true",
                                             "fp16_true", "bf16_mixed", "fp16_mixed"};
    for (size_t i = 0; i < TD_COUNTOF(precisions); i++) {
        expect_same("reference", precisions[i], 1, false);
        expect_same("far", precisions[i], 1, false);
        td_test_over("precision", precisions[i]);
    }
    td_test_over("accelerator", "reference");
    td_test_over("accelerator", "far");
}

static void test_loop_that_reads_values_between_calls_gives_the_bits_of_a_job(void **state) {
    (void)state;
    expect_same("reference", "32-true", 1, true);
    expect_same("far", "32-true", 1, true);
}

static void test_micro_batches_add_up_as_in_a_job(void **state) {
    (void)state;
    expect_same("reference", "32-true", 2, false);
    expect_same("far", "32-true", 2, false);
    expect_same("reference", "32-true", 2, true);
}

static void test_loss_scale_gates_the_step_as_in_a_job(void **state) {
    (void)state;
    expect_same("reference", "16-mixed", 1, false);
    expect_same("reference", "16-mixed", 2, true);
}

// Updates of other steps move the loss scale of the precision, too.
static void test_gradients_are_divided_by_the_scale_that_they_have(void **state) {
    (void)state;
    struct weights at[2];
    for (int moves = 0; moves < 2; moves++) {
        struct manual x;
        int64_t n;
        bool stepped;
        begin(&x, "reference", "16-mixed", 2);
        for (int i = 0; i < 2; i++) {
            assert_ok(td_manual_next(&x.m, &n));
            assert_ok(td_manual_forward(&x.m, 0, 0.5));
            assert_ok(td_manual_backward(&x.m, -1));
            assert_ok(td_manual_drain(&x.m));
            struct td_rank *r = x.rank;
            if (moves) assert_ok(r->precision_ops->step_gate(r->precision, false, &stepped));
        }
        assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
        assert_true(stepped);
        assert_ok(td_manual_drain(&x.m));
        read_weights(x.rank, &at[moves]);
        end(&x);
    }
    assert_memory_equal(at[0].at, at[1].at, at[0].bytes);
}

static void test_rate_of_the_caller_takes_the_place_of_the_schedule(void **state) {
    (void)state;
    struct weights job, own;
    struct manual x;
    fit("reference", "32-true", 1, &job);
    begin(&x, "reference", "32-true", 1);
    x.m.of[0].lr = 0.05;
    loop(&x, 1, false, &own);
    assert_memory_not_equal(own.at, job.at, job.bytes);
    assert_true(x.l.lr[0] == (double)0.05F);
    end(&x);
}

static void test_forgotten_gradients_leave_no_trace(void **state) {
    (void)state;
    struct weights job, own;
    struct manual x;
    int64_t n;
    fit("reference", "32-true", 1, &job);
    begin(&x, "reference", "32-true", 1);
    for (int i = 0; i < 4; i++) { // an epoch whose gradients nobody uses
        assert_ok(td_manual_next(&x.m, &n));
        assert_ok(td_manual_forward(&x.m, 0, 1));
        assert_ok(td_manual_backward(&x.m, -1));
        assert_ok(td_manual_zero_grad(&x.m, 0));
    }
    assert_ok(td_manual_next(&x.m, &n));
    assert_int_equal(n, 0);
    x.l.at.epoch = 0;
    x.l.at.samples = 0;
    loop(&x, 1, false, &own);
    assert_memory_equal(own.at, job.at, job.bytes);
    end(&x);
}

static void test_calls_in_an_order_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct manual x;
    int64_t n;
    bool stepped;
    double v;
    begin(&x, "reference", "32-true", 1);
    const enum td_code code = TD_FAILED_PRECONDITION;
    assert_fails(td_manual_forward(&x.m, 0, 1), code, "without a batch");
    assert_fails(td_manual_backward(&x.m, -1), code, "without a forward");
    assert_ok(td_manual_next(&x.m, &n));
    assert_fails(td_manual_optimizer_step(&x.m, 0, &stepped), code, "without a backward");
    assert_fails(td_manual_norm(&x.m, 0, &v), code, "without a backward");
    assert_ok(td_manual_forward(&x.m, 0, 1));
    assert_fails(td_manual_optimizer_step(&x.m, 0, &stepped), code, "without a backward");
    assert_ok(td_manual_backward(&x.m, -1));
    assert_fails(td_manual_backward(&x.m, -1), code, "a second backward");
    assert_fails(td_manual_forward(&x.m, 0, 1), code, "does not accumulate");
    assert_ok(td_manual_norm(&x.m, 0, &v));
    assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
    assert_true(stepped);
    assert_fails(td_manual_optimizer_step(&x.m, 0, &stepped), code, "without a backward");
    assert_fails(td_manual_value(&x.m, "lose", &v), TD_NOT_FOUND, "loss");
    end(&x);
}

// Each case: what a loop may do between its calls, and that it changes nothing.
static void test_batch_that_is_skipped_is_not_read_by_the_run_before(void **state) {
    (void)state;
    static const char *const accelerators[] = {"reference", "far"};
    double loss[2];
    for (size_t i = 0; i < 2; i++) {
        struct manual x;
        int64_t n;
        bool stepped;
        begin(&x, accelerators[i], "32-true", 1);
        assert_ok(td_manual_next(&x.m, &n));
        assert_ok(td_manual_forward(&x.m, 0, 1));
        assert_ok(td_manual_backward(&x.m, -1));
        assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
        assert_ok(td_manual_next(&x.m, &n));
        assert_ok(td_manual_next(&x.m, &n));
        assert_ok(td_manual_value(&x.m, "loss", &loss[i]));
        end(&x);
    }
    assert_true(loss[0] == loss[1]);
}

static void test_batch_whose_buffer_was_used_again_is_refused(void **state) {
    (void)state;
    struct manual x;
    int64_t n;
    begin(&x, "reference", "32-true", 1);
    assert_ok(td_manual_next(&x.m, &n));
    assert_ok(td_manual_forward(&x.m, 0, 1));
    assert_ok(td_manual_before_gather(&x.m));
    assert_ok(td_manual_before_gather(&x.m)); // of another split
    assert_fails(td_manual_backward(&x.m, -1), TD_FAILED_PRECONDITION, "is gone");
    assert_fails(td_manual_forward(&x.m, 0, 1), TD_FAILED_PRECONDITION, "is gone");
    end(&x);
}

// The forward runs once all the same, and is counted once.
static void forget_after_the_forward(const char *accelerator) {
    double norm[2], loss[2];
    struct weights own[2];
    for (int late = 0; late < 2; late++) {
        struct manual x;
        int64_t n;
        bool stepped;
        begin(&x, accelerator, "32-true", 2);
        assert_ok(td_manual_next(&x.m, &n));
        assert_ok(td_manual_forward(&x.m, 0, 1));
        assert_ok(td_manual_backward(&x.m, -1));
        assert_ok(td_manual_next(&x.m, &n));
        if (!late) assert_ok(td_manual_zero_grad(&x.m, 0));
        assert_ok(td_manual_forward(&x.m, 0, 1));
        if (late) assert_ok(td_manual_value(&x.m, "loss", &loss[late])); // it has run
        if (late) assert_ok(td_manual_zero_grad(&x.m, 0));
        assert_ok(td_manual_backward(&x.m, -1));
        assert_ok(td_manual_norm(&x.m, 0, &norm[late]));
        assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
        assert_ok(td_manual_value(&x.m, "loss", &loss[late]));
        assert_int_equal(n_forwards, strcmp(accelerator, "counted") == 0 ? 2 : 0);
        assert_true(x.l.window.item[0].count == (double)n);
        assert_true(fabs(x.l.window.item[0].sum / (double)n - loss[late]) < 1e-6);
        read_weights(x.rank, &own[late]);
        end(&x);
    }
    assert_true(norm[0] == norm[1] && loss[0] == loss[1]);
    assert_memory_equal(own[0].at, own[1].at, own[0].bytes);
}

static void test_gradients_forgotten_after_the_forward_are_not_added_to(void **state) {
    (void)state;
    forget_after_the_forward("counted");
    forget_after_the_forward("far");
}

static void test_update_after_the_end_of_an_epoch_leaves_the_next_one_whole(void **state) {
    (void)state;
    struct manual x;
    int64_t n, batches = 0;
    bool stepped;
    begin(&x, "reference", "32-true", 4);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (batches = 0;; batches++) {
            assert_ok(td_manual_next(&x.m, &n));
            if (n == 0) break;
            assert_ok(td_manual_forward(&x.m, 0, 0.25));
            assert_ok(td_manual_backward(&x.m, -1));
        }
        assert_int_equal(batches, 4);
        assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
        assert_ok(td_manual_drain(&x.m));
        assert_int_equal(x.l.at.epoch, epoch + 1);
        assert_int_equal(x.l.at.epoch_offset, 0);
        assert_int_equal(x.l.at.windows, 4 * (epoch + 1)); // of one batch, not of its updates
    }
    end(&x);
}

static void test_position_is_after_the_batch_that_was_trained(void **state) {
    (void)state;
    struct manual x;
    int64_t n;
    bool stepped;
    begin(&x, "reference", "32-true", 1);
    assert_ok(td_manual_next(&x.m, &n));
    assert_ok(td_manual_forward(&x.m, 0, 1));
    assert_ok(td_manual_backward(&x.m, -1));
    assert_ok(td_manual_next(&x.m, &n)); // looked at already
    assert_ok(td_manual_optimizer_step(&x.m, 0, &stepped));
    assert_ok(td_manual_drain(&x.m));
    assert_int_equal(x.l.at.epoch_offset, 4);
    assert_int_equal(x.l.at.epoch_batches, 1);
    assert_int_equal(x.l.at.windows, 1);
    end(&x);
}

// ---- a module with host code --------------------------------------------------------------------
static td_status plain_step(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)batch_idx;
    TD_TRY(td_steps_forward(s, NULL));
    TD_TRY(td_steps_backward(s));
    return td_steps_optimizer_step(s, "train", NULL);
}

static td_status adding_step(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    const bool ends = batch_idx % 2 == 1;
    double loss, norm;
    bool low;
    (void)m;
    TD_TRY(td_steps_divide_loss(s, 2));
    TD_TRY(td_steps_no_backward_sync(s, !ends));
    TD_TRY(td_steps_forward(s, "train"));
    TD_TRY(td_steps_value(s, "loss", &loss));
    TD_TRY(td_steps_decide(s, loss < 1e9, true, &low));
    if (!low) return TD_OK; // a branch on a value
    TD_TRY(td_steps_backward(s));
    if (!ends) return TD_OK;
    TD_TRY(td_steps_clip_gradients(s, NULL, &norm));
    return td_steps_optimizer_step(s, NULL, NULL);
}

static td_status strange_step(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)batch_idx;
    return td_steps_forward(s, "trane");
}

static td_status fit_own(td_status (*step)(struct td_module *, struct td_steps *, int64_t),
                         const char *accelerator, int window, struct weights *out) {
    static struct td_module_ops ops;
    static const struct td_plugin_desc own =
        TD_PLUGIN_DESC(MODULE, "mlp", "mlp with host code", &ops);
    struct run r;
    struct td_rank *rank;
    struct td_train_loop l;
    enum td_train_loop_end end;
    memcpy(&ops, td_module_mlp.ops, sizeof ops);
    ops.training_step = step;
    prepare(&r, &own, accelerator, "32-true", window);
    td_status s = td_rank_create(&r.config, &r.io, &r.events, &rank);
    if (!s) {
        td_train_loop_init(&l, rank);
        s = td_train_loop_fit(&l, &end);
        if (!s) read_weights(rank, out);
        td_rank_destroy(rank);
    }
    dispose(&r);
    return s;
}

static void test_host_code_that_does_what_a_job_does_gives_its_bits(void **state) {
    (void)state;
    static const char *const accelerators[] = {"reference", "far"};
    for (size_t i = 0; i < TD_COUNTOF(accelerators); i++) {
        struct weights job, own;
        fit(accelerators[i], "32-true", 1, &job);
        assert_ok(fit_own(plain_step, accelerators[i], 1, &own));
        assert_memory_equal(own.at, job.at, job.bytes);
        fit(accelerators[i], "32-true", 2, &job);
        assert_ok(fit_own(adding_step, accelerators[i], 1, &own));
        assert_memory_equal(own.at, job.at, job.bytes);
    }
}

static void test_host_code_is_refused_what_cannot_be(void **state) {
    (void)state;
    struct weights own;
    td_status s = fit_own(strange_step, "reference", 1, &own);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_non_null(strstr(td_status_message(s), "'trane'"));
    assert_non_null(strstr(td_status_message(s), "batch 1"));
    td_status_free(s);
    s = fit_own(plain_step, "reference", 2, &own);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "accumulate_grad_batches"));
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_loop_gives_the_bits_of_a_job),
        cmocka_unit_test(test_loop_that_reads_values_between_calls_gives_the_bits_of_a_job),
        cmocka_unit_test(test_micro_batches_add_up_as_in_a_job),
        cmocka_unit_test(test_loss_scale_gates_the_step_as_in_a_job),
        cmocka_unit_test(test_gradients_are_divided_by_the_scale_that_they_have),
        cmocka_unit_test(test_rate_of_the_caller_takes_the_place_of_the_schedule),
        cmocka_unit_test(test_forgotten_gradients_leave_no_trace),
        cmocka_unit_test(test_calls_in_an_order_that_cannot_be_are_refused),
        cmocka_unit_test(test_batch_that_is_skipped_is_not_read_by_the_run_before),
        cmocka_unit_test(test_batch_whose_buffer_was_used_again_is_refused),
        cmocka_unit_test(test_gradients_forgotten_after_the_forward_are_not_added_to),
        cmocka_unit_test(test_update_after_the_end_of_an_epoch_leaves_the_next_one_whole),
        cmocka_unit_test(test_position_is_after_the_batch_that_was_trained),
        cmocka_unit_test(test_host_code_that_does_what_a_job_does_gives_its_bits),
        cmocka_unit_test(test_host_code_is_refused_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
