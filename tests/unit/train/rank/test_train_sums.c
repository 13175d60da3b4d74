// Programs that sum over ranks while buckets are reduced. Where the collective joins twice the sums
// have a group of their own; else they wait for the buckets. The bits are the same.
// Tags: tsan

#include "tests/unit/test.h"

#include <poll.h>
#include <stdatomic.h>

#include "tests/unit/train/rank/fields_rig.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/build.h"

// ---- a module -----------------------------------------------------------------------------------
// Two products with a sum over ranks between them. In the backward pass the weights of the second
// have their gradient before the sum, and are a bucket of their own.
enum { FEATURES = 8 };

static td_status summing_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_shape in = {2, {batch, FEATURES}}, label = {1, {batch}};
    const struct td_shape square = {2, {FEATURES, FEATURES}};
    const struct td_init random = {TD_INIT_UNIFORM, -0.5, 0.5};
    td_value x, y, first, second, z, loss;
    TD_TRY(td_graph_input(g, m->x.name, m->x.dtype, &in, &x));
    TD_TRY(td_graph_input(g, m->y.name, m->y.dtype, &label, &y));
    TD_TRY(td_graph_param(g, "first", TD_F32, &square, random, &first));
    TD_TRY(td_graph_param(g, "second", TD_F32, &square, random, &second));
    TD_TRY(td_build_matmul(g, x, first, 0, NULL, &z));
    TD_TRY(td_build_rank_sum(g, z, &z));
    TD_TRY(td_build_matmul(g, z, second, 0, NULL, &z));
    TD_TRY(td_build_mul(g, z, z, &z));
    TD_TRY(td_build_mean(g, z, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static const struct td_module_ops summing_ops = {
    .struct_bytes = sizeof summing_ops,
    .open = fields_open,
    .close = fields_close,
    .record = summing_record,
};
static const struct td_plugin_desc summing =
    TD_PLUGIN_DESC(MODULE, "summing", "a sum over ranks between two products", &summing_ops);

// ---- a collective -------------------------------------------------------------------------------
// It says that it joins nodes, so a thread reduces its buckets. Its ranks are in one process.
static const struct td_collective_ops *shm(void) {
    return td_collective_shm.ops;
}

static bool joins_again;
static _Atomic int n_joined[2];  // ranks, by group
static _Atomic int n_sums;       // in the second group
static _Atomic int n_own[RANKS]; // sums of each, begun
static _Atomic bool is_summing[RANKS], is_aborted[RANKS];
static _Atomic(struct td_collective *) second_of[RANKS];
static _Atomic int n_held; // buckets that waited for a sum

static td_status facts_of_nodes(struct td_collective_facts *out_facts) {
    TD_TRY(shm()->facts(out_facts));
    out_facts->joins_nodes = true;
    out_facts->joins_again = joins_again;
    return TD_OK;
}

static td_status join_and_count(const struct td_collective_config *config,
                                struct td_collective **out_c) {
    TD_TRY(shm()->join(config, out_c));
    atomic_fetch_add(&n_joined[config->group], 1);
    if (config->group) second_of[config->rank] = *out_c;
    return TD_OK;
}

static int rank_in_second(const struct td_collective *c) {
    for (int i = 0; i < RANKS; i++) {
        if (second_of[i] == c) return i;
    }
    return -1;
}

static td_status sum_and_count(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                               enum td_reduce_op op) {
    TD_TRY(shm()->all_reduce(c, data, n, dtype, op));
    if (rank_in_second(c) >= 0) atomic_fetch_add(&n_sums, 1);
    return TD_OK;
}

static struct td_collective_ops ops_of_nodes(bool again) {
    struct td_collective_ops ops = *shm();
    ops.facts = facts_of_nodes;
    ops.join = join_and_count;
    ops.all_reduce = sum_and_count;
    joins_again = again;
    n_joined[0] = n_joined[1] = n_sums = 0;
    for (int i = 0; i < RANKS; i++) {
        n_own[i] = 0;
        second_of[i] = NULL;
        is_summing[i] = is_aborted[i] = false;
    }
    n_held = 0;
    return ops;
}

static void use_summing(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &summing));
    r->config.model = (struct td_part){"summing", NULL};
    r->config.n_nodes = 2; // as far as the engine knows
    r->config.local_rank = r->config.rank;
    r->config.local_world_size = r->config.world_size;
    r->config.limits.val_batches = (struct td_amount){0};
}

static struct job job_of(const struct td_plugin_desc *collective) {
    return (struct job){.accelerator = "reference",
                        .strategy = "ddp",
                        .precision = "32-true",
                        .world = RANKS,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = collective,
                        .change = use_summing};
}

static void test_bits_are_the_same_when_sums_have_a_group_of_their_own(void **state) {
    char once[TD_FS_PATH_BYTES], twice[TD_FS_PATH_BYTES];
    struct td_collective_ops ops = ops_of_nodes(false);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = job_of(&nodes);
    snprintf(once, sizeof once, "%s/once", (char *)*state);
    snprintf(twice, sizeof twice, "%s/twice", (char *)*state);
    const int64_t steps = run_job(&j, once).step;
    assert_int_equal(n_joined[0], RANKS);
    assert_int_equal(n_joined[1], 0);
    ops = ops_of_nodes(true);
    assert_int_equal(run_job(&j, twice).step, steps);
    assert_int_equal(n_joined[0], RANKS);
    assert_int_equal(n_joined[1], RANKS);
    assert_int_equal(n_sums, RANKS * 2 * steps); // forward and backward
    expect_same(once, twice, steps);
}

static void set_plain_model(struct run *r, const char *dir) {
    use_summing(r, dir);
    r->config.model = (struct td_part){"mlp", knobs(r, &td_module_mlp, "{\"layers\":[8,4]}")};
}

static void test_ranks_join_once_when_their_programs_sum_nothing(void **state) {
    const struct td_collective_ops ops = ops_of_nodes(true);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = job_of(&nodes);
    j.change = set_plain_model;
    run_job(&j, *state);
    assert_int_equal(n_joined[0], RANKS);
    assert_int_equal(n_joined[1], 0);
}

// ---- beside a bucket ----------------------------------------------------------------------------
static td_status wait_until(bool (*is_so)(int value), int value, const char *what) {
    for (const int64_t deadline_ns = td_mono_now().ns + 20 * TD_NS_PER_S; !is_so(value);) {
        if (td_mono_now().ns > deadline_ns) return td_fail(TD_DEADLINE_EXCEEDED, "%s", what);
        (void)poll(NULL, 0, 1);
    }
    return TD_OK;
}

static bool sums_are(int value) {
    return atomic_load(&n_sums) >= value;
}

static _Thread_local int own_passes;

// The first bucket of a pass is not done before the sum that follows it in the backward pass.
static td_status reduce_after_sum(struct td_collective *c, const struct td_bucket *b) {
    if (!b->has_control && b->index == 0) {
        own_passes++;
        atomic_fetch_add(&n_held, 1);
        TD_TRY(wait_until(sums_are, own_passes * 2 * RANKS, "no sum goes on beside a bucket"));
    }
    return shm()->all_reduce_bucket(c, b);
}

static void test_sum_goes_on_when_a_bucket_before_it_is_not_done(void **state) {
    struct td_collective_ops ops = ops_of_nodes(true);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = job_of(&nodes);
    ops.all_reduce_bucket = reduce_after_sum;
    const int64_t steps = run_job(&j, *state).step;
    assert_true(steps > 1);
    assert_int_equal(n_held, RANKS * steps);
}

// ---- failures -----------------------------------------------------------------------------------

// The first is that of the forward pass.
static bool is_backward(int rank) {
    return rank >= 0 && atomic_fetch_add(&n_own[rank], 1) > 0;
}

static bool all_are_summing(int value) {
    (void)value;
    for (int i = 0; i < RANKS; i++) {
        if (!atomic_load(&is_summing[i])) return false;
    }
    return true;
}

static bool was_aborted(int rank) {
    return atomic_load(&is_aborted[rank]);
}

// A sum of the backward pass, in which a peer does not come.
static td_status sum_until_aborted(struct td_collective *c, void *data, int64_t n,
                                   enum td_dtype dtype, enum td_reduce_op op) {
    const int rank = rank_in_second(c);
    if (!is_backward(rank)) return sum_and_count(c, data, n, dtype, op);
    atomic_store(&is_summing[rank], true);
    TD_TRY(wait_until(was_aborted, rank, "nobody ended the sum"));
    return td_fail(TD_ABORTED, "rank %d left the group", rank);
}

static void note_abort(struct td_collective *c) {
    const int rank = rank_in_second(c);
    if (rank >= 0) atomic_store(&is_aborted[rank], true);
    shm()->abort(c);
}

static td_status fail_beside_sum(struct td_collective *c, const struct td_bucket *b) {
    (void)c;
    TD_TRY(wait_until(all_are_summing, 0, "no sum came"));
    return td_fail(TD_ABORTED, "bucket %u cannot be sent", b->index);
}

static void test_rank_fails_with_the_error_of_a_bucket_when_a_sum_waits_beside_it(void **state) {
    struct td_collective_ops ops = ops_of_nodes(true);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = job_of(&nodes);
    struct ranks all;
    ops.all_reduce = sum_until_aborted;
    ops.all_reduce_bucket = fail_beside_sum;
    ops.abort = note_abort;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int i = 0; i < RANKS; i++) {
        assert_fails(all.rank[i].failed, TD_ABORTED, "bucket 0 cannot be sent");
    }
}

static td_status fail_to_sum(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                             enum td_reduce_op op) {
    if (!is_backward(rank_in_second(c))) return sum_and_count(c, data, n, dtype, op);
    return td_fail(TD_DEADLINE_EXCEEDED, "node 1 did not come to the sum");
}

static void test_rank_fails_with_the_error_of_a_sum_when_a_bucket_waits_beside_it(void **state) {
    struct td_collective_ops ops = ops_of_nodes(true);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = job_of(&nodes);
    struct ranks all;
    ops.all_reduce = fail_to_sum;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int i = 0; i < RANKS; i++) {
        assert_fails(all.rank[i].failed, TD_DEADLINE_EXCEEDED, "node 1 did not come to the sum");
    }
}

static _Atomic bool rank_is_gone;

static bool is_gone(int value) {
    (void)value;
    return atomic_load(&rank_is_gone);
}

// Rank 1 is of a build that knows no second group.
static td_status join_first_alone(const struct td_collective_config *config,
                                  struct td_collective **out_c) {
    if (config->rank != 1 || !config->group) return join_and_count(config, out_c);
    TD_TRY(wait_until(is_gone, 0, "the other rank waits on"));
    return td_fail(TD_ABORTED, "there is no second group");
}

static td_status bar(struct td_collective *c, const char *tag) {
    td_status s = shm()->barrier(c, tag);
    if (s) atomic_store(&rank_is_gone, true);
    return s;
}

static void be_short(struct run *r, const char *dir) {
    use_summing(r, dir);
    r->config.collective_timeout_ns = 200 * TD_NS_PER_MS;
}

static void test_rank_that_does_not_join_is_named_after_the_deadline_of_data(void **state) {
    struct td_collective_ops ops = ops_of_nodes(true);
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = job_of(&nodes);
    struct ranks all;
    rank_is_gone = false;
    j.change = be_short;
    ops.join = join_first_alone;
    ops.barrier = bar;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    assert_fails(all.rank[0].failed, TD_DEADLINE_EXCEEDED,
                 "rank 1 of 2 did not arrive within 0.200 s (trainer.collective_timeout)");
    assert_fails(all.rank[1].failed, TD_ABORTED, "there is no second group");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_bits_are_the_same_when_sums_have_a_group_of_their_own),
        test_in_scratch(test_ranks_join_once_when_their_programs_sum_nothing),
        test_in_scratch(test_sum_goes_on_when_a_bucket_before_it_is_not_done),
        test_in_scratch(test_rank_fails_with_the_error_of_a_bucket_when_a_sum_waits_beside_it),
        test_in_scratch(test_rank_that_does_not_join_is_named_after_the_deadline_of_data),
        test_in_scratch(test_rank_fails_with_the_error_of_a_sum_when_a_bucket_waits_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
