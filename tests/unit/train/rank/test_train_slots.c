// A strategy that serves batch_to_device, the calls of the group and the roles of checkpoints
// itself, and changes what passes. A rank calls each of these slots with what the header says, and
// goes by what it answers. Tags: tsan

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/build.h"
#include "engine/train/loop/fit.h"
#include "engine/train/loop/manual.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/state/tensor.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/strategy.h"

enum { FEATURES = 8, CLASSES = 4, BATCH = 4, REGION_BYTES = 1024 };
enum { WEIGHTS = 1 << TD_ROLE_PARAM | 1 << TD_ROLE_BUFFER, ALL = WEIGHTS | 1 << TD_ROLE_OPTIM };

// ---- the strategy -------------------------------------------------------------------------------
struct td_strategy {
    struct td_strategy_config config;
    struct seen *seen;
};

// What a strategy changes, on all ranks. A test sets it before the ranks start.
static struct {
    int stops_at_sum; // of control flags, from 1; 0: at none
    bool gathers_other_bytes, broadcasts_zeros, has_no_barrier, decides_no;
    uint32_t writes, reads; // roles of rank 0; the others write and read nothing
} script;

// What the slots of a rank were called with.
static struct seen {
    int moves, reduces, flag_sums, gathers, broadcasts, barriers, decisions, saves, loads;
    size_t n_fields;
    const struct td_buffer *fields;
    int32_t loader;
    const void *data; // of the last call of the group, like what follows
    void *out;
    int64_t n;
    enum td_dtype dtype;
    enum td_reduce_op op;
    size_t bytes;
    int32_t src;
    char tag[32];
    bool decision, all;
    bool changes; // in the calls by hand: each answer is another than the collective's
    double loss;  // of the first step
    int ends;
} seen[RANKS];

static td_status own_open(const struct td_strategy_config *config, struct td_strategy **out) {
    struct td_strategy *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    s->seen = &seen[config->global_rank];
    *out = s;
    return TD_OK;
}

static void own_close(struct td_strategy *s) {
    free(s);
}

static td_status own_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    (void)s;
    out_facts->resumes_exactly = true;
    return TD_OK;
}

// Zeros in place of every sample and label.
static td_status own_batch(struct td_strategy *s, int32_t loader, const struct td_buffer *fields,
                           size_t n_fields, struct td_buffer *out_inputs) {
    static const _Alignas(TD_LINE_BYTES) char zeros[BATCH * FEATURES * sizeof(double)];
    s->seen->moves++;
    s->seen->loader = loader;
    s->seen->fields = fields;
    s->seen->n_fields = n_fields;
    for (size_t i = 0; i < n_fields; i++) {
        out_inputs[i] = td_buffer_of_host(zeros, sizeof zeros);
    }
    return TD_OK;
}

static td_status own_reduce(struct td_strategy *s, int32_t group, void *data, int64_t n,
                            enum td_dtype dtype, enum td_reduce_op op) {
    struct seen *k = s->seen;
    assert_int_equal(group, TD_GROUP_WORLD);
    k->reduces++;
    k->data = data, k->n = n, k->dtype = dtype, k->op = op;
    TD_TRY(s->config.collective_ops->all_reduce(s->config.collective, data, n, dtype, op));
    if (k->changes) ((float *)data)[0] += 100;
    const bool are_flags = n == TD_CONTROL_FLAGS && dtype == TD_F32 && op == TD_REDUCE_SUM;
    k->flag_sums += are_flags;
    if (are_flags && k->flag_sums == script.stops_at_sum) ((float *)data)[TD_CONTROL_STOP] = 1;
    return TD_OK;
}

static td_status own_all_gather(struct td_strategy *s, int32_t group, const void *in, size_t bytes,
                                void *out) {
    struct seen *k = s->seen;
    assert_int_equal(group, TD_GROUP_WORLD);
    k->gathers++;
    k->data = in, k->bytes = bytes, k->out = out;
    TD_TRY(s->config.collective_ops->all_gather(s->config.collective, in, bytes, out));
    if (k->changes || script.gathers_other_bytes) ((unsigned char *)out)[bytes] ^= 1; // of rank 1
    return TD_OK;
}

static td_status own_broadcast(struct td_strategy *s, void *data, size_t bytes, int32_t src) {
    struct seen *k = s->seen;
    k->broadcasts++;
    k->data = data, k->bytes = bytes, k->src = src;
    TD_TRY(s->config.collective_ops->broadcast(s->config.collective, data, bytes, src));
    if (k->changes) ((int32_t *)data)[0] += 100;
    if (script.broadcasts_zeros) memset(data, 0, bytes);
    return TD_OK;
}

static td_status own_barrier(struct td_strategy *s, const char *tag) {
    s->seen->barriers++;
    snprintf(s->seen->tag, sizeof s->seen->tag, "%s", tag);
    if (script.has_no_barrier) return td_fail(TD_UNIMPLEMENTED, "no barrier '%s' here", tag);
    return s->config.collective_ops->barrier(s->config.collective, tag);
}

// The word of rank 0, or no: ranks are not asked.
static td_status own_decision(struct td_strategy *s, bool decision, bool all, bool *out_decision) {
    s->seen->decisions++;
    s->seen->decision = decision;
    s->seen->all = all;
    TD_TRY(
        s->config.collective_ops->broadcast(s->config.collective, &decision, sizeof decision, 0));
    *out_decision = decision && !script.decides_no;
    return TD_OK;
}

static void expect_call(const struct td_strategy *s, const struct td_checkpoint_call *call) {
    assert_int_equal(call->struct_bytes, sizeof *call);
    assert_int_equal(call->roles, s->config.global_rank == 0 ? ALL : 0);
    assert_null(call->path);
    assert_null(call->options);
}

static td_status own_save(struct td_strategy *s, struct td_checkpoint_call *io_call) {
    s->seen->saves++;
    expect_call(s, io_call);
    io_call->roles = s->config.global_rank == 0 ? script.writes : 0;
    return TD_OK;
}

static td_status own_load(struct td_strategy *s, struct td_checkpoint_call *io_call) {
    s->seen->loads++;
    expect_call(s, io_call);
    io_call->roles = s->config.global_rank == 0 ? script.reads : 0;
    return TD_OK;
}

static td_status own_step_end(struct td_strategy *s, enum td_strategy_step kind,
                              const struct td_graph *g, int64_t n, double *outputs) {
    (void)n;
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        const char *name;
        td_graph_output_at(g, i, &name, NULL, NULL);
        const bool is_first = kind == TD_STEP_TRAIN && s->seen->ends == 0;
        if (is_first && strcmp(name, "loss") == 0) s->seen->loss = outputs[i];
    }
    s->seen->ends++;
    return TD_OK;
}

// Nothing is rewritten: so flags are summed, and steps decided, by the slots.
static struct td_strategy_ops own_ops;
static const struct td_plugin_desc own =
    TD_PLUGIN_DESC(STRATEGY, "own", "serves its slots itself", &own_ops);

static struct job job_of(int32_t world) {
    script.writes = script.reads = ALL;
    memset(seen, 0, sizeof seen);
    own_ops = (struct td_strategy_ops){
        .struct_bytes = sizeof own_ops,
        .open = own_open,
        .close = own_close,
        .environment = own_environment,
        .reduce = own_reduce,
        .all_gather = own_all_gather,
        .broadcast = own_broadcast,
        .barrier = own_barrier,
        .reduce_boolean_decision = own_decision,
        .save_checkpoint = own_save,
        .load_checkpoint = own_load,
    };
    return (struct job){.accelerator = "reference",
                        .strategy = "own",
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 4,
                        .own = &own};
}

static int forget(void **state) {
    (void)state;
    memset(&script, 0, sizeof script);
    return 0;
}

static int make(void **state) {
    return forget(state) || td_test_scratch_make(state);
}

// ---- ranks that are looked at -------------------------------------------------------------------
struct region {
    unsigned char at[REGION_BYTES];
};

static struct region before[RANKS], parameters[RANKS], moments[RANKS];
static int64_t last_step;

static td_status read_region(struct td_rank *r, enum td_role role, struct region *out) {
    const struct td_buffer *from = &r->memory.region[role];
    *out = (struct region){0};
    if (from->bytes == 0) return TD_OK;
    if (from->bytes > sizeof out->at) return td_fail(TD_INTERNAL, "more than is looked at");
    return r->accel_ops->copy(r->accel, td_buffer_of_host(out->at, from->bytes), 0, *from, 0,
                              from->bytes);
}

static bool same(const struct region *a, const struct region *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_zero(const struct region *a) {
    return same(a, &(struct region){0});
}

static td_status look(struct td_rank *r) {
    TD_TRY(read_region(r, TD_ROLE_PARAM, &parameters[r->config->rank]));
    return read_region(r, TD_ROLE_OPTIM, &moments[r->config->rank]);
}

static td_status fit_and_look(struct td_rank *r) {
    struct td_train_loop l;
    enum td_train_loop_end end;
    TD_TRY(read_region(r, TD_ROLE_PARAM, &before[r->config->rank]));
    td_train_loop_init(&l, r);
    TD_TRY(td_train_loop_fit(&l, &end));
    if (r->config->rank == 0) last_step = l.at.step;
    return look(r);
}

static void *looking_rank(void *rank) {
    return be_a_rank(rank, look);
}
static void *fitting_rank(void *rank) {
    return be_a_rank(rank, fit_and_look);
}

// All ranks fail alike.
static void expect_failure(const struct job *j, enum td_code code, const char *text) {
    struct ranks all;
    start_ranks(&all, j, NULL);
    join_ranks(&all);
    for (int32_t i = 0; i < j->world; i++) {
        assert_fails(all.rank[i].failed, code, text);
    }
}

// ---- batches ------------------------------------------------------------------------------------
// Of four zeros of class 0 the loss is the biases' alone.
static double loss_of(const float bias[CLASSES]) {
    double sum = 0;
    for (int i = 0; i < CLASSES; i++) {
        sum += exp((double)bias[i]);
    }
    return log(sum) - (double)bias[0];
}

static struct { float weight[CLASSES * FEATURES], bias[CLASSES]; } first, last;

static td_status read_both(struct td_rank *r, float *weight, float *bias) {
    TD_TRY(td_rank_read_tensor(r, "fc1.weight", weight, (int64_t)CLASSES * FEATURES));
    return td_rank_read_tensor(r, "fc1.bias", bias, CLASSES);
}

static td_status fit_on_moved(struct td_rank *r) {
    TD_TRY(read_both(r, first.weight, first.bias));
    TD_TRY(fit_and_look(r));
    return read_both(r, last.weight, last.bias);
}

// The same in a loop of the caller's: one step.
static td_status step_on_moved(struct td_rank *r) {
    struct td_train_loop l;
    struct td_manual m;
    int64_t n;
    bool stepped;
    td_train_loop_init(&l, r);
    TD_TRY(td_train_loop_settle(&l));
    TD_TRY(td_epoch_metrics_begin(&l.played, r));
    TD_TRY(read_both(r, first.weight, first.bias));
    td_manual_init(&m, &l);
    TD_TRY(td_manual_next(&m, &n));
    TD_TRY(td_manual_forward(&m, 0, 1));
    if (seen[0].fields != m.batch) return td_fail(TD_INTERNAL, "the fields are another batch's");
    TD_TRY(td_manual_backward(&m, -1));
    TD_TRY(td_manual_optimizer_step(&m, 0, &stepped));
    TD_TRY(td_manual_drain(&m));
    return read_both(r, last.weight, last.bias);
}

static void *moving_rank(void *rank) {
    return be_a_rank(rank, fit_on_moved);
}
static void *moving_by_hand(void *rank) {
    struct rank *k = rank;
    k->run.config.manual = true;
    return be_a_rank(k, step_on_moved);
}

static void plain_descent(struct run *r, const char *dir) {
    (void)dir;
    r->config.optimizer.kind = TD_OPTIMIZER_SGD;
    r->config.optimizer.attrs = (struct td_optim_attrs){0}; // what has no gradient stays
}

static void expect_trained_on_zeros(void) {
    assert_int_equal(seen[0].n_fields, 2);
    assert_int_equal(seen[0].loader, 0);
    assert_true(fabs(seen[0].loss - loss_of(first.bias)) < 1e-6);
    assert_memory_equal(first.weight, last.weight, sizeof first.weight);
    assert_true(last.bias[0] > first.bias[0]); // class 0 is all that there is
    assert_true(loss_of(last.bias) < loss_of(first.bias));
}

static void test_steps_run_on_the_batch_that_the_strategy_moved(void **state) {
    (void)state;
    struct job j = job_of(1);
    own_ops.batch_to_device = own_batch;
    own_ops.step_end = own_step_end;
    j.max_epochs = 1;
    j.change = plain_descent;
    j.body = moving_rank;
    run_job(&j, NULL);
    assert_int_equal(seen[0].moves, seen[0].ends); // each batch once, those of a validation, too
    assert_true(last_step == 4 && seen[0].moves > 4);
    expect_trained_on_zeros();
}

static void test_callers_loop_runs_on_the_batch_that_the_strategy_moved(void **state) {
    (void)state;
    struct job j = job_of(1);
    own_ops.batch_to_device = own_batch;
    own_ops.step_end = own_step_end;
    j.change = plain_descent;
    j.body = moving_by_hand;
    run_job(&j, NULL);
    assert_int_equal(seen[0].moves, 1);
    expect_trained_on_zeros();
}

// ---- the group ----------------------------------------------------------------------------------
// Calls of each rank, what its slots got of them, and what they gave.
static struct {
    struct seen reduce, gather, broadcast, barrier, do_all, does_any;
    float x[2];
    int32_t mine, gathered[RANKS], sent;
    bool all, any;
} by_hand[RANKS];

static td_status call_each(struct td_rank *r) {
    const int32_t rank = r->config->rank;
    struct seen *k = &seen[rank];
    k->changes = true;
    by_hand[rank].x[0] = (float)rank + 1;
    by_hand[rank].x[1] = 10 - (float)rank;
    TD_TRY(td_rank_reduce(r, TD_GROUP_WORLD, by_hand[rank].x, 2, TD_F32, TD_REDUCE_MAX));
    by_hand[rank].reduce = *k;
    by_hand[rank].mine = 6 + 2 * rank;
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, &by_hand[rank].mine, sizeof(int32_t),
                              by_hand[rank].gathered));
    by_hand[rank].gather = *k;
    by_hand[rank].sent = rank;
    TD_TRY(td_rank_broadcast(r, &by_hand[rank].sent, sizeof(int32_t), 1));
    by_hand[rank].broadcast = *k;
    k->barriers = 0;
    TD_TRY(td_rank_barrier(r, "by hand"));
    by_hand[rank].barrier = *k;
    TD_TRY(td_rank_decide(r, rank == 0, true, &by_hand[rank].all));
    by_hand[rank].do_all = *k;
    TD_TRY(td_rank_decide(r, rank == 1, false, &by_hand[rank].any));
    by_hand[rank].does_any = *k;
    k->changes = false;
    return TD_OK;
}

static void *calling_rank(void *rank) {
    return be_a_rank(rank, call_each);
}

static void test_group_calls_have_the_answers_of_the_strategy(void **state) {
    (void)state;
    struct job j = job_of(2);
    j.body = calling_rank;
    run_job(&j, NULL);
    for (int32_t i = 0; i < RANKS; i++) {
        const struct seen *k = &by_hand[i].reduce;
        assert_true(k->data == by_hand[i].x && k->n == 2);
        assert_true(k->dtype == TD_F32 && k->op == TD_REDUCE_MAX);
        assert_true(by_hand[i].x[0] == 102 && by_hand[i].x[1] == 10);
        k = &by_hand[i].gather;
        assert_true(k->data == &by_hand[i].mine && k->out == by_hand[i].gathered);
        assert_int_equal(k->bytes, sizeof(int32_t));
        assert_true(by_hand[i].gathered[0] == 6 && by_hand[i].gathered[1] == 9);
        k = &by_hand[i].broadcast;
        assert_true(k->data == &by_hand[i].sent && k->bytes == sizeof(int32_t) && k->src == 1);
        assert_int_equal(by_hand[i].sent, 101);
        k = &by_hand[i].barrier;
        assert_int_equal(k->barriers, 1);
        assert_string_equal(k->tag, "by hand");
        k = &by_hand[i].do_all;
        assert_true(k->decisions == 1 && k->all && k->decision == (i == 0));
        k = &by_hand[i].does_any;
        assert_true(k->decisions == 2 && !k->all && k->decision == (i == 1));
        assert_true(by_hand[i].all && !by_hand[i].any); // votes would have said the opposite
        assert_int_equal(k->reduces, by_hand[i].reduce.reduces);
    }
}

static void test_ranks_stop_at_the_sum_of_the_strategy(void **state) {
    struct job j = job_of(2);
    assert_int_equal(run_job(&j, *state).step, 8);
    const int sums = seen[0].flag_sums;
    assert_true(sums >= 8 && seen[1].flag_sums == sums);
    j = job_of(2);
    script.stops_at_sum = sums / 2;
    const struct td_train_result stopped = run_job(&j, *state);
    assert_int_equal(stopped.end, TD_LOOP_STOPPED);
    assert_true(stopped.step > 0 && stopped.step < 8);
}

static void test_ranks_compare_what_the_strategy_gathered(void **state) {
    (void)state;
    struct job j = job_of(2);
    script.gathers_other_bytes = true;
    expect_failure(&j, TD_FAILED_PRECONDITION, "see different models or amounts of data");
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(seen[i].gathers, 1);
    }
}

// Ranks that begin with values of their own.
static void validate_only(struct run *r, const char *dir) {
    (void)dir;
    r->config.stages = TD_STAGE_VALIDATE;
    r->config.seed = 1 + (uint64_t)r->config.rank;
}

static void test_ranks_begin_with_what_the_strategy_broadcast(void **state) {
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        struct job j = job_of(2);
        j.body = looking_rank;
        j.change = validate_only;
        script.broadcasts_zeros = zeros;
        run_job(&j, NULL);
        for (int i = 0; i < RANKS; i++) {
            assert_true(seen[i].broadcasts > 0);
            assert_int_equal(seen[i].src, 0);
            assert_true(is_zero(&parameters[i]) == zeros);
        }
        assert_true(same(&parameters[0], &parameters[1]));
    }
}

static void test_job_fails_at_its_end_when_the_strategy_has_no_barrier(void **state) {
    (void)state;
    struct job j = job_of(2);
    script.has_no_barrier = true;
    expect_failure(&j, TD_UNIMPLEMENTED, "no barrier '" TD_BARRIER_END "' here");
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(seen[i].barriers, 1);
        assert_string_equal(seen[i].tag, TD_BARRIER_END);
    }
}

// Whether all gradients are finite: all of them are.
static void test_steps_are_skipped_when_the_strategy_decides_so(void **state) {
    (void)state;
    for (int no = 0; no < 2; no++) {
        struct job j = job_of(2);
        j.precision = "16-mixed";
        j.body = fitting_rank;
        script.decides_no = no;
        run_job(&j, NULL);
        for (int i = 0; i < RANKS; i++) {
            assert_true(seen[i].decisions >= 8 && seen[i].decisions == seen[0].decisions);
            assert_true(seen[i].all);
            assert_true(same(&parameters[i], &before[i]) == no);
        }
    }
}

// ---- checkpoints --------------------------------------------------------------------------------
static bool is_saved(const char *dir, int64_t step, const char *name) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/step-%lld/%s", dir, (long long)step, name));
    return td_fs_exists(path);
}

static void test_checkpoint_has_the_roles_that_the_strategy_writes(void **state) {
    static const uint32_t roles[] = {ALL, WEIGHTS, 0};
    for (size_t i = 0; i < TD_COUNTOF(roles); i++) {
        char dir[TD_FS_PATH_BYTES];
        struct job j = job_of(2);
        assert_ok(td_fs_path(dir, "%s/%zu", (char *)*state, i));
        script.writes = roles[i];
        const struct td_train_result done = run_job(&j, dir);
        assert_true(seen[0].saves > 0 && seen[1].saves > 0);
        assert_true(is_saved(dir, done.step, "model.safetensors") == (roles[i] != 0));
        assert_true(is_saved(dir, done.step, "optimizer.safetensors") == (roles[i] == ALL));
    }
}

static void change_seed(struct run *r, const char *dir) {
    (void)dir;
    r->config.seed = 7; // its own values are others
}

static void test_resumed_run_has_the_roles_that_the_strategy_reads(void **state) {
    static const uint32_t roles[] = {ALL, WEIGHTS};
    char from[TD_FS_PATH_BYTES], rest[TD_FS_PATH_BYTES];
    struct job j = job_of(2);
    j.body = fitting_rank;
    run_job(&j, *state);
    const struct region left = parameters[0], left_moments = moments[0];
    assert_false(is_zero(&left_moments));
    assert_ok(td_fs_path(from, "%s/step-%lld", (char *)*state, (long long)last_step));
    assert_ok(td_fs_path(rest, "%s/rest", (char *)*state));
    for (size_t i = 0; i < TD_COUNTOF(roles); i++) {
        j = job_of(2);
        j.resume_from = from;
        j.body = looking_rank;
        j.change = change_seed;
        script.reads = roles[i];
        run_job(&j, rest);
        for (int k = 0; k < RANKS; k++) {
            assert_true(seen[k].loads > 0);
            assert_true(same(&parameters[k], &left));
            assert_true(roles[i] == ALL ? same(&moments[k], &left_moments) : is_zero(&moments[k]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_steps_run_on_the_batch_that_the_strategy_moved, forget),
        cmocka_unit_test_setup(test_callers_loop_runs_on_the_batch_that_the_strategy_moved, forget),
        cmocka_unit_test_setup(test_group_calls_have_the_answers_of_the_strategy, forget),
        cmocka_unit_test_setup_teardown(test_ranks_stop_at_the_sum_of_the_strategy, make,
                                        td_test_scratch_remove),
        cmocka_unit_test_setup(test_ranks_compare_what_the_strategy_gathered, forget),
        cmocka_unit_test_setup(test_ranks_begin_with_what_the_strategy_broadcast, forget),
        cmocka_unit_test_setup(test_job_fails_at_its_end_when_the_strategy_has_no_barrier, forget),
        cmocka_unit_test_setup(test_steps_are_skipped_when_the_strategy_decides_so, forget),
        cmocka_unit_test_setup_teardown(test_checkpoint_has_the_roles_that_the_strategy_writes,
                                        make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_resumed_run_has_the_roles_that_the_strategy_reads,
                                        make, td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
