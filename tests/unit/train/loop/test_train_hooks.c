// A strategy that acts between the segments of a step, on a device: what its hooks see and write is
// what the queue has done by then. The bits are those of the same strategy on the reference.
// One that acts at the end of a step changes what is shown of it, and no bit of the weights. Ranks
// whose strategy or comm hook does not do the same on all of them end, and both are named.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/build.h"
#include "engine/train/loop/fit.h"
#include "engine/train/loop/manual.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/comm_hook.h"

#define TIMEOUT_NS (60 * TD_NS_PER_S)

// ---- a strategy with hooks ----------------------------------------------------------------------
// Of the rank whose thread it is.
static _Thread_local struct {
    struct td_strategy_config config;
    const struct td_state_table *state;
    const struct td_strategy_memory *memory;
    char calls[256];
    size_t n;
    int updates;
} mine;
// Of both, when they are done.
static char calls[RANKS][sizeof mine.calls];

static const struct td_strategy_ops *base(void) {
    return td_strategy_ddp.ops;
}

static void note(char c) {
    assert_true(mine.n + 1 < sizeof mine.calls);
    mine.calls[mine.n++] = c;
}

static td_status hooked_open(const struct td_strategy_config *config, struct td_strategy **out) {
    memset(&mine, 0, sizeof mine);
    mine.config = *config;
    return base()->open(config, out);
}

static td_status hooked_place(struct td_strategy *s, const struct td_state_table *state,
                              struct td_strategy_memory *memory) {
    mine.state = state;
    mine.memory = memory;
    return base()->place(s, state, memory);
}

static td_status hooked_teardown(struct td_strategy *s) {
    memcpy(calls[mine.config.global_rank], mine.calls, sizeof mine.calls);
    return base()->teardown ? base()->teardown(s) : TD_OK;
}

// Each value of a role, times `factor`; with 1 it is looked at alone. Their number that are not 0.
static td_status scale(enum td_role role, float factor, size_t *out_n) {
    const struct td_strategy_config *c = &mine.config;
    float values[64];
    *out_n = 0;
    for (uint32_t i = 0; i < td_state_count(mine.state); i++) {
        const struct td_state_info *t = td_state_at(mine.state, i);
        if (t->role != role) continue;
        const struct td_buffer here = td_buffer_of_host(values, sizeof values);
        const struct td_buffer there = mine.memory->region[role];
        assert_true(t->bytes <= sizeof values && t->dtype == TD_F32);
        TD_TRY(c->accel_ops->copy(c->accel, here, 0, there, t->offset, t->bytes));
        for (size_t k = 0; k < t->bytes / sizeof *values; k++) {
            *out_n += values[k] != 0;
            values[k] *= factor;
        }
        TD_TRY(c->accel_ops->copy(c->accel, there, t->offset, here, 0, t->bytes));
    }
    return TD_OK;
}

static td_status hooked_pre_backward(struct td_strategy *s) {
    size_t n;
    (void)s;
    note('<');
    return scale(TD_ROLE_PARAM, 1, &n);
}

static td_status hooked_backward(struct td_strategy *s, struct td_executable *exe,
                                 const struct td_buffer *inputs, td_ticket *out_ticket) {
    (void)s;
    note('b');
    return mine.config.accel_ops->run(exe, 1u << TD_SEG_BACKWARD, inputs, out_ticket);
}

static td_status hooked_post_backward(struct td_strategy *s) {
    size_t n;
    (void)s;
    note('>');
    TD_TRY(scale(TD_ROLE_GRAD, 0.5f, &n));
    assert_true(n > 0); // the backward segment has run
    return TD_OK;
}

static int skipped;    // which update is not taken, from 1; 0: each is
static bool runs_none; // of an update that is not taken; else finish

static td_status hooked_optimizer_step(struct td_strategy *s, struct td_executable *exe,
                                       uint32_t segments, const struct td_buffer *inputs,
                                       bool *out_stepped, td_ticket *out_ticket) {
    const struct td_strategy_config *c = &mine.config;
    const uint32_t finish = 1u << TD_SEG_FINISH;
    const bool skips = ++mine.updates == skipped;
    size_t n;
    (void)s;
    note(skips ? '-' : segments & finish ? 'o' : 'a');
    assert_true(*out_stepped && (segments | finish) == (finish | 1u << TD_SEG_APPLY));
    *out_stepped = !skips;
    if (skips && runs_none) return TD_OK;
    if (segments & finish) {
        TD_TRY(c->accel_ops->run(exe, finish, inputs, out_ticket));
        TD_TRY(c->accel_ops->wait(c->accel, *out_ticket, TIMEOUT_NS));
    }
    if (skips) return TD_OK;
    TD_TRY(scale(TD_ROLE_PARAM, 0.999f, &n));
    return c->accel_ops->run(exe, 1u << TD_SEG_APPLY, inputs, out_ticket);
}

static struct td_strategy_ops hooked_ops;
static const struct td_plugin_desc hooked =
    TD_PLUGIN_DESC(STRATEGY, "hooked", "ddp, with something to do in each step", &hooked_ops);

// ---- cases -------------------------------------------------------------------------------------
static void change(struct run *r, const char *dir) {
    (void)dir;
    r->config.limits.val_batches = (struct td_amount){0};
}

static void hook_all(void) {
    hooked_ops = *base();
    hooked_ops.open = hooked_open;
    hooked_ops.place = hooked_place;
    hooked_ops.teardown = hooked_teardown;
    hooked_ops.pre_backward = hooked_pre_backward;
    hooked_ops.backward = hooked_backward;
    hooked_ops.post_backward = hooked_post_backward;
    hooked_ops.optimizer_step = hooked_optimizer_step;
}

// expected: calls of each rank, 2 batches a window, one window an epoch.
static int64_t run_hooked(const char *scratch, const char *name, const char *accelerator,
                          bool by_tensor, const char *expected, char dir[TD_FS_PATH_BYTES]) {
    const struct job j = {.accelerator = accelerator,
                          .strategy = "hooked",
                          .precision = "32-true",
                          .world = RANKS,
                          .accumulate = 2,
                          .max_epochs = 3,
                          .own = &hooked,
                          .change = change,
                          .by_tensor = by_tensor};
    assert_ok(td_fs_path(dir, "%s/%s", scratch, name));
    memset(calls, 0, sizeof calls);
    const int64_t steps = run_job(&j, dir).step;
    assert_string_equal(calls[0], expected);
    assert_string_equal(calls[1], calls[0]);
    return steps;
}

static void test_hooks_of_a_strategy_leave_the_bits_of_the_reference(void **state) {
    static const char each[] = "<b><b>o<b><b>o<b><b>o";
    char reference[TD_FS_PATH_BYTES], far[TD_FS_PATH_BYTES], by_tensor[TD_FS_PATH_BYTES];
    hook_all();
    const int64_t steps = run_hooked(*state, "reference", "reference", false, each, reference);
    assert_int_equal(run_hooked(*state, "far", "far", false, each, far), steps);
    assert_int_equal(run_hooked(*state, "by-tensor", "far", true, each, by_tensor), steps);
    expect_same(far, reference, steps);
    expect_same(by_tensor, reference, steps);
}

// Whether it ran finish or nothing: it is no step, and its gradients are gone.
static void test_update_that_a_strategy_does_not_take_is_no_step(void **state) {
    static const char one_less[] = "<b><b>o<b><b>-<b><b>o";
    char reference[TD_FS_PATH_BYTES], far[TD_FS_PATH_BYTES];
    hook_all();
    skipped = 2;
    assert_int_equal(run_hooked(*state, "reference", "reference", false, one_less, reference), 2);
    runs_none = true;
    assert_int_equal(run_hooked(*state, "far", "far", false, one_less, far), 2);
    expect_same(far, reference, 2);
    skipped = 0;
    runs_none = false;
}

static void test_strategy_updates_after_the_norm_was_asked_for(void **state) {
    struct run r;
    struct td_rank *rank;
    struct td_train_loop l;
    struct td_manual m;
    int64_t n;
    double norm;
    bool stepped;
    (void)state;
    hook_all();
    prepare_run(&r, &hooked, "hooked", NULL);
    r.config.accelerator = "far";
    r.config.limits.val_batches = (struct td_amount){0};
    r.config.optimizer.log_norm = true;
    r.config.manual = true;
    assert_ok(td_rank_create(&r.config, &r.io, &r.events, &rank));
    td_train_loop_init(&l, rank);
    assert_ok(td_train_loop_settle(&l));
    assert_ok(td_epoch_metrics_begin(&l.played, rank));
    td_manual_init(&m, &l);
    skipped = 2;
    for (int i = 0; i < 2; i++) {
        assert_ok(td_manual_next(&m, &n));
        assert_ok(td_manual_forward(&m, 0, 1));
        assert_ok(td_manual_backward(&m, -1));
        assert_ok(td_manual_norm(&m, 0, &norm));
        assert_true(norm > 0);
        assert_ok(td_manual_optimizer_step(&m, 0, &stepped));
        assert_int_equal(stepped, i == 0);
    }
    assert_string_equal(mine.calls, "<b>a<b>-");
    assert_ok(td_manual_drain(&m));
    assert_int_equal(l.at.step, 1);
    skipped = 0;
    td_rank_destroy(rank);
    dispose(&r);
}

// ---- the end of a step --------------------------------------------------------------------------
static const double SHOWN = 7;
static int ends[TD_STEP_PREDICT + 1];

// Shows another loss than there is.
static td_status showing_step_end(struct td_strategy *s, enum td_strategy_step kind,
                                  const struct td_graph *g, int64_t n, double *outputs) {
    (void)s;
    ends[kind]++;
    assert_true(n > 0);
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        const char *name;
        td_graph_output_at(g, i, &name, NULL, NULL);
        if (strcmp(name, "loss") != 0) continue;
        assert_true(outputs[i] > 0 && outputs[i] < SHOWN); // it was read
        outputs[i] = SHOWN;
    }
    return TD_OK;
}

static td_status failing_step_end(struct td_strategy *s, enum td_strategy_step kind,
                                  const struct td_graph *g, int64_t n, double *outputs) {
    (void)s, (void)g, (void)n, (void)outputs;
    return ++ends[kind] < 2 ? TD_OK : td_fail(TD_INTERNAL, "the second end of a step");
}

static double loss_of(const struct td_tallies *of) {
    const struct td_tally *t = td_tallies_find(of, "loss");
    assert_non_null(t);
    return t->sum / t->count;
}

// What a fit shows of its last window and validation; its weights.
struct shown {
    double train, val;
    int runs_ahead;
    float weights[64];
    size_t bytes;
};

static td_status fit_shown(const char *accelerator, struct shown *out) {
    struct run r;
    struct td_rank *rank;
    struct td_train_loop l;
    enum td_train_loop_end end;
    memset(ends, 0, sizeof ends);
    *out = (struct shown){0};
    prepare_run(&r, &hooked, "hooked", NULL);
    r.config.accelerator = accelerator;
    r.config.limits.accumulate[0].batches = 1;
    assert_ok(td_rank_create(&r.config, &r.io, &r.events, &rank));
    td_train_loop_init(&l, rank);
    td_status s = td_train_loop_fit(&l, &end);
    if (!s) {
        const struct td_buffer from = rank->memory.region[TD_ROLE_PARAM];
        out->bytes = from.bytes;
        assert_true(from.bytes <= sizeof out->weights);
        assert_ok(rank->accel_ops->copy(rank->accel, td_buffer_of_host(out->weights, from.bytes), 0,
                                        from, 0, from.bytes));
        out->train = loss_of(&l.window);
        out->val = loss_of(&l.validated.all);
        out->runs_ahead = l.runs_ahead;
    }
    td_rank_destroy(rank);
    dispose(&r);
    return s;
}

static void test_end_of_a_step_changes_what_is_shown_and_nothing_else(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(accelerators); i++) {
        struct shown plain, shown;
        hooked_ops = *base();
        assert_ok(fit_shown(accelerators[i], &plain));
        assert_int_equal(ends[TD_STEP_TRAIN], 0);
        assert_int_equal(plain.runs_ahead, i); // far queues ahead
        assert_true(plain.train < SHOWN && plain.val < SHOWN);
        hooked_ops.step_end = showing_step_end;
        assert_ok(fit_shown(accelerators[i], &shown));
        assert_int_equal(shown.runs_ahead, 0);
        assert_int_equal(ends[TD_STEP_TRAIN], 4); // batches of the epoch
        assert_int_equal(ends[TD_STEP_VALIDATE], 1);
        assert_int_equal(ends[TD_STEP_TEST], 0);
        assert_true(shown.train == SHOWN && shown.val == SHOWN);
        assert_memory_equal(shown.weights, plain.weights, plain.bytes);
    }
}

static void test_attempt_ends_when_the_end_of_a_step_fails(void **state) {
    struct shown shown;
    (void)state;
    hooked_ops = *base();
    hooked_ops.step_end = failing_step_end;
    td_status s = fit_shown("reference", &shown);
    assert_int_equal(ends[TD_STEP_TRAIN], 2);
    assert_non_null(strstr(td_status_message(s), "the second end of a step"));
    td_status_free(s);
}

// ---- late optimizers ----------------------------------------------------------------------------
static _Thread_local int setups;

static td_status late_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    TD_TRY(base()->environment(s, f));
    f->late_optimizers = true;
    setups = 0;
    return TD_OK;
}

// What setup finds: parameters, and no optimizer.
static td_status late_setup(struct td_strategy *s, const struct td_state_table *state,
                            const struct td_strategy_memory *memory) {
    const struct td_strategy_config *c = &mine.config;
    (void)s;
    setups++;
    assert_true(td_state_region_bytes(state, TD_ROLE_OPTIM) > 0);
    assert_int_equal(memory->region[TD_ROLE_OPTIM].bytes, 0);
    const struct td_buffer region = memory->region[TD_ROLE_PARAM];
    TD_AUTO_FREE char *all = td_calloc(1, region.bytes);
    const struct td_buffer host = td_buffer_of_host(all, region.bytes);
    assert_non_null(all);
    TD_TRY(c->accel_ops->copy(c->accel, host, 0, region, 0, region.bytes));
    TD_TRY(c->collective_ops->broadcast(c->collective, all, region.bytes, 0));
    return c->accel_ops->copy(c->accel, region, 0, host, 0, region.bytes);
}

static td_status late_teardown(struct td_strategy *s) {
    assert_int_equal(setups, hooked_ops.setup ? 1 : 0);
    for (enum td_role role = 0; role < TD_ROLE_COUNT; role++) {
        const size_t bytes = td_state_region_bytes(mine.state, role);
        assert_true(!bytes || mine.memory->region[role].bytes > 0);
    }
    return base()->teardown ? base()->teardown(s) : TD_OK;
}

// Two epochs, the second of them resumed; where both leave their checkpoints.
static void run_resumed(const char *scratch, const char *name, const char *accelerator,
                        char dir[TD_FS_PATH_BYTES]) {
    char first[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES];
    struct job j = {.accelerator = accelerator,
                    .strategy = "hooked",
                    .precision = "32-true",
                    .world = RANKS,
                    .accumulate = 1,
                    .max_epochs = 1,
                    .own = &hooked,
                    .change = change};
    assert_ok(td_fs_path(first, "%s/%s-first", scratch, name));
    assert_ok(td_fs_path(dir, "%s/%s", scratch, name));
    const int64_t steps = run_job(&j, first).step;
    assert_ok(td_fs_path(from, "%s/step-%lld", first, (long long)steps));
    j.resume_from = from;
    j.max_epochs = 2;
    assert_int_equal(run_job(&j, dir).step, 2 * steps);
}

static void test_late_optimizers_leave_the_bits_when_ranks_resume(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    const char *scratch = *state;
    for (size_t i = 0; i < TD_COUNTOF(accelerators); i++) {
        char usual[TD_FS_PATH_BYTES], late[TD_FS_PATH_BYTES], own[TD_FS_PATH_BYTES], name[64];
        hooked_ops = *base();
        hooked_ops.open = hooked_open;
        hooked_ops.place = hooked_place;
        snprintf(name, sizeof name, "usual-%zu", i);
        run_resumed(scratch, name, accelerators[i], usual);
        hooked_ops.environment = late_environment;
        hooked_ops.teardown = late_teardown;
        snprintf(name, sizeof name, "late-%zu", i);
        run_resumed(scratch, name, accelerators[i], late);
        expect_same(late, usual, 4);
        hooked_ops.setup = late_setup;
        snprintf(name, sizeof name, "own-%zu", i);
        run_resumed(scratch, name, accelerators[i], own);
        expect_same(own, usual, 4);
    }
}

// ---- facts that ranks need to have in common ----------------------------------------------------
static td_status late_on_rank_one(struct td_strategy *s, struct td_strategy_facts *f) {
    TD_TRY(base()->environment(s, f));
    f->late_optimizers = f->global_rank == 1;
    return TD_OK;
}

static td_status restored_on_rank_one(struct td_strategy *s, struct td_strategy_facts *f) {
    TD_TRY(base()->environment(s, f));
    f->restore_optimizer = f->global_rank == 1;
    return TD_OK;
}

// A job whose ranks do different things: what each of them says of it.
static void run_different(const struct td_plugin_desc *own, const char *strategy,
                          void (*prepare)(struct run *r, const char *dir), const char *dir,
                          td_status out_said[RANKS]) {
    const struct job j = {.accelerator = "reference",
                          .strategy = strategy,
                          .precision = "32-true",
                          .world = RANKS,
                          .accumulate = 1,
                          .max_epochs = 1,
                          .own = own,
                          .change = prepare};
    struct ranks all;
    start_ranks(&all, &j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < RANKS; i++) {
        out_said[i] = all.rank[i].failed;
    }
}

// Consumes s.
static void expect_user_code(td_status s, const char *text) {
    assert_non_null(s);
    if (!strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    td_status_free(s);
}

// Each rank names the other, before any of them waits for a call that the other never makes.
static void expect_different(const char *dir, const char *fact) {
    td_status said[RANKS];
    run_different(&hooked, "hooked", change, dir, said);
    for (int32_t i = 0; i < RANKS; i++) {
        char text[128];
        snprintf(text, sizeof text, "says another %s on rank %d than on rank %d", fact, 1 - i, i);
        expect_user_code(said[i], text);
    }
}

static void test_ranks_end_when_a_strategy_says_different_facts(void **state) {
    hooked_ops = *base();
    hooked_ops.environment = late_on_rank_one;
    expect_different(*state, "late_optimizers");
    hooked_ops.environment = restored_on_rank_one;
    expect_different(*state, "restore_optimizer");
}

// ---- a comm hook of which one rank sends less ---------------------------------------------------
struct td_comm_hook {
    struct td_comm_hook_config config;
};

static td_status short_open(const struct td_comm_hook_config *config, struct td_comm_hook **out) {
    struct td_comm_hook *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->config = *config;
    *out = h;
    return TD_OK;
}

static void short_close(struct td_comm_hook *h) {
    free(h);
}

static td_status short_reduce(struct td_comm_hook *h, const struct td_bucket *b) {
    return h->config.collective_ops->all_reduce(h->config.collective, td_bucket_host(b),
                                                b->n - (h->config.rank == 1), b->dtype,
                                                TD_REDUCE_MEAN);
}

static const struct td_comm_hook_ops short_ops = {.struct_bytes = sizeof short_ops,
                                                  .open = short_open,
                                                  .close = short_close,
                                                  .reduce = short_reduce};
static const struct td_plugin_desc short_hook =
    TD_PLUGIN_DESC(COMM_HOOK, "short", "one element less on rank 1", &short_ops);

static void use_short_hook(struct run *r, const char *dir) {
    (void)dir;
    r->config.comm_hook.name = "short";
}

static void test_ranks_name_both_sizes_when_a_hook_sends_less_on_one(void **state) {
    td_status said[RANKS];
    run_different(&short_hook, "ddp", use_short_hook, *state, said);
    for (int32_t i = 0; i < RANKS; i++) {
        char text[96];
        snprintf(text, sizeof text, "rank %d is in all_reduce (mean) of ", i);
        assert_non_null(said[i]);
        assert_non_null(strstr(td_status_message(said[i]), "comm_hook 'short', bucket 0"));
        expect_user_code(said[i], text);
    }
}

// ---- a comm hook that gives what is no number ---------------------------------------------------
static _Thread_local int n_reduced;

static td_status mean_of(struct td_comm_hook *h, const struct td_bucket *b) {
    return h->config.collective_ops->all_reduce(h->config.collective, td_bucket_host(b), b->n,
                                                b->dtype, TD_REDUCE_MEAN);
}

static td_status infinite_reduce(struct td_comm_hook *h, const struct td_bucket *b) {
    TD_TRY(mean_of(h, b));
    if (++n_reduced > 2) ((float *)td_bucket_host(b))[0] = INFINITY;
    return TD_OK;
}

static const struct td_comm_hook_ops infinite_ops = {.struct_bytes = sizeof infinite_ops,
                                                     .open = short_open,
                                                     .close = short_close,
                                                     .reduce = infinite_reduce};
static const struct td_plugin_desc infinite_hook =
    TD_PLUGIN_DESC(COMM_HOOK, "infinite", "infinite from the third bucket on", &infinite_ops);

static void use_infinite_hook(struct run *r, const char *dir) {
    (void)dir;
    r->config.comm_hook.name = "infinite";
}

// Contract 11: who made gradients infinite is named
static void test_hook_is_named_when_it_makes_finite_gradients_infinite(void **state) {
    td_status said[RANKS];
    run_different(&infinite_hook, "ddp", use_infinite_hook, *state, said);
    for (int32_t i = 0; i < RANKS; i++) {
        assert_non_null(said[i]);
        assert_non_null(strstr(td_status_message(said[i]), "comm_hook 'infinite', bucket 0: the "
                                                           "gradients of all ranks were finite"));
        assert_int_equal(td_status_class(said[i]), TD_CLASS_NUMERIC);
        td_status_free(said[i]);
    }
}

static const struct td_comm_hook_ops mean_ops = {
    .struct_bytes = sizeof mean_ops, .open = short_open, .close = short_close, .reduce = mean_of};
static const struct td_plugin_desc mean_hook =
    TD_PLUGIN_DESC(COMM_HOOK, "plain", "the mean", &mean_ops);

static void diverge(struct run *r, const char *dir) {
    (void)dir;
    r->config.comm_hook.name = "plain";
    r->config.optimizer.lr = 1e38;
}

// A hook that passes on what is no number is not to blame.
static void test_loss_is_named_when_gradients_were_not_finite_before_the_hook(void **state) {
    td_status said[RANKS];
    run_different(&mean_hook, "ddp", diverge, *state, said);
    for (int32_t i = 0; i < RANKS; i++) {
        assert_non_null(said[i]);
        if (!strstr(td_status_message(said[i]), "the loss is ")) {
            fail_msg("%s", td_status_message(said[i]));
        }
        assert_int_equal(td_status_class(said[i]), TD_CLASS_NUMERIC);
        td_status_free(said[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_late_optimizers_leave_the_bits_when_ranks_resume),
        test_in_scratch(test_ranks_end_when_a_strategy_says_different_facts),
        test_in_scratch(test_ranks_name_both_sizes_when_a_hook_sends_less_on_one),
        test_in_scratch(test_hook_is_named_when_it_makes_finite_gradients_infinite),
        test_in_scratch(test_loss_is_named_when_gradients_were_not_finite_before_the_hook),
        cmocka_unit_test(test_end_of_a_step_changes_what_is_shown_and_nothing_else),
        cmocka_unit_test(test_attempt_ends_when_the_end_of_a_step_fails),
        test_in_scratch(test_update_that_a_strategy_does_not_take_is_no_step),
        cmocka_unit_test(test_strategy_updates_after_the_norm_was_asked_for),
        test_in_scratch(test_hooks_of_a_strategy_leave_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
