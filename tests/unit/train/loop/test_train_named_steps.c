// A module of several training steps: what each of them trains, in which order, over which
// strategies, and what is refused.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/checkpoint/safetensors.h"
#include "tests/unit/train/rank/pair_rig.h"
#include "traind/steps.h"

// ---- what each step trains ----------------------------------------------------------------------
static void use_sgd(struct run *r, const char *dir) {
    use_pair(r, dir);
    r->config.optimizer.kind = TD_OPTIMIZER_SGD;
    r->config.optimizer.attrs = (struct td_optim_attrs){0};
    r->config.optimizer.lr = 0.25;
}

// All batches count alike, so it is the same gradient.
static void count_tokens(struct run *r, const char *dir) {
    use_sgd(r, dir);
    r->config.counts_tokens = true;
}

// 8 elements of a mean: the gradient of each is 2/8 of its value. The last micro-batch of a window
// finds the a that is there by now, those before it the old one; a stays as the first step left it.
static void play(int windows, int micro_batches, double *out_a, double *out_b) {
    double a = 1, b = 4;
    for (int i = 0; i < windows; i++) {
        const double before = a;
        a -= 0.25 * a / 4;
        const double sum = (micro_batches - 1) * (b - before) + (b - a);
        b -= 0.25 * sum / micro_batches / 4;
    }
    *out_a = a;
    *out_b = b;
}

static void expect_values(const char *dir, int64_t step, int windows, int micro_batches) {
    char path[TD_FS_PATH_BYTES];
    struct td_safetensors *file;
    double wanted[2];
    play(windows, micro_batches, &wanted[0], &wanted[1]);
    assert_ok(td_fs_path(path, "%s/step-%lld/model.safetensors", dir, (long long)step));
    assert_ok(td_safetensors_open(path, &file));
    for (size_t i = 0; i < 2; i++) {
        const struct td_tensor *t = td_safetensors_at(file, i);
        float value[8];
        assert_int_equal(t->bytes, sizeof value);
        memcpy(value, t->data, sizeof value);
        const double w = wanted[strcmp(t->name, "b") == 0];
        for (int k = 0; k < 8; k++) {
            if (fabs((double)value[k] - w) > 1e-6) {
                fail_msg("%s of %s is %g, not %g", t->name, dir, (double)value[k], w);
            }
        }
    }
    td_safetensors_close(file);
}

static void
test_each_step_trains_its_parameters_with_what_the_one_before_has_changed(void **state) {
    static const struct {
        const char *accelerator, *strategy, *precision;
        int32_t world, accumulate;
        int windows; // of the two epochs
        bool counts; // gradients are sums that are divided
    } rows[] = {
        {"reference", "single_device", "32-true", 1, 1, 8, false},
        {"far", "single_device", "32-true", 1, 1, 8, false},
        {"reference", "single_device", "32-true", 1, 2, 4, false},
        {"reference", "ddp", "32-true", 2, 1, 4, false},
        {"far", "ddp", "32-true", 2, 2, 2, false},
        {"reference", "ddp", "16-mixed", 2, 2, 2, false},
        {"reference", "single_device", "32-true", 1, 2, 4, true},
        {"reference", "ddp", "32-true", 2, 1, 4, true},
        {"far", "ddp", "32-true", 2, 2, 2, true},
        {"reference", "ddp", "16-mixed", 2, 2, 2, true},
    };
    name_steps();
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i);
        const struct job j = {.accelerator = rows[i].accelerator,
                              .strategy = rows[i].strategy,
                              .precision = rows[i].precision,
                              .world = rows[i].world,
                              .accumulate = rows[i].accumulate,
                              .max_epochs = 2,
                              .own = &pair,
                              .change = rows[i].counts ? count_tokens : use_sgd};
        const struct td_train_result done = run_job(&j, dir);
        assert_int_equal(done.end, TD_LOOP_DONE);
        assert_int_equal(done.step, 2 * rows[i].windows); // each step of a window counts
        expect_values(dir, done.step, rows[i].windows, rows[i].accumulate);
    }
}

static void end_at_five(struct run *r, const char *dir) {
    use_sgd(r, dir);
    r->config.limits.max_steps = 5;
    r->config.checkpoint.every_n_train_steps = 3;
    r->config.checkpoint.save_top_k = -1;
}

static void test_window_is_whole_when_steps_end_in_it(void **state) {
    name_steps();
    const struct job j = {.accelerator = "reference",
                          .strategy = "single_device",
                          .precision = "32-true",
                          .world = 1,
                          .accumulate = 1,
                          .max_epochs = 2,
                          .own = &pair,
                          .change = end_at_five};
    assert_int_equal(run_job(&j, *state).step, 6);
    expect_values(*state, 4, 2, 1); // the first window that passes 3
    expect_values(*state, 6, 3, 1);
}

// ---- resume and stop ----------------------------------------------------------------------------
static struct job noisy(const char *accelerator, int32_t world) {
    name_steps();
    noise = true;
    return (struct job){.accelerator = accelerator,
                        .strategy = world > 1 ? "ddp" : "single_device",
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 4,
                        .own = &pair,
                        .change = use_pair};
}

// Host code that does what the loop does by itself: dropout of each step draws the same.
static td_status pair_play(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    static const char *const names[] = {"first", "second"};
    (void)m, (void)batch_idx;
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        TD_TRY(td_steps_forward(s, names[i]));
        TD_TRY(td_steps_backward(s));
        TD_TRY(td_steps_optimizer_step(s, names[i], NULL));
    }
    return TD_OK;
}

static void test_host_code_draws_what_the_loop_draws(void **state) {
    static struct td_module_ops played_ops;
    static const struct td_plugin_desc played =
        TD_PLUGIN_DESC(MODULE, "pair", "two steps in host code", &played_ops);
    char loop[4096], host[4096];
    played_ops = pair_ops;
    played_ops.training_step = pair_play;
    for (int world = 1; world <= 2; world++) {
        struct job j = noisy("reference", world);
        const int64_t end = world == 1 ? 32 : 16;
        snprintf(loop, sizeof loop, "%s/loop%d", (char *)*state, world);
        snprintf(host, sizeof host, "%s/host%d", (char *)*state, world);
        assert_int_equal(run_job(&j, loop).step, end);
        j.own = &played;
        assert_int_equal(run_job(&j, host).step, end);
        expect_same(loop, host, end);
    }
}

static void test_resumed_run_gives_the_bits_of_one_that_was_not_interrupted(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    for (int i = 0; i < 4; i++) {
        char whole[4096], half[4096], rest[4096], from[4200];
        struct job j = noisy(accelerators[i % 2], 1 + i / 2);
        const int64_t end = i / 2 ? 16 : 32;
        snprintf(whole, sizeof whole, "%s/whole%d", (char *)*state, i);
        snprintf(half, sizeof half, "%s/half%d", (char *)*state, i);
        snprintf(rest, sizeof rest, "%s/rest%d", (char *)*state, i);
        assert_int_equal(run_job(&j, whole).step, end);
        j.max_epochs = 1;
        assert_int_equal(run_job(&j, half).step, end / 4);
        snprintf(from, sizeof from, "%s/step-%lld", half, (long long)end / 4);
        j.max_epochs = 4;
        j.resume_from = from;
        assert_int_equal(run_job(&j, rest).step, end);
        expect_same(whole, rest, end);
    }
}

static void test_ranks_stop_alike_and_go_on_to_the_same_bits_whenever_one_is_stopped(void **state) {
    char whole[4096];
    struct job j = noisy("reference", 2);
    j.max_epochs = 64;
    snprintf(whole, sizeof whole, "%s/whole", (char *)*state);
    assert_int_equal(run_job(&j, whole).step, 256);
    for (int64_t at = 1; at < 128; at += 17) {
        char dir[4096], from[4200];
        struct ranks all;
        snprintf(dir, sizeof dir, "%s/%lld", (char *)*state, (long long)at);
        j.resume_from = NULL;
        start_ranks(&all, &j, dir);
        struct td_rank_page *page = &all.rank[at % 2].run.page;
        while (atomic_load(&page->step) < at) {
            sched_yield();
        }
        atomic_store(&page->stop, TD_STOP_CHECKPOINT); // of one rank; the other learns it
        join_ranks(&all);
        assert_ok(all.rank[0].failed);
        assert_ok(all.rank[1].failed);
        const int64_t step = all.rank[0].result.step;
        assert_int_equal(all.rank[1].result.step, step);
        assert_int_equal(all.rank[0].result.end, all.rank[1].result.end);
        assert_true(step % 2 == 0);
        snprintf(from, sizeof from, "%s/step-%lld", dir, (long long)step);
        j.resume_from = from;
        if (all.rank[0].result.end == TD_LOOP_STOPPED) assert_int_equal(run_job(&j, dir).step, 256);
        expect_same(whole, dir, 256);
    }
}

// ---- host code that updates nothing -------------------------------------------------------------
static td_status pass_over(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)s, (void)batch_idx;
    return TD_OK;
}

static td_status forget(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)batch_idx;
    TD_TRY(td_steps_no_backward_sync(s, true));
    TD_TRY(td_steps_forward(s, "first"));
    TD_TRY(td_steps_backward(s));
    return td_steps_zero_grad(s, "first");
}

static void validate_nothing(struct run *r, const char *dir) {
    use_pair(r, dir);
    r->config.limits.val_batches = (struct td_amount){0};
    r->config.limits.sanity_batches = 0;
}

// No backward pass carries the flags there, and no validation asks.
static void test_stop_reaches_all_ranks_where_host_code_updates_nothing(void **state) {
    static struct td_module_ops ops[2];
    static const struct td_plugin_desc modules[] = {
        TD_PLUGIN_DESC(MODULE, "pair", "host code that skips its batches", &ops[0]),
        TD_PLUGIN_DESC(MODULE, "pair", "host code that forgets its gradients", &ops[1])};
    ops[0] = ops[1] = pair_ops;
    ops[0].training_step = pass_over;
    ops[1].training_step = forget;
    for (int i = 0; i < 4; i++) {
        char dir[4096];
        struct ranks all;
        struct job j = noisy("reference", 1 + i / 2);
        j.max_epochs = 1 << 20;
        j.own = &modules[i % 2];
        j.change = validate_nothing;
        snprintf(dir, sizeof dir, "%s/%d", (char *)*state, i);
        start_ranks(&all, &j, dir);
        atomic_store(&all.rank[j.world - 1].run.page.stop, TD_STOP_CHECKPOINT);
        join_ranks(&all);
        for (int32_t rank = 0; rank < j.world; rank++) {
            assert_ok(all.rank[rank].failed);
            assert_int_equal(all.rank[rank].result.end, TD_LOOP_STOPPED);
            assert_int_equal(all.rank[rank].result.step, 0);
        }
    }
}

// ---- several optimizers -------------------------------------------------------------------------
static struct td_named_optimizer several[3];

static void use_several(struct run *r, const char *dir) {
    use_sgd(r, dir);
    several[0] =
        (struct td_named_optimizer){.name = "of_a", .match = "a", .optimizer = {.lr = 0.5}};
    several[1] = (struct td_named_optimizer){
        .name = "of_b",
        .match = "b*",
        .optimizer = {.lr = 1},
        .schedule = {.kind = TD_SCHEDULE_STEP, .period_steps = 2, .gamma = 0.5},
    };
    r->config.optimizers = several;
    r->config.n_optimizers = 2;
}

static void test_each_optimizer_has_its_rate_and_its_schedule(void **state) {
    for (int32_t world = 1; world <= 2; world++) {
        char dir[4096], first[4096], path[4200];
        double a = 1, b = 4;
        struct td_safetensors *file;
        float value[8];
        struct job j = {.accelerator = "reference",
                        .strategy = world > 1 ? "ddp" : "single_device",
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 3,
                        .own = &pair,
                        .change = use_several};
        name_steps();
        snprintf(dir, sizeof dir, "%s/%d", (char *)*state, world);
        snprintf(first, sizeof first, "%s/first%d", (char *)*state, world);
        const int windows = world > 1 ? 6 : 12;
        for (int i = 0; i < windows; i++) {
            a -= 0.5 * a / 4;
            b -= pow(0.5, i / 2) * (b - a) / 4;
        }
        j.max_epochs = 1; // and the rest in another attempt
        const int64_t step = run_job(&j, first).step;
        assert_int_equal(step, 2 * windows / 3);
        snprintf(path, sizeof path, "%s/step-%lld", first, (long long)step);
        j.max_epochs = 3;
        j.resume_from = path;
        assert_int_equal(run_job(&j, dir).step, 2 * windows);
        snprintf(path, sizeof path, "%s/step-%d/model.safetensors", dir, 2 * windows);
        assert_ok(td_safetensors_open(path, &file));
        for (size_t i = 0; i < 2; i++) {
            const struct td_tensor *t = td_safetensors_at(file, i);
            memcpy(value, t->data, sizeof value);
            assert_true(fabs((double)value[3] - (strcmp(t->name, "b") == 0 ? b : a)) < 1e-5);
        }
        td_safetensors_close(file);
    }
}

static void test_optimizers_are_refused_when_they_do_not_share_the_parameters(void **state) {
    static const struct {
        const char *match[3], *trains, *words;
    } rows[] = {
        {{"a", "c"},
         "b",
         "optimizers[1].match: 'c' is the name of no parameter; the model has a, b"},
        {{"a", "*"}, "b", "parameter 'a' belongs to two optimizers, 'of_a' and 'of_b'"},
        {{"a", "a"}, "b", "parameter 'a' belongs to two optimizers, 'of_a' and 'of_b'"},
        {{"a"}, "b", "parameter 'b' belongs to no optimizer"},
        {{"a", "b"},
         "a|b",
         "step 'second' of model 'pair' trains 'a', which is of optimizer 'of_a', and 'b' of "
         "'of_b'; "
         "a training step has one optimizer"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct run r;
        struct td_train_result result;
        name_steps();
        prepare_run(&r, &pair, "single_device", *state);
        use_several(&r, *state);
        r.config.n_optimizers = 0;
        while (rows[i].match[r.config.n_optimizers]) {
            several[r.config.n_optimizers].match = rows[i].match[r.config.n_optimizers];
            r.config.n_optimizers++;
        }
        steps[1].trains = rows[i].trains;
        steps[0] = strcmp(rows[i].trains, "b") == 0 ? steps[0] : steps[1];
        n_steps = strcmp(rows[i].trains, "b") == 0 ? 2 : 1;
        td_status s = td_train(&r.config, &r.io, &r.events, &result);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, rows[i].words);
        dispose(&r);
    }
}

// ---- what is refused ----------------------------------------------------------------------------
static td_status try(const char *dir) {
    struct run r;
    struct td_train_result result;
    prepare_run(&r, &pair, "single_device", dir);
    use_sgd(&r, dir);
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    dispose(&r);
    return s;
}

static void expect_refusal(const char *dir, enum td_class cls, const char *words) {
    td_status s = try(dir);
    assert_int_equal(td_status_class(s), cls);
    assert_fails(s, TD_FAILED_PRECONDITION, words);
}

static void test_step_is_refused_when_its_name_is_none(void **state) {
    static const char *const names[] = {NULL, "", "Second", "a step", "sixteen_letters_"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        name_steps();
        steps[1].name = names[i];
        expect_refusal(*state, TD_CLASS_USER_CODE, "model 'pair' calls its training step 1 '");
    }
    name_steps();
    steps[1].name = "first";
    expect_refusal(*state, TD_CLASS_USER_CODE, "model 'pair' has two training steps 'first'");
    name_steps();
    n_steps = 0;
    expect_refusal(*state, TD_CLASS_USER_CODE, "model 'pair' names no training step");
    name_steps();
    static const char *const many[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"};
    for (n_steps = 0; n_steps <= TD_STEPS_MAX; n_steps++) {
        steps[n_steps] = (struct td_step_info){.name = many[n_steps]};
    }
    expect_refusal(*state, TD_CLASS_USER_CODE, "model 'pair' has more than 8 training steps");
}

static void test_step_is_refused_when_it_does_not_train_what_it_says(void **state) {
    name_steps();
    steps[1].trains = "b|c.*";
    expect_refusal(*state, TD_CLASS_USER_CODE,
                   "step 'second' of model 'pair' trains 'c.*', which is the name of no parameter");
    name_steps();
    steps[0].trains = "b";
    expect_refusal(*state, TD_CLASS_USER_CODE, "step 'first' of model 'pair' trains nothing");
    name_steps();
    steps[1].trains = NULL;
    expect_refusal(*state, TD_CLASS_USER_CODE,
                   "parameter 'a' of model 'pair' is trained by the steps 'first' and 'second'");
}

static void test_parameter_is_refused_when_no_step_reaches_it(void **state) {
    name_steps();
    idle = true;
    expect_refusal(*state, TD_CLASS_BAD_SPEC,
                   "no training step reaches 1 parameter of model 'pair': idle");
    struct run r;
    struct td_train_result result;
    prepare_run(&r, &pair, "single_device", *state);
    use_sgd(&r, *state);
    const struct td_optimizer_group frozen = {.match = "idle"};
    r.config.optimizer.groups = &frozen;
    r.config.optimizer.n_groups = 1;
    assert_ok(td_train(&r.config, &r.io, &r.events, &result)); // it is not to be trained
    dispose(&r);
}

static int wrong; // 0: one input too many; 1: another type; 2: more elements

static td_status wrong_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    struct td_module other = *m;
    td_value v;
    if (wrong == 1) other.y.dtype = TD_F32;
    if (wrong == 2) other.x.sample_shape.dim[0]++;
    TD_TRY(pair_record(&other, g, batch));
    return wrong ? TD_OK : add_input(g, &m->x, batch, &v);
}

static void test_step_is_refused_when_its_inputs_are_not_the_fields(void **state) {
    static const char *const words[] = {
        "model 'pair' records 3 inputs in step 'first', but a sample has 2 fields",
        "model 'pair' records input 1 of step 'first' with 4 elements of f32, but field 'y' has 4 "
        "of i32",
        "model 'pair' records input 0 of step 'first' with 36 elements of f32, but field 'x' has "
        "32 of f32",
    };
    static struct td_module_ops ops;
    static const struct td_plugin_desc own = TD_PLUGIN_DESC(MODULE, "pair", "inputs", &ops);
    ops = pair_ops;
    ops.record = wrong_record;
    for (wrong = 0; wrong < 3; wrong++) {
        struct run r;
        struct td_train_result result;
        name_steps();
        prepare_run(&r, &own, "single_device", *state);
        use_sgd(&r, *state);
        td_status s = td_train(&r.config, &r.io, &r.events, &result);
        assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
        assert_fails(s, TD_INVALID_ARGUMENT, words[wrong]);
        dispose(&r);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_each_step_trains_its_parameters_with_what_the_one_before_has_changed),
        CASE(test_window_is_whole_when_steps_end_in_it),
        CASE(test_host_code_draws_what_the_loop_draws),
        CASE(test_resumed_run_gives_the_bits_of_one_that_was_not_interrupted),
        CASE(test_ranks_stop_alike_and_go_on_to_the_same_bits_whenever_one_is_stopped),
        CASE(test_stop_reaches_all_ranks_where_host_code_updates_nothing),
        CASE(test_each_optimizer_has_its_rate_and_its_schedule),
        CASE(test_optimizers_are_refused_when_they_do_not_share_the_parameters),
        CASE(test_step_is_refused_when_its_name_is_none),
        CASE(test_step_is_refused_when_it_does_not_train_what_it_says),
        CASE(test_parameter_is_refused_when_no_step_reaches_it),
        CASE(test_step_is_refused_when_its_inputs_are_not_the_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
