// The calls of the shared-memory collective that two ranks or some ranks make, where their program
// is wrong: who is named, and how soon. Ranks are threads, and the file runs under the thread
// sanitizer. What the calls give is in tests/conform.

#include "tests/collective_ranks.h"

#include <stdatomic.h>

#include "lib/base/clock.h"

static const int64_t soon_ns = 50 * TD_NS_PER_MS, patience_ns = 60 * TD_NS_PER_S;

static void expect_status(td_status s, enum td_code code, const char *said) {
    if (td_status_code(s) != code || !strstr(td_status_message(s), said)) {
        fail_msg("got '%s' instead of '%s'", s ? td_status_message(s) : "success", said);
    }
    assert_int_equal(td_status_class(s),
                     code == TD_FAILED_PRECONDITION ? TD_CLASS_USER_CODE : TD_CLASS_COLLECTIVE);
}

static uint32_t next(uint32_t *dice) {
    return *dice = *dice * 1664525u + 1013904223u;
}

// ---- many calls ---------------------------------------------------------------------------------
// All ranks roll the same dice, so they make the same calls.
static td_status mixed_call(struct rank_ctx *r, struct td_collective *g, uint32_t dice,
                            int32_t rank, int32_t world) {
    int32_t in[4 * 4], out[4 * 4];
    size_t counts[RANKS_MAX];
    const int32_t root = (int32_t)(dice >> 8) % world, n = 1 + (int32_t)(dice >> 16) % 4;
    for (int32_t i = 0; i < world * n; i++) {
        in[i] = rank * 100 + i;
    }
    switch (dice >> 24 & 7) {
    case 0:
        TD_TRY(r->ops->all_to_all(g, in, (size_t)n * 4, out));
        RANK_CHECK(out[root * n] == root * 100 + rank * n);
        return TD_OK;
    case 1:
        TD_TRY(r->ops->scatter(g, in, (size_t)n * 4, out, root));
        RANK_CHECK(out[0] == root * 100 + rank * n);
        return TD_OK;
    case 2:
        TD_TRY(r->ops->gather(g, in, (size_t)n * 4, out, root));
        RANK_CHECK(rank != root || out[(world - 1) * n] == (world - 1) * 100);
        return TD_OK;
    case 3:
        TD_TRY(r->ops->reduce_scatter(g, in, out, n, TD_I32, TD_REDUCE_MAX));
        RANK_CHECK(out[0] == (world - 1) * 100 + rank * n);
        return TD_OK;
    case 4:
        TD_TRY(r->ops->all_gather_uneven(g, in, (size_t)rank * 4, out, sizeof out, counts));
        RANK_CHECK(counts[world - 1] == (size_t)(world - 1) * 4);
        return TD_OK;
    case 5:
        TD_TRY(r->ops->reduce(g, in, 1, TD_I32, TD_REDUCE_SUM, root));
        RANK_CHECK(in[0] == (rank == root ? world * (world - 1) * 50 : rank * 100));
        return TD_OK;
    default:
        break;
    }
    if (rank == root && world > 1) {
        TD_TRY(r->ops->send(g, in, (size_t)n * 4, (root + 1) % world, dice));
    } else if (rank == (root + 1) % world && world > 1) {
        TD_TRY(r->ops->recv(g, out, (size_t)n * 4, root, dice));
        RANK_CHECK(out[0] == root * 100);
    }
    return TD_OK;
}

static td_status rank_mixes_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    uint32_t dice = 4711;
    const int32_t pair[2] = {0, 2};
    struct td_collective *g = NULL;
    for (int i = 0; i < 4000; i++) {
        if (i % 100 == 0) TD_TRY(r->ops->group_create(r->c, pair, 2, &g));
        TD_TRY(mixed_call(r, r->c, next(&dice), r->rank, r->world));
        const uint32_t of_pair = next(&dice);
        if (g) TD_TRY(mixed_call(r, g, of_pair, r->rank / 2, 2));
        if (i % 100 == 99) TD_TRY(r->ops->group_destroy(r->c, g));
        if (i % 100 == 99) g = NULL;
    }
    return TD_OK;
}
static void test_calls_stay_right_when_pairs_groups_and_all_alternate(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 3, 0);
    ranks_run(&rs, rank_mixes_calls, NULL);
    ranks_ok(&rs);
    ranks_finish(&rs);
}

// ---- calls that are started ---------------------------------------------------------------------
// The same dice: some calls are started, in two groups, and waited for a while later.
static td_status rank_starts_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    enum { OPEN = 5 };
    uint32_t dice = 815;
    const int32_t pair[2] = {0, 2};
    struct td_collective *g = NULL, *in[OPEN] = {NULL};
    struct td_collective_work *work[OPEN];
    int32_t x[OPEN], want[OPEN];
    TD_TRY(r->ops->group_create(r->c, pair, 2, &g));
    for (int i = 0; i < 2000; i++) {
        const int k = i % OPEN;
        if (in[k]) {
            TD_TRY(r->ops->wait(in[k], work[k], patience_ns));
            RANK_CHECK(x[k] == want[k]);
        }
        const bool of_pair = next(&dice) >> 31;
        in[k] = of_pair ? g : r->c;
        x[k] = i + r->rank;
        want[k] = of_pair ? 2 * i + 2 : 3 * i + 3;
        const struct td_collective_start sum = {sizeof sum, TD_ASYNC_ALL_REDUCE, NULL, &x[k], 1,
                                                TD_I32,     TD_REDUCE_SUM,       0,    0,     NULL};
        if (in[k]) TD_TRY(r->ops->start(in[k], &sum, &work[k]));
        if (next(&dice) >> 29 == 0) TD_TRY(mixed_call(r, r->c, dice, r->rank, r->world));
    }
    for (int k = 0; k < OPEN; k++) {
        if (in[k]) TD_TRY(r->ops->wait(in[k], work[k], patience_ns));
    }
    return r->ops->group_destroy(r->c, g);
}
static void test_started_calls_stay_right_when_groups_and_other_calls_alternate(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 3, 0);
    ranks_run(&rs, rank_starts_calls, NULL);
    ranks_ok(&rs);
    ranks_finish(&rs);
}

// ---- ranks that disagree ------------------------------------------------------------------------
// What each of two ranks calls, and what is said of both.
struct clash {
    rank_fn *fn[2];
    const char *said[2];
};
static char data[64];

#define CALL(name, expr)                                                                           \
    static td_status call_##name(struct rank_ctx *r, void *arg) {                                  \
        char own[128] = {0};                                                                       \
        (void)arg, (void)own;                                                                      \
        return r->ops->expr;                                                                       \
    }
CALL(barrier, barrier(r->c, "epoch"))
CALL(barrier_end, barrier(r->c, TD_BARRIER_END))
CALL(barrier_long, barrier(r->c, "one tag of thirty bytes, no. 1"))
CALL(barrier_longer, barrier(r->c, "one tag of thirty bytes, no. 20"))
CALL(barrier_cut, barrier(r->c, "fifteen bytes, \xc3\xa9"))
CALL(send_8, send(r->c, own, 8, 1 - r->rank, 3))
CALL(send_9, send(r->c, own, 9, 1 - r->rank, 3))
CALL(recv_8, recv(r->c, own, 8, 1 - r->rank, 3))
CALL(recv_8_tag_4, recv(r->c, own, 8, 1 - r->rank, 4))
CALL(gather_0, gather(r->c, own, 8, own + 8, 0))
CALL(gather_1, gather(r->c, own, 8, own + 8, 1))
CALL(scatter_0, scatter(r->c, own, 8, own + 64, 0))
CALL(reduce_0, reduce(r->c, own, 2, TD_F32, TD_REDUCE_SUM, 0))
CALL(reduce_max, reduce(r->c, own, 2, TD_F32, TD_REDUCE_MAX, 0))
CALL(reduce_scatter_i32, reduce_scatter(r->c, own, own + 64, 2, TD_I32, TD_REDUCE_PRODUCT))
CALL(reduce_scatter_f32, reduce_scatter(r->c, own, own + 64, 2, TD_F32, TD_REDUCE_PRODUCT))
CALL(all_to_all_8, all_to_all(r->c, own, 8, own + 64))
CALL(all_to_all_4, all_to_all(r->c, own, 4, own + 64))

static td_status call_uneven(struct rank_ctx *r, void *arg) {
    (void)arg;
    size_t counts[2];
    char own[64] = {0};
    return r->ops->all_gather_uneven(r->c, own, 8, own + 8, 32, counts);
}
static td_status create(struct rank_ctx *r, int32_t of) {
    struct td_collective *g;
    return r->ops->group_create(r->c, &of, 1, &g);
}
static td_status call_create_0(struct rank_ctx *r, void *arg) {
    (void)arg;
    return create(r, 0);
}
static td_status call_create_1(struct rank_ctx *r, void *arg) {
    (void)arg;
    return create(r, 1);
}

static const struct clash clashes[] = {
    {{call_gather_0, call_gather_1},
     {"gather of 8 bytes to rank 0", "gather of 8 bytes to rank 1"}},
    {{call_scatter_0, call_all_to_all_8},
     {"scatter of 8 bytes from rank 0", "all_to_all of 8 bytes"}},
    {{call_all_to_all_8, call_all_to_all_4}, {"all_to_all of 8 bytes", "all_to_all of 4 bytes"}},
    {{call_reduce_0, call_reduce_max},
     {"reduce (sum) of 2 f32 to rank 0", "reduce (max) of 2 f32"}},
    {{call_reduce_scatter_i32, call_reduce_scatter_f32},
     {"reduce_scatter (product) of 2 i32 a rank", "reduce_scatter (product) of 2 f32 a rank"}},
    {{call_uneven, call_barrier}, {"all_gather_uneven", "barrier 'epoch'"}},
    {{call_barrier, call_barrier_cut}, {"in barrier 'epoch'", "in barrier 'fifteen bytes, '... ("}},
    {{call_barrier_end, call_barrier}, {"in the barrier at its end", "in barrier 'epoch'"}},
    {{call_barrier_long, call_barrier_longer},
     {"in barrier 'one tag of thirt'... (digest", "while rank"}},
    {{call_create_0, call_create_1},
     {"group_create of 1 ranks (digest", "group_create of 1 ranks"}},
    {{call_send_9, call_recv_8},
     {"send of 9 bytes to rank 1 (tag 3)", "recv of 8 bytes from rank 0 (tag 3)"}},
    {{call_send_8, call_recv_8_tag_4},
     {"send of 8 bytes to rank 1 (tag 3)", "recv of 8 bytes from rank 0 (tag 4)"}},
    {{call_send_8, call_send_9},
     {"send of 8 bytes to rank 1 (tag 3)", "send of 9 bytes to rank 0 (tag 3)"}},
    {{call_recv_8, call_recv_8_tag_4}, {"from rank 1", "recv from rank"}},
    {{call_recv_8, call_barrier}, {"recv of 8 bytes from rank 1 (tag 3)", "barrier 'epoch'"}},
    {{call_send_8, call_reduce_0}, {"send of 8 bytes to rank 1 (tag 3)", "reduce (sum)"}},
};

static td_status rank_clashes(struct rank_ctx *r, void *arg) {
    return ((const struct clash *)arg)->fn[r->rank](r, NULL);
}

// One rank at least says both calls; the other, too, or that the first gave up.
static void expect_clash(struct ranks *rs, const struct clash *k) {
    int said = 0;
    for (int32_t r = 0; r < 2; r++) {
        if (td_status_code(rs->status[r]) == TD_ABORTED) {
            expect_status(rs->status[r], TD_ABORTED, "gave up");
            continue;
        }
        expect_status(rs->status[r], TD_FAILED_PRECONDITION, k->said[0]);
        expect_status(rs->status[r], TD_FAILED_PRECONDITION, k->said[1]);
        assert_string_equal(td_status_reason(rs->status[r]), "COLLECTIVE_MISMATCH");
        said++;
    }
    assert_true(said > 0);
}

static void test_both_calls_are_named_at_once_when_two_ranks_disagree(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(clashes); i++) {
        struct ranks rs;
        ranks_init(&rs, &td_collective_shm, 2, 0);
        const struct td_mono start = td_mono_now();
        struct clash k = clashes[i];
        ranks_run(&rs, rank_clashes, &k);
        expect_clash(&rs, &k);
        assert_true(td_mono_now().ns - start.ns < patience_ns / 2); // long before the deadline
        ranks_free_statuses(&rs);
        ranks_finish(&rs);
    }
}

// ---- ranks that do not come ---------------------------------------------------------------------
static td_status rank_waits_for_one_that_is_away(struct rank_ctx *r, void *arg) {
    const bool receives = *(const bool *)arg;
    if (r->rank != 1) return TD_OK;
    return receives ? r->ops->recv(r->c, data, 8, 2, 5) : r->ops->send(r->c, data, 8, 2, 5);
}
static void test_partner_is_named_when_it_does_not_come(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ranks rs;
        bool receives = i;
        ranks_init(&rs, &td_collective_shm, 3, 0);
        rs.timeout_ns = soon_ns;
        ranks_run(&rs, rank_waits_for_one_that_is_away, &receives);
        expect_status(rs.status[1], TD_DEADLINE_EXCEEDED,
                      receives ? "recv of 8 bytes from rank 2 (tag 5): rank 2 of 3 did not arrive"
                               : "send of 8 bytes to rank 2 (tag 5): rank 2 of 3 did not arrive");
        assert_null(rs.status[0]);
        ranks_free_statuses(&rs);
        ranks_finish(&rs);
    }
}

// Members of a group are called by their ranks in the whole.
static td_status rank_waits_in_a_group(struct rank_ctx *r, void *arg) {
    (void)arg;
    const int32_t list[] = {1, 3};
    struct td_collective *g;
    TD_TRY(r->ops->group_create(r->c, list, 2, &g));
    return r->rank == 1 ? r->ops->barrier(g, "waits") : TD_OK;
}
static void test_member_is_called_by_its_rank_in_the_whole_when_it_is_missing(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 4, 0);
    rs.timeout_ns = soon_ns * 10;
    ranks_run(&rs, rank_waits_in_a_group, NULL);
    expect_status(rs.status[1], TD_DEADLINE_EXCEEDED, "rank 3 of a group of 2 did not arrive");
    ranks_free_statuses(&rs);
    ranks_finish(&rs);
}

static bool flag_is_set(void *arg) {
    return atomic_load((_Atomic bool *)arg);
}

// Rank 0 waits for a message, rank 2 in a group, and rank 1 is the launcher.
static td_status rank_aborted_from_outside(struct rank_ctx *r, void *arg) {
    const int32_t list[] = {1, 2};
    struct td_collective *g;
    TD_TRY(r->ops->group_create(r->c, list, 2, &g));
    if (r->rank == 0) return r->ops->recv(r->c, data, 8, 1, 0);
    if (r->rank == 2) return r->ops->barrier(g, "never");
    atomic_store((_Atomic bool *)arg, true);
    return TD_OK;
}
static void test_waits_of_pairs_and_groups_end_when_the_outside_says_abort(void **state) {
    (void)state;
    _Atomic bool flag = false;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 3, 0);
    rs.aborted = flag_is_set;
    rs.aborted_arg = &flag;
    const struct td_mono start = td_mono_now();
    ranks_run(&rs, rank_aborted_from_outside, &flag);
    expect_status(rs.status[0], TD_ABORTED, "a peer is gone");
    expect_status(rs.status[2], TD_ABORTED, "a peer is gone");
    assert_true(td_mono_now().ns - start.ns < patience_ns / 2);
    ranks_free_statuses(&rs);
    ranks_finish(&rs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_stay_right_when_pairs_groups_and_all_alternate),
        cmocka_unit_test(test_started_calls_stay_right_when_groups_and_other_calls_alternate),
        cmocka_unit_test(test_both_calls_are_named_at_once_when_two_ranks_disagree),
        cmocka_unit_test(test_partner_is_named_when_it_does_not_come),
        cmocka_unit_test(test_member_is_called_by_its_rank_in_the_whole_when_it_is_missing),
        cmocka_unit_test(test_waits_of_pairs_and_groups_end_when_the_outside_says_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
