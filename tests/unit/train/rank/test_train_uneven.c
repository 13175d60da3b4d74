// Evaluations of programs that sum over ranks, at a batch of which some rank has no samples. It
// takes part in the sums, with zeros, and nothing else comes of it. Sums that differ where ranks
// have other numbers of samples are refused when the job is planned. Tags: tsan

#include "tests/unit/test.h"

#define RIG_RANKS 3

#include "engine/train/loop/evaluate.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "tests/unit/train/rank/uneven_rig.h"

// ---- the strategy: ddp, which counts ------------------------------------------------------------
static _Atomic int n_runs, n_ended; // runs of programs, and samples at the end of a step
static _Thread_local const struct td_strategy_config *own_config;
static _Thread_local struct td_strategy_config config_of_rank;

static td_status counting_open(const struct td_strategy_config *config, struct td_strategy **out) {
    config_of_rank = *config;
    own_config = &config_of_rank;
    return ((const struct td_strategy_ops *)td_strategy_ddp.ops)->open(config, out);
}

static td_status counting_step(struct td_strategy *s, enum td_strategy_step kind,
                               struct td_executable *exe, uint32_t segments,
                               const struct td_buffer *inputs, td_ticket *out_ticket) {
    (void)s, (void)kind;
    atomic_fetch_add(&n_runs, 1);
    return own_config->accel_ops->run(exe, segments, inputs, out_ticket);
}

static td_status counting_step_end(struct td_strategy *s, enum td_strategy_step kind,
                                   const struct td_graph *g, int64_t n, double *outputs) {
    (void)s, (void)kind, (void)g, (void)outputs;
    atomic_fetch_add(&n_ended, (int)n);
    return TD_OK;
}

static struct td_strategy_ops counting_ops;
static const struct td_plugin_desc counting =
    TD_PLUGIN_DESC(STRATEGY, "counting", "ddp that counts", &counting_ops);

// ---- jobs ---------------------------------------------------------------------------------------
struct uneven {
    int32_t world;
    int64_t batch, samples;
    double loss; // the sum over samples of what is summed at their batch
    int n_runs;  // in one pass of all ranks
};

// The last batch is of rank 0 alone. Where it has one sample of its own, others have run zeros.
static const struct uneven of_rank_0[] = {
    {2, 2, 5, 4 * (5 + 10) + 25, 4}, // means 5 and 10, then 25 alone
    {3, 1, 4, 3 * (1 + 4 + 9) + 16, 6},
    {2, 2, 1, 1, 2}, // rank 1 has none at all
    {3, 2, 1, 1, 3},
};

static int64_t own_batch;
static unsigned own_stages, own_scores;
static int64_t own_limit; // of batches that are validated; 0: all

static void be_uneven(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &uneven_module));
    assert_ok(td_registry_add(r->registry, &squares));
    r->config.model = (struct td_part){"uneven", NULL};
    r->config.data = (struct td_part){"squares", NULL};
    r->config.batch_size = own_batch;
    r->config.stages = own_stages;
    r->config.scores = own_scores;
    r->config.limits.predict_batches = r->config.limits.val_batches; // all
    if (own_limit) r->config.limits.val_batches = (struct td_amount){.batches = own_limit};
    r->config.predict.values = TD_PREDICT_LOGITS;
    r->config.collective_timeout_ns = r->config.save_timeout_ns = 5 * TD_NS_PER_S;
}

static struct job job_of(int32_t world, int64_t batch, int64_t samples, unsigned stages) {
    counting_ops = *(const struct td_strategy_ops *)td_strategy_ddp.ops;
    counting_ops.open = counting_open;
    counting_ops.step = counting_step;
    counting_ops.step_end = counting_step_end;
    n_runs = n_ended = 0;
    own_batch = batch;
    own_stages = stages;
    own_scores = 0;
    own_limit = 0;
    uneven_samples = samples;
    uneven_sums_rows = false;
    return (struct job){.accelerator = "reference",
                        .strategy = "counting",
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 1,
                        .own = &counting,
                        .change = be_uneven};
}

// ---- validation ---------------------------------------------------------------------------------
static struct td_tallies validated[RANKS];

static td_status validate(struct td_rank *r) {
    struct td_train_loop l;
    bool interrupted;
    td_train_loop_init(&l, r);
    TD_TRY(td_train_loop_evaluate(&l, TD_SPLIT_VAL, "val", INT64_MAX, &interrupted));
    validated[r->config->rank] = l.validated.all;
    return TD_OK;
}

static void *validating_rank(void *rank) {
    return be_a_rank(rank, validate);
}

static void expect_validated(const struct job *j, double loss, int64_t samples) {
    for (int32_t i = 0; i < j->world; i++) {
        const struct td_tally *t = td_tallies_find(&validated[i], "loss");
        assert_non_null(t);
        assert_true(t->count == (double)samples);
        assert_true(t->sum == loss);
    }
}

static void test_validation_counts_each_sample_once_when_some_ranks_have_none(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    for (size_t i = 0; i < TD_COUNTOF(of_rank_0) * TD_COUNTOF(accelerators); i++) {
        const struct uneven *u = &of_rank_0[i / TD_COUNTOF(accelerators)];
        struct job j = job_of(u->world, u->batch, u->samples, TD_STAGE_VALIDATE);
        j.accelerator = accelerators[i % TD_COUNTOF(accelerators)];
        j.body = validating_rank;
        run_job(&j, *state);
        expect_validated(&j, u->loss, u->samples);
        assert_int_equal(n_runs, u->n_runs);
        assert_int_equal(n_ended, u->samples);
    }
}

// Scores predict each batch, too.
static void test_scores_are_of_each_sample_once_when_some_ranks_have_none(void **state) {
    for (size_t i = 0; i < TD_COUNTOF(of_rank_0); i++) {
        const struct uneven *u = &of_rank_0[i];
        struct job j = job_of(u->world, u->batch, u->samples, TD_STAGE_VALIDATE);
        j.body = validating_rank;
        own_scores = TD_SCORE_F1_MICRO;
        run_job(&j, *state);
        expect_validated(&j, u->loss, u->samples);
        assert_int_equal(n_runs, 2 * u->n_runs);
        for (int32_t k = 0; k < j.world; k++) {
            assert_true(td_tallies_find(&validated[k], "f1_micro")->sum == 1);
        }
    }
}

static void use_plain_model(struct run *r, const char *dir) {
    be_uneven(r, dir);
    r->config.model = (struct td_part){"mlp", knobs(r, &td_module_mlp, "{\"layers\":[2,2]}")};
}

static void test_rank_without_samples_runs_nothing_when_programs_sum_nothing(void **state) {
    struct job j = job_of(2, 2, 5, TD_STAGE_VALIDATE);
    j.change = use_plain_model;
    j.body = validating_rank;
    run_job(&j, *state);
    assert_int_equal(n_runs, 3);
    assert_int_equal(n_ended, 5);
}

// ---- predictions --------------------------------------------------------------------------------
static void test_predictions_have_a_row_of_each_sample_when_some_ranks_have_none(void **state) {
    // What is added at the first batch, and at the second.
    static const float sums[TD_COUNTOF(of_rank_0)][2] = {{15, 25}, {14, 16}, {1, 0}, {1, 0}};
    for (size_t i = 0; i < TD_COUNTOF(of_rank_0); i++) {
        const struct uneven *u = &of_rank_0[i];
        const struct job j = job_of(u->world, u->batch, u->samples, TD_STAGE_PREDICT);
        char path[TD_FS_PATH_BYTES];
        TD_AUTO_BUF file;
        td_buf_init(&file, FILE_MAX);
        run_job(&j, *state);
        assert_ok(td_fs_path(path, "%s/predictions.npy", (char *)*state));
        assert_ok(td_fs_read(path, FILE_MAX, &file));
        const size_t rows = (size_t)u->samples * UNEVEN_FEATURES;
        assert_int_equal(file.len, 128 + rows * sizeof(float));
        for (size_t k = 0; k < rows; k++) {
            const int64_t sample = (int64_t)k / UNEVEN_FEATURES;
            float found;
            memcpy(&found, file.data + 128 + k * sizeof found, sizeof found);
            const float own = (float)((sample + 1) * (sample + 1));
            assert_true(found == own + sums[i][sample / (u->batch * u->world)]);
        }
        assert_int_equal(n_ended, u->samples);
    }
}

// ---- what is refused ----------------------------------------------------------------------------
// Planned alone, as a coordinator does.
static void *planning_rank(void *arg) {
    struct rank *k = arg;
    struct td_rank *r = NULL;
    k->failed = td_rank_create_plan(&k->run.config, &k->run.io, &k->run.events, &r);
    td_rank_destroy(r);
    sem_post(&k->left);
    return NULL;
}

static void expect_refused(struct job j, const char *dir, const char *text) {
    struct ranks all;
    j.body = planning_rank;
    uneven_sums_rows = true;
    start_ranks(&all, &j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < j.world; i++) {
        assert_int_equal(td_status_class(all.rank[i].failed), TD_CLASS_BAD_SPEC);
        assert_fails(all.rank[i].failed, TD_INVALID_ARGUMENT, text);
    }
}

static void
test_sum_over_a_batch_is_refused_when_ranks_have_other_numbers_of_samples(void **state) {
    expect_refused(
        job_of(2, 4, 7, TD_STAGE_VALIDATE), *state,
        "model 'uneven' sums over ranks in step 'train' (eval), and at the last batch of split val "
        "ranks have 4 and 3 samples, whose programs differ: of 4 node 0 is rank_sum of 8 f32 "
        "(forward), of 3 node 0 is rank_sum of 6 f32 (forward)");
    expect_refused(job_of(3, 4, 10, TD_STAGE_PREDICT), *state,
                   "step 'train' (predict), and at the last batch of split predict ranks have 4 "
                   "and 3 samples");
    expect_refused(job_of(2, 4, 3, TD_STAGE_TEST), *state,
                   "step 'train' (eval), and at the last batch of split test ranks have 2 and 1 "
                   "samples");
}

static void play_all(struct run *r, const char *dir) {
    be_uneven(r, dir);
    r->config.whole_data = true;
}

// No ranks have other numbers of samples at a batch that is played.
static void test_sum_over_a_batch_passes_when_ranks_have_as_many_samples(void **state) {
    struct job j = job_of(2, 2, 6, TD_STAGE_VALIDATE); // full batches, then one sample on each
    uneven_sums_rows = true;
    j.body = validating_rank;
    run_job(&j, *state);
    expect_validated(&j, 4 * (5 + 10) + 2 * (25 + 36), 6);
    j = job_of(2, 2, 7, TD_STAGE_VALIDATE); // the second batch is not played
    uneven_sums_rows = true;
    own_limit = 1;
    j.body = validating_rank;
    run_job(&j, *state);
    expect_validated(&j, 4 * 15, 4);
    j = job_of(2, 2, 5, TD_STAGE_VALIDATE); // a rank without samples runs one of zeros
    uneven_sums_rows = true;
    j.body = validating_rank;
    run_job(&j, *state);
    expect_validated(&j, 4 * 15 + 25, 5);
    j = job_of(2, 2, 3, TD_STAGE_VALIDATE); // each goes over all of them
    uneven_sums_rows = true;
    j.change = play_all;
    j.body = validating_rank;
    run_job(&j, *state);
    expect_validated(&j, 2 * (2 * (2.5 + 2.5) + (9 + 9)), 6);
}

// The mean is one number, whatever the batch.
static void test_sum_of_one_shape_passes_when_ranks_have_other_numbers_of_samples(void **state) {
    struct job j = job_of(2, 2, 3, TD_STAGE_VALIDATE);
    j.body = validating_rank;
    run_job(&j, *state);
    expect_validated(&j, 3 * (5 + 4), 3);
    assert_int_equal(n_runs, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_validation_counts_each_sample_once_when_some_ranks_have_none),
        test_in_scratch(test_scores_are_of_each_sample_once_when_some_ranks_have_none),
        test_in_scratch(test_rank_without_samples_runs_nothing_when_programs_sum_nothing),
        test_in_scratch(test_predictions_have_a_row_of_each_sample_when_some_ranks_have_none),
        test_in_scratch(test_sum_over_a_batch_is_refused_when_ranks_have_other_numbers_of_samples),
        test_in_scratch(test_sum_over_a_batch_passes_when_ranks_have_as_many_samples),
        test_in_scratch(test_sum_of_one_shape_passes_when_ranks_have_other_numbers_of_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
