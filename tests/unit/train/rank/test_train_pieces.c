// Training with optimizer state in pieces: strategy zero1 of tests/plugins, as a user might
// write it, beside ddp. Weights and optimizer state of a checkpoint are ddp's to the bit,
// at 1, 2 and 3 ranks. A rank has its part of the optimizer's state alone. What stops is resumed at
// the same and at another number of ranks. Tags: tsan

#define RIG_RANKS 3

#include "tests/unit/test.h"

#include <math.h>

#include "comm_hooks/comm_hooks.h"
#include "tests/plugins/zero1.c" // its functions are static; nothing else here exports its names
#include "tests/unit/train/rank/ranks_rig.h"

static struct job job_of(const char *strategy, const char *accelerator, int32_t world) {
    return (struct job){.accelerator = accelerator,
                        .strategy = strategy,
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = strcmp(strategy, "ddp") == 0 ? NULL : td_plugin_entry()};
}

static void subdir(const char *dir, const char *name, char out[TD_FS_PATH_BYTES]) {
    assert_ok(td_fs_path(out, "%s/%s", dir, name));
}

static void expect_ddps_bits(struct job *j, const char *dir, const char *name) {
    char a[TD_FS_PATH_BYTES], b[TD_FS_PATH_BYTES], of_ddp[64], of_zero[64];
    snprintf(of_ddp, sizeof of_ddp, "%s-ddp", name);
    snprintf(of_zero, sizeof of_zero, "%s-zero1", name);
    subdir(dir, of_ddp, a);
    subdir(dir, of_zero, b);
    struct job ddp = *j;
    ddp.strategy = "ddp";
    ddp.own = NULL;
    const int64_t steps = run_job(&ddp, a).step;
    assert_true(steps >= 2);
    assert_int_equal(run_job(j, b).step, steps);
    expect_same(a, b, steps);
    say_over_job(j);
}

static void test_checkpoints_are_those_of_ddp_at_any_number_of_ranks(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    for (size_t i = 0; i < TD_COUNTOF(accelerators); i++) {
        for (int32_t world = 1; world <= RANKS; world++) {
            struct job j = job_of("zero1", accelerators[i], world);
            char name[64];
            snprintf(name, sizeof name, "%s-%d", accelerators[i], world);
            expect_ddps_bits(&j, *state, name);
        }
    }
}

static void test_checkpoints_are_those_of_ddp_when_each_tensor_has_a_buffer(void **state) {
    struct job j = job_of("zero1", "far", 2);
    j.by_tensor = true;
    expect_ddps_bits(&j, *state, "by_tensor");
}

static void test_checkpoints_are_those_of_ddp_in_each_precision_and_when_it_adds_up(void **state) {
    static const char *const precisions[] = {"64-true", "bf16-mixed", "bf16-true", "16-mixed",
                                             "16-true"};
    for (size_t i = 0; i < TD_COUNTOF(precisions); i++) {
        for (int32_t accumulate = 1; accumulate <= 2; accumulate++) {
            struct job j = job_of("zero1", "reference", 2);
            char name[64];
            j.precision = precisions[i];
            j.accumulate = accumulate;
            snprintf(name, sizeof name, "%s-%d", precisions[i], accumulate);
            expect_ddps_bits(&j, *state, name);
        }
    }
}

// The same strategy, which splits by a rule of its bracket. Parameters are there when programs are
// recorded, gradients when they are differentiated.
static _Atomic int n_begun, n_ended, n_asked;

static td_status split_trained(void *arg, const struct td_state_info *tensor, bool *out_split) {
    (void)arg;
    n_asked++;
    *out_split = tensor->role == TD_ROLE_PARAM || tensor->role == TD_ROLE_GRAD;
    return TD_OK;
}

static td_status begin_ruled(struct td_strategy *s, struct td_state_table *state) {
    n_begun++;
    td_state_set_rule(state, split_trained, s);
    return TD_OK;
}

static td_status end_ruled(struct td_strategy *s, const struct td_state_table *state) {
    (void)s;
    n_ended++;
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM && !t->n_pieces) return td_fail(TD_INTERNAL, "%s", t->name);
    }
    return TD_OK;
}

static td_status rewrite_ruled(struct td_strategy *s, struct td_graph *g,
                               const struct td_program_key *key) {
    (void)s;
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, 8, 8));
    return key->sync ? td_rewrite_reduce_scatter(g) : TD_OK;
}

static void test_rule_of_a_strategys_bracket_splits_tensors_as_they_are_named(void **state) {
    struct td_strategy_ops ops = zero1_ops;
    const struct td_plugin_desc ruled = TD_PLUGIN_DESC(STRATEGY, "ruled", "by a rule", &ops);
    ops.build_begin = begin_ruled;
    ops.build_end = end_ruled;
    ops.rewrite = rewrite_ruled;
    struct job j = job_of("ruled", "reference", 1);
    j.own = &ruled;
    n_begun = n_ended = n_asked = 0;
    expect_ddps_bits(&j, *state, "ruled");
    assert_true(n_begun > 0 && n_begun == n_ended);
    assert_true(n_asked >= 4 + 4); // parameters, and their gradients
    j.world = 2;                   // ranks are threads here, and count together
    expect_ddps_bits(&j, *state, "ruled-2");
}

static void round_by_chance(struct run *r, const char *dir) {
    (void)dir;
    r->config.optimizer.stochastic = true;
}

// A random bit belongs to an element of the tensor, wherever its piece begins.
static void test_checkpoints_are_those_of_ddp_when_weights_are_rounded_by_chance(void **state) {
    struct job j = job_of("zero1", "reference", 3);
    j.precision = "bf16-true";
    j.change = round_by_chance;
    expect_ddps_bits(&j, *state, "stochastic");
}

// ---- what a rank has ----------------------------------------------------------------------------

static _Atomic size_t optim_bytes, whole_bytes;

static td_status measure(struct td_rank *r) {
    size_t whole = 0;
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role == TD_ROLE_OPTIM) whole += td_state_whole_bytes(t);
    }
    optim_bytes = td_state_region_bytes(r->state, TD_ROLE_OPTIM);
    whole_bytes = whole;
    return TD_OK;
}

static void *measure_rank(void *rank) {
    return be_a_rank(rank, measure);
}

static void use_wide_model(struct run *r, const char *dir) {
    (void)dir;
    r->config.model = (struct td_part){"mlp", knobs(r, &td_module_mlp, "{\"layers\":[8,64,64,4]}")};
}

static void test_rank_has_its_part_of_the_optimizer_state_and_padding(void **state) {
    struct job j = job_of("zero1", "reference", 3);
    j.body = measure_rank;
    j.change = use_wide_model;
    run_job(&j, *state);
    // 6 tensors with 2 moments each: pieces are rounded up to 16 elements.
    assert_true(optim_bytes >= whole_bytes / 3);
    assert_true(optim_bytes <= whole_bytes / 3 + 12 * 16 * sizeof(float));
}

// ---- clipping, resuming -------------------------------------------------------------------------

static void clip(struct run *r, const char *dir) {
    (void)dir;
    r->config.optimizer.max_norm = 0.05;
}

static void read_floats(const char *dir, int64_t step, struct td_buf *out) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/step-%lld/model.safetensors", dir, (long long)step));
    assert_ok(td_fs_read(path, FILE_MAX, out));
}

// Weights of an mlp that are f32 in a checkpoint. The norm is summed in another order.
static void expect_near(const char *dir, const char *precision, double tolerance) {
    char a[TD_FS_PATH_BYTES], b[TD_FS_PATH_BYTES], plain[TD_FS_PATH_BYTES], of[TD_FS_PATH_BYTES];
    subdir(dir, precision, of);
    assert_ok(td_fs_mkdirs(of, 0777));
    subdir(of, "ddp", a);
    subdir(of, "zero1", b);
    subdir(of, "plain", plain);
    struct job ddp = job_of("ddp", "reference", 3), zero = job_of("zero1", "reference", 3);
    ddp.precision = zero.precision = precision;
    const int64_t steps = run_job(&ddp, plain).step;
    ddp.change = zero.change = clip;
    assert_int_equal(run_job(&ddp, a).step, steps);
    assert_int_equal(run_job(&zero, b).step, steps);
    TD_AUTO_BUF x;
    TD_AUTO_BUF y;
    TD_AUTO_BUF z;
    td_buf_init(&x, FILE_MAX);
    td_buf_init(&y, FILE_MAX);
    td_buf_init(&z, FILE_MAX);
    read_floats(a, steps, &x);
    read_floats(b, steps, &y);
    read_floats(plain, steps, &z);
    assert_int_equal(x.len, y.len);
    uint64_t head;
    memcpy(&head, x.data, sizeof head);
    double most = 0, clipped = 0;
    for (size_t at = sizeof head + head; at + sizeof(float) <= x.len; at += sizeof(float)) {
        float p, q, w;
        memcpy(&p, x.data + at, sizeof p);
        memcpy(&q, y.data + at, sizeof q);
        memcpy(&w, z.data + at, sizeof w);
        most = TD_MAX(most, fabs((double)p - (double)q));
        clipped = TD_MAX(clipped, fabs((double)p - (double)w));
    }
    assert_true(most <= tolerance);
    assert_true(clipped > 1e-4); // so it did clip
}

static void test_weights_are_near_those_of_ddp_when_clipped(void **state) {
    expect_near(*state, "32-true", 1e-5);
    expect_near(*state, "bf16-mixed", 2e-2);
    expect_near(*state, "16-mixed", 2e-2);
}

// Trains to the end, and again from the middle.
static void expect_resumed(void **state, const char *name, int32_t before, int32_t after,
                           const char *continues) {
    char first[TD_FS_PATH_BYTES], second[TD_FS_PATH_BYTES], with_ddp[TD_FS_PATH_BYTES];
    char from[TD_FS_PATH_BYTES], path[96];
    snprintf(path, sizeof path, "%s-first", name);
    subdir(*state, path, first);
    snprintf(path, sizeof path, "%s-second", name);
    subdir(*state, path, second);
    snprintf(path, sizeof path, "%s-ddp", name);
    subdir(*state, path, with_ddp);
    struct job j = job_of("zero1", "reference", before);
    j.max_epochs = 1;
    const int64_t middle = run_job(&j, first).step;
    assert_ok(td_fs_path(from, "%s/step-%lld", first, (long long)middle));
    j = job_of("zero1", "reference", after);
    j.resume_from = from;
    const int64_t steps = run_job(&j, second).step;
    assert_true(steps > middle);
    struct job ddp = job_of(continues, "reference", after);
    ddp.resume_from = from;
    assert_int_equal(run_job(&ddp, with_ddp).step, steps);
    expect_same(second, with_ddp, steps);
}

static void test_resume_goes_on_with_ddps_bits_at_the_same_number_of_ranks(void **state) {
    expect_resumed(state, "same", 3, 3, "ddp");
}

static void test_resume_goes_on_with_ddps_bits_at_another_number_of_ranks(void **state) {
    expect_resumed(state, "fewer", 3, 2, "ddp");
    expect_resumed(state, "more", 1, 3, "ddp");
}

static void test_run_that_resumes_has_the_bits_of_one_that_did_not_stop(void **state) {
    char whole[TD_FS_PATH_BYTES], again[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES];
    subdir(*state, "whole", whole);
    subdir(*state, "again", again);
    struct job j = job_of("zero1", "reference", 2);
    const int64_t steps = run_job(&j, whole).step;
    struct job half = j;
    half.max_epochs = 1;
    char first[TD_FS_PATH_BYTES];
    subdir(*state, "half", first);
    const int64_t middle = run_job(&half, first).step;
    assert_ok(td_fs_path(from, "%s/step-%lld", first, (long long)middle));
    j.resume_from = from;
    assert_int_equal(run_job(&j, again).step, steps);
    expect_same(whole, again, steps);
}

// ---- what cannot be -----------------------------------------------------------------------------

static void use_muon(struct run *r, const char *dir) {
    (void)dir;
    r->config.optimizer.kind = TD_OPTIMIZER_ADAFACTOR;
}

// A rank that comes later may find that another one has given up.
static void expect_refused(struct job *j, const char *dir, const char *text) {
    struct ranks all;
    int n_refused = 0;
    start_ranks(&all, j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < j->world; i++) {
        td_status s = all.rank[i].failed;
        const bool is_refused = s && strstr(td_status_message(s), text) != NULL;
        assert_true(is_refused || td_status_code(s) == TD_ABORTED);
        n_refused += is_refused;
        td_status_free(s);
    }
    assert_true(n_refused > 0);
}

static void test_optimizer_that_needs_whole_tensors_is_refused_by_name(void **state) {
    struct job j = job_of("zero1", "reference", 1);
    j.change = use_muon;
    expect_refused(&j, *state,
                   "optimizer adafactor updates whole tensors, but the strategy splits");
}

static td_status facts_without(struct td_collective_facts *out_facts) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    TD_TRY(shm->facts(out_facts));
    out_facts->calls &= ~(1u << TD_CALL_REDUCE_SCATTER);
    return TD_OK;
}

static struct td_collective_ops lacking_ops;
static const struct td_plugin_desc lacking =
    TD_PLUGIN_DESC(COLLECTIVE, "lacking", "shm without reduce_scatter", &lacking_ops);

static void use_lacking(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &lacking));
    r->config.collective = "lacking";
}

static void test_collective_that_lacks_a_call_is_refused_by_name(void **state) {
    struct job j = job_of("zero1", "reference", 2);
    lacking_ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    lacking_ops.facts = facts_without;
    j.change = use_lacking;
    expect_refused(&j, *state,
                   "collective 'lacking' has no reduce_scatter, which strategy 'zero1' needs");
}

static td_status probe_without(struct td_accel_facts *out_facts) {
    const struct td_accelerator_ops *reference = td_accelerator_reference.ops;
    TD_TRY(reference->probe(out_facts));
    out_facts->sums &= ~(1u << TD_SUM_ALL_GATHER);
    return TD_OK;
}

static struct td_accelerator_ops old_ops;
static const struct td_plugin_desc old =
    TD_PLUGIN_DESC(ACCELERATOR, "old", "reference without all_gather", &old_ops);

static void use_old(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &old));
}

static void test_accelerator_that_lacks_a_kind_is_refused_by_name(void **state) {
    struct job j = job_of("zero1", "old", 1);
    old_ops = *(const struct td_accelerator_ops *)td_accelerator_reference.ops;
    old_ops.probe = probe_without;
    j.change = use_old;
    expect_refused(&j, *state, "accelerator 'old' has no all_gather, which strategy 'zero1'");
}

// far as a device that has no memory of its own, such as one built into the processor: its buckets
// are under way together all the same.
static struct td_accelerator_ops shared_ops;
static const struct td_plugin_desc shared =
    TD_PLUGIN_DESC(ACCELERATOR, "shared", "far in the host's memory", &shared_ops);

static td_status probe_shared(struct td_accel_facts *out_facts) {
    const struct td_accelerator_ops *far = td_accelerator_far.ops;
    TD_TRY(far->probe(out_facts));
    out_facts->own_memory = false;
    return TD_OK;
}

static void use_shared(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &shared));
}

static void test_buckets_of_handles_have_a_place_each_whatever_the_facts_say(void **state) {
    struct job j = job_of("zero1", "shared", 2);
    shared_ops = *(const struct td_accelerator_ops *)td_accelerator_far.ops;
    shared_ops.probe = probe_shared;
    j.change = use_shared;
    expect_ddps_bits(&j, *state, "shared");
}

static td_status rewrite_wrongly(struct td_strategy *s, struct td_graph *g,
                                 const struct td_program_key *key) {
    td_value grad, token;
    uint32_t index = 0;
    const struct td_attrs a = {.bucket = 99};
    (void)s, (void)key;
    if (td_graph_mode(g) != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, 8, 8));
    while (td_state_at(td_graph_state(g), index)->role != TD_ROLE_GRAD) {
        index++;
    }
    TD_TRY(td_graph_state_value(g, index, &grad));
    TD_TRY(td_graph_op(g, TD_OP_ALL_REDUCE, &grad, 1, &a, &token));
    return td_graph_op(g, TD_OP_AWAIT, &token, 1, NULL, NULL);
}

static void test_bucket_that_is_not_there_is_refused_by_name(void **state) {
    struct td_strategy_ops ops = zero1_ops;
    const struct td_plugin_desc wrong = TD_PLUGIN_DESC(STRATEGY, "wrong", "a number", &ops);
    struct job j = job_of("wrong", "reference", 1);
    ops.rewrite = rewrite_wrongly;
    ops.rewrite_update = NULL;
    j.own = &wrong;
    expect_refused(&j, *state, "strategy 'wrong' sums bucket 99 in node");
}

// ---- ranks that part ----------------------------------------------------------------------------

static td_status rewrite_apart(struct td_strategy *s, struct td_graph *g,
                               const struct td_program_key *key) {
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, 8, 8));
    TD_TRY(td_rewrite_split_gradients(g));
    if (!key->sync) return TD_OK;
    return s->config.global_rank == 1 ? td_rewrite_all_reduce(g) : td_rewrite_reduce_scatter(g);
}

// Both are said before anything moves, by the rank that comes second.
static void test_ranks_that_begin_different_sums_are_told_both(void **state) {
    struct td_strategy_ops ops = zero1_ops;
    const struct td_plugin_desc apart = TD_PLUGIN_DESC(STRATEGY, "apart", "of two minds", &ops);
    struct job j = job_of("apart", "reference", 2);
    struct ranks all;
    bool said = false;
    ops.rewrite = rewrite_apart;
    j.own = &apart;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int32_t i = 0; i < j.world; i++) {
        td_status s = all.rank[i].failed;
        assert_non_null(s);
        said |= strstr(td_status_message(s), "reduce_scatter") &&
                strstr(td_status_message(s), "all_reduce");
        td_status_free(s);
    }
    assert_true(said);
}

// A group whose second rank dies in a call, some steps on: what its launcher then does is said.
static struct td_collective_ops mortal_ops;
static _Atomic int n_gathers, n_scatters;
static int dies_in_gather, dies_in_scatter;

static td_status die(struct td_collective *c) {
    mortal_ops.abort(c);
    return td_fail(TD_ABORTED, "rank 1 was killed");
}

static td_status mortal_gather(struct td_collective *c, const void *in, size_t bytes, void *out) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    if (atomic_fetch_add(&n_gathers, 1) + 1 == dies_in_gather) return die(c);
    return shm->all_gather(c, in, bytes, out);
}

static td_status mortal_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                enum td_dtype dtype, enum td_reduce_op op) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    if (atomic_fetch_add(&n_scatters, 1) + 1 == dies_in_scatter) return die(c);
    return shm->reduce_scatter(c, in, out, n, dtype, op);
}

static const struct td_plugin_desc mortal =
    TD_PLUGIN_DESC(COLLECTIVE, "mortal", "shm, in which a rank dies", &mortal_ops);

static void use_mortal(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &mortal));
    r->config.collective = "mortal";
}

static void expect_class_collective(const char *dir) {
    struct job j = job_of("zero1", "reference", 2);
    struct ranks all;
    j.change = use_mortal;
    mortal_ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    mortal_ops.all_gather = mortal_gather;
    mortal_ops.reduce_scatter = mortal_scatter;
    n_gathers = n_scatters = 0;
    start_ranks(&all, &j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < j.world; i++) {
        assert_int_equal(td_status_class(all.rank[i].failed), TD_CLASS_COLLECTIVE);
        td_status_free(all.rank[i].failed);
    }
}

static void test_rank_whose_peer_dies_in_a_sum_of_pieces_ends_as_collective(void **state) {
    dies_in_gather = 0;
    dies_in_scatter = 5;
    expect_class_collective(*state);
    dies_in_scatter = 0;
    dies_in_gather = 16; // the first are of the start
    expect_class_collective(*state);
    assert_true(n_scatters > 0); // so it was in training
}

static void use_hook(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &td_comm_hook_fp16));
    r->config.comm_hook = (struct td_part){"fp16", NULL};
}

static void test_comm_hook_beside_pieces_is_refused_by_name(void **state) {
    struct job j = job_of("zero1", "reference", 2);
    j.change = use_hook;
    expect_refused(&j, *state, "comm_hook 'fp16' sends buckets, but strategy 'zero1' reduces");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_checkpoints_are_those_of_ddp_at_any_number_of_ranks),
        test_in_scratch(test_checkpoints_are_those_of_ddp_when_each_tensor_has_a_buffer),
        test_in_scratch(test_checkpoints_are_those_of_ddp_in_each_precision_and_when_it_adds_up),
        test_in_scratch(test_checkpoints_are_those_of_ddp_when_weights_are_rounded_by_chance),
        test_in_scratch(test_rule_of_a_strategys_bracket_splits_tensors_as_they_are_named),
        test_in_scratch(test_rank_has_its_part_of_the_optimizer_state_and_padding),
        test_in_scratch(test_weights_are_near_those_of_ddp_when_clipped),
        test_in_scratch(test_resume_goes_on_with_ddps_bits_at_the_same_number_of_ranks),
        test_in_scratch(test_resume_goes_on_with_ddps_bits_at_another_number_of_ranks),
        test_in_scratch(test_run_that_resumes_has_the_bits_of_one_that_did_not_stop),
        test_in_scratch(test_collective_that_lacks_a_call_is_refused_by_name),
        test_in_scratch(test_accelerator_that_lacks_a_kind_is_refused_by_name),
        test_in_scratch(test_comm_hook_beside_pieces_is_refused_by_name),
        test_in_scratch(test_buckets_of_handles_have_a_place_each_whatever_the_facts_say),
        test_in_scratch(test_bucket_that_is_not_there_is_refused_by_name),
        test_in_scratch(test_ranks_that_begin_different_sums_are_told_both),
        test_in_scratch(test_rank_whose_peer_dies_in_a_sum_of_pieces_ends_as_collective),
        test_in_scratch(test_optimizer_that_needs_whole_tensors_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
