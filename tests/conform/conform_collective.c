// Conformance of every collective backend: what a caller may rely on whatever joins the ranks.
// Ranks are threads. Expected values are computed here, rank by rank, in plain scalar code: every
// op on every dtype, worlds 1 to 4, sizes around slices, cache lines and staging chunks. Data is
// inside and outside of the gradient region. The control flags, gathers, broadcasts from every
// rank, and groups that are made and left again are visited, too.

#include "tests/collective_ranks.h"
#include "tests/collective_trace.h"

#include <math.h>

#include "collectives/reduce.h"
#include "lib/base/floats/half.h"

struct backend {
    const struct td_plugin_desc *desc, *inner; // inner: of a decorator
    int32_t max_world;
};
static const struct backend backends[] = {
    {&td_collective_local, NULL, 1},
    {&td_collective_shm, NULL, 4},
    {&td_collective_trace, &td_collective_shm, 2},
    {&td_collective_trace, &td_collective_local, 1},
};

static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 255, 1000, 1025, 32769, 131073};
enum { GRADIENT_BYTES = 1 << 20 };

// Value of element i on rank r. It is small, so that sums are exact in every dtype but fp32 and
// fp64. There it is a fraction, so that the order of the sum shows in the bits.
static double value_of(int32_t rank, int64_t i, enum td_dtype t) {
    if (t == TD_F32) return (double)(float)(1.0 / (double)(3 + rank + i % 97));
    if (t == TD_F64) return 1.0 / (double)(3 + rank + i % 97);
    if (t == TD_BOOL) return (double)((i + rank) % 3 == 0);
    double v = (double)((i * 7 + rank * 5) % 23);
    return t == TD_U8 ? v : v - 11;
}

// What wraps keeps its low bits.
static double wrapped(double v, enum td_dtype t) {
    if (t == TD_U8) return (double)(uint8_t)(int64_t)v;
    return t == TD_I32 ? (double)(int32_t)(uint32_t)(int64_t)v : v;
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
        ((int32_t *)data)[i] = (int32_t)v;
        return;
    case TD_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        return;
    case TD_U8:
    case TD_BOOL:
        ((uint8_t *)data)[i] = (uint8_t)v;
        return;
    case TD_DTYPE_COUNT:
        return;
    }
}

// The rule of collective.h, by the letter.
static double expected(int32_t world, int64_t i, enum td_dtype t, enum td_reduce_op op) {
    double acc = value_of(0, i, t);
    for (int32_t p = 1; p < world; p++) {
        double x = value_of(p, i, t);
        if (op == TD_REDUCE_MAX) acc = fmax(acc, x);
        if (op == TD_REDUCE_MIN) acc = fmin(acc, x);
        if (op == TD_REDUCE_PRODUCT) {
            acc = t == TD_F32 ? (double)((float)acc * (float)x) : wrapped(acc * x, t);
        }
        if (op != TD_REDUCE_SUM && op != TD_REDUCE_MEAN) continue;
        acc = t == TD_F32 ? (double)((float)acc + (float)x) : acc + x;
    }
    if (op != TD_REDUCE_MEAN) return acc;
    if (t == TD_F64) return acc / world;
    if (t == TD_F32 || t == TD_BF16 || t == TD_F16) return (double)((float)acc / (float)world);
    return trunc(acc / world);
}

struct reduce_case {
    int64_t n;
    enum td_dtype dtype;
    enum td_reduce_op op;
    bool in_region;
};

static td_status rank_all_reduce(struct rank_ctx *r, void *arg) {
    const struct reduce_case *k = arg;
    size_t elem = td_dtype_bytes(k->dtype), region_bytes;
    void *region;
    TD_TRY(r->ops->gradients(r->c, &region, &region_bytes));
    bool in_region = k->in_region && region;
    TD_AUTO_FREE void *own = td_calloc((size_t)k->n + 1, elem);
    TD_AUTO_FREE void *want = td_calloc((size_t)k->n + 1, elem);
    if (!own || !want) return td_fail_oom();
    void *data = in_region ? (char *)region + 64 : own;
    for (int64_t i = 0; i < k->n; i++) {
        put(data, i, k->dtype, value_of(r->rank, i, k->dtype));
    }
    for (int64_t i = 0; i < k->n; i++) {
        put(want, i, k->dtype, expected(r->world, i, k->dtype, k->op));
    }
    TD_TRY(r->ops->all_reduce(r->c, data, k->n, k->dtype, k->op));
    RANK_CHECK(memcmp(data, want, (size_t)k->n * elem) == 0);
    return TD_OK;
}

static void all_reduce_all(struct ranks *rs, int64_t n) {
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        for (int op = TD_REDUCE_SUM; op <= TD_REDUCE_PRODUCT; op++) {
            if (!td_reduce_supports((enum td_dtype)t, (enum td_reduce_op)op)) continue;
            struct reduce_case k = {n, (enum td_dtype)t, (enum td_reduce_op)op, (op + t) % 2 == 0};
            if ((size_t)n * td_dtype_bytes(k.dtype) + 64 > GRADIENT_BYTES) k.in_region = false;
            ranks_run(rs, rank_all_reduce, &k);
            for (int32_t r = 0; r < rs->world; r++) {
                if (!rs->status[r]) continue;
                fail_msg("%s, world %d, %s of %lld %s: %s", rs->backend->name, rs->world,
                         td_reduce_op_name(k.op), (long long)n, td_dtype_name(k.dtype),
                         td_status_message(rs->status[r]));
            }
        }
    }
}

static void begin(struct ranks *rs, const struct backend *b, int32_t world) {
    if (b->inner) {
        ranks_init_wrapped(rs, b->desc, b->inner, trace_knobs, world, GRADIENT_BYTES);
    } else {
        ranks_init(rs, b->desc, world, GRADIENT_BYTES);
    }
}

static void for_each_world(void (*check)(struct ranks *rs)) {
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        for (int32_t world = 1; world <= backends[b].max_world; world++) {
            struct ranks rs;
            begin(&rs, &backends[b], world);
            check(&rs);
            ranks_finish(&rs);
        }
        print_message("# over collective %s\n", backends[b].desc->name);
    }
}

static void check_all_reduce(struct ranks *rs) {
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        all_reduce_all(rs, sizes[s]);
    }
}
// Contract 4: all_reduce of every op and type, in place
static void test_all_reduce_is_exact_when_any_dtype_op_world_and_size(void **state) {
    (void)state;
    for_each_world(check_all_reduce);
}

// ---- buckets -----------------------------------------------------------------------------------
struct bucket_case {
    int64_t n;
    bool has_control;
    size_t gap;    // bytes between the elements and the control flags
    size_t offset; // bytes from the start of the region; SIZE_MAX: memory of the rank's own
    enum td_dtype dtype;
};

static td_status rank_bucket(struct rank_ctx *r, void *arg) {
    const struct bucket_case *k = arg;
    void *region;
    size_t region_bytes;
    TD_TRY(r->ops->gradients(r->c, &region, &region_bytes));
    const bool in_region = region && k->offset != SIZE_MAX;
    struct td_bucket b = {.struct_bytes = sizeof b,
                          .n_buckets = 1,
                          .dtype = k->dtype,
                          .offset = in_region ? k->offset : 0,
                          .n = k->n,
                          .has_control = k->has_control};
    b.control_offset = (size_t)k->n * td_dtype_bytes(k->dtype) + k->gap;
    const size_t all = td_bucket_bytes(&b);
    TD_AUTO_FREE char *own = td_calloc(all + 1, 1);
    TD_AUTO_FREE char *want = td_calloc(all + 1, 1);
    if (!own || !want) return td_fail_oom();
    b.buffer = in_region ? td_buffer_of_host(region, region_bytes) : td_buffer_of_host(own, all);
    char *data = td_bucket_host(&b);
    memset(data, 0, all);
    for (int64_t i = 0; i < k->n; i++) {
        put(data, i, k->dtype, value_of(r->rank, i, k->dtype));
        put(want, i, k->dtype, expected(r->world, i, k->dtype, TD_REDUCE_MEAN));
    }
    for (int64_t i = 0; k->has_control && i < TD_CONTROL_FLAGS; i++) {
        put(data + b.control_offset, i, TD_F32, value_of(r->rank, i, TD_F32));
        put(want + b.control_offset, i, TD_F32, expected(r->world, i, TD_F32, TD_REDUCE_SUM));
    }
    TD_TRY(r->ops->all_reduce_bucket(r->c, &b));
    if (r->ops->wait_buckets) TD_TRY(r->ops->wait_buckets(r->c));
    RANK_CHECK(memcmp(data, want, all) == 0);
    return TD_OK;
}

static void check_bucket(struct ranks *rs) {
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        for (int flags = 0; flags < 3; flags++) {
            const bool has = flags > 0;
            const size_t gap = flags > 1 ? 24 : 0;
            int64_t even = sizes[s] / 2 * 2; // or flags after 16 bits would be off their place
            struct bucket_case k[] = {
                {sizes[s], has, gap, 0, TD_F32},        {sizes[s], has, gap, 192, TD_F32},
                {sizes[s], has, gap, SIZE_MAX, TD_F32}, {even, has, gap, 64, TD_BF16},
                {even, has, gap, SIZE_MAX, TD_BF16},    {even, has, gap, 64, TD_F16},
                {sizes[s] / 2, has, gap, 64, TD_F64}};
            for (size_t i = 0; i < TD_COUNTOF(k); i++) {
                ranks_run(rs, rank_bucket, &k[i]);
                ranks_ok(rs);
            }
        }
    }
}
static void test_bucket_is_mean_and_flags_are_sum_when_reduced_together(void **state) {
    (void)state;
    for_each_world(check_bucket);
}

// Three buckets, the next one written while the one before is on its way, as a backward pass does.
static td_status rank_buckets(struct rank_ctx *r, void *arg) {
    enum { N_BUCKETS = 3, N = 1000 };
    const bool *ends_by_wait = arg;
    void *region;
    size_t region_bytes;
    float own[N_BUCKETS * (N + TD_CONTROL_FLAGS)];
    TD_TRY(r->ops->gradients(r->c, &region, &region_bytes));
    float *x = region ? region : own;
    for (int k = 0; k < N_BUCKETS; k++) {
        float *part = x + (size_t)k * (N - 1);
        const int64_t n = N - 1 - k;
        for (int64_t i = 0; i < n + TD_CONTROL_FLAGS; i++) {
            part[i] = (float)(r->rank * (k + 1) + i % 7);
        }
        const struct td_bucket b = ranks_bucket(part, n, TD_F32, k == N_BUCKETS - 1);
        TD_TRY(r->ops->all_reduce_bucket(r->c, &b));
    }
    if (!*ends_by_wait) { // any other call does, too
        TD_TRY(r->ops->barrier(r->c, "after buckets"));
    } else if (r->ops->wait_buckets) {
        TD_TRY(r->ops->wait_buckets(r->c));
    }
    for (int k = 0; k < N_BUCKETS; k++) {
        const float *part = x + (size_t)k * (N - 1);
        const int64_t n = N - 1 - k, flags = k == N_BUCKETS - 1 ? TD_CONTROL_FLAGS : 0;
        for (int64_t i = 0; i < n + flags; i++) {
            const float sum =
                (float)(r->world * (r->world - 1) / 2 * (k + 1)) + (float)(r->world * (i % 7));
            const float want = i < n ? sum / (float)r->world : sum;
            RANK_CHECK(part[i] == want);
        }
    }
    return TD_OK;
}

static void check_buckets(struct ranks *rs) {
    for (int i = 0; i < 8; i++) {
        bool ends_by_wait = i % 2;
        ranks_run(rs, rank_buckets, &ends_by_wait);
        ranks_ok(rs);
    }
}
// Contract 9: buckets that are on their way together are each the mean of their own elements
static void test_buckets_are_reduced_when_several_are_on_their_way(void **state) {
    (void)state;
    for_each_world(check_buckets);
}

static void test_facts_name_memory_that_buckets_may_be_in(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(backends); i++) {
        const struct td_collective_ops *ops = backends[i].desc->ops;
        if (backends[i].inner) continue; // a decorator takes what the one in it takes
        struct td_collective_facts facts = {.struct_bytes = sizeof facts};
        assert_null(ops->facts(&facts));
        assert_true(facts.on_host && !facts.on_device && !facts.recordable);
    }
}

static td_status rank_mean_of_special_values(struct rank_ctx *r, void *arg) {
    (void)arg;
    float v[4] = {r->rank ? 1.0f : NAN, r->rank ? INFINITY : 1.0f, -0.0f, 0x1p-149f};
    float m[2] = {r->rank ? 1.0f : NAN, r->rank ? NAN : 1.0f};
    TD_TRY(r->ops->all_reduce(r->c, v, 4, TD_F32, TD_REDUCE_SUM));
    TD_TRY(r->ops->all_reduce(r->c, m, 2, TD_F32, TD_REDUCE_MAX));
    RANK_CHECK(isnan(v[0]) && signbit(v[2]) && v[3] == (float)r->world * 0x1p-149f);
    RANK_CHECK(isnan(m[0]) && (r->world == 1 || (isinf(v[1]) && isnan(m[1]))));
    int32_t odd = 0x10001 - r->rank, product = 1;
    int64_t wide = INT64_C(0x123456789abcdef) - r->rank, wide_product = 1;
    float small = 0x1p-80f, all_small = 1; // a product underflows where a sum would not
    for (int32_t p = 0; p < r->world; p++) {
        product = (int32_t)((uint32_t)product * (uint32_t)(0x10001 - p));
        wide_product =
            (int64_t)((uint64_t)wide_product * (UINT64_C(0x123456789abcdef) - (uint64_t)p));
        all_small *= small;
    }
    TD_TRY(r->ops->all_reduce(r->c, &odd, 1, TD_I32, TD_REDUCE_PRODUCT));
    TD_TRY(r->ops->all_reduce(r->c, &wide, 1, TD_I64, TD_REDUCE_PRODUCT));
    TD_TRY(r->ops->all_reduce(r->c, &small, 1, TD_F32, TD_REDUCE_PRODUCT));
    RANK_CHECK(odd == product && wide == wide_product && small == all_small);
    int32_t big = INT32_MAX, mean = INT32_MAX - r->rank, minus = -1 - r->rank;
    TD_TRY(r->ops->all_reduce(r->c, &big, 1, TD_I32, TD_REDUCE_SUM));
    TD_TRY(r->ops->all_reduce(r->c, &mean, 1, TD_I32, TD_REDUCE_MEAN));
    TD_TRY(r->ops->all_reduce(r->c, &minus, 1, TD_I32, TD_REDUCE_MEAN));
    RANK_CHECK((uint32_t)big == (uint32_t)r->world * (uint32_t)INT32_MAX);
    RANK_CHECK(mean == INT32_MAX - r->world / 2 && minus == -(r->world + 1) / 2);
    return TD_OK;
}
static void check_special(struct ranks *rs) {
    ranks_run(rs, rank_mean_of_special_values, NULL);
    ranks_ok(rs);
}
static void test_all_reduce_keeps_nan_inf_zero_and_wraps_when_values_are_extreme(void **state) {
    (void)state;
    for_each_world(check_special);
}

// ---- gather, broadcast, barrier ----------------------------------------------------------------
static td_status rank_gather(struct rank_ctx *r, void *arg) {
    size_t bytes = *(const size_t *)arg;
    TD_AUTO_FREE uint8_t *in = td_calloc(bytes + 1, 1);
    TD_AUTO_FREE uint8_t *out = td_calloc(bytes * (size_t)r->world + 1, 1);
    if (!in || !out) return td_fail_oom();
    for (size_t i = 0; i < bytes; i++) {
        in[i] = (uint8_t)(i * 31 + (size_t)r->rank * 7);
    }
    TD_TRY(r->ops->all_gather(r->c, in, bytes, out));
    for (size_t p = 0; p < (size_t)r->world; p++) {
        for (size_t i = 0; i < bytes; i++) {
            RANK_CHECK(out[p * bytes + i] == (uint8_t)(i * 31 + p * 7));
        }
    }
    return TD_OK;
}

static td_status rank_broadcast(struct rank_ctx *r, void *arg) {
    size_t bytes = *(const size_t *)arg;
    TD_AUTO_FREE uint8_t *data = td_calloc(bytes + 1, 1);
    if (!data) return td_fail_oom();
    for (int32_t src = 0; src < r->world; src++) {
        for (size_t i = 0; i < bytes; i++) {
            data[i] = (uint8_t)(i + (size_t)r->rank * 13);
        }
        TD_TRY(r->ops->broadcast(r->c, data, bytes, src));
        for (size_t i = 0; i < bytes; i++) {
            RANK_CHECK(data[i] == (uint8_t)(i + (size_t)src * 13));
        }
        TD_TRY(r->ops->barrier(r->c, "after broadcast"));
    }
    return TD_OK;
}

static void check_bytes(struct ranks *rs) {
    static const size_t bytes[] = {0, 1, 7, 64, 4097, 131072, 131073, 300001};
    rank_fn *const calls[] = {rank_gather, rank_broadcast};
    for (size_t c = 0; c < TD_COUNTOF(calls); c++) {
        for (size_t i = 0; i < TD_COUNTOF(bytes); i++) {
            size_t n = bytes[i];
            ranks_run(rs, calls[c], &n);
            ranks_ok(rs);
        }
    }
}
static void test_gather_and_broadcast_carry_every_byte_when_sizes_differ(void **state) {
    (void)state;
    for_each_world(check_bytes);
}

// A scalar comes back as one number, its gather is one number per rank, also for world 1.
static td_status rank_scalar(struct rank_ctx *r, void *arg) {
    (void)arg;
    double loss = r->rank + 1, all[RANKS_MAX] = {0};
    TD_TRY(r->ops->all_gather(r->c, &loss, sizeof loss, all));
    for (int32_t p = 0; p < r->world; p++) {
        RANK_CHECK(all[p] == p + 1);
    }
    TD_TRY(r->ops->all_reduce(r->c, &loss, 1, TD_F64, TD_REDUCE_SUM));
    RANK_CHECK(loss == r->world * (r->world + 1) / 2.0);
    return TD_OK;
}
static void check_scalar(struct ranks *rs) {
    ranks_run(rs, rank_scalar, NULL);
    ranks_ok(rs);
}
static void test_scalar_stays_scalar_when_reduced_and_stacks_when_gathered(void **state) {
    (void)state;
    for_each_world(check_scalar);
}

// Alone, every call gives what it was given.
static td_status rank_identity(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        const enum td_dtype dtype = (enum td_dtype)t;
        double data[8] = {0}, kept[8], out[8] = {0};
        for (int64_t i = 0; i < 8; i++) {
            put(data, i, dtype, value_of(3, i, dtype));
        }
        memcpy(kept, data, sizeof data);
        for (int op = TD_REDUCE_SUM; op <= TD_REDUCE_PRODUCT; op++) {
            if (!td_reduce_supports(dtype, (enum td_reduce_op)op)) continue;
            TD_TRY(r->ops->all_reduce(r->c, data, 8, dtype, (enum td_reduce_op)op));
        }
        TD_TRY(r->ops->broadcast(r->c, data, sizeof data, 0));
        TD_TRY(r->ops->all_gather(r->c, data, sizeof data, out));
        RANK_CHECK(memcmp(data, kept, sizeof data) == 0 && memcmp(out, kept, sizeof out) == 0);
    }
    return TD_OK;
}
// Contract 7: collectives of a single device are the identity
static void test_calls_are_the_identity_when_there_is_one_rank(void **state) {
    (void)state;
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        struct ranks rs;
        begin(&rs, &backends[b], 1);
        ranks_run(&rs, rank_identity, NULL);
        ranks_ok(&rs);
        ranks_finish(&rs);
        print_message("# over collective %s\n", backends[b].desc->name);
    }
}

// ---- groups and bad calls ----------------------------------------------------------------------
static void check_again(struct ranks *rs) {
    for (int i = 0; i < 20; i++) {
        check_scalar(rs);
    }
}
static void test_group_works_when_left_and_joined_again(void **state) {
    (void)state;
    for_each_world(check_again);
}

// Each is refused, and the error names the bucket.
static td_status rank_bad_buckets(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x[1 + TD_CONTROL_FLAGS] = {0};
    struct td_bucket bad[] = {
        ranks_bucket(x, 1, TD_F32, false), ranks_bucket(x, 1, TD_F32, true),
        ranks_bucket(x, 1, TD_BF16, true), ranks_bucket(x, 1, TD_BOOL, false),
        ranks_bucket(x, 1, TD_F32, true),  ranks_bucket(x, 1, TD_F32, false),
        ranks_bucket(x, 1, TD_F32, false), ranks_bucket(x, 1, TD_F32, true),
    };
    bad[0].n = -1;
    bad[1].n = INT64_MAX;
    bad[4].buffer.bytes--;
    bad[5].offset = SIZE_MAX;
    bad[6].buffer.space = TD_SPACE_DEVICE;
    bad[7].control_offset = 0;
    td_status failed = TD_OK;
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        bad[i].index = 7;
        td_status s = r->ops->all_reduce_bucket(r->c, &bad[i]);
        bool is_named = s && strstr(td_status_message(s), "bucket 7");
        if (!failed && (td_status_code(s) != TD_INVALID_ARGUMENT || !is_named)) {
            failed = td_fail(TD_INTERNAL, "bad bucket %zu gave '%s'", i, td_status_message(s));
        }
        td_status_free(s);
    }
    return failed ? failed : r->ops->barrier(r->c, "still well");
}

static td_status rank_bad_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x = 1;
    td_status bad[] = {
        r->ops->all_reduce(r->c, &x, 1, TD_BOOL, TD_REDUCE_SUM),
        r->ops->all_reduce(r->c, &x, 1, TD_BOOL, TD_REDUCE_PRODUCT),
        r->ops->all_reduce(r->c, &x, 1, TD_DTYPE_COUNT, TD_REDUCE_SUM),
        r->ops->all_reduce(r->c, &x, 1, TD_F32, (enum td_reduce_op)9),
        r->ops->all_reduce(r->c, &x, -1, TD_F32, TD_REDUCE_SUM),
        r->ops->all_reduce(r->c, NULL, 1, TD_F32, TD_REDUCE_SUM),
        r->ops->all_gather(r->c, &x, 4, NULL),
        r->ops->broadcast(r->c, &x, 4, r->world),
        r->ops->broadcast(r->c, &x, 4, -1),
    };
    td_status failed = TD_OK;
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        if (td_status_code(bad[i]) != TD_INVALID_ARGUMENT && !failed) {
            failed = td_fail(TD_INTERNAL, "bad call %zu gave '%s'", i, td_status_message(bad[i]));
        }
        td_status_free(bad[i]);
    }
    return failed ? failed : r->ops->barrier(r->c, "still well");
}
static void check_bad_calls(struct ranks *rs) {
    ranks_run(rs, rank_bad_calls, NULL);
    ranks_ok(rs);
    ranks_run(rs, rank_bad_buckets, NULL);
    ranks_ok(rs);
}
static void test_bad_call_is_refused_when_arguments_make_no_sense(void **state) {
    (void)state;
    for_each_world(check_bad_calls);
}

static td_status rank_abort(struct rank_ctx *r, void *arg) {
    (void)arg;
    if (r->rank == 0) r->ops->abort(r->c);
    td_status s = r->ops->barrier(r->c, "never");
    enum td_code code = td_status_code(s);
    bool named = td_status_class(s) == TD_CLASS_COLLECTIVE;
    td_status_free(s);
    RANK_CHECK(code == TD_ABORTED && named);
    return TD_OK;
}
static void check_abort(struct ranks *rs) {
    ranks_run(rs, rank_abort, NULL);
    for (int32_t r = 0; r < rs->world; r++) { // a late rank may already be refused at the door
        if (td_status_code(rs->status[r]) != TD_ABORTED && rs->status[r]) ranks_ok(rs);
    }
    ranks_free_statuses(rs);
}
static void test_abort_frees_everyone_when_one_rank_calls_it(void **state) {
    (void)state;
    for_each_world(check_abort);
}

static void test_world_of_one_is_refused_when_local_is_asked_for_more(void **state) {
    (void)state;
    const struct td_collective_ops *ops = td_collective_local.ops;
    struct td_collective *c = NULL;
    struct td_collective_config config = {
        .struct_bytes = sizeof config, .world_size = 2, .deadline.timeout_ns = TD_NS_PER_S};
    td_status s = ops->join(&config, &c);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    td_status_free(s);
    assert_null(c);
    ops->leave(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce_is_exact_when_any_dtype_op_world_and_size),
        cmocka_unit_test(test_bucket_is_mean_and_flags_are_sum_when_reduced_together),
        cmocka_unit_test(test_buckets_are_reduced_when_several_are_on_their_way),
        cmocka_unit_test(test_facts_name_memory_that_buckets_may_be_in),
        cmocka_unit_test(test_all_reduce_keeps_nan_inf_zero_and_wraps_when_values_are_extreme),
        cmocka_unit_test(test_gather_and_broadcast_carry_every_byte_when_sizes_differ),
        cmocka_unit_test(test_scalar_stays_scalar_when_reduced_and_stacks_when_gathered),
        cmocka_unit_test(test_calls_are_the_identity_when_there_is_one_rank),
        cmocka_unit_test(test_group_works_when_left_and_joined_again),
        cmocka_unit_test(test_bad_call_is_refused_when_arguments_make_no_sense),
        cmocka_unit_test(test_abort_frees_everyone_when_one_rank_calls_it),
        cmocka_unit_test(test_world_of_one_is_refused_when_local_is_asked_for_more),
    };
    return cmocka_run_group_tests(tests, make_trace_knobs, drop_trace_knobs);
}
