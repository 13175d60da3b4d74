// The timeline of a rank: what it did, on which thread, without changing a bit.
// Tags: tsan

#include "tests/unit/test.h"

#include <math.h>
#include <poll.h>
#include <stdatomic.h>

#include "engine/train/rank/rank.h"
#include "tests/unit/train/rank/ranks_rig.h"

static char *trace_dir;
static void set_trace_dir(struct run *r, const char *dir) {
    (void)dir;
    r->config.trace_dir = trace_dir;
    r->config.attempt = 1;
}

static struct job job_of(const char *accelerator, const char *precision) {
    return (struct job){.accelerator = accelerator,
                        .strategy = "ddp",
                        .precision = precision,
                        .world = RANKS,
                        .accumulate = 2,
                        .max_epochs = 2};
}

static const struct td_json *read_timeline(struct td_arena *arena, int rank) {
    char path[TD_FS_PATH_BYTES];
    struct td_json *events;
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    assert_ok(td_fs_path(path, "%s/timeline-a1-rank%d.json", trace_dir, rank));
    assert_ok(td_fs_read(path, FILE_MAX, &text));
    assert_ok(td_json_parse(arena, (const char *)text.data, text.len, &events));
    return events;
}

static const char *name_of(const struct td_json *e) {
    return td_json_string(td_json_get(e, "name"), "");
}

static int count(const struct td_json *events, const char *begins) {
    int n = 0;
    for (const struct td_json *e = events->first; e; e = e->next) {
        n += strncmp(name_of(e), begins, strlen(begins)) == 0;
    }
    return n;
}

// The thread of the first event of that name.
static int64_t thread_of(const struct td_json *events, const char *name) {
    const struct td_json *e = events->first;
    while (e && strcmp(name_of(e), name) != 0) {
        e = e->next;
    }
    return e ? td_json_int(td_json_get(e, "tid"), -1) : -1;
}

static void test_timeline_has_each_segment_and_no_bit_changes_when_ranks_write_one(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    static const char *const precisions[] = {"32-true", "16-mixed"};
    char plain[TD_FS_PATH_BYTES], traced[TD_FS_PATH_BYTES];
    trace_dir = *state;
    for (size_t i = 0; i < TD_COUNTOF(accelerators) * TD_COUNTOF(precisions); i++) {
        struct job j = job_of(accelerators[i % 2], precisions[i / 2]);
        snprintf(plain, sizeof plain, "%s/plain-%zu", (char *)*state, i);
        snprintf(traced, sizeof traced, "%s/traced-%zu", (char *)*state, i);
        const int64_t steps = run_job(&j, plain).step;
        j.change = set_trace_dir;
        assert_int_equal(run_job(&j, traced).step, steps);
        expect_same(plain, traced, steps);
        for (int rank = 0; rank < RANKS; rank++) {
            TD_AUTO(td_arena) *arena = NULL;
            assert_ok(td_arena_create(8 << 20, &arena));
            const struct td_json *events = read_timeline(arena, rank);
            assert_true(count(events, "batch") >=
                        2 * steps); // a window has two, the last perhaps one
            assert_int_equal(count(events, "forward"), count(events, "batch"));
            assert_int_equal(count(events, "backward"), count(events, "batch"));
            assert_true(count(events, "apply") >= steps);
            assert_true(count(events, "bucket ") > steps);
            assert_true(count(events, "save") > 0);
        }
    }
}

static td_status facts_of_nodes(struct td_collective_facts *out_facts) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    TD_TRY(shm->facts(out_facts));
    out_facts->joins_nodes = true;
    return TD_OK;
}

static void test_timeline_shows_buckets_beside_backward_when_a_thread_reduces_them(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = job_of("reference", "32-true");
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(8 << 20, &arena));
    ops.facts = facts_of_nodes;
    j.own = &nodes;
    j.change = set_trace_dir;
    trace_dir = *state;
    run_job(&j, *state);
    const struct td_json *events = read_timeline(arena, 0);
    assert_true(thread_of(events, "bucket 0") > 0);
    assert_true(thread_of(events, "bucket 0") != thread_of(events, "backward"));
    assert_int_equal(thread_of(events, "await bucket 0"), thread_of(events, "backward"));
    assert_int_equal(count(events, "thread_name"), 2);
}

// ---- overlap ------------------------------------------------------------------------------------
// A rank of the test does not wait for its buckets before the first of them is being reduced. So
// the order of the two is no matter of speed: one that reduces in its wait fails at the deadline.
static struct td_collective *joined[RANKS];
static atomic_int begun[RANKS]; // reductions of bucket 0
static _Thread_local int own_rank, n_passes;
static _Thread_local td_status (*real_wait)(void *arg, const struct td_sum *sum);

static td_status join_and_remember(const struct td_collective_config *config,
                                   struct td_collective **out_c) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    own_rank = config->rank;
    n_passes = 0;
    TD_TRY(shm->join(config, out_c));
    joined[config->rank] = *out_c;
    return TD_OK;
}

static td_status reduce_and_say(struct td_collective *c, const struct td_bucket *b) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    if (b->index == 0) atomic_fetch_add(&begun[c == joined[0] ? 0 : 1], 1);
    return shm->all_reduce_bucket(c, b);
}

// All of the pass is computed.
static td_status wait_until_begun(void *arg, const struct td_sum *sum) {
    struct td_rank *r = arg;
    if (sum->kind != TD_SUM_ALL_REDUCE) return real_wait(arg, sum);
    if (sum->index == 0) n_passes++;
    for (const int64_t deadline_ns = td_mono_now().ns + 20 * TD_NS_PER_S;;) {
        if (atomic_load(&begun[own_rank]) >= n_passes) break;
        if (td_mono_now().ns > deadline_ns) {
            return td_fail(TD_DEADLINE_EXCEEDED, "pass %d: no bucket is reduced beside it",
                           n_passes);
        }
        (void)poll(NULL, 0, 1);
    }
    const bool is_last = sum->index + 1 == td_state_n_buckets(r->state);
    const bool was_posted = !td_comm_thread_is_idle(r->comm); // also when all of it is done
    TD_TRY(real_wait(arg, sum));
    if (was_posted && td_comm_thread_is_idle(r->comm) == is_last) return TD_OK;
    return td_fail(TD_INTERNAL, "pass %d: before the wait buckets have the group, %s", n_passes,
                   was_posted ? "and after the last as well" : "and yet it is idle");
}

static td_status compile_held(struct td_accelerator *a, const struct td_program *p,
                              const struct td_bindings *b, struct td_executable **out) {
    const struct td_accelerator_ops *reference = td_accelerator_reference.ops;
    struct td_bindings own = *b;
    if (own.collective_wait) {
        real_wait = own.collective_wait;
        own.collective_wait = wait_until_begun;
    }
    return reference->compile(a, p, &own, out);
}

static struct td_accelerator_ops held_ops;
static const struct td_plugin_desc held =
    TD_PLUGIN_DESC(ACCELERATOR, "held", "reference, which waits after a backward pass", &held_ops);
static void set_held(struct run *r, const char *dir) {
    set_trace_dir(r, dir);
    assert_ok(td_registry_add(r->registry, &held));
}

static double number_of(const struct td_json *e, const char *key) {
    return td_json_real(td_json_get(e, key), NAN);
}

// The event number i of that name.
static const struct td_json *event_at(const struct td_json *events, const char *name, int i) {
    for (const struct td_json *e = events->first; e; e = e->next) {
        if (strcmp(name_of(e), name) == 0 && i-- == 0) return e;
    }
    fail_msg("no event '%s'", name);
    return NULL;
}

static void test_timeline_shows_a_bucket_that_begins_before_its_backward_pass_ends(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = job_of("held", "32-true");
    held_ops = *(const struct td_accelerator_ops *)td_accelerator_reference.ops;
    held_ops.compile = compile_held;
    ops.facts = facts_of_nodes;
    ops.join = join_and_remember;
    ops.all_reduce_bucket = reduce_and_say;
    j.accumulate = 1; // each backward pass has buckets
    j.own = &nodes;
    j.change = set_held;
    trace_dir = *state;
    const int64_t steps = run_job(&j, *state).step;
    assert_true(steps > 1);
    for (int rank = 0; rank < RANKS; rank++) {
        TD_AUTO(td_arena) *arena = NULL;
        assert_ok(td_arena_create(8 << 20, &arena));
        const struct td_json *events = read_timeline(arena, rank);
        assert_int_equal(count(events, "backward"), steps);
        for (int i = 0; i < steps; i++) {
            const struct td_json *pass = event_at(events, "backward", i);
            const struct td_json *wait = event_at(events, "await bucket 0", i);
            const struct td_json *bucket = event_at(events, "bucket 0", i);
            const double began = number_of(bucket, "ts"), pass_began = number_of(pass, "ts");
            assert_true(began >= pass_began && began <= pass_began + number_of(pass, "dur"));
            assert_true(began <= number_of(wait, "ts")); // nothing is left to compute from there on
            assert_int_equal(number_of(wait, "tid"), number_of(pass, "tid"));
            assert_true(number_of(bucket, "tid") != number_of(pass, "tid"));
        }
    }
}

static void test_rank_fails_when_its_timeline_has_no_directory(void **state) {
    char gone[TD_FS_PATH_BYTES];
    struct job j = job_of("reference", "32-true");
    struct ranks all;
    snprintf(gone, sizeof gone, "%s/gone", (char *)*state);
    j.change = set_trace_dir;
    trace_dir = gone;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int32_t r = 0; r < j.world; r++) {
        assert_fails(all.rank[r].failed, TD_NOT_FOUND, "trainer.trace_dir: '");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_timeline_has_each_segment_and_no_bit_changes_when_ranks_write_one),
        test_in_scratch(test_timeline_shows_buckets_beside_backward_when_a_thread_reduces_them),
        test_in_scratch(test_timeline_shows_a_bucket_that_begins_before_its_backward_pass_ends),
        test_in_scratch(test_rank_fails_when_its_timeline_has_no_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
