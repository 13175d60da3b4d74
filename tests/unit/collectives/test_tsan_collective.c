// The shared-memory collective under stress and under failure, with ranks as threads: what makes a
// wait end, and what it then says. Runs under the thread sanitizer (`make tsan`); killing ranks is
// test_collective_processes.c, values are conform/conform_collective.c.

#include "tests/collective_ranks.h"

#include <sched.h>
#include <stdatomic.h>

#include "lib/base/clock.h"

static const int64_t soon_ns = 50 * TD_NS_PER_MS;

static void expect_status(td_status s, enum td_code code, const char *part) {
    if (td_status_code(s) != code || !strstr(td_status_message(s), part)) {
        fail_msg("expected %s with '%s', got %s: %s", td_code_name(code), part,
                 td_code_name(td_status_code(s)), td_status_message(s));
    }
    assert_int_equal(td_status_class(s),
                     code == TD_FAILED_PRECONDITION ? TD_CLASS_USER_CODE : TD_CLASS_COLLECTIVE);
    td_status_free(s);
}

// ---- stress ------------------------------------------------------------------------------------
enum { STRESS_CALLS = 3000, STRESS_FLOATS = 3000 };

static uint32_t next_random(uint32_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

static td_status stress_bucket(struct rank_ctx *r, float *grads, uint32_t dice) {
    int64_t n = dice % STRESS_FLOATS;
    for (int64_t i = 0; i < n + 16; i++) {
        grads[i] = (float)(r->rank + i % 5);
    }
    const struct td_bucket bucket = ranks_bucket(grads, n, TD_F32, true);
    TD_TRY(r->ops->all_reduce_bucket(r->c, &bucket));
    TD_TRY(r->ops->wait_buckets(r->c));
    for (int64_t i = 0; i < n + 16; i++) {
        float sum = (float)(r->world * (r->world - 1) / 2 + r->world * (i % 5));
        RANK_CHECK(grads[i] == (i < n ? sum / (float)r->world : sum));
    }
    return TD_OK;
}

static td_status stress_rest(struct rank_ctx *r, uint32_t dice) {
    int64_t one[2] = {r->rank, 1}, all[2 * RANKS_MAX];
    switch (dice % 4) {
    case 0:
        TD_TRY(r->ops->barrier(r->c, "stress"));
        break;
    case 1:
        TD_TRY(r->ops->all_reduce(r->c, one, 2, TD_I64, TD_REDUCE_SUM));
        RANK_CHECK(one[0] == r->world * (r->world - 1) / 2 && one[1] == r->world);
        break;
    case 2:
        TD_TRY(r->ops->all_gather(r->c, one, sizeof one, all));
        for (int32_t p = 0; p < r->world; p++) {
            RANK_CHECK(all[2 * p] == p);
        }
        break;
    default:
        TD_TRY(r->ops->broadcast(r->c, one, sizeof one, (int32_t)(dice / 4) % r->world));
        RANK_CHECK(one[0] == (int32_t)(dice / 4) % r->world);
    }
    return TD_OK;
}

static td_status rank_stress(struct rank_ctx *r, void *arg) {
    (void)arg;
    uint32_t shared = 12345, own = 99 + (uint32_t)r->rank; // the same calls, different delays
    void *grads;
    size_t bytes;
    TD_TRY(r->ops->gradients(r->c, &grads, &bytes));
    for (int i = 0; i < STRESS_CALLS; i++) {
        uint32_t dice = next_random(&shared) >> 4;
        if (next_random(&own) % 64 == 0) sched_yield();
        TD_TRY(dice % 3 == 0 ? stress_bucket(r, grads, dice / 3) : stress_rest(r, dice / 3));
    }
    return TD_OK;
}

static void test_calls_stay_right_when_thousands_follow_each_other(void **state) {
    (void)state;
    for (int32_t world = 1; world <= 5; world++) {
        struct ranks rs;
        ranks_init(&rs, &td_collective_shm, world, (STRESS_FLOATS + 16) * sizeof(float));
        ranks_run(&rs, rank_stress, NULL);
        ranks_ok(&rs);
        ranks_finish(&rs);
    }
}

// ---- deadlines and aborts ----------------------------------------------------------------------
static td_status rank_only_zero_arrives(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x = 1;
    return r->rank == 0 ? r->ops->all_reduce(r->c, &x, 1, TD_F32, TD_REDUCE_SUM) : TD_OK;
}

// Contract 14: the deadline reaches the group
static void test_wait_names_the_missing_ranks_when_the_deadline_passes(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 3, 0);
    rs.timeout_ns = soon_ns;
    ranks_run(&rs, rank_only_zero_arrives, NULL);
    expect_status(rs.status[0], TD_DEADLINE_EXCEEDED,
                  "all_reduce (sum) of 1 f32: ranks 1, 2 of 3 did not arrive within 0.050 s");
    ranks_run(&rs, rank_only_zero_arrives, NULL); // the group's time is over, for everyone
    for (int32_t r = 0; r < 3; r++) {
        expect_status(rs.status[r], TD_ABORTED, "rank 0 gave up");
    }
    ranks_finish(&rs);
    print_message("# over collective shm\n");
}

// Rank 0 comes to the second call, in the whole or in a group, and nobody else does.
static const struct td_collective_deadline later = {2 * 50 * TD_NS_PER_MS, "the later knob"};
static td_status rank_waits_after_another_deadline(struct rank_ctx *r, void *arg) {
    const int32_t all[] = {0, 1};
    const bool in_group = *(const bool *)arg;
    struct td_collective *g;
    TD_TRY(r->ops->group_create(r->c, all, 2, &g));
    TD_TRY(r->ops->barrier(r->c, "both"));
    r->ops->set_deadline(r->c, &later);
    return r->rank ? TD_OK : r->ops->barrier(in_group ? g : r->c, "alone");
}

static void test_wait_names_the_deadline_when_another_holds_since_join(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool in_group = i;
        struct ranks rs;
        ranks_init(&rs, &td_collective_shm, 2, 0);
        rs.setting = "the first knob";
        ranks_run(&rs, rank_waits_after_another_deadline, &in_group);
        expect_status(rs.status[0], TD_DEADLINE_EXCEEDED,
                      "did not arrive within 0.100 s (the later knob); see their logs");
        ranks_finish(&rs);
        ranks_init(&rs, &td_collective_shm, 2, 0);
        rs.timeout_ns = soon_ns;
        rs.setting = "the first knob";
        ranks_run(&rs, rank_only_zero_arrives, NULL);
        expect_status(rs.status[0], TD_DEADLINE_EXCEEDED, "within 0.050 s (the first knob)");
        ranks_finish(&rs);
    }
}

static td_status rank_different_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    char data[8] = {0};
    if (r->rank == 1) return r->ops->broadcast(r->c, data, sizeof data, 0);
    return r->ops->barrier(r->c, "epoch end");
}

static void test_call_fails_with_both_sides_when_ranks_disagree(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 2, 0);
    ranks_run(&rs, rank_different_calls, NULL);
    for (int32_t r = 0; r < 2; r++) {
        if (td_status_code(rs.status[r]) == TD_ABORTED) { // came after the other had given up
            expect_status(rs.status[r], TD_ABORTED, "gave up");
            continue;
        }
        expect_status(rs.status[r], TD_FAILED_PRECONDITION, "broadcast of 8 bytes from rank 0");
    }
    ranks_finish(&rs);
}

static bool flag_is_set(void *arg) {
    return atomic_load((_Atomic bool *)arg);
}

// The last rank stays away and flips the outside flag instead, as a launcher does.
static td_status rank_aborted_from_outside(struct rank_ctx *r, void *arg) {
    if (r->rank < r->world - 1) return r->ops->barrier(r->c, "waits for nobody");
    atomic_store((_Atomic bool *)arg, true);
    return TD_OK;
}

static void test_wait_ends_when_the_outside_says_abort(void **state) {
    (void)state;
    _Atomic bool flag = false;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 4, 0);
    rs.aborted = flag_is_set;
    rs.aborted_arg = &flag;
    struct td_mono start = td_mono_now();
    ranks_run(&rs, rank_aborted_from_outside, &flag);
    for (int32_t r = 0; r < 3; r++) {
        expect_status(rs.status[r], TD_ABORTED, "a peer is gone");
    }
    assert_true(td_mono_now().ns - start.ns < rs.timeout_ns / 2);
    ranks_finish(&rs);
}

static td_status rank_abort_asleep(struct rank_ctx *r, void *arg) {
    (void)arg;
    if (r->rank) return r->ops->barrier(r->c, "waits for rank 0");
    struct td_mono end = td_mono_add(td_mono_now(), 5 * TD_NS_PER_MS);
    while (td_mono_now().ns < end.ns) {
        sched_yield(); // the others fall asleep
    }
    r->ops->abort(r->c);
    return TD_OK;
}

static void test_sleepers_wake_when_a_rank_aborts(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 4, 0);
    ranks_run(&rs, rank_abort_asleep, NULL);
    assert_null(rs.status[0]);
    for (int32_t r = 1; r < 4; r++) {
        expect_status(rs.status[r], TD_ABORTED, "rank 0 gave up");
    }
    ranks_finish(&rs);
}

// ---- joining -----------------------------------------------------------------------------------
static void test_join_is_refused_when_the_mapping_does_not_fit(void **state) {
    (void)state;
    struct ranks rs;
    const struct td_collective_ops *ops = td_collective_shm.ops;
    struct td_collective *a = NULL, *b = NULL;
    ranks_init(&rs, &td_collective_shm, 2, 100);
    struct td_collective_config config = ranks_config(&rs, 0);
    assert_null(ops->join(&config, &a));

    td_status s = ops->join(&config, &b);
    assert_int_equal(td_status_code(s), TD_ALREADY_EXISTS);
    td_status_free(s);
    config.rank = 1;
    config.shared_bytes -= 8192; // regions of another size
    s = ops->join(&config, &b);
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    assert_non_null(strstr(td_status_message(s), "the size of a gradient region"));
    td_status_free(s);
    config.shared_bytes = 8192;
    s = ops->join(&config, &b);
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    assert_non_null(strstr(td_status_message(s), "at least"));
    td_status_free(s);
    config.shared_bytes = rs.shared_bytes;
    config.world_size = 3; // another group's mapping
    s = ops->join(&config, &b);
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    td_status_free(s);
    config.rank = 3;
    s = ops->join(&config, &b);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    td_status_free(s);
    ops->leave(a);
    ranks_finish(&rs);
}

static void test_join_leaves_the_slot_free_when_memory_is_gone(void **state) {
    (void)state;
    struct ranks rs;
    const struct td_collective_ops *ops = td_collective_shm.ops;
    struct td_collective *g = NULL;
    ranks_init(&rs, &td_collective_shm, 1, 0);
    struct td_collective_config config = ranks_config(&rs, 0);
    td_alloc_fail_at(1);
    td_status s = ops->join(&config, &g);
    td_alloc_fail_at(0);
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    td_status_free(s);
    assert_null(ops->join(&config, &g));
    ops->leave(g);
    ranks_finish(&rs);
}

static void test_shared_bytes_are_zero_when_they_cannot_exist(void **state) {
    (void)state;
    const struct td_collective_ops *ops = td_collective_shm.ops;
    assert_int_equal(ops->shared_bytes(0, 1), 0);
    assert_int_equal(ops->shared_bytes(2, SIZE_MAX), 0);
    assert_int_equal(ops->shared_bytes(1000, SIZE_MAX / 100), 0);
    assert_true(ops->shared_bytes(2, 1 << 20) > 2u << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_stay_right_when_thousands_follow_each_other),
        cmocka_unit_test(test_wait_names_the_missing_ranks_when_the_deadline_passes),
        cmocka_unit_test(test_wait_names_the_deadline_when_another_holds_since_join),
        cmocka_unit_test(test_call_fails_with_both_sides_when_ranks_disagree),
        cmocka_unit_test(test_wait_ends_when_the_outside_says_abort),
        cmocka_unit_test(test_sleepers_wake_when_a_rank_aborts),
        cmocka_unit_test(test_join_is_refused_when_the_mapping_does_not_fit),
        cmocka_unit_test(test_join_leaves_the_slot_free_when_memory_is_gone),
        cmocka_unit_test(test_shared_bytes_are_zero_when_they_cannot_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
