// How every accelerator reduces buckets, when a collective is done only at the await of each. Until
// then the memory of a bucket holds NaN. So whatever reads gradients or control flags too early
// shows in the bits, which are to be those of a collective that is done at once. Segments are run
// fused and one by one.

#include "tests/conform/op_bench.h"

enum { BATCH = 6, STEPS = 2, MOST_BYTES = 4096, MOST_BUCKETS = 16 };
static struct rig_mlp net = {.dtype = TD_F32, .n_widths = 4, .width = {7, 9, 5, 4}};

enum way { AT_ONCE, FUSED, ONE_BY_ONE, NEVER_REDUCED };

// What a collective that waits has been given.
static struct {
    char bytes[MOST_BUCKETS][MOST_BYTES];
    bool has[MOST_BUCKETS]; // and was not awaited
    int n;                  // of those
} late;

static td_status reduce_never(void *arg, const struct td_sum *sum) {
    (void)arg, (void)sum;
    return TD_OK;
}

// Where a bucket is; the last one ends with the control flags.
static size_t place_of(const struct rig *r, uint32_t bucket, size_t *out_bytes) {
    size_t offset;
    enum td_dtype dtype;
    td_state_bucket(r->state, bucket, &offset, out_bytes, &dtype);
    if (bucket + 1 == td_state_n_buckets(r->state)) *out_bytes += TD_CONTROL_FLAGS * sizeof(float);
    assert_true(*out_bytes <= MOST_BYTES);
    return offset;
}

// As if another rank had nothing but zeros; a sum of flags of two ranks that raised the same.
static td_status reduce(struct rig *r, uint32_t bucket, float *data, size_t bytes) {
    const bool last = bucket + 1 == td_state_n_buckets(r->state);
    const size_t n = bytes / sizeof(float), n_gradients = last ? n - TD_CONTROL_FLAGS : n;
    for (size_t i = 0; i < n; i++) {
        data[i] *= i < n_gradients ? 0.5f : 2;
    }
    size_t offset = place_of(r, bucket, &bytes);
    const struct td_buffer here = td_buffer_of_host(data, bytes);
    return r->ops->copy(r->accel, r->region[TD_ROLE_GRAD], offset, here, 0, bytes);
}

static td_status read_bucket(struct rig *r, uint32_t bucket, char *out, size_t *out_bytes) {
    const size_t offset = place_of(r, bucket, out_bytes);
    const struct td_buffer here = td_buffer_of_host(out, *out_bytes);
    return r->ops->copy(r->accel, here, 0, r->region[TD_ROLE_GRAD], offset, *out_bytes);
}

static td_status reduce_at_once(void *arg, const struct td_sum *sum) {
    float data[MOST_BYTES / sizeof(float)];
    size_t bytes;
    TD_TRY(read_bucket(arg, sum->index, (char *)data, &bytes));
    return reduce(arg, sum->index, data, bytes);
}

static td_status reduce_later(void *arg, const struct td_sum *sum) {
    struct rig *r = arg;
    const uint32_t bucket = sum->index;
    float poison[MOST_BYTES / sizeof(float)];
    size_t bytes;
    assert_true(bucket < MOST_BUCKETS && !late.has[bucket]);
    assert_int_equal(late.n, bucket); // in their order, and none is awaited before all have begun
    late.has[bucket] = true;
    late.n++;
    TD_TRY(read_bucket(r, bucket, late.bytes[bucket], &bytes));
    for (size_t i = 0; i < TD_COUNTOF(poison); i++) {
        poison[i] = NAN;
    }
    const struct td_buffer here = td_buffer_of_host(poison, bytes);
    return r->ops->copy(r->accel, r->region[TD_ROLE_GRAD], place_of(r, bucket, &bytes), here, 0,
                        bytes);
}

// That one alone.
static td_status await_late(void *arg, const struct td_sum *sum) {
    const uint32_t bucket = sum->index;
    size_t bytes;
    float data[MOST_BYTES / sizeof(float)];
    assert_true(sum->kind == TD_SUM_ALL_REDUCE && sum->op == TD_REDUCE_MEAN);
    if (!late.has[bucket]) return TD_OK; // it was reduced at once, or never
    memcpy(data, late.bytes[bucket], sizeof data);
    place_of(arg, bucket, &bytes);
    late.has[bucket] = false;
    late.n--;
    return reduce(arg, bucket, data, bytes);
}

static td_status in_buckets(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg;
    TD_TRY(td_rewrite_assign_buckets(g, 64, 128));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

// The nodes of finish and apply read sums.
static void expect_sums(void *arg, td_node n) {
    const struct td_program *p = arg;
    if (td_graph_node(p->graph, n)->segment >= TD_SEG_FINISH) assert_int_equal(late.n, 0);
}

static void run_step(struct rig *r, int program, enum way way, const void *const *in) {
    for (int s = 0; s < TD_SEG_COUNT; s++) {
        if (way == ONE_BY_ONE) rig_run(r, program, 1u << s, in);
        assert_int_equal(late.n, 0);
    }
    if (way != ONE_BY_ONE) rig_run(r, program, TD_SEGS_ALL, in);
    assert_int_equal(late.n, 0);
}

// out: parameters, optimizer state, gradients and the flags, after a few steps.
static void train(struct subject *s, enum way way, struct result *out) {
    static td_status (*const calls[])(void *, const struct td_sum *) = {
        [AT_ONCE] = reduce_at_once,
        [FUSED] = reduce_later,
        [ONE_BY_ONE] = reduce_later,
        [NEVER_REDUCED] = reduce_never,
    };
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
        .clip_norm = 0.05};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, BATCH, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &net,
                                   .strategy = in_buckets,
                                   .optimizer = &opt};
    struct rig r;
    rig_open_on(&r, s->ops, bench_threads);
    r.all_reduce = calls[way];
    r.await = await_late;
    const int p = rig_add(&r, &o);
    rig_place(&r);
    assert_true(td_state_n_buckets(r.state) >= 3);
    if (s->ops == td_accelerator_reference.ops) {
        td_reference_trace(r.program[p].exe, expect_sums, &r.program[p].compiled->program);
    }
    for (int step = 1; step <= STEPS; step++) {
        float x[BATCH * 7];
        int32_t y[BATCH];
        const void *in[] = {x, y};
        rig_batch(&net, step * BATCH, BATCH, x, y);
        r.scalars[TD_SCALAR_STEP] = step;
        rig_raise(&r, step);
        run_step(&r, p, way, in);
        if (way != NEVER_REDUCED) rig_expect_agreed(&r, step);
    }
    assert_int_equal(r.n_awaited, STEPS * (int)td_state_n_buckets(r.state));
    out->n = 0;
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *t = td_state_at(r.state, i);
        append(out, t->dtype, rig_state(&r, i), td_shape_elems(&t->shape));
    }
    append(out, TD_F64, r.program[p].outputs,
           (int64_t)td_graph_n_outputs(r.program[p].compiled->graph));
    rig_close(&r);
}

static void cases_late_sums(struct subject *s) {
    static struct result want, got;
    train(s, AT_ONCE, &want);
    for (enum way way = FUSED; way <= NEVER_REDUCED; way++) {
        train(s, way, &got);
        assert_int_equal(got.n, want.n);
        const bool same = memcmp(got.x, want.x, want.n * sizeof *want.x) == 0;
        assert_true(same == (way != NEVER_REDUCED));
        s->n_cases++;
    }
}

static const struct suite suites[] = {{"late_sums", cases_late_sums}};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_buckets", suites, TD_COUNTOF(suites));
}
