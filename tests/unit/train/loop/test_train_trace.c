// Which calls a rank makes of its plugins, and in which order, against tests/golden/trace_*.txt,
// line by line. A change of the order shows up here as a readable difference; TD_GOLDEN_WRITE=1
// writes the files again. The order is that of traind/strategy.h; docs/lightning.md says where it
// is not Lightning's.

#include "tests/unit/test.h"

#include "tests/unit/train/loop/trace_rig.h"
#include "tests/unit/train/loop/trace_strategy.h"

// Of one trace.
struct trace_case {
    const char *name;
    const struct td_plugin_desc *precision, *hook;
    bool ddp, far, all_slots;
    bool late;      // optimizers, which have state then
    bool loaders;   // two, of the split to validate on
    bool host_code; // of the module
    int host_window, host_fails_at;
    double loss_scale; // to begin with
    bool prompted;     // tokens are continued
    bool stops;        // the other rank is asked to, before its first step
    int accumulate;    // 0: 1
    int n_steps, fails_at, gather_fails_at;
    int32_t max_epochs; // 0: 1
    unsigned stages;    // 0: fit
    const char *resume_from;
};
static const struct trace_case *now;

// A loss scale. Gradients of logits are below 1 / 4 in a batch of 4: with half of this they fit
// fp16, with this they do not.
enum { SKIPPED_SCALE = 1 << 19 };

static void change_rank_0(struct run *r) {
    const struct td_plugin_desc *strategy =
        now->ddp ? &td_strategy_ddp : &td_strategy_single_device;
    trace_add_accelerator(r, now->far ? &td_accelerator_far : &td_accelerator_reference);
    trace_add_precision(r, now->precision);
    trace_add_strategy(r, strategy, now->ddp);
    trace_add_collective(r, now->ddp ? &td_collective_shm : &td_collective_local);
    trace_add_workload(r);
    if (now->hook) trace_add_hook(r, now->hook);
    r->config.accelerator = r->config.strategy = r->config.precision = "traced";
    r->config.collective = r->config.model.name = r->config.data.name = "traced";
    if (now->hook) r->config.comm_hook.name = "traced";
}

static void take_prompt(struct run *r, const char *dir) {
    static const char bytes[] = "tokens are two bytes each in this file";
    char path[TD_FS_PATH_BYTES], data[TD_FS_PATH_BYTES + 100];
    struct td_json *prompt = NULL;
    assert_ok(td_fs_path(path, "%s-tokens.bin", dir));
    assert_ok(td_fs_write(path, bytes, sizeof bytes - 1, 0600, 0));
    snprintf(data, sizeof data, "{\"train\":[\"%s\"],\"block_size\":4,\"vocab_size\":32768}", path);
    r->config.data.knobs = knobs(r, &td_dataset_tokens, data);
    r->config.model.knobs = knobs(r, &td_module_gpt,
                                  "{\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_positions\":4,"
                                  "\"vocab_size\":32768}");
    assert_ok(td_json_parse(r->arena, "[1,2]", 5, &prompt));
    r->config.predict.prompt_tokens = prompt;
    r->config.predict.max_new_tokens = 3;
}

static void change(struct run *r, const char *dir) {
    if (now->prompted) take_prompt(r, dir);
    if (now->stops && r->config.rank == 1) {
        atomic_store_explicit(&r->page.stop, TD_STOP_CHECKPOINT, memory_order_relaxed);
    }
    r->config.stages = now->stages ? now->stages : TD_STAGE_FIT;
    r->config.checkpoint.every_n_epochs = 1;
    r->config.optimizer.kind = TD_OPTIMIZER_SGD;
    r->config.optimizer.attrs = (struct td_optim_attrs){.momentum = now->late ? 0.9 : 0};
    r->config.optimizer.max_norm = 0;
    if (now->hook) {
        const char *text = "{\"matrix_approximation_rank\":1,\"start_powerSGD_iter\":2,"
                           "\"min_compression_rate\":0.5,\"use_error_feedback\":true,"
                           "\"warm_start\":true,\"orthogonalization_epsilon\":0,"
                           "\"random_seed\":0}";
        r->config.comm_hook.knobs = knobs(r, now->hook, text);
    }
    if (r->config.rank == 0) {
        change_rank_0(r);
        return;
    }
    // The other rank has the same plugins, as they are.
    assert_ok(td_registry_add(r->registry, now->precision));
    r->config.precision = now->precision->name;
    if (now->host_code) {
        assert_ok(td_registry_add(r->registry, &trace_descs[TD_PLUGIN_MODULE]));
        r->config.model.name = "traced";
    }
    if (!now->hook) return;
    assert_ok(td_registry_add(r->registry, now->hook));
    r->config.comm_hook.name = now->hook->name;
}

// ---- golden files -------------------------------------------------------------------------------
static void check_golden(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/trace_%s.txt", name);
    struct td_buf *text = &trace.text;
    if (getenv("TD_GOLDEN_WRITE")) assert_ok(td_fs_write(path, text->data, text->len, 0644, 0));
    TD_AUTO_BUF want;
    td_buf_init(&want, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &want));
    const char *a = td_buf_cstr(text), *b = td_buf_cstr(&want);
    for (int line = 1; *a || *b; line++) {
        const int n = (int)strcspn(a, "\n"), m = (int)strcspn(b, "\n");
        if (n != m || memcmp(a, b, (size_t)n) != 0) {
            fail_msg("%s:%d: here it is '%.*s', not '%.*s'", path, line, n, a, m, b);
        }
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
}

static void record(const struct trace_case *c, const char *dir, struct ranks *all) {
    now = c;
    const struct job j = {.accelerator = c->far ? "far" : "reference",
                          .strategy = c->ddp ? "ddp" : "single_device",
                          .precision = "32-true",
                          .world = c->ddp ? 2 : 1,
                          .accumulate = c->accumulate ? c->accumulate : 1,
                          .max_epochs = c->max_epochs ? c->max_epochs : 1,
                          .resume_from = c->resume_from,
                          .own = c->ddp && c->all_slots ? trace_peer_of(&td_strategy_ddp) : NULL,
                          .change = change};
    memset(&trace, 0, sizeof trace);
    td_buf_init(&trace.text, 1 << 20);
    td_buf_init(&trace.beside, 1 << 20);
    trace.all_slots = c->all_slots;
    trace.late = c->late;
    trace.loaders = c->loaders;
    trace.host_code = c->host_code;
    trace.host_window = c->host_window;
    trace.host_fails_at = c->host_fails_at;
    trace.loss_scale = c->loss_scale;
    trace.prompted = c->prompted;
    trace.n_steps = c->n_steps;
    trace.fails_at = c->fails_at;
    trace.gather_fails_at = c->gather_fails_at;
    start_ranks(all, &j, dir);
    join_ranks(all);
    if (trace.beside.len) {
        assert_ok(td_buf_printf(&trace.text, "%s", td_buf_cstr(&trace.beside)));
    }
    td_buf_finish(&trace.beside);
}

static void say_over(const struct trace_case *c) {
    td_test_over("precision", c->precision->name);
    td_test_over("strategy", c->ddp ? "ddp" : "single_device");
    td_test_over("accelerator", c->far ? "far" : "reference");
    if (c->hook) td_test_over("comm_hook", c->hook->name);
}

static void check(const struct trace_case *c, const char *dir) {
    struct ranks all;
    record(c, dir, &all);
    for (int32_t i = 0; i < all.world; i++) {
        assert_ok(all.rank[i].failed);
    }
    check_golden(c->name);
    td_buf_finish(&trace.text);
    say_over(c);
}

// Both ranks end at the same step.
static void check_stopped(const struct trace_case *c, const char *dir, int64_t step) {
    struct ranks all;
    record(c, dir, &all);
    for (int32_t i = 0; i < all.world; i++) {
        assert_ok(all.rank[i].failed);
        assert_int_equal(all.rank[i].result.end, TD_LOOP_STOPPED);
        assert_int_equal(all.rank[i].result.step, step);
    }
    check_golden(c->name);
    td_buf_finish(&trace.text);
    say_over(c);
}

static void check_failing(const struct trace_case *c, const char *dir, const char *text) {
    struct ranks all;
    record(c, dir, &all);
    assert_non_null(strstr(td_status_message(all.rank[0].failed), text));
    td_status_free(all.rank[0].failed);
    check_golden(c->name);
    td_buf_finish(&trace.text);
    say_over(c);
}

// ---- cases --------------------------------------------------------------------------------------
// Contract 26: the calls of a fit, with one training step
static void test_fit_has_this_trace_when_a_module_has_one_step(void **state) {
    check(&(struct trace_case){.name = "fit", .precision = &td_precision_fp32}, *state);
}

// Contract 26: the calls of a fit, with several training steps
static void test_fit_has_this_trace_when_a_module_has_several_steps(void **state) {
    check(
        &(struct trace_case){
            .name = "fit_steps", .precision = &td_precision_fp32, .n_steps = 2, .accumulate = 2},
        *state);
}

// Contract 26: the calls of a fit, with every slot of a strategy
static void test_fit_has_this_trace_when_a_strategy_acts_between_segments(void **state) {
    check(&(struct trace_case){.name = "fit_slots",
                               .precision = &td_precision_fp16_mixed,
                               .all_slots = true,
                               .accumulate = 2},
          *state);
}

// Contract 26: the calls of a fit of several ranks, with every slot of a strategy
static void test_fit_has_this_trace_when_a_strategy_of_two_ranks_has_all_slots(void **state) {
    check(&(struct trace_case){.name = "fit_slots_ddp",
                               .precision = &td_precision_fp32,
                               .ddp = true,
                               .all_slots = true,
                               .accumulate = 2,
                               .max_epochs = 2},
          *state);
}

// Contract 26: the calls of a fit, with each precision
static void test_fit_has_this_trace_when_precision_is(void **state) {
    static const struct trace_case rows[] = {
        {.name = "fit_fp64", .precision = &td_precision_fp64},
        {.name = "fit_bf16_mixed", .precision = &td_precision_bf16_mixed},
        {.name = "fit_bf16_true", .precision = &td_precision_bf16_true},
        {.name = "fit_fp16_mixed", .precision = &td_precision_fp16_mixed, .accumulate = 2},
        {.name = "fit_fp16_true", .precision = &td_precision_fp16_true},
        {.name = "fit_fp16_skips",
         .precision = &td_precision_fp16_mixed,
         .loss_scale = SKIPPED_SCALE},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[TD_FS_PATH_BYTES];
        assert_ok(td_fs_path(dir, "%s/%zu", (char *)*state, i));
        check(&rows[i], dir);
    }
}

// Contract 26: the calls of a fit, with accumulation and of several ranks
static void test_fit_has_this_trace_when_ranks_accumulate(void **state) {
    check(
        &(struct trace_case){
            .name = "fit_ddp", .precision = &td_precision_fp32, .ddp = true, .accumulate = 2},
        *state);
}

// Contract 26: the calls of a fit, with a comm hook
static void test_fit_has_this_trace_when_ranks_have_a_comm_hook(void **state) {
    check(&(struct trace_case){.name = "fit_ddp_hook",
                               .precision = &td_precision_fp16_mixed,
                               .hook = &td_comm_hook_power_sgd,
                               .ddp = true},
          *state);
}

// Contract 26: the calls of a fit, where runs are queued ahead of those that are read
static void test_fit_has_this_trace_when_a_device_runs_ahead(void **state) {
    check(&(struct trace_case){.name = "fit_far", .precision = &td_precision_fp32, .far = true},
          *state);
}

// Contract 26: the calls of a fit, where optimizers wait for the strategy's setup
static void test_fit_has_this_trace_when_optimizers_are_late(void **state) {
    check(
        &(struct trace_case){
            .name = "fit_late", .precision = &td_precision_fp32, .far = true, .late = true},
        *state);
}

static void test_fit_has_this_trace_when_validation_has_two_loaders(void **state) {
    check(&(struct trace_case){.name = "fit_loaders",
                               .precision = &td_precision_fp32,
                               .loaders = true},
          *state);
}

// Contract 26: the calls of a run that is resumed
static void test_fit_has_this_trace_when_it_is_resumed(void **state) {
    struct trace_case c = {.name = "fit_slots", // of the run before
                           .precision = &td_precision_fp16_mixed,
                           .all_slots = true,
                           .accumulate = 2};
    char from[TD_FS_PATH_BYTES];
    check(&c, *state);
    assert_ok(td_fs_path(from, "%s/step-2", (char *)*state));
    c.name = "fit_resumed";
    c.max_epochs = 2;
    c.resume_from = from;
    char dir[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(dir, "%s/resumed", (char *)*state));
    check(&c, dir);
}

// Contract 26: the calls of a run that is stopped within an epoch, and of the one that goes on
static void test_fit_has_this_trace_when_the_other_rank_is_asked_to_stop(void **state) {
    struct trace_case c = {
        .name = "fit_stopped", .precision = &td_precision_fp32, .ddp = true, .stops = true};
    char from[TD_FS_PATH_BYTES], dir[TD_FS_PATH_BYTES];
    check_stopped(&c, *state, 1);
    assert_ok(td_fs_path(from, "%s/step-1", (char *)*state));
    assert_ok(td_fs_path(dir, "%s/resumed", (char *)*state));
    c.name = "fit_resumed_within";
    c.stops = false;
    c.resume_from = from;
    check(&c, dir);
}

// Contract 26: the calls of a fit, where the module plays its batches itself
static void test_fit_has_this_trace_when_a_module_has_host_code(void **state) {
    check(&(struct trace_case){.name = "fit_host_code",
                               .precision = &td_precision_fp32,
                               .host_code = true},
          *state);
}

// Contract 26: the calls of a fit with host code, where a loss scale is too large, and of the run
// that goes on with what became of it
static void test_fit_has_this_trace_when_host_code_is_skipped_and_resumed(void **state) {
    struct trace_case c = {.name = "fit_host_code_skips",
                           .precision = &td_precision_fp16_mixed,
                           .host_code = true,
                           .loss_scale = SKIPPED_SCALE};
    char from[TD_FS_PATH_BYTES], dir[TD_FS_PATH_BYTES];
    check(&c, *state);
    assert_ok(td_fs_path(from, "%s/step-3", (char *)*state));
    assert_ok(td_fs_path(dir, "%s/resumed", (char *)*state));
    c.name = "fit_host_code_resumed";
    c.loss_scale = 0;
    c.max_epochs = 2;
    c.resume_from = from;
    check(&c, dir);
}

// Contract 26: the calls of a fit with host code of several ranks, and every slot of a strategy
static void test_fit_has_this_trace_when_host_code_has_ranks(void **state) {
    check(&(struct trace_case){.name = "fit_host_code_ddp",
                               .precision = &td_precision_fp32,
                               .ddp = true,
                               .all_slots = true,
                               .host_code = true,
                               .host_window = 2},
          *state);
}

// Contract 26: the calls of a predict that continues a prompt
static void test_predict_has_this_trace_when_it_continues_a_prompt(void **state) {
    check(&(struct trace_case){.name = "predict_prompt",
                               .precision = &td_precision_fp32,
                               .prompted = true,
                               .stages = TD_STAGE_PREDICT},
          *state);
}

// Contract 26: the calls of validate, test and predict
static void test_stage_has_this_trace_when_nothing_is_trained(void **state) {
    static const struct trace_case rows[] = {
        {.name = "validate", .precision = &td_precision_fp32, .stages = TD_STAGE_VALIDATE},
        {.name = "test", .precision = &td_precision_fp32, .stages = TD_STAGE_TEST},
        {.name = "predict", .precision = &td_precision_fp32, .stages = TD_STAGE_PREDICT},
        {.name = "stages",
         .precision = &td_precision_fp32,
         .stages = TD_STAGE_FIT | TD_STAGE_VALIDATE | TD_STAGE_TEST | TD_STAGE_PREDICT},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[TD_FS_PATH_BYTES];
        assert_ok(td_fs_path(dir, "%s/%zu", (char *)*state, i));
        check(&rows[i], dir);
    }
}

// Contract 26: the calls of a run that fails
static void test_run_has_this_trace_when_a_step_fails(void **state) {
    const struct trace_case c = {
        .name = "step_fails", .precision = &td_precision_fp32, .all_slots = true, .fails_at = 4};
    check_failing(&c, *state, "run 4 of the test");
}

// Contract 26: the calls of a run that fails
static void test_run_has_this_trace_when_a_validation_fails(void **state) {
    const struct trace_case c = {.name = "validation_fails",
                                 .precision = &td_precision_fp32,
                                 .all_slots = true,
                                 .gather_fails_at = 5};
    check_failing(&c, *state, "batch 5 of the test");
}

// Contract 26: the calls of a run whose host code fails, once a pass of its batch ran
static void test_run_has_this_trace_when_host_code_fails(void **state) {
    const struct trace_case c = {.name = "host_code_fails",
                                 .precision = &td_precision_fp32,
                                 .all_slots = true,
                                 .host_code = true,
                                 .host_fails_at = 2};
    check_failing(&c, *state, "batch 1 of host code");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_fit_has_this_trace_when_a_module_has_one_step),
        test_in_scratch(test_fit_has_this_trace_when_a_module_has_several_steps),
        test_in_scratch(test_fit_has_this_trace_when_a_strategy_acts_between_segments),
        test_in_scratch(test_fit_has_this_trace_when_a_strategy_of_two_ranks_has_all_slots),
        test_in_scratch(test_fit_has_this_trace_when_precision_is),
        test_in_scratch(test_fit_has_this_trace_when_ranks_accumulate),
        test_in_scratch(test_fit_has_this_trace_when_ranks_have_a_comm_hook),
        test_in_scratch(test_fit_has_this_trace_when_a_device_runs_ahead),
        test_in_scratch(test_fit_has_this_trace_when_optimizers_are_late),
        test_in_scratch(test_fit_has_this_trace_when_validation_has_two_loaders),
        test_in_scratch(test_fit_has_this_trace_when_it_is_resumed),
        test_in_scratch(test_fit_has_this_trace_when_the_other_rank_is_asked_to_stop),
        test_in_scratch(test_fit_has_this_trace_when_a_module_has_host_code),
        test_in_scratch(test_fit_has_this_trace_when_host_code_is_skipped_and_resumed),
        test_in_scratch(test_fit_has_this_trace_when_host_code_has_ranks),
        test_in_scratch(test_predict_has_this_trace_when_it_continues_a_prompt),
        test_in_scratch(test_stage_has_this_trace_when_nothing_is_trained),
        test_in_scratch(test_run_has_this_trace_when_a_step_fails),
        test_in_scratch(test_run_has_this_trace_when_a_validation_fails),
        test_in_scratch(test_run_has_this_trace_when_host_code_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
