// A strategy that divides the data itself, and one whose ranks write different roles of a
// checkpoint. Whatever follows from a sample's place follows the share: predictions, the samples
// that an evaluation counts, random numbers and positions. Tags: tsan

#include "tests/unit/test.h"

#include "engine/train/build.h"
#include "engine/train/loop/evaluate.h"
#include "engine/train/loop/fit.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/random.h"
#include "traind/strategy.h"

enum { SAMPLES = 16, VAL_SAMPLES = 2, BATCH = 4 };
enum { WEIGHTS = 1 << TD_ROLE_PARAM | 1 << TD_ROLE_BUFFER, MOMENTS = 1 << TD_ROLE_OPTIM };

// ---- the strategy: ddp, but for this ------------------------------------------------------------
static struct {
    struct td_strategy_shard share[RANKS]; // of each split
    uint32_t writes[RANKS];
} script;
static _Thread_local int32_t own_rank;

static td_status own_open(const struct td_strategy_config *config, struct td_strategy **out) {
    own_rank = config->global_rank;
    return ((const struct td_strategy_ops *)td_strategy_ddp.ops)->open(config, out);
}

static td_status own_share(struct td_strategy *s, enum td_split split,
                           struct td_strategy_shard *out_shard) {
    (void)s, (void)split;
    *out_shard = script.share[own_rank];
    return TD_OK;
}

static td_status own_roles(struct td_strategy *s, struct td_checkpoint_call *io_call) {
    (void)s;
    io_call->roles = script.writes[own_rank];
    return TD_OK;
}

static struct td_strategy_ops own_ops;
static const struct td_plugin_desc own =
    TD_PLUGIN_DESC(STRATEGY, "own", "ddp that divides the work otherwise", &own_ops);

static struct job job_of(const char *strategy, int32_t world) {
    own_ops = *(const struct td_strategy_ops *)td_strategy_ddp.ops;
    own_ops.open = own_open;
    return (struct job){.accelerator = "reference",
                        .strategy = strategy,
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = &own};
}

static struct job dividing_job(int32_t n_replicas, int32_t of_rank_0, int32_t of_rank_1) {
    const struct job j = job_of("own", 2);
    own_ops.process_dataloader = own_share;
    script.share[0] = (struct td_strategy_shard){.n_replicas = n_replicas, .rank = of_rank_0};
    script.share[1] = (struct td_strategy_shard){.n_replicas = n_replicas, .rank = of_rank_1};
    return j;
}

static struct job writing_job(uint32_t of_rank_0, uint32_t of_rank_1) {
    const struct job j = job_of("own", 2);
    own_ops.save_checkpoint = own_roles;
    script.writes[0] = of_rank_0;
    script.writes[1] = of_rank_1;
    return j;
}

// All ranks fail alike.
static void expect_failure(const struct job *j, const char *dir, const char *text) {
    struct ranks all;
    start_ranks(&all, j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < j->world; i++) {
        assert_int_equal(td_status_class(all.rank[i].failed), TD_CLASS_USER_CODE);
        assert_fails(all.rank[i].failed, TD_INVALID_ARGUMENT, text);
    }
}

// ---- predictions --------------------------------------------------------------------------------
static void only_predict(struct run *r, const char *dir) {
    (void)dir;
    r->config.stages = TD_STAGE_PREDICT;
    r->config.limits.predict_batches = r->config.limits.val_batches; // all
    r->config.data.knobs =
        knobs(r, &td_dataset_synthetic,
              "{\"samples\":104,\"features\":8,\"classes\":4,\"batch_size\":4}"); // 13 to predict
}

static void test_rows_of_predictions_are_their_samples_whoever_has_them(void **state) {
    static const int32_t shares[][3] = {{2, 0, 1}, {2, 1, 0}, {1, 0, 0}};
    char plain[512], dir[512];
    struct job j = job_of("ddp", 1);
    snprintf(plain, sizeof plain, "%s/plain", (char *)*state);
    j.change = only_predict;
    run_job(&j, plain);
    for (size_t i = 0; i < TD_COUNTOF(shares); i++) {
        j = dividing_job(shares[i][0], shares[i][1], shares[i][2]);
        j.change = only_predict;
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i);
        run_job(&j, dir);
        expect_same_file(plain, dir, "predictions.npy");
    }
}

static void test_predictions_are_refused_when_no_rank_has_some_samples(void **state) {
    struct job j = dividing_job(3, 0, 2);
    j.change = only_predict;
    expect_failure(&j, *state, "strategy 'own' gives share 1 of 3 of split predict to no rank");
    j = dividing_job(2, 0, 0);
    j.change = only_predict;
    expect_failure(&j, *state, "strategy 'own' gives share 1 of 2 of split predict to no rank");
}

static void test_shares_are_refused_when_ranks_differ_in_their_number(void **state) {
    struct job j = dividing_job(2, 0, 1);
    script.share[1].n_replicas = 3;
    expect_failure(&j, *state,
                   "strategy 'own' divides split train into 2 shares on rank 0 and into 3 on rank "
                   "1");
}

// ---- evaluation, random numbers, positions ------------------------------------------------------
static double counted[RANKS];
static uint32_t words[RANKS][TD_RANDOM_WORDS];
static int64_t batches_done[RANKS];

static td_status evaluate(struct td_rank *r) {
    struct td_train_loop l;
    bool interrupted;
    td_train_loop_init(&l, r);
    TD_TRY(td_train_loop_evaluate(&l, TD_SPLIT_VAL, "val", INT64_MAX, &interrupted));
    counted[r->config->rank] = td_tallies_find(&l.validated.all, "loss")->count;
    return TD_OK;
}

static void *evaluating_rank(void *rank) {
    return be_a_rank(rank, evaluate);
}

static void test_evaluation_counts_each_sample_once_when_ranks_have_the_same(void **state) {
    struct job j = dividing_job(1, 0, 0);
    j.body = evaluating_rank;
    run_job(&j, *state);
    assert_true(counted[0] == VAL_SAMPLES && counted[1] == VAL_SAMPLES);
    j = dividing_job(2, 1, 0);
    j.body = evaluating_rank;
    run_job(&j, *state);
    assert_true(counted[0] == VAL_SAMPLES && counted[1] == VAL_SAMPLES);
}

static td_status fit(struct td_rank *r) {
    struct td_train_loop l;
    enum td_train_loop_end end;
    batches_done[r->config->rank] = r->start.epoch_batches;
    td_train_loop_init(&l, r);
    TD_TRY(td_train_loop_fit(&l, &end));
    memcpy(words[r->config->rank], r->random, sizeof r->random);
    return TD_OK;
}

static void *fitting_rank(void *rank) {
    return be_a_rank(rank, fit);
}

// The last batch of an epoch begins at its sample 8 of 16, or at 12.
static void test_random_numbers_follow_the_share(void **state) {
    struct job j = dividing_job(2, 1, 0);
    j.body = fitting_rank;
    run_job(&j, *state);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(words[i][TD_RANDOM_SAMPLE], SAMPLES / 2 + 1 - i);
        assert_int_equal(words[i][TD_RANDOM_STRIDE], 2);
    }
    j = dividing_job(1, 0, 0);
    j.body = fitting_rank;
    run_job(&j, *state);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(words[i][TD_RANDOM_SAMPLE], SAMPLES - BATCH);
        assert_int_equal(words[i][TD_RANDOM_STRIDE], 1);
    }
}

static void play_all(struct run *r, const char *dir) {
    (void)dir;
    r->config.whole_data = true;
}

// Whoever gathers divides: position p of rank r of n has the numbers of sample p * n + r.
static void test_random_numbers_are_of_each_rank_when_all_play_all_positions(void **state) {
    struct job j = job_of("ddp", 2);
    j.body = fitting_rank;
    j.change = play_all;
    run_job(&j, *state);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(words[i][TD_RANDOM_SAMPLE], 2 * (SAMPLES - BATCH) + i);
        assert_int_equal(words[i][TD_RANDOM_STRIDE], 2);
    }
}

// A gpt whose dropout takes half, on 16 rows of 4 tokens.
static char tokens[512];

static void drop_out(struct run *r, const char *dir) {
    char text[1024];
    (void)dir;
    snprintf(text, sizeof text,
             "{\"train\":[\"%s\"],\"block_size\":4,\"vocab_size\":16,\"batch_size\":4}", tokens);
    assert_ok(td_registry_add(r->registry, &td_module_gpt));
    assert_ok(td_registry_add(r->registry, &td_dataset_tokens));
    r->config.data = (struct td_part){"tokens", knobs(r, &td_dataset_tokens, text)};
    r->config.model = (struct td_part){
        "gpt",
        knobs(r, &td_module_gpt, "{\"n_layer\":1,\"n_head\":1,\"n_embd\":8,\"resid_pdrop\":0.5}")};
}

static void test_samples_drop_out_alike_whoever_has_them(void **state) {
    char plain[512], dir[512];
    uint16_t id[4 * SAMPLES + 1];
    for (size_t i = 0; i < TD_COUNTOF(id); i++) {
        id[i] = (uint16_t)(1 + i * i % 15);
    }
    snprintf(tokens, sizeof tokens, "%s/tokens.bin", (char *)*state);
    assert_ok(td_fs_write(tokens, id, sizeof id, 0600, 0));
    snprintf(plain, sizeof plain, "%s/plain", (char *)*state);
    snprintf(dir, sizeof dir, "%s/own", (char *)*state);
    struct job j = job_of("ddp", 2);
    j.change = drop_out;
    const struct td_train_result done = run_job(&j, plain);
    j = dividing_job(2, 1, 0);
    j.change = drop_out;
    run_job(&j, dir);
    expect_same(plain, dir, done.step);
}

static void two_steps(struct run *r, const char *dir) {
    (void)dir;
    r->config.limits.max_steps = 2;
    r->config.checkpoint.every_n_train_steps = 1;
}

static void test_position_follows_the_share_when_a_run_goes_on(void **state) {
    char from[512], rest[512];
    struct job j = dividing_job(1, 0, 0);
    j.change = two_steps;
    run_job(&j, *state);
    snprintf(from, sizeof from, "%s/step-2", (char *)*state);
    snprintf(rest, sizeof rest, "%s/rest", (char *)*state);
    j = dividing_job(1, 0, 0);
    j.resume_from = from;
    j.body = fitting_rank;
    run_job(&j, rest);
    assert_true(batches_done[0] == 2 && batches_done[1] == 2);
    snprintf(from, sizeof from, "%s/whole", (char *)*state);
    j = dividing_job(1, 0, 0);
    const struct td_train_result whole = run_job(&j, from);
    expect_same(from, rest, whole.step);
}

// ---- who writes ---------------------------------------------------------------------------------
static void test_ranks_are_refused_when_two_claim_one_file(void **state) {
    struct job j = writing_job(WEIGHTS | MOMENTS, MOMENTS);
    expect_failure(&j, *state,
                   "strategy 'own' lets ranks 0 and 1 both write the optim state of a checkpoint, "
                   "in optimizer.safetensors");
    j = writing_job(WEIGHTS, WEIGHTS | MOMENTS);
    expect_failure(&j, *state, "the param state of a checkpoint, in model.safetensors");
    j = writing_job(WEIGHTS, WEIGHTS);
    run_job(&j, NULL); // nothing is saved
}

static void test_roles_of_several_ranks_make_one_checkpoint(void **state) {
    static const uint32_t roles[][2] = {{WEIGHTS, MOMENTS}, {MOMENTS, WEIGHTS}};
    static const char *const accelerators[] = {"reference", "far"};
    for (size_t i = 0; i < TD_COUNTOF(roles) * TD_COUNTOF(accelerators); i++) {
        char plain[512], dir[512];
        struct job j = job_of("ddp", 2);
        j.accelerator = accelerators[i / TD_COUNTOF(roles)];
        snprintf(plain, sizeof plain, "%s/plain%zu", (char *)*state, i);
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i);
        const struct td_train_result done = run_job(&j, plain);
        j = writing_job(roles[i % 2][0], roles[i % 2][1]);
        j.accelerator = accelerators[i / TD_COUNTOF(roles)];
        run_job(&j, dir);
        expect_same(plain, dir, done.step);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_rows_of_predictions_are_their_samples_whoever_has_them),
        CASE(test_predictions_are_refused_when_no_rank_has_some_samples),
        CASE(test_shares_are_refused_when_ranks_differ_in_their_number),
        CASE(test_evaluation_counts_each_sample_once_when_ranks_have_the_same),
        CASE(test_random_numbers_follow_the_share),
        CASE(test_random_numbers_are_of_each_rank_when_all_play_all_positions),
        CASE(test_samples_drop_out_alike_whoever_has_them),
        CASE(test_position_follows_the_share_when_a_run_goes_on),
        CASE(test_ranks_are_refused_when_two_claim_one_file),
        CASE(test_roles_of_several_ranks_make_one_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
