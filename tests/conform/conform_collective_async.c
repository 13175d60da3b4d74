// Conformance of calls that are started and waited for later (start, wait, test). Every backend and
// decorator is visited, in worlds of 1 to 4 ranks as threads. What a started call gives has the
// bits that the call itself gives. Order, bounds and the end of groups are visited, too.

#include "tests/collective_ranks.h"

#include <stdatomic.h>

#include "lib/base/arena.h"
#include "lib/base/clock.h"
#include "lib/base/json.h"

#include "examples/plugins/fault.c"

static const int64_t patience_ns = 60 * TD_NS_PER_S;

struct backend {
    const struct td_plugin_desc *desc, *inner; // inner: of a decorator
    const char *knobs_text;
    int32_t max_world;
};
static char trace_text[128];
static const char calm_text[] =
    "{\"fault\":\"delay\",\"call\":0,\"rank\":1,\"delay_us\":50,\"attempts\":0}";
static const struct backend backends[] = {
    {&td_collective_local, NULL, NULL, 1},
    {&td_collective_shm, NULL, NULL, 4},
    {&td_collective_trace, &td_collective_shm, trace_text, 4},
    {&td_collective_trace, &td_collective_local, trace_text, 1},
    {NULL, &td_collective_shm, calm_text, 4}, // fault
};
static struct td_arena *arena;

static void begin_with(struct ranks *rs, const struct backend *b, const char *text, int32_t world) {
    struct td_json *parsed = NULL;
    if (!b->inner) {
        ranks_init(rs, b->desc, world, 4096);
        return;
    }
    assert_null(td_json_parse(arena, text, strlen(text), &parsed));
    ranks_init_wrapped(rs, b->desc ? b->desc : td_plugin_entry(), b->inner, parsed, world, 4096);
}

static void for_each_world(int32_t least, rank_fn *fn) {
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        for (int32_t world = least; world <= backends[b].max_world; world++) {
            struct ranks rs;
            begin_with(&rs, &backends[b], backends[b].knobs_text, world);
            ranks_run(&rs, fn, NULL);
            ranks_ok(&rs);
            ranks_finish(&rs);
        }
    }
}

static td_status fail_unless(td_status s, enum td_code code, const char *said) {
    if (td_status_code(s) == code && (!s || strstr(td_status_message(s), said))) {
        td_status_free(s);
        return TD_OK;
    }
    td_status failed = td_fail(TD_INTERNAL, "got '%s' instead of '%s'",
                               s ? td_status_message(s) : "success", said);
    td_status_free(s);
    return failed;
}

static struct td_collective_start barrier_of(const char *tag) {
    return (struct td_collective_start){
        .struct_bytes = sizeof(struct td_collective_start), .call = TD_ASYNC_BARRIER, .tag = tag};
}

// ---- what they give ----------------------------------------------------------------------------
enum { N = 40000 }; // elements: several chunks of the stages
struct memory {
    float in[4 * N], kept[4 * N], sum[N], part[N], all[4 * N], data[N];
};

// Five calls at once, waited for from the last to the first.
static td_status five_calls(struct rank_ctx *r, struct td_collective *g, int32_t rank,
                            int32_t world, struct memory *m, int64_t n) {
    for (int64_t i = 0; i < n * world; i++) {
        m->in[i] = (float)((i * 7 + rank * 5) % 23) / 7;
    }
    memcpy(m->kept, m->in, sizeof m->in);
    memcpy(m->sum, m->in, sizeof m->sum);
    memcpy(m->data, m->in, sizeof m->data);
    const size_t bytes = (size_t)n * sizeof(float);
    const struct td_collective_start calls[] = {
        {sizeof calls[0], TD_ASYNC_ALL_REDUCE, NULL, m->sum, n, TD_F32, TD_REDUCE_SUM, 0, 0, NULL},
        {sizeof calls[0], TD_ASYNC_REDUCE_SCATTER, m->in, m->part, n, TD_F32, TD_REDUCE_MEAN, 0, 0,
         NULL},
        {sizeof calls[0], TD_ASYNC_ALL_GATHER, m->in, m->all, 0, TD_F32, TD_REDUCE_SUM, bytes, 0,
         NULL},
        {sizeof calls[0], TD_ASYNC_BROADCAST, NULL, m->data, 0, TD_F32, TD_REDUCE_SUM, bytes,
         world - 1, NULL},
        barrier_of("all five"),
    };
    struct td_collective_work *work[5];
    for (int i = 0; i < 5; i++) {
        TD_TRY(r->ops->start(g, &calls[i], &work[i]));
    }
    for (int i = 5; i--;) {
        TD_TRY(r->ops->wait(g, work[i], patience_ns));
        TD_TRY(fail_unless(r->ops->wait(g, work[i], patience_ns), TD_INVALID_ARGUMENT, "handle"));
    }
    RANK_CHECK(memcmp(m->in, m->kept, sizeof m->in) == 0);
    return TD_OK;
}

static td_status same_as_sync(struct rank_ctx *r, struct td_collective *g, int32_t rank,
                              int32_t world, const struct memory *m, int64_t n) {
    TD_AUTO_FREE float *want = td_calloc((size_t)(n * world) + 1, sizeof *want);
    if (!want) return td_fail_oom();
    const size_t bytes = (size_t)n * sizeof *want;
    if (n) memcpy(want, m->in, bytes);
    TD_TRY(r->ops->all_reduce(g, want, n, TD_F32, TD_REDUCE_SUM));
    RANK_CHECK(memcmp(want, m->sum, bytes) == 0);
    TD_TRY(r->ops->reduce_scatter(g, m->in, want, n, TD_F32, TD_REDUCE_MEAN));
    RANK_CHECK(memcmp(want, m->part, bytes) == 0);
    TD_TRY(r->ops->all_gather(g, m->in, bytes, want));
    RANK_CHECK(memcmp(want, m->all, bytes * (size_t)world) == 0);
    RANK_CHECK(memcmp(want + (world - 1) * n, m->data, bytes) == 0);
    (void)rank;
    return TD_OK;
}

static td_status rank_five_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    static const int64_t ns[] = {0, 1, 1000, N};
    TD_AUTO_FREE struct memory *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    for (size_t i = 0; i < TD_COUNTOF(ns); i++) {
        TD_TRY(five_calls(r, r->c, r->rank, r->world, m, ns[i]));
        TD_TRY(same_as_sync(r, r->c, r->rank, r->world, m, ns[i]));
    }
    return TD_OK;
}
static void test_started_calls_give_what_the_calls_give_when_five_are_in_flight(void **state) {
    (void)state;
    for_each_world(1, rank_five_calls);
}

// A call that is not started comes after those that were.
static td_status rank_order(struct rank_ctx *r, void *arg) {
    (void)arg;
    int32_t x = 1;
    struct td_collective_work *work;
    const struct td_collective_start sum = {sizeof sum, TD_ASYNC_ALL_REDUCE, NULL, &x, 1,
                                            TD_I32,     TD_REDUCE_SUM,       0,    0,  NULL};
    for (int i = 0; i < 50; i++) {
        x = 1;
        TD_TRY(r->ops->start(r->c, &sum, &work));
        TD_TRY(r->ops->barrier(r->c, "after it"));
        bool is_done = false;
        TD_TRY(r->ops->test(r->c, work, &is_done));
        RANK_CHECK(is_done);
        TD_TRY(r->ops->wait(r->c, work, 0));
        RANK_CHECK(x == r->world);
    }
    return TD_OK;
}
static void test_call_waits_for_what_was_started_before_it(void **state) {
    (void)state;
    for_each_world(1, rank_order);
}

// ---- bounds and bad calls ----------------------------------------------------------------------
static td_status rank_bounds(struct rank_ctx *r, void *arg) {
    (void)arg;
    struct td_collective_work *work[TD_OPEN_CALLS_MAX + 1];
    struct td_collective_start barrier = barrier_of("many");
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
            TD_TRY(r->ops->start(r->c, &barrier, &work[i]));
        }
        TD_TRY(fail_unless(r->ops->start(r->c, &barrier, &work[TD_OPEN_CALLS_MAX]),
                           TD_RESOURCE_EXHAUSTED, "open"));
        for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
            TD_TRY(r->ops->wait(r->c, work[(i * 5 + turn) % TD_OPEN_CALLS_MAX], patience_ns));
        }
    }
    bool is_done;
    TD_TRY(fail_unless(r->ops->test(r->c, work[0], &is_done), TD_INVALID_ARGUMENT, "handle"));
    return fail_unless(r->ops->wait(r->c, (struct td_collective_work *)(void *)&barrier, 0),
                       TD_INVALID_ARGUMENT, "handle");
}
static void test_start_is_refused_when_all_handles_are_open(void **state) {
    (void)state;
    for_each_world(1, rank_bounds);
}

static td_status rank_bad_starts(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x = 1;
    struct td_collective_work *work;
    const struct td_collective_start bad[] = {
        {sizeof bad[0], TD_ASYNC_ALL_REDUCE, NULL, NULL, 1, TD_F32, TD_REDUCE_SUM, 0, 0, NULL},
        {sizeof bad[0], TD_ASYNC_ALL_REDUCE, NULL, &x, 1, TD_BOOL, TD_REDUCE_SUM, 0, 0, NULL},
        {sizeof bad[0], TD_ASYNC_REDUCE_SCATTER, NULL, &x, 1, TD_F32, TD_REDUCE_SUM, 0, 0, NULL},
        {sizeof bad[0], TD_ASYNC_ALL_GATHER, &x, NULL, 0, TD_F32, TD_REDUCE_SUM, 4, 0, NULL},
        {sizeof bad[0], TD_ASYNC_BROADCAST, NULL, &x, 0, TD_F32, TD_REDUCE_SUM, 4, -1, NULL},
        {sizeof bad[0], TD_ASYNC_BARRIER, NULL, NULL, 0, TD_F32, TD_REDUCE_SUM, 0, 0, NULL},
        {sizeof bad[0], TD_ASYNC_COUNT, NULL, &x, 0, TD_F32, TD_REDUCE_SUM, 0, 0, NULL},
        {8, TD_ASYNC_BARRIER, NULL, NULL, 0, TD_F32, TD_REDUCE_SUM, 0, 0, "tag"},
    };
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        TD_TRY(fail_unless(r->ops->start(r->c, &bad[i], &work), TD_INVALID_ARGUMENT, ""));
    }
    return r->ops->barrier(r->c, "still well");
}
static void test_bad_start_is_refused_before_anything_begins(void **state) {
    (void)state;
    for_each_world(1, rank_bad_starts);
}

// ---- groups ------------------------------------------------------------------------------------
static td_status rank_two_groups(struct rank_ctx *r, void *arg) {
    (void)arg;
    const int32_t list[2][2] = {{0, 1}, {1, 2}};
    struct td_collective *g[2] = {NULL, NULL};
    struct td_collective_work *work[3] = {NULL};
    int32_t x[3] = {1 << r->rank, 1 << r->rank, 1 << r->rank};
    struct td_collective_facts facts = {.struct_bytes = sizeof facts};
    TD_TRY(r->ops->facts(&facts));
    if (!(facts.calls & 1u << TD_CALL_GROUPS) || r->world < 3) return TD_OK;
    for (int i = 0; i < 2; i++) {
        TD_TRY(r->ops->group_create(r->c, list[i], 2, &g[i]));
    }
    // Rank 1 is in both, and begins with the other one than its partner in the first waits in.
    for (int k = 0; k < 3; k++) {
        const int i = r->rank == 1 ? 2 - k : k;
        struct td_collective *in = i < 2 ? g[i] : r->c;
        const struct td_collective_start sum = {sizeof sum, TD_ASYNC_ALL_REDUCE, NULL, &x[i], 1,
                                                TD_I32,     TD_REDUCE_SUM,       0,    0,     NULL};
        if (in) TD_TRY(r->ops->start(in, &sum, &work[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (!g[i]) continue;
        td_status s = r->ops->group_destroy(r->c, g[i]);
        const bool is_named = td_status_class(s) == TD_CLASS_USER_CODE;
        TD_TRY(fail_unless(s, TD_FAILED_PRECONDITION, "1 calls of this group were started"));
        RANK_CHECK(is_named);
        TD_TRY(r->ops->wait(g[i], work[i], patience_ns));
        RANK_CHECK(x[i] == (i ? 6 : 3));
    }
    TD_TRY(r->ops->wait(r->c, work[2], patience_ns));
    RANK_CHECK(x[2] == (1 << r->world) - 1);
    for (int i = 0; i < 2; i++) {
        TD_TRY(r->ops->group_destroy(r->c, g[i]));
    }
    return r->ops->barrier(r->c, "still well");
}
static void test_two_groups_work_at_once_and_are_kept_while_handles_are_open(void **state) {
    (void)state;
    for_each_world(3, rank_two_groups);
}

// ---- the end -----------------------------------------------------------------------------------
static td_status rank_late(struct rank_ctx *r, void *arg) {
    (void)arg;
    const struct td_collective_start barrier = barrier_of("late");
    struct td_collective_work *work[2];
    if (r->rank == 1) return TD_OK;
    TD_TRY(r->ops->start(r->c, &barrier, &work[0]));
    TD_TRY(r->ops->start(r->c, &barrier, &work[1]));
    bool is_done = true;
    TD_TRY(r->ops->test(r->c, work[0], &is_done));
    RANK_CHECK(!is_done);
    TD_TRY(fail_unless(r->ops->wait(r->c, work[0], 20 * TD_NS_PER_MS), TD_DEADLINE_EXCEEDED,
                       "rank 1 of 2 did not arrive"));
    return fail_unless(r->ops->wait(r->c, work[1], patience_ns), TD_ABORTED, "over");
}
static void test_missing_rank_is_named_when_a_wait_ends_without_it(void **state) {
    (void)state;
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        struct ranks rs;
        if (backends[b].max_world < 2) continue;
        begin_with(&rs, &backends[b], backends[b].knobs_text, 2);
        ranks_run(&rs, rank_late, NULL);
        ranks_ok(&rs);
        ranks_finish(&rs);
    }
}

static bool flag_is_set(void *arg) {
    return atomic_load((_Atomic bool *)arg);
}

// Rank 1 says the end while the others wait for what it never starts.
static td_status rank_aborts(struct rank_ctx *r, void *arg) {
    const struct td_collective_start barrier = barrier_of("never");
    struct td_collective_work *work;
    if (r->rank == 1) {
        if (arg) atomic_store((_Atomic bool *)arg, true);
        if (!arg) r->ops->abort(r->c);
        return TD_OK;
    }
    TD_TRY(r->ops->start(r->c, &barrier, &work));
    return fail_unless(r->ops->wait(r->c, work, patience_ns), TD_ABORTED, "over");
}
static void test_waiters_wake_when_the_group_is_aborted(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * TD_COUNTOF(backends); i++) {
        const struct backend *b = &backends[i / 2];
        _Atomic bool flag = false;
        struct ranks rs;
        if (b->max_world < 3) continue;
        begin_with(&rs, b, b->knobs_text, 3);
        rs.aborted = flag_is_set;
        rs.aborted_arg = &flag;
        const struct td_mono start = td_mono_now();
        ranks_run(&rs, rank_aborts, i % 2 ? &flag : NULL);
        for (int32_t p = 0; p < rs.world; p++) { // a late rank is refused at the door
            if (rs.status[p] && td_status_code(rs.status[p]) != TD_ABORTED) ranks_ok(&rs);
        }
        assert_true(td_mono_now().ns - start.ns < patience_ns / 2);
        ranks_free_statuses(&rs);
        ranks_finish(&rs);
    }
}

// Who leaves without a wait ends it for all: the memory of the call goes with the rank.
static td_status rank_leaves(struct rank_ctx *r, void *arg) {
    (void)arg;
    const struct td_collective_start barrier = barrier_of("left");
    struct td_collective_work *work;
    TD_TRY(r->ops->barrier(r->c, "all are here"));
    if (r->rank == 0) return r->ops->start(r->c, &barrier, &work);
    td_status s = r->ops->broadcast(r->c, &work, 0, 0);
    if (!s) return td_fail(TD_INTERNAL, "the call of a rank that left was completed");
    td_status_free(s);
    return TD_OK;
}
static void test_group_ends_when_a_rank_leaves_with_a_call_in_flight(void **state) {
    (void)state;
    for_each_world(2, rank_leaves);
}

// ---- one that is broken between start and wait -------------------------------------------------
static td_status rank_sums(struct rank_ctx *r, void *arg) {
    float *out = arg, x = 1;
    const struct td_collective_start sum = {sizeof sum, TD_ASYNC_ALL_REDUCE, NULL, &x, 1,
                                            TD_F32,     TD_REDUCE_SUM,       0,    0,  NULL};
    struct td_collective_work *work;
    TD_TRY(r->ops->start(r->c, &sum, &work));
    TD_TRY(r->ops->wait(r->c, work, patience_ns));
    out[r->rank] = x;
    return r->ops->barrier(r->c, "end");
}
static void test_fault_counts_the_start_and_the_wait_when_it_breaks_one(void **state) {
    static const char *const texts[] = {
        "{\"fault\":\"corrupt\",\"call\":1,\"rank\":1,\"delay_us\":0,\"attempts\":0}",
        "{\"fault\":\"corrupt\",\"call\":2,\"rank\":1,\"delay_us\":0,\"attempts\":0}",
        "{\"fault\":\"drop\",\"call\":2,\"rank\":1,\"delay_us\":0,\"attempts\":0}",
        "{\"fault\":\"delay\",\"call\":2,\"rank\":1,\"delay_us\":5000,\"attempts\":0}",
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        struct ranks rs;
        float out[2] = {0};
        begin_with(&rs, &backends[TD_COUNTOF(backends) - 1], texts[i], 2);
        const struct td_mono start = td_mono_now();
        ranks_run(&rs, rank_sums, out);
        ranks_ok(&rs);
        assert_true(out[0] == 2 && out[1] == (i < 2 ? -2 : 2));
        if (i == 3) assert_true(td_mono_now().ns - start.ns >= 5 * TD_NS_PER_MS);
        ranks_finish(&rs);
    }
    struct ranks rs;
    float out[2];
    begin_with(&rs, &backends[TD_COUNTOF(backends) - 1],
               "{\"fault\":\"drop\",\"call\":1,\"rank\":1,\"delay_us\":0,\"attempts\":0}", 2);
    ranks_run(&rs, rank_sums, out); // rank 1 is a call ahead
    assert_true(td_status_code(rs.status[0]) == TD_FAILED_PRECONDITION ||
                td_status_code(rs.status[1]) == TD_FAILED_PRECONDITION);
    ranks_free_statuses(&rs);
    ranks_finish(&rs);
}

static char folder[] = "/tmp/td_async_XXXXXX";
static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder) || td_arena_create(1 << 20, &arena)) return -1;
    snprintf(trace_text, sizeof trace_text, "{\"dir\":\"%s\",\"max_events\":50}", folder);
    return 0;
}
static int drop_folder(void **state) {
    char path[128];
    (void)state;
    for (int r = 0; r < 4; r++) {
        snprintf(path, sizeof path, "%s/trace-a1-rank%d.json", folder, r);
        unlink(path);
    }
    td_arena_destroy(arena);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_started_calls_give_what_the_calls_give_when_five_are_in_flight),
        cmocka_unit_test(test_call_waits_for_what_was_started_before_it),
        cmocka_unit_test(test_start_is_refused_when_all_handles_are_open),
        cmocka_unit_test(test_bad_start_is_refused_before_anything_begins),
        cmocka_unit_test(test_two_groups_work_at_once_and_are_kept_while_handles_are_open),
        cmocka_unit_test(test_missing_rank_is_named_when_a_wait_ends_without_it),
        cmocka_unit_test(test_waiters_wake_when_the_group_is_aborted),
        cmocka_unit_test(test_group_ends_when_a_rank_leaves_with_a_call_in_flight),
        cmocka_unit_test(test_fault_counts_the_start_and_the_wait_when_it_breaks_one),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
