// The rank context drives its plugins in the documented order: a strategy that writes down its
// calls, over the reference accelerator, in this process. And because that strategy asks for the
// segments one by one, its weights show that they give the same bits as the fused step.

#include "tests/unit/test.h"

#include <sys/socket.h>

#include "engine/train/checkpoint/safetensors.h"
#include "engine/train/rank/plugins.h"
#include "lib/base/clock.h"
#include "tests/unit/train/rank/train_rig.h"

// ---- a strategy that writes down what it is asked -----------------------------------------------
static char calls[16384];
static size_t calls_len;

static void note(const char *what) {
    calls_len += (size_t)snprintf(calls + calls_len, sizeof calls - calls_len, "%s ", what);
}

static const struct td_strategy_ops *base(void) {
    return td_strategy_single_device.ops;
}

static td_status spy_open(const struct td_strategy_config *c, struct td_strategy **out) {
    note("open");
    return base()->open(c, out);
}
static void spy_close(struct td_strategy *s) {
    note("close");
    base()->close(s);
}
static td_status spy_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    note("environment");
    TD_TRY(base()->environment(s, f));
    f->hooks_batches = true;
    return TD_OK;
}
static td_status spy_connect(struct td_strategy *s, const struct td_module_ops *ops,
                             struct td_module *m) {
    (void)s, (void)ops, (void)m;
    note("connect");
    return TD_OK;
}
static td_status spy_build_begin(struct td_strategy *s, struct td_state_table *state) {
    (void)s, (void)state;
    note("build_begin");
    return TD_OK;
}
static td_status spy_build_end(struct td_strategy *s, const struct td_state_table *state) {
    (void)s, (void)state;
    note("build_end");
    return TD_OK;
}
static td_status spy_rewrite(struct td_strategy *s, struct td_graph *g,
                             const struct td_program_key *k) {
    (void)s, (void)g, (void)k;
    note("rewrite");
    return TD_OK;
}
static td_status spy_process_dataloader(struct td_strategy *s, enum td_split split,
                                        struct td_strategy_shard *out) {
    (void)s, (void)split;
    note("process_dataloader");
    *out = (struct td_strategy_shard){.n_replicas = 1};
    return TD_OK;
}
static td_status spy_place(struct td_strategy *s, const struct td_state_table *t,
                           struct td_strategy_memory *m) {
    (void)s, (void)t, (void)m;
    note("place");
    return TD_OK;
}
static td_status spy_setup(struct td_strategy *s, const struct td_state_table *t,
                           const struct td_strategy_memory *m) {
    (void)s, (void)t, (void)m;
    note("setup");
    return TD_OK;
}
static td_status spy_teardown(struct td_strategy *s) {
    (void)s;
    note("teardown");
    return TD_OK;
}
static td_status spy_pre_backward(struct td_strategy *s) {
    (void)s;
    note("pre_backward");
    return TD_OK;
}
static td_status spy_post_backward(struct td_strategy *s) {
    (void)s;
    note("post_backward");
    return TD_OK;
}
static td_status spy_hook(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch) {
    static const char *const names[] = {
        "train_start", "batch_start", "train_end",      "eval_start",   "eval_end",
        "epoch_start", "epoch_end",   "validate_start", "validate_end",
    };
    (void)s, (void)batch;
    assert_true((size_t)hook < TD_COUNTOF(names));
    note(names[hook]);
    return TD_OK;
}

static struct td_strategy_ops spy_ops;
static struct td_plugin_desc spy =
    TD_PLUGIN_DESC(STRATEGY, "spy", "writes down its calls", &spy_ops);

static void make_spy(void) {
    spy_ops = *base();
    spy_ops.open = spy_open;
    spy_ops.close = spy_close;
    spy_ops.environment = spy_environment;
    spy_ops.connect = spy_connect;
    spy_ops.build_begin = spy_build_begin;
    spy_ops.build_end = spy_build_end;
    spy_ops.rewrite = spy_rewrite;
    spy_ops.process_dataloader = spy_process_dataloader;
    spy_ops.place = spy_place;
    spy_ops.setup = spy_setup;
    spy_ops.teardown = spy_teardown;
    spy_ops.pre_backward = spy_pre_backward;
    spy_ops.post_backward = spy_post_backward;
    spy_ops.hook = spy_hook;
}

// ---- a run in this process ----------------------------------------------------------------------
static void prepare(struct run *r, const char *strategy, const char *dir) {
    prepare_run(r, &spy, strategy, dir);
}

static void test_slots_are_called_in_the_documented_order(void **state) {
    struct run r;
    struct td_train_result result;
    make_spy();
    calls_len = 0;
    prepare(&r, "spy", *state);
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    assert_int_equal(result.end, TD_LOOP_DONE);
    assert_int_equal(result.step, 2);
    dispose(&r);
    // Two programs of a window of two (first, last), one to validate; 4 micro-batches; 1
    // validation.
    assert_string_equal(calls,
                        "open environment "
                        "process_dataloader process_dataloader process_dataloader connect "
                        "build_begin rewrite rewrite rewrite build_end place setup train_start "
                        "epoch_start "
                        "batch_start pre_backward post_backward "
                        "batch_start pre_backward post_backward "
                        "batch_start pre_backward post_backward "
                        "batch_start pre_backward post_backward "
                        "validate_start eval_start eval_end validate_end epoch_end "
                        "train_end teardown close ");
}

// A step slot that writes down the segments of each run.
static const struct td_accelerator_ops *accel_ops;
static td_status counted_open(const struct td_strategy_config *c, struct td_strategy **out) {
    accel_ops = c->accel_ops;
    return base()->open(c, out);
}
static td_status counted_step(struct td_strategy *s, enum td_strategy_step kind,
                              struct td_executable *exe, uint32_t segments,
                              const struct td_buffer *inputs, td_ticket *out_ticket) {
    (void)s;
    char text[32];
    snprintf(text, sizeof text, "%d:%x", (int)kind, segments & TD_SEGS_ALL);
    note(text);
    return accel_ops->run(exe, segments, inputs, out_ticket);
}

static void test_step_slot_gets_apply_only_where_the_optimizer_steps(void **state) {
    struct run r;
    struct td_train_result result;
    spy_ops = *base();
    spy_ops.open = counted_open;
    spy_ops.step = counted_step;
    calls_len = 0;
    prepare(&r, "spy", *state);
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    assert_int_equal(result.step, 2);
    dispose(&r);
    // Two windows of two micro-batches, then a validation, which has no segments but the first.
    assert_string_equal(calls, "0:3 0:f 0:3 0:f 1:f ");
}

static td_status forgetful_step(struct td_strategy *s, enum td_strategy_step kind,
                                struct td_executable *exe, uint32_t segments,
                                const struct td_buffer *inputs, td_ticket *out_ticket) {
    td_ticket own;
    (void)s, (void)kind, (void)out_ticket;
    return accel_ops->run(exe, segments, inputs, &own);
}

static void test_step_slot_is_refused_when_it_gives_no_ticket(void **state) {
    struct run r;
    struct td_train_result result;
    spy_ops = *base();
    spy_ops.open = counted_open;
    spy_ops.step = forgetful_step;
    prepare(&r, "spy", *state);
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_fails(s, TD_FAILED_PRECONDITION, "strategy 'spy' gave no ticket from its slot step");
    dispose(&r);
}

// ---- beats -------------------------------------------------------------------------------------
// Time does not pass, but for a second after each batch. A batch that begins without a beat of that
// very second is written down as "silent".
static const struct td_rank_page *beating;
static int64_t beat_now_ns;

static td_status beating_step(struct td_strategy *s, enum td_strategy_step kind,
                              struct td_executable *exe, uint32_t segments,
                              const struct td_buffer *inputs, td_ticket *out_ticket) {
    static const char *const names[] = {"train", "validate", "test", "predict"};
    (void)s;
    note(atomic_load(&beating->heartbeat_ns) == beat_now_ns ? names[kind] : "silent");
    TD_TRY(accel_ops->run(exe, segments, inputs, out_ticket));
    beat_now_ns += TD_NS_PER_S;
    td_clock_fake(beat_now_ns, -1);
    return TD_OK;
}

static void prepare_beating(struct run *r, const char *dir) {
    spy_ops = *base();
    spy_ops.open = counted_open;
    spy_ops.step = beating_step;
    prepare(r, "spy", dir);
}

static void run_beating(struct run *r, uint32_t stages) {
    struct td_train_result result;
    beating = &r->page;
    beat_now_ns = 1000 * TD_NS_PER_S;
    calls_len = 0;
    r->config.stages = stages;
    td_clock_fake(beat_now_ns, -1);
    td_status s = td_train(&r->config, &r->io, &r->events, &result);
    td_clock_fake(-1, -1);
    dispose(r);
    assert_ok(s);
}

static void test_rank_beats_at_each_batch_when_it_evaluates_or_predicts(void **state) {
    struct run r;
    prepare_beating(&r, *state);
    r.config.data.knobs =
        knobs(&r, &td_dataset_synthetic, "{\"samples\":48,\"features\":8,\"classes\":4}");
    r.config.limits.predict_batches = r.config.limits.test_batches;
    run_beating(&r, TD_STAGE_VALIDATE | TD_STAGE_TEST | TD_STAGE_PREDICT);
    assert_string_equal(calls, "validate validate test test predict predict ");
}

static void test_rank_beats_at_each_token_when_it_generates(void **state) {
    static const char bytes[] = "tokens are two bytes each in this file";
    char path[4096], data[4096 + 100];
    struct run r;
    prepare_beating(&r, *state);
    assert_ok(td_registry_add(r.registry, &td_module_gpt));
    assert_ok(td_registry_add(r.registry, &td_dataset_tokens));
    snprintf(path, sizeof path, "%s/tokens.bin", (char *)*state);
    assert_ok(td_fs_write(path, bytes, sizeof bytes - 1, 0600, 0));
    snprintf(data, sizeof data, "{\"train\":[\"%s\"],\"block_size\":4,\"vocab_size\":32768}", path);
    r.config.data = (struct td_part){"tokens", knobs(&r, &td_dataset_tokens, data)};
    r.config.model =
        (struct td_part){"gpt", knobs(&r, &td_module_gpt,
                                      "{\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_positions\":4,"
                                      "\"vocab_size\":32768}")};
    struct td_json *prompt = NULL;
    assert_ok(td_json_parse(r.arena, "[1,2]", 5, &prompt));
    r.config.predict.prompt_tokens = prompt;
    r.config.predict.max_new_tokens = 3;
    run_beating(&r, TD_STAGE_PREDICT);
    assert_string_equal(calls, "predict predict predict ");
}

static td_status lost_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    TD_TRY(base()->environment(s, f));
    f->root_device = 1; // reference has one
    return TD_OK;
}

static void test_strategy_is_refused_when_it_mistakes_its_place(void **state) {
    struct run r;
    struct td_train_result result;
    make_spy();
    spy_ops.environment = lost_environment;
    prepare(&r, "spy", *state);
    td_status failed = td_train(&r.config, &r.io, &r.events, &result);
    assert_int_equal(td_status_class(failed), TD_CLASS_USER_CODE);
    assert_fails(failed, TD_FAILED_PRECONDITION,
                 "strategy 'spy' takes itself for rank 0 of 1 (local 0, node 0) on device 1");
    dispose(&r);
}

static void test_segments_one_by_one_give_the_bits_of_the_fused_step(void **state) {
    static const char *const strategies[] = {"single_device", "spy"};
    float weights[2][32];
    make_spy();
    for (int i = 0; i < 2; i++) {
        char dir[4096], path[4096 + 64];
        struct run r;
        struct td_train_result result;
        struct td_safetensors *file;
        calls_len = 0;
        snprintf(dir, sizeof dir, "%s/%s", (char *)*state, strategies[i]);
        prepare(&r, strategies[i], dir);
        assert_ok(td_train(&r.config, &r.io, &r.events, &result));
        dispose(&r);
        snprintf(path, sizeof path, "%s/step-2/model.safetensors", dir);
        assert_ok(td_safetensors_open(path, &file));
        const struct td_tensor *t = td_safetensors_at(file, 0);
        assert_int_equal(t->bytes, sizeof weights[i]);
        memcpy(weights[i], t->data, t->bytes);
        td_safetensors_close(file);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
}

// ---- a model with a parameter too many ----------------------------------------------------------
static td_status idle_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_module_ops *mlp = td_module_mlp.ops;
    const struct td_shape shape = {1, {3}};
    const struct td_init zero = {0};
    td_value v;
    TD_TRY(td_graph_param(g, "idle.weight", TD_F32, &shape, zero, &v));
    return mlp->record(m, g, batch);
}

// Contract 13: an unused parameter is named
static void test_parameter_is_named_when_the_loss_does_not_reach_it(void **state) {
    struct run r;
    struct td_train_result result;
    struct td_module_ops ops = *(const struct td_module_ops *)td_module_mlp.ops;
    struct td_plugin_desc idle = td_module_mlp;
    int pair[2];
    char received[8192];
    size_t n = 0;
    ops.record = idle_record;
    ops.targets = NULL; // as a module that was built before there was the slot
    idle.name = "idle";
    idle.ops = &ops;
    prepare(&r, "single_device", *state);
    assert_ok(td_registry_add(r.registry, &idle));
    r.config.model.name = "idle";
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_FAILED_PRECONDITION,
                 "no training step reaches 1 parameter of model 'idle': idle.weight. Take it out "
                 "of the model, freeze it by a group with lr_scale: 0, or set "
                 "trainer.find_unused_parameters: true");
    r.config.find_unused_parameters = true;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    close(r.events.fd);
    r.events.fd = pair[0];
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    dispose(&r);
    for (ssize_t some; n < sizeof received - 1; n += (size_t)some) {
        some = read(pair[1], received + n, sizeof received - 1 - n);
        if (some <= 0) break;
    }
    close(pair[1]);
    received[n] = '\0';
    assert_non_null(
        strstr(received, "1 parameter is not trained, as no training step uses it: idle.weight\""));
}

// A module that names one parameter more in one of its modes.
static enum td_mode odd_mode;

static td_status odd_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_module_ops *mlp = td_module_mlp.ops;
    return td_graph_mode(g) == odd_mode ? idle_record(m, g, batch) : mlp->record(m, g, batch);
}

static td_status train_odd(enum td_mode mode, uint32_t stages, const char *dir) {
    struct run r;
    struct td_train_result result;
    struct td_module_ops ops = *(const struct td_module_ops *)td_module_mlp.ops;
    struct td_plugin_desc odd = td_module_mlp;
    odd_mode = mode;
    ops.record = odd_record;
    odd.name = "odd";
    odd.ops = &ops;
    prepare(&r, "single_device", dir);
    assert_ok(td_registry_add(r.registry, &odd));
    r.config.model.name = "odd";
    r.config.stages = stages;
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    dispose(&r);
    return s;
}

static void test_module_is_refused_when_it_names_a_parameter_only_where_it_evaluates(void **state) {
    td_status s = train_odd(TD_MODE_EVAL, TD_STAGE_FIT, *state);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_fails(s, TD_FAILED_PRECONDITION,
                 "program train/eval of batch 2: the module names the parameter 'idle.weight', "
                 "which it did not name where it trains");
    s = train_odd(TD_MODE_TRAIN, TD_STAGE_FIT, *state); // named in time, but of no use
    assert_fails(s, TD_FAILED_PRECONDITION, "no training step reaches 1 parameter of model 'odd'");
    assert_ok(train_odd(TD_MODE_EVAL, TD_STAGE_VALIDATE, *state)); // a job without training
}

// ---- a precision of somebody else's, with knobs and with state of its own -----------------------
static char kept[16], taken[16]; // what it gives to a checkpoint, and what it got from one
static char knob[16];

static td_status keeper_open(const struct td_precision_config *c, struct td_precision **out) {
    snprintf(knob, sizeof knob, "%s", td_json_string(td_json_get(c->knobs, "colour"), "none"));
    *out = NULL;
    return TD_OK;
}
static td_status keeper_save(struct td_precision *p, struct td_span *out) {
    (void)p;
    *out = (struct td_span){kept, strlen(kept)};
    return TD_OK;
}
static td_status keeper_load(struct td_precision *p, const void *data, size_t bytes) {
    (void)p;
    snprintf(taken, sizeof taken, "%.*s", (int)bytes, (const char *)data);
    return TD_OK;
}

static struct td_precision_ops keeper_ops;

static td_status train_keeper(const char *dir, const char *resume_from) {
    struct run r;
    struct td_train_result result;
    struct td_plugin_desc keeper = td_precision_fp32;
    keeper.name = "keeper";
    keeper.ops = &keeper_ops;
    prepare(&r, "single_device", dir);
    assert_ok(td_registry_add(r.registry, &keeper));
    r.config.precision = "keeper";
    r.config.precision_knobs = knobs(&r, &spy, "{\"colour\":\"blue\"}");
    r.config.resume_from = &resume_from;
    r.config.n_resume_from = resume_from != NULL;
    r.config.limits.max_epochs = resume_from ? 2 : 1;
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    dispose(&r);
    return s;
}

static void test_precision_gets_back_what_it_kept_when_its_run_is_resumed(void **state) {
    char first[4096], rest[4096], step[4096 + 64];
    snprintf(first, sizeof first, "%s/first", (char *)*state);
    snprintf(rest, sizeof rest, "%s/rest", (char *)*state);
    snprintf(step, sizeof step, "%s/step-2", first);
    keeper_ops = *(const struct td_precision_ops *)td_precision_fp32.ops;
    keeper_ops.open = keeper_open;
    keeper_ops.own_save = keeper_save;
    keeper_ops.own_load = keeper_load;
    snprintf(kept, sizeof kept, "as it was");
    assert_ok(train_keeper(first, NULL));
    assert_string_equal(knob, "blue");
    assert_string_equal(taken, "");
    snprintf(kept, sizeof kept, "later");
    assert_ok(train_keeper(rest, step));
    assert_string_equal(taken, "as it was");
}

static td_status greedy_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    TD_TRY(base()->environment(s, f));
    f->handles_gradient_accumulation = true;
    return TD_OK;
}

static void test_strategy_is_refused_when_it_wants_what_is_not_served(void **state) {
    struct run r;
    struct td_train_result result;
    make_spy();
    spy_ops.environment = greedy_environment;
    prepare(&r, "spy", *state);
    assert_fails(td_train(&r.config, &r.io, &r.events, &result), TD_UNIMPLEMENTED,
                 "strategy 'spy' wants to accumulate gradients itself");
    dispose(&r);
}

static struct td_strategy_shard shard;
static td_status share_dataloader(struct td_strategy *s, enum td_split split,
                                  struct td_strategy_shard *out) {
    (void)s;
    *out = split == TD_SPLIT_TRAIN ? shard : (struct td_strategy_shard){.n_replicas = 1};
    return TD_OK;
}

// A share of its own, which is not that of the rank in the world.
static void test_strategy_divides_the_data_as_it_likes(void **state) {
    struct run r;
    struct td_train_result result;
    make_spy();
    spy_ops.process_dataloader = share_dataloader;
    shard = (struct td_strategy_shard){.n_replicas = 2, .rank = 1};
    prepare(&r, "spy", *state);
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    assert_int_equal(result.step, 1); // of the 2 that there are with all samples
    dispose(&r);
    static const struct td_strategy_shard bad[] = {
        {.n_replicas = 0}, {.n_replicas = 2, .rank = 2}, {.n_replicas = 2, .rank = -1}};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i);
        shard = bad[i];
        prepare(&r, "spy", dir);
        td_status s = td_train(&r.config, &r.io, &r.events, &result);
        assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
        assert_fails(s, TD_INVALID_ARGUMENT, "strategy 'spy' gives this rank share");
        dispose(&r);
    }
}

static void test_rank_is_taken_down_when_memory_is_out_anywhere(void **state) {
    enum { ENOUGH = 40 }; // an event that finds no memory is dropped, so one success is not the end
    make_spy();
    int failed = 0, succeeded = 0;
    for (int64_t n = 1; succeeded < ENOUGH; n++) {
        char dir[4096];
        struct run r;
        struct td_train_result result;
        snprintf(dir, sizeof dir, "%s/%d", (char *)*state, (int)n);
        calls_len = 0;
        prepare(&r, "single_device", dir);
        td_alloc_fail_at(n);
        td_status s = td_train(&r.config, &r.io, &r.events, &result);
        td_alloc_fail_at(0);
        dispose(&r);
        enum td_code code = td_status_code(s);
        if (code && code != TD_RESOURCE_EXHAUSTED) print_message("# %s\n", td_status_message(s));
        assert_true(code == TD_CODE_OK || code == TD_RESOURCE_EXHAUSTED);
        td_status_free(s);
        failed += code != TD_CODE_OK;
        succeeded = code == TD_CODE_OK ? succeeded + 1 : 0;
    }
    assert_true(failed > 50);
}

static void test_auto_is_what_the_caller_says_until_a_first_start_settled_it(void **state) {
    struct run r;
    prepare_run(&r, NULL, "single_device", *state);
    struct td_json *frozen = td_json_new(r.arena, TD_JSON_OBJECT);
    r.config.auto_accelerator = "far";
    assert_string_equal(td_rank_accelerator_name(&r.config), "reference");
    r.config.accelerator = "auto";
    assert_string_equal(td_rank_accelerator_name(&r.config), "far");
    r.config.frozen = frozen;
    assert_string_equal(td_rank_accelerator_name(&r.config), "far");
    assert_true(td_json_set(r.arena, frozen, "accelerator", td_json_new_string(r.arena, "seen")));
    assert_string_equal(td_rank_accelerator_name(&r.config), "seen");
    dispose(&r);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_auto_is_what_the_caller_says_until_a_first_start_settled_it),
        CASE(test_slots_are_called_in_the_documented_order),
        CASE(test_step_slot_gets_apply_only_where_the_optimizer_steps),
        CASE(test_step_slot_is_refused_when_it_gives_no_ticket),
        CASE(test_rank_beats_at_each_batch_when_it_evaluates_or_predicts),
        CASE(test_rank_beats_at_each_token_when_it_generates),
        CASE(test_strategy_is_refused_when_it_mistakes_its_place),
        CASE(test_segments_one_by_one_give_the_bits_of_the_fused_step),
        CASE(test_parameter_is_named_when_the_loss_does_not_reach_it),
        CASE(test_module_is_refused_when_it_names_a_parameter_only_where_it_evaluates),
        CASE(test_precision_gets_back_what_it_kept_when_its_run_is_resumed),
        CASE(test_strategy_is_refused_when_it_wants_what_is_not_served),
        CASE(test_strategy_divides_the_data_as_it_likes),
        CASE(test_rank_is_taken_down_when_memory_is_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
