// Ranks of several nodes: every call to the bit, in the order of ranks inside nodes and then nodes.
// Without libgloo the plugin is not built, and this test is skipped.

#include "tests/unit/collectives/nodes_rig.h"

#include <math.h>
#include <pthread.h>

#include "collectives/reduce.h"
#include "lib/base/floats/half.h"

static const int32_t two_by_two[] = {2, 2}, three[] = {1, 1, 1}, two[] = {1, 1}, uneven[] = {2, 1};
static const struct {
    int32_t n_nodes;
    const int32_t *counts;
} layouts[] = {{2, two}, {2, two_by_two}, {3, three}, {2, uneven}};

static void for_each_layout(node_rank_fn *fn) {
    for (size_t i = 0; i < TD_COUNTOF(layouts); i++) {
        struct nodes n;
        nodes_init(&n, layouts[i].n_nodes, layouts[i].counts);
        nodes_run(&n, fn, NULL);
        nodes_finish(&n);
    }
}

// ---- sums ---------------------------------------------------------------------------------------
static double value_of(int32_t rank, int64_t i, enum td_dtype t) {
    if (t == TD_F32) return (double)(float)(1.0 / (double)(3 + rank + i % 97));
    if (t == TD_F64) return 1.0 / (double)(3 + rank + i % 97);
    if (t == TD_BOOL) return (double)((i + rank) % 3 == 0);
    // Sums of two ranks lie between two of these: 1, and halves of its distance to the next.
    if (t == TD_BF16) return i % 5 == rank ? 1.0 : (double)((i + rank) % 3) * 0x1p-8;
    if (t == TD_F16) return i % 5 == rank ? 1.0 : (double)((i + rank) % 3) * 0x1p-11;
    double v = (double)((i * 7 + rank * 5) % 23);
    return t == TD_U8 ? v : v - 11;
}

static void put(void *data, int64_t i, enum td_dtype t, double v) {
    switch (t) {
    case TD_F32:
        ((float *)data)[i] = (float)v;
        return;
    case TD_F64:
        ((double *)data)[i] = v;
        return;
    case TD_BF16:
        ((uint16_t *)data)[i] = td_bf16_of_f32((float)v);
        return;
    case TD_F16:
        ((uint16_t *)data)[i] = td_f16_of_f32((float)v);
        return;
    case TD_I32:
        ((int32_t *)data)[i] = (int32_t)(uint32_t)(int64_t)v;
        return;
    case TD_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        return;
    case TD_U8:
    case TD_BOOL:
        ((uint8_t *)data)[i] = (uint8_t)(int64_t)v;
        return;
    case TD_DTYPE_COUNT:
        return;
    }
}

static double two_of(double a, double b, enum td_dtype t, enum td_reduce_op op) {
    const bool is_float = t == TD_F32 || t == TD_BF16 || t == TD_F16; // their sums are of fp32
    if (op == TD_REDUCE_MAX) return fmax(a, b);
    if (op == TD_REDUCE_MIN) return fmin(a, b);
    if (op == TD_REDUCE_PRODUCT) {
        if (t == TD_I32) return (double)(int32_t)(uint32_t)(int64_t)(a * b);
        if (t == TD_U8) return (double)(uint8_t)(int64_t)(a * b);
        return is_float ? (double)((float)a * (float)b) : a * b;
    }
    return is_float ? (double)((float)a + (float)b) : a + b;
}

// The rule of hierarchy.h, by the letter: each node, then the nodes, then one division, and only
// then (in put) what a 16-bit float loses.
static double expected(const struct nodes *n, int64_t i, enum td_dtype t, enum td_reduce_op op) {
    double all = 0;
    for (int32_t p = 0, rank = 0; p < n->n_nodes; p++) {
        double part = value_of(rank++, i, t);
        for (int32_t l = 1; l < n->count[p]; l++) {
            part = two_of(part, value_of(rank++, i, t), t, op);
        }
        all = p ? two_of(all, part, t, op) : part;
    }
    if (op != TD_REDUCE_MEAN) return all;
    if (t == TD_F64) return all / n->world;
    if (t == TD_F32 || t == TD_BF16 || t == TD_F16) return (double)((float)all / (float)n->world);
    return trunc(all / n->world);
}

static td_status sum_one(struct node_rank *r, int64_t n, enum td_dtype t, enum td_reduce_op op) {
    const size_t elem = td_dtype_bytes(t);
    TD_AUTO_FREE char *data = td_calloc((size_t)n + 1, elem);
    TD_AUTO_FREE char *want = td_calloc((size_t)n + 1, elem);
    TD_AUTO_FREE char *kept = td_calloc((size_t)n + 1, elem);
    if (!data || !want || !kept) return td_fail_oom();
    for (int64_t i = 0; i < n; i++) {
        put(data, i, t, value_of(r->rank, i, t));
        put(want, i, t, expected(r->nodes, i, t, op));
    }
    memcpy(kept, data, (size_t)n * elem);
    const int32_t dst = (int32_t)(n % r->world);
    TD_TRY(r->ops->reduce(r->c, data, n, t, op, dst));
    NODE_CHECK(memcmp(data, r->rank == dst ? want : kept, (size_t)n * elem) == 0);
    memcpy(data, kept, (size_t)n * elem);
    TD_TRY(r->ops->all_reduce(r->c, data, n, t, op));
    if (memcmp(data, want, (size_t)n * elem) != 0) {
        return td_fail(TD_INTERNAL, "%s of %lld %s", td_reduce_op_name(op), (long long)n,
                       td_dtype_name(t));
    }
    const int64_t each = n / r->world;
    char *own = data + (size_t)n * elem - (size_t)each * elem; // any memory of that size
    TD_TRY(r->ops->reduce_scatter(r->c, kept, own, each, t, op));
    const size_t at = (size_t)(each * r->rank) * elem;
    NODE_CHECK(memcmp(own, want + at, (size_t)each * elem) == 0);
    return TD_OK;
}

static td_status rank_sums(struct node_rank *r, void *arg) {
    static const int64_t sizes[] = {0, 17, 8200, 280001};
    (void)arg;
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        for (int t = 0; t < TD_DTYPE_COUNT; t++) {
            for (int op = TD_REDUCE_SUM; op <= TD_REDUCE_PRODUCT; op++) {
                if (!td_reduce_supports((enum td_dtype)t, (enum td_reduce_op)op)) continue;
                if (sizes[s] > 10000 && (op != TD_REDUCE_MEAN || t > TD_I32)) continue;
                TD_TRY(sum_one(r, sizes[s], (enum td_dtype)t, (enum td_reduce_op)op));
            }
        }
    }
    return TD_OK;
}
static void test_sums_are_those_of_the_stated_order_when_ranks_are_on_nodes(void **state) {
    (void)state;
    for_each_layout(rank_sums);
}

// ---- buckets ------------------------------------------------------------------------------------
static td_status bucket_one(struct node_rank *r, int64_t n, enum td_dtype t, bool in_region) {
    const size_t elements = (size_t)n * td_dtype_bytes(t);
    const size_t control = td_align_up(elements, sizeof(float));
    const size_t bytes = control + TD_CONTROL_FLAGS * sizeof(float);
    TD_AUTO_FREE char *own = td_calloc(1, bytes);
    TD_AUTO_FREE char *want = td_calloc(1, bytes);
    if (!own || !want) return td_fail_oom();
    void *region;
    size_t region_bytes;
    TD_TRY(r->ops->gradients(r->c, &region, &region_bytes));
    char *x = region && in_region ? region : own;
    for (int64_t i = 0; i < n; i++) {
        put(x, i, t, value_of(r->rank, i, t));
        put(want, i, t, expected(r->nodes, i, t, TD_REDUCE_MEAN));
    }
    for (int64_t i = 0; i < TD_CONTROL_FLAGS; i++) {
        put(x + control, i, TD_F32, value_of(r->rank, i, TD_F32));
        put(want + control, i, TD_F32, expected(r->nodes, i, TD_F32, TD_REDUCE_SUM));
    }
    const struct td_bucket b = {.struct_bytes = sizeof b,
                                .n_buckets = 1,
                                .dtype = t,
                                .buffer = td_buffer_of_host(x, bytes),
                                .n = n,
                                .has_control = true,
                                .control_offset = control};
    TD_TRY(r->ops->all_reduce_bucket(r->c, &b));
    if (r->ops->wait_buckets) TD_TRY(r->ops->wait_buckets(r->c));
    NODE_CHECK(memcmp(x, want, elements) == 0);
    NODE_CHECK(memcmp(x + control, want + control, bytes - control) == 0);
    return TD_OK;
}

static td_status rank_buckets(struct node_rank *r, void *arg) {
    static const enum td_dtype types[] = {TD_F32, TD_BF16};
    (void)arg;
    for (size_t k = 0; k < TD_COUNTOF(types); k++) {
        for (int in_region = 0; in_region < 2; in_region++) {
            TD_TRY(bucket_one(r, 0, types[k], in_region));
            TD_TRY(bucket_one(r, 16, types[k], in_region));
            TD_TRY(bucket_one(r, 7, types[k], in_region));
            TD_TRY(bucket_one(r, 8192, types[k], in_region)); // fp32: too large for a frame
            TD_TRY(bucket_one(r, 600000, types[k], in_region));
        }
    }
    return TD_OK;
}
static void test_bucket_is_mean_and_flags_are_sum_when_ranks_are_on_nodes(void **state) {
    (void)state;
    for_each_layout(rank_buckets);
}

// ---- copies -------------------------------------------------------------------------------------
static uint8_t byte_of(int32_t from, int32_t to, size_t i) {
    return (uint8_t)(i * 31 + (size_t)from * 7 + (size_t)to * 57);
}

// A part of a rank for another; `to` 0: the same for all.
static bool is_part(const uint8_t *data, size_t bytes, int32_t from, int32_t to) {
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != byte_of(from, to, i)) return false;
    }
    return true;
}

static void fill(uint8_t *data, size_t bytes, int32_t from, int32_t to) {
    for (size_t i = 0; i < bytes; i++) {
        data[i] = byte_of(from, to, i);
    }
}

static td_status copy_one(struct node_rank *r, size_t bytes) {
    const size_t world = (size_t)r->world;
    TD_AUTO_FREE uint8_t *in = td_calloc(world, bytes + 1);
    TD_AUTO_FREE uint8_t *out = td_calloc(world, bytes + 1);
    if (!in || !out) return td_fail_oom();
    for (int32_t p = 0; p < r->world; p++) { // each is the source and the destination once
        memset(out, 0, world * bytes);
        fill(in, bytes, r->rank, 0);
        TD_TRY(r->ops->gather(r->c, in, bytes, r->rank == p ? out : NULL, p));
        for (size_t q = 0; r->rank == p && q < world; q++) {
            NODE_CHECK(is_part(out + q * bytes, bytes, (int32_t)q, 0));
        }
        TD_TRY(r->ops->broadcast(r->c, in, bytes, p));
        NODE_CHECK(is_part(in, bytes, p, 0));
        for (size_t q = 0; q < world; q++) {
            fill(in + q * bytes, bytes, r->rank, (int32_t)q);
        }
        TD_TRY(r->ops->scatter(r->c, r->rank == p ? in : NULL, bytes, out, p));
        NODE_CHECK(is_part(out, bytes, p, r->rank));
    }
    TD_TRY(r->ops->all_to_all(r->c, in, bytes, out));
    for (size_t q = 0; q < world; q++) {
        NODE_CHECK(is_part(out + q * bytes, bytes, (int32_t)q, r->rank));
    }
    fill(in, bytes, r->rank, 0);
    TD_TRY(r->ops->all_gather(r->c, in, bytes, out));
    for (size_t q = 0; q < world; q++) {
        NODE_CHECK(is_part(out + q * bytes, bytes, (int32_t)q, 0));
    }
    return r->ops->barrier(r->c, "copies");
}

static td_status uneven_one(struct node_rank *r, size_t most) {
    const size_t world = (size_t)r->world, own = most * (size_t)r->rank / world;
    size_t counts[NODE_RANKS_MAX], at = 0;
    TD_AUTO_FREE uint8_t *in = td_calloc(1, most + 1);
    TD_AUTO_FREE uint8_t *out = td_calloc(world, most + 1);
    if (!in || !out) return td_fail_oom();
    fill(in, own, r->rank, 0);
    TD_TRY(r->ops->all_gather_uneven(r->c, in, own, out, world * most, counts));
    for (int32_t q = 0; q < r->world; q++) {
        NODE_CHECK(counts[q] == most * (size_t)q / world);
        NODE_CHECK(is_part(out + at, counts[q], q, 0));
        at += counts[q];
    }
    if (most < world) return TD_OK; // nobody has anything
    td_status s = r->ops->all_gather_uneven(r->c, in, own, out, r->rank ? world * most : 0, counts);
    const bool names = td_status_code(s) == TD_RESOURCE_EXHAUSTED &&
                       strstr(td_status_message(s), "rank 0 has room for 0 bytes");
    td_status_free(s);
    NODE_CHECK(names);
    return TD_OK;
}

static td_status rank_copies(struct node_rank *r, void *arg) {
    static const size_t sizes[] = {0, 1, 40000, 400001};
    (void)arg;
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        TD_TRY(copy_one(r, sizes[i]));
        TD_TRY(uneven_one(r, sizes[i]));
    }
    return TD_OK;
}
static void test_copies_carry_every_byte_when_ranks_are_on_nodes(void **state) {
    (void)state;
    for_each_layout(rank_copies);
}

// ---- calls that are started ---------------------------------------------------------------------
static td_status rank_starts(struct node_rank *r, void *arg) {
    enum { N = 20000 };
    (void)arg;
    static float x[N], all[NODE_RANKS_MAX * N];
    float mine = (float)r->rank;
    for (int64_t i = 0; i < N; i++) {
        x[i] = (float)value_of(r->rank, i, TD_F32);
    }
    const struct td_collective_start sum = {.struct_bytes = sizeof sum,
                                            .call = TD_ASYNC_ALL_REDUCE,
                                            .out = x,
                                            .n = N,
                                            .dtype = TD_F32,
                                            .op = TD_REDUCE_SUM};
    const struct td_collective_start gather = {.struct_bytes = sizeof gather,
                                               .call = TD_ASYNC_ALL_GATHER,
                                               .in = &mine,
                                               .out = all,
                                               .bytes = sizeof mine};
    struct td_collective_work *a, *b;
    TD_TRY(r->ops->start(r->c, &sum, &a));
    TD_TRY(r->ops->start(r->c, &gather, &b));
    TD_TRY(r->ops->barrier(r->c, "after what was started"));
    TD_TRY(r->ops->wait(r->c, b, 10 * TD_NS_PER_S));
    TD_TRY(r->ops->wait(r->c, a, 10 * TD_NS_PER_S));
    for (int64_t i = 0; i < N; i++) {
        NODE_CHECK(x[i] == (float)expected(r->nodes, i, TD_F32, TD_REDUCE_SUM));
    }
    for (int32_t p = 0; p < r->world; p++) {
        NODE_CHECK(all[p] == (float)p);
    }
    return TD_OK;
}
static void test_started_calls_give_the_same_when_waited_for_in_any_order(void **state) {
    (void)state;
    for_each_layout(rank_starts);
}

// ---- two groups ---------------------------------------------------------------------------------
enum { SUMS = 50, SUMMED = 5 };

struct summing {
    struct node_rank *r;
    struct td_collective *group;
    td_status failed;
};

static td_status sum_often(struct summing *s) {
    for (int i = 0; i < SUMS; i++) {
        float data[SUMMED];
        for (int j = 0; j < SUMMED; j++) {
            data[j] = (float)value_of(s->r->rank, i + j, TD_F32);
        }
        TD_TRY(s->r->ops->all_reduce(s->group, data, SUMMED, TD_F32, TD_REDUCE_SUM));
        for (int j = 0; j < SUMMED; j++) {
            const double all = expected(s->r->nodes, i + j, TD_F32, TD_REDUCE_SUM);
            if (data[j] != (float)all) return td_fail(TD_INTERNAL, "sum %d", i);
        }
    }
    return TD_OK;
}

static void *sum_beside(void *arg) {
    struct summing *s = arg;
    s->failed = sum_often(s);
    return NULL;
}

// The last rank comes to the bucket after its sums. So all others have them while the bucket waits.
static td_status rank_sums_beside(struct node_rank *r, void *arg) {
    struct td_collective_config config = *r->config;
    struct summing s = {.r = r};
    pthread_t thread;
    (void)arg;
    config.group = 1;
    config.shared = r->nodes->second[r->node];
    config.shared_bytes = r->nodes->second_bytes[r->node];
    TD_TRY(r->ops->join(&config, &s.group));
    NODE_CHECK(pthread_create(&thread, NULL, sum_beside, &s) == 0);
    const bool is_last = r->rank == r->world - 1;
    if (is_last) pthread_join(thread, NULL);
    td_status failed = bucket_one(r, 70001, TD_F32, true);
    if (!is_last) pthread_join(thread, NULL);
    r->ops->leave(s.group);
    if (failed) td_status_free(s.failed);
    return failed ? failed : s.failed;
}
static void test_sums_go_on_in_a_second_group_when_the_first_has_a_bucket(void **state) {
    (void)state;
    for_each_layout(rank_sums_beside);
}

int main(void) {
    const struct CMUnitTest none[] = {cmocka_unit_test(test_is_skipped_without_libgloo)};
    if (!hierarchy_ops()) return cmocka_run_group_tests(none, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_the_stated_order_when_ranks_are_on_nodes),
        cmocka_unit_test(test_bucket_is_mean_and_flags_are_sum_when_ranks_are_on_nodes),
        cmocka_unit_test(test_copies_carry_every_byte_when_ranks_are_on_nodes),
        cmocka_unit_test(test_started_calls_give_the_same_when_waited_for_in_any_order),
        cmocka_unit_test(test_sums_go_on_in_a_second_group_when_the_first_has_a_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
