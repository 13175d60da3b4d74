// Ranks of an attempt: their gradients after a pass with sync and without, and their parameters
// when nothing is trained. Also what a checkpoint of theirs gives to another world.
// Tags: tsan

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/build.h"
#include "engine/train/loop/fit.h"
#include "engine/train/loop/manual.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/state/tensor.h"
#include "tests/unit/train/rank/ranks_rig.h"

enum { N = 36 }; // parameters of the rig's mlp, 8 to 4
enum { OWN, SYNCED, ADDED, N_PASSES };

struct values {
    float at[N];             // as numbers
    unsigned char raw[1024]; // as they are stored
};

static const char *const precisions[] = {"fp32",      "fp64",       "bf16_true",
                                         "fp16_true", "bf16_mixed", "fp16_mixed"};

// What each rank saw, by its number.
static struct values gradients[RANKS][N_PASSES];
static struct values parameters[RANKS], moments[RANKS];
static int64_t last_step;
static td_status refused[RANKS];

static const struct job two_ranks = {.accelerator = "reference",
                                     .strategy = "ddp",
                                     .precision = "32-true",
                                     .world = RANKS,
                                     .accumulate = 1,
                                     .max_epochs = 1};
static const struct job one_rank = {.accelerator = "reference",
                                    .strategy = "single_device",
                                    .precision = "32-true",
                                    .world = 1,
                                    .accumulate = 1,
                                    .max_epochs = 1};

// The tensors of a role, one after the other; as numbers those of the parameters' shapes alone.
static td_status read_values(struct td_rank *r, enum td_role role, struct values *out) {
    size_t n = 0, bytes = 0;
    *out = (struct values){0};
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != role) continue;
        if (bytes + t->bytes > sizeof out->raw) {
            return td_fail(TD_INTERNAL, "more than is looked at");
        }
        TD_TRY(r->accel_ops->copy(r->accel, td_buffer_of_host(out->raw, sizeof out->raw), bytes,
                                  r->memory.region[role], t->offset, t->bytes));
        bytes += t->bytes;
        const int64_t elems = td_shape_elems(&t->shape);
        if (n + (size_t)elems > N) continue;
        TD_TRY(td_rank_read_tensor(r, t->name, out->at + n, elems));
        n += (size_t)elems;
    }
    return bytes > 0 || role == TD_ROLE_OPTIM ? TD_OK : td_fail(TD_INTERNAL, "nothing is there");
}

static bool same(const struct values *a, const struct values *b) {
    return memcmp(a->raw, b->raw, sizeof a->raw) == 0;
}

// ---- gradients ----------------------------------------------------------------------------------
static td_status pass(struct td_manual *m, bool syncs, struct values *out) {
    m->syncs = syncs;
    TD_TRY(td_manual_forward(m, 0, 1));
    TD_TRY(td_manual_backward(m, -1));
    TD_TRY(td_manual_drain(m));
    return read_values(m->l->rank, TD_ROLE_GRAD, out);
}

// The same batch three times: without sync, with it, and both one after the other.
static td_status make_passes(struct td_rank *rank) {
    struct td_train_loop l;
    struct td_manual m;
    struct values *of = gradients[rank->config->rank];
    int64_t n;
    bool stepped;
    td_train_loop_init(&l, rank);
    TD_TRY(td_train_loop_settle(&l));
    TD_TRY(td_epoch_metrics_begin(&l.played, rank));
    td_manual_init(&m, &l);
    TD_TRY(td_manual_next(&m, &n));
    TD_TRY(pass(&m, false, &of[OWN]));
    refused[rank->config->rank] = td_manual_optimizer_step(&m, 0, &stepped);
    TD_TRY(td_manual_zero_grad(&m, 0));
    TD_TRY(pass(&m, true, &of[SYNCED]));
    TD_TRY(td_manual_zero_grad(&m, 0));
    TD_TRY(pass(&m, false, &of[ADDED]));
    TD_TRY(pass(&m, true, &of[ADDED]));
    TD_TRY(td_manual_optimizer_step(&m, 0, &stepped));
    TD_TRY(td_manual_drain(&m));
    return read_values(rank, TD_ROLE_PARAM, &parameters[rank->config->rank]);
}

static void *manual_rank(void *arg) {
    struct rank *k = arg;
    k->run.config.manual = k->run.config.manual_accumulates = true;
    return be_a_rank(k, make_passes);
}

// error: of a value, against the largest.
static void expect_scaled_mean(int pass, float times, float error) {
    float largest = 0;
    for (int i = 0; i < N; i++) {
        largest = fmaxf(largest, fabsf(gradients[0][OWN].at[i]));
    }
    for (int i = 0; i < N; i++) {
        const float mean = (gradients[0][OWN].at[i] + gradients[1][OWN].at[i]) / 2;
        assert_true(fabsf(gradients[0][pass].at[i] - times * mean) <= error * largest);
    }
}

static bool has_16_bits(const char *precision) {
    return strncmp(precision, "bf16", 4) == 0 || strncmp(precision, "fp16", 4) == 0;
}

// Contract 10: a pass without sync leaves the gradients of the rank alone, and no step is made
static void test_gradients_stay_on_their_rank_when_a_pass_does_not_sync(void **state) {
    (void)state;
    for (size_t p = 0; p < TD_COUNTOF(precisions); p++) {
        struct job j = two_ranks;
        j.precision = precisions[p];
        j.body = manual_rank;
        run_job(&j, NULL);
        assert_false(same(&gradients[0][OWN], &gradients[1][OWN]));
        for (int i = 0; i < RANKS; i++) {
            assert_fails(refused[i], TD_FAILED_PRECONDITION, "after a backward without sync");
        }
        const float error = has_16_bits(j.precision) ? 2e-2F : 1e-6F;
        expect_scaled_mean(SYNCED, 1, error);
        expect_scaled_mean(ADDED, 2, error); // what was left is averaged with what came after
        say_over_job(&j);
    }
}

// Contract 9: gradients are equal on all ranks, in a loop of the caller's
static void test_gradients_are_equal_when_the_loop_is_the_callers(void **state) {
    (void)state;
    for (size_t p = 0; p < TD_COUNTOF(precisions); p++) {
        struct job j = two_ranks;
        j.precision = precisions[p];
        j.body = manual_rank;
        run_job(&j, NULL);
        for (int i = 0; i < RANKS; i++) {
            td_status_free(refused[i]);
        }
        assert_true(same(&gradients[0][SYNCED], &gradients[1][SYNCED]));
        assert_true(same(&gradients[0][ADDED], &gradients[1][ADDED]));
        assert_true(same(&parameters[0], &parameters[1]));
        say_over_job(&j);
    }
}

// ---- a fit, and what goes on from it ------------------------------------------------------------
static td_status look(struct td_rank *rank) {
    const int32_t i = rank->config->rank;
    TD_TRY(read_values(rank, TD_ROLE_PARAM, &parameters[i]));
    return read_values(rank, TD_ROLE_OPTIM, &moments[i]);
}

static td_status fit_and_look(struct td_rank *rank) {
    struct td_train_loop l;
    enum td_train_loop_end end;
    td_train_loop_init(&l, rank);
    TD_TRY(td_train_loop_fit(&l, &end));
    if (end != TD_LOOP_DONE) return td_fail(TD_INTERNAL, "the fit was stopped");
    if (rank->config->rank == 0) last_step = l.at.step;
    TD_TRY(read_values(rank, TD_ROLE_GRAD, &gradients[rank->config->rank][SYNCED]));
    return look(rank);
}

static void *fitting_rank(void *rank) {
    return be_a_rank(rank, fit_and_look);
}

static void *looking_rank(void *rank) {
    return be_a_rank(rank, look);
}

static void expect_equal_after_a_fit(const char *precision, int accumulate) {
    const struct values zero = {0};
    struct job j = two_ranks;
    j.precision = precision;
    j.body = fitting_rank;
    j.accumulate = accumulate;
    memset(gradients, 0, sizeof gradients);
    run_job(&j, NULL);
    assert_false(same(&gradients[0][SYNCED], &zero));
    assert_true(same(&gradients[0][SYNCED], &gradients[1][SYNCED]));
    assert_true(same(&parameters[0], &parameters[1]));
    say_over_job(&j);
}

// Contract 9: gradients are equal on all ranks, in the loop of a job
static void test_gradients_are_equal_when_the_loop_is_a_jobs(void **state) {
    (void)state;
    for (size_t p = 0; p < TD_COUNTOF(precisions); p++) {
        expect_equal_after_a_fit(precisions[p], 1);
        expect_equal_after_a_fit(precisions[p], 2);
    }
}

// A program whose ranks begin with values of their own.
static void change_to_validate(struct run *r, const char *dir) {
    (void)dir;
    r->config.stages = TD_STAGE_VALIDATE;
    r->config.seed = 1 + (uint64_t)r->config.rank;
}

// Contract 12: parameters are the same on all ranks when nothing is trained
static void test_parameters_are_equal_when_ranks_do_not_fit(void **state) {
    (void)state;
    for (size_t p = 0; p < TD_COUNTOF(precisions); p++) {
        struct job one = one_rank, two = two_ranks;
        one.precision = two.precision = precisions[p];
        one.change = two.change = change_to_validate;
        one.body = two.body = looking_rank;
        run_job(&one, NULL);
        const struct values first = parameters[0];
        run_job(&two, NULL);
        assert_true(same(&parameters[0], &first)); // those of rank 0
        assert_true(same(&parameters[1], &first));
        say_over_job(&one);
        say_over_job(&two);
    }
}

// ---- checkpoints --------------------------------------------------------------------------------
static void change_to_go_on(struct run *r, const char *dir) {
    (void)dir;
    r->config.seed = 7; // its own values are others
    r->config.limits.max_epochs = 2;
}

static void expect_it_goes_on(const char *scratch, struct job from, struct job to) {
    char saved[TD_FS_PATH_BYTES], rest[TD_FS_PATH_BYTES], path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(saved, "%s/%s-of-%s", scratch, from.precision, from.strategy));
    assert_ok(td_fs_path(rest, "%s/%s-on-%s", scratch, from.precision, to.strategy));
    from.body = fitting_rank;
    run_job(&from, saved);
    const struct values left = parameters[0], left_moments = moments[0];
    assert_ok(td_fs_path(path, "%s/step-%lld", saved, (long long)last_step));
    to.resume_from = path;
    to.body = looking_rank;
    to.change = change_to_go_on;
    memset(parameters, 0, sizeof parameters);
    memset(moments, 0, sizeof moments);
    run_job(&to, rest);
    for (int32_t i = 0; i < to.world; i++) {
        assert_true(same(&parameters[i], &left));
        assert_true(same(&moments[i], &left_moments));
    }
    to.body = NULL; // and it trains on
    to.max_epochs = 2;
    assert_int_equal(run_job(&to, rest).end, TD_LOOP_DONE);
}

// Contract 37: what several ranks saved is loaded by one, and back
static void test_checkpoint_goes_from_two_ranks_to_one_and_back(void **state) {
    for (size_t p = 0; p < TD_COUNTOF(precisions); p++) {
        struct job one = one_rank, two = two_ranks;
        one.precision = two.precision = precisions[p];
        expect_it_goes_on(*state, two, one);
        expect_it_goes_on(*state, one, two);
        say_over_job(&one);
        say_over_job(&two);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_stay_on_their_rank_when_a_pass_does_not_sync),
        cmocka_unit_test(test_gradients_are_equal_when_the_loop_is_the_callers),
        cmocka_unit_test(test_gradients_are_equal_when_the_loop_is_a_jobs),
        cmocka_unit_test(test_parameters_are_equal_when_ranks_do_not_fit),
        cmocka_unit_test_setup_teardown(test_checkpoint_goes_from_two_ranks_to_one_and_back,
                                        td_test_scratch_make, td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
