#ifndef TRAIND_TESTS_CONFORM_OP_BENCH_H
#define TRAIND_TESTS_CONFORM_OP_BENCH_H

// The bench of the conform_ops programs: one case is an op, its operands' shapes and value ranges
// and its attributes. It is run on an accelerator with operands from state and from the arena
// (where results may be written in place) and with direct gradient writes. Its results are compared
// with the reference. The reference itself is held against its own fp64. An accelerator that
// answers UNIMPLEMENTED fails; one that runs an op on plain loops may, if the op is in `slow`.

#include "tests/unit/graph/graph_rig.h"

#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "engine/graph/state.h"
#include "lib/base/cpu_level.h"
#include "tests/accelerators.h"
#include "traind/random.h"

#ifndef BENCH_FLOATS
#define BENCH_FLOATS (1 << 17)
#endif
enum { MAX_IN = 8, MAX_OUT = TD_MAX_OUT, N_FLOATS = BENCH_FLOATS };
enum { BENCH_RANK = 1 };                           // of operands that are split
#define ANY  ((enum td_dtype)TD_DTYPE_COUNT)       // the float type under test
#define WIDE ((enum td_dtype)(TD_DTYPE_COUNT + 1)) // the same, but f32 beside 16 bits

static inline struct td_shape vec(int64_t n) {
    return rig_shape(1, n, 0, 0);
}

static inline struct td_shape mat(int64_t a, int64_t b) {
    return rig_shape(2, a, b, 0);
}

struct operand {
    enum td_dtype dtype;
    struct td_shape shape;
    enum td_role role; // of float operands, which are state
    double low, high;
};

struct op_case {
    enum td_op op, ended_by; // what takes the token; 0: it gives none
    int32_t pieces;          // into which its operands are split, among as many ranks; 0: whole
    uint32_t n_in;
    struct operand in[MAX_IN];
    struct td_attrs attrs;
    bool store; // into a gradient, through the fuse pass
};

struct subject {
    const struct td_accelerator_ops *ops;
    const char *name;
    uint32_t dtypes;
    double tolerance;
    int n_cases;
};

// Threads of an accelerator; TRAIND_TEST_THREADS says otherwise.
static int bench_threads = 2;
// Held to a CPU level: only what depends on it is run.
static bool bench_held;

// ---- ops without a kernel of their own: they run on the reference's loops -----------------------
enum how_often { NEVER, SOMETIMES, ALWAYS };
static const struct {
    const char *accelerator;
    enum td_op op;
    enum how_often f32, bf16;
} slow[] = {
    {"cpu", TD_OP_COMPARE, ALWAYS, ALWAYS},
    {"cpu", TD_OP_SELECT, ALWAYS, ALWAYS},
    {"cpu", TD_OP_TRANSPOSE, ALWAYS, ALWAYS},
    {"cpu", TD_OP_CONCAT, ALWAYS, ALWAYS},
    {"cpu", TD_OP_SLICE, ALWAYS, ALWAYS},
    {"cpu", TD_OP_PAD, ALWAYS, ALWAYS},
    {"cpu", TD_OP_GATHER, ALWAYS, ALWAYS},
    {"cpu", TD_OP_GATHER_GRAD, ALWAYS, ALWAYS},
    {"cpu", TD_OP_REDUCE_MAX, ALWAYS, ALWAYS},
    {"cpu", TD_OP_CLIP_COEF, NEVER, SOMETIMES}, // of f64 it is not
    {"cpu", TD_OP_SCALE, NEVER, SOMETIMES},
    {"cpu", TD_OP_FILL, NEVER, SOMETIMES},
    {"cpu", TD_OP_REDUCE_SUM, NEVER, SOMETIMES},
    {"cpu", TD_OP_REDUCE_MEAN, NEVER, SOMETIMES},
    {"cpu", TD_OP_SOFTMAX_CE, NEVER, SOMETIMES},
};

static inline enum how_often is_slow(const struct subject *s, enum td_op op, enum td_dtype t) {
    for (size_t i = 0; i < TD_COUNTOF(slow); i++) {
        if (slow[i].op != op || strcmp(slow[i].accelerator, s->name) != 0) continue;
        return t == TD_BF16 ? slow[i].bf16 : slow[i].f32;
    }
    return NEVER;
}

// ---- one case on one accelerator ----------------------------------------------------------------
struct result {
    bool slow;
    size_t n;
    double x[N_FLOATS];
};

static inline bool is_float(const struct operand *o) {
    return o->dtype == ANY || o->dtype == WIDE || o->dtype == TD_F64;
}

static inline double operand_value(const struct operand *o, uint32_t i, int64_t k) {
    char name[24];
    snprintf(name, sizeof name, "operand%u", i);
    double v = o->low + (o->high - o->low) * (rig_random(name, (uint64_t)k) + 1) / 2;
    if (o->dtype == TD_F64) return v;
    return is_float(o) ? (double)(float)v : floor(v);
}

static inline enum td_dtype dtype_of(const struct operand *o, enum td_dtype t) {
    if (o->dtype == WIDE) return td_dtype_bytes(t) < sizeof(float) ? TD_F32 : t;
    return o->dtype == ANY ? t : o->dtype;
}

struct bench { // what one run of a case needs
    struct rig r;
    struct td_graph *g;
    td_value in[MAX_IN];
    uint32_t state[MAX_IN];
    void *host[MAX_IN];
    const void *inputs[MAX_IN];
    uint32_t n_inputs;
    td_value out[MAX_OUT];
};

static inline void add_operand(struct bench *b, const struct op_case *c, uint32_t i,
                               enum td_dtype t, bool copied) {
    const struct operand *o = &c->in[i];
    enum td_dtype dtype = dtype_of(o, t);
    char name[16];
    snprintf(name, sizeof name, "in%u", i);
    b->state[i] = UINT32_MAX;
    if (!is_float(o)) {
        assert_ok(td_graph_input(b->g, name, dtype, &o->shape, &b->in[i]));
        size_t n = (size_t)td_shape_elems(&o->shape);
        b->host[i] = calloc(n + 1, td_dtype_bytes(dtype));
        for (size_t k = 0; k < n; k++) {
            double v = operand_value(o, i, (int64_t)k);
            if (dtype == TD_U8 || dtype == TD_BOOL) {
                ((uint8_t *)b->host[i])[k] = (uint8_t)v;
            } else {
                ((int32_t *)b->host[i])[k] = (int32_t)v;
            }
        }
        b->inputs[b->n_inputs++] = b->host[i];
        return;
    }
    struct td_init init = {0};
    uint32_t owner;
    struct td_shape none = vec(0); // gradients and moments belong to a parameter
    assert_ok(td_state_add(b->r.state, "owner", TD_ROLE_PARAM, t, &none, init, 0, &owner));
    assert_ok(td_state_add(b->r.state, name, o->role, dtype, &o->shape, init, 0, &b->state[i]));
    if (c->pieces) {
        td_state_set_rank(b->r.state, BENCH_RANK, c->pieces);
        b->g->world_size = c->pieces;
        assert_ok(td_rewrite_split(b->g, b->state[i], false));
    }
    assert_ok(td_graph_state_value(b->g, b->state[i], &b->in[i]));
    if (!copied) return;
    struct td_attrs same = {.dtype = dtype, .scale = 1};
    assert_ok(td_graph_op(b->g, TD_OP_CAST, &b->in[i], 1, &same, &b->in[i]));
}

// A sum of pieces, as if there were other ranks. Rank 1's piece of a mean is half of it, and the
// other pieces, which have no known content, are 0. A gather brings three times its own.
static inline td_status exchange(struct rig *r, const struct td_sum *sum) {
    const bool gathers = sum->kind == TD_SUM_ALL_GATHER;
    assert_true(sum->on_host && sum->n_pieces == BENCH_RANK + 2 && sum->in == sum->out);
    for (uint32_t i = 0; i < sum->n_out; i++) {
        const struct td_sum_range *t = &sum->out[i];
        const int64_t each = t->n / sum->n_pieces;
        const size_t bytes = (size_t)t->n * td_dtype_bytes(sum->dtype);
        char *all = calloc(1, bytes);
        const struct td_buffer here = td_buffer_of_host(all, bytes);
        assert_non_null(all);
        assert_int_equal(t->n % sum->n_pieces, 0);
        TD_TRY(r->ops->copy(r->accel, here, 0, t->buffer, t->offset, bytes));
        for (int64_t k = 0; k < t->n; k++) {
            const bool own = k / each == BENCH_RANK;
            const double mine = rig_get(sum->dtype, all, BENCH_RANK * each + k % each);
            if (own && gathers) continue;
            rig_set(sum->dtype, all, k, gathers ? 3 * mine : own ? mine / 2 : 0);
        }
        TD_TRY(r->ops->copy(r->accel, t->buffer, t->offset, here, 0, bytes));
        free(all);
    }
    return TD_OK;
}

static inline td_status halve(void *arg, const struct td_sum *sum) {
    struct rig *r = arg;
    if (sum->kind != TD_SUM_ALL_REDUCE) return exchange(r, sum);
    assert_int_equal(sum->index, 0);
    rig_copy(r, r->region[TD_ROLE_GRAD], r->host[TD_ROLE_GRAD], false);
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        for (int64_t k = 0; s->role == TD_ROLE_GRAD && k < td_shape_elems(&s->shape); k++) {
            rig_set(s->dtype, rig_state(r, i), k, rig_get(s->dtype, rig_state(r, i), k) / 2);
        }
    }
    rig_copy(r, r->region[TD_ROLE_GRAD], r->host[TD_ROLE_GRAD], true);
    return TD_OK;
}

// Accelerators may keep images in an order of their own; what a reshape sees is plain.
static inline void flatten(struct bench *b, td_value *v) {
    const struct td_shape *s = &td_graph_value(b->g, *v)->shape;
    struct td_attrs flat = {.shape = vec(td_shape_elems(s))};
    if (s->n_dims == 4) assert_ok(td_graph_op(b->g, TD_OP_RESHAPE, v, 1, &flat, v));
}

static inline void end_node(struct bench *b, enum td_op op) {
    uint32_t i = MAX_OUT;
    while (!b->out[i - 1]) {
        i--;
    }
    assert_ok(td_graph_op(b->g, op, &b->out[i - 1], 1, NULL, NULL));
    b->out[i - 1] = 0;
    assert_ok(td_graph_verify(b->g));
}

static inline void add_node(struct bench *b, const struct op_case *c, enum td_dtype t) {
    struct td_attrs a = c->attrs;
    bool fresh = c->op == TD_OP_FILL || c->op == TD_OP_CONSTANT;
    if (fresh || (c->op == TD_OP_CAST && a.dtype == ANY)) a.dtype = t;
    bool into = c->store;
    a.accumulate = c->op == TD_OP_STORE && a.accumulate;
    assert_ok(td_graph_op(b->g, c->op, b->in, c->n_in, &a, b->out));
    if (c->ended_by) end_node(b, c->ended_by);
    for (uint32_t i = 0; !into && i < MAX_OUT && b->out[i]; i++) {
        flatten(b, &b->out[i]);
    }
    if (!into) return;
    const struct td_value_info *y = td_graph_value(b->g, b->out[0]);
    struct td_init zero = {0};
    uint32_t grad;
    td_value in[2] = {0, b->out[0]};
    struct td_shape shape = y->shape;
    assert_ok(td_state_add(b->r.state, "grad", TD_ROLE_GRAD, y->dtype, &shape, zero, 0, &grad));
    assert_ok(td_graph_state_value(b->g, grad, &in[0]));
    struct td_attrs store = {.accumulate = c->attrs.accumulate};
    assert_ok(td_graph_op(b->g, TD_OP_STORE, in, 2, &store, NULL));
    assert_ok(td_pass_fuse(b->g));
    assert_int_equal(td_graph_node(b->g, td_graph_n_nodes(b->g) - 1)->op, c->op);
}

static inline void append(struct result *out, enum td_dtype t, const void *p, int64_t n) {
    assert_true(out->n + (size_t)n < N_FLOATS);
    for (int64_t k = 0; k < n; k++) {
        bool byte = t == TD_U8 || t == TD_BOOL;
        out->x[out->n++] = byte          ? ((const uint8_t *)p)[k]
                           : t == TD_I32 ? ((const int32_t *)p)[k]
                                         : rig_get(t, p, k);
    }
}

static inline void collect(struct bench *b, const struct op_case *c, struct result *out) {
    struct rig *r = &b->r;
    const struct td_program *p = &r->program[0].compiled->program;
    uint32_t n_out = c->store ? 0 : MAX_OUT;
    for (uint32_t i = 0; i < n_out && b->out[i]; i++) {
        const struct td_value_info *y = td_graph_value(b->g, b->out[i]);
        size_t bytes = (size_t)td_shape_elems(&y->shape) * td_dtype_bytes(y->dtype);
        size_t at = p->placement[b->out[i]].offset;
        if (at == SIZE_MAX) { // a view of state, or of the input
            const struct td_value_info *home = td_graph_value(b->g, p->placement[b->out[i]].alias);
            const void *view =
                home->kind == TD_VALUE_INPUT ? b->inputs[home->index] : rig_state(r, home->index);
            append(out, y->dtype, view, td_shape_elems(&y->shape));
            continue;
        }
        assert_true(at + bytes <= r->program[0].arena.bytes);
        append(out, y->dtype, r->program[0].host_arena + at, td_shape_elems(&y->shape));
    }
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        append(out, s->dtype, rig_state(r, i), td_shape_elems(&s->shape));
    }
}

static inline void load_operands(struct bench *b, const struct op_case *c, enum td_dtype t) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (b->state[i] == UINT32_MAX) continue;
        int64_t n = td_shape_elems(&c->in[i].shape);
        enum td_dtype stored = dtype_of(&c->in[i], t);
        for (int64_t k = 0; k < n; k++) {
            rig_set(stored, rig_state(&b->r, b->state[i]), k, operand_value(&c->in[i], i, k));
        }
    }
    uint32_t grad;
    td_status s = td_state_find(b->r.state, "grad", &grad);
    for (int64_t k = 0; !s && k < td_shape_elems(&td_state_at(b->r.state, grad)->shape); k++) {
        rig_set(td_state_at(b->r.state, grad)->dtype, rig_state(&b->r, grad), k,
                (double)(float)rig_random("old", (uint64_t)k));
    }
    td_status_free(s);
}

static inline void place(struct bench *b) {
    struct rig *r = &b->r;
    struct rig_program *p = &r->program[0];
    r->n_programs = 1;
    r->all_reduce = halve;
    rig_place(r);
    memset(p->host_arena, 0xff, p->arena.bytes); // NaN: what is read must have been written
}

static inline bool runs_slowly(const struct rig *r, enum td_op op) {
    struct td_kernel_info k = {.struct_bytes = sizeof k};
    bool found = false;
    for (uint32_t i = 0; r->ops->kernel_at && r->ops->kernel_at(r->program[0].exe, i, &k); i++) {
        found |= k.slow && k.op == op;
    }
    return found;
}

static inline void bench_random(uint32_t *words) {
    td_random_set(words, 7, 3, INT64_C(5) << 32, 2);
}

static inline void run_on(const struct td_accelerator_ops *ops, const struct op_case *c,
                          enum td_dtype t, bool copied, struct result *out) {
    struct bench b = {0};
    rig_open_on(&b.r, ops, bench_threads);
    b.r.scalars[TD_SCALAR_STEP] = 3;
    bench_random(b.r.random);
    assert_ok(td_graph_create("op", TD_MODE_TRAIN, b.r.state, &b.g));
    for (uint32_t i = 0; i < c->n_in; i++) {
        add_operand(&b, c, i, t, copied);
    }
    add_node(&b, c, t);
    assert_ok(td_graph_verify(b.g));
    struct td_compiled *compiled = td_calloc(1, sizeof *compiled);
    compiled->graph = b.g;
    assert_ok(td_pass_memory(b.g, NULL, &compiled->placement, &compiled->program.arena_bytes));
    compiled->program.graph = b.g;
    compiled->program.placement = compiled->placement;
    snprintf(compiled->program.key.step, sizeof compiled->program.key.step, "op");
    b.r.program[b.r.n_programs++].compiled = compiled;
    out->n = 0;
    place(&b);
    out->slow = runs_slowly(&b.r, c->op);
    load_operands(&b, c, t);
    rig_run(&b.r, 0, TD_SEGS_ALL, b.inputs);
    collect(&b, c, out);
    rig_close(&b.r);
    for (uint32_t i = 0; i < c->n_in; i++) {
        free(b.host[i]);
    }
}

static inline void describe(const struct op_case *c, const struct subject *s, enum td_dtype t) {
    print_message(
        "# %s on %s, %s, trans %d %d act %d then %s accumulate %d store %d:", td_op_name(c->op),
        s->name, td_dtype_name(t), c->attrs.trans_a, c->attrs.trans_b, c->attrs.act,
        c->attrs.then ? td_op_name(c->attrs.then) : "-", c->attrs.accumulate, c->store);
    for (uint32_t i = 0; i < c->n_in; i++) {
        char text[96];
        td_shape_text(dtype_of(&c->in[i], t), &c->in[i].shape, text, sizeof text);
        print_message(" %s", text);
    }
    print_message("\n");
}

// A head's second result counts the rows whose label has the largest logit. Where logits are
// rounded to 16 bits, two of a row may become equal, or not, by the order of a sum.
static inline double counts_apart(const struct op_case *c, enum td_dtype t, size_t i) {
    bool head = c->op == TD_OP_LINEAR_CE || c->op == TD_OP_LINEAR_CE_GRAD;
    bool rounded = t == TD_BF16 || t == TD_F16;
    return head && rounded && i == 1 ? 2 : 0;
}

static inline void compare(const struct op_case *c, const struct subject *s, enum td_dtype t,
                           const struct result *got, const struct result *want) {
    enum how_often listed = is_slow(s, c->op, t);
    if ((t == TD_F32 || t == TD_BF16) && listed != SOMETIMES && got->slow != (listed == ALWAYS)) {
        describe(c, s, t);
        fail_msg("%s %s %s %s", s->name,
                 listed ? "has a kernel, strike it from the list:" : "has none:", td_op_name(c->op),
                 td_dtype_name(t));
    }
    assert_int_equal(got->n, want->n);
    // 16 bits: a few units in the last place, as a fused node may round less often.
    const double tolerances[TD_DTYPE_COUNT] = {
        [TD_F32] = s->tolerance, [TD_F64] = 1e-12, [TD_BF16] = 0.02, [TD_F16] = 0.0025};
    const double tolerance = tolerances[t];
    for (size_t i = 0; i < got->n; i++) {
        double difference = fabs(got->x[i] - want->x[i]);
        if (got->x[i] == want->x[i]) continue; // infinities too
        if (isnan(got->x[i]) && isnan(want->x[i])) continue;
        if (difference <= tolerance * (1 + fabs(want->x[i]))) continue;
        if (difference <= counts_apart(c, t, i)) continue;
        describe(c, s, t);
        fail_msg("element %zu is %.9g, not %.9g", i, got->x[i], want->x[i]);
    }
}

// Only where ops.def says FIRST may the first operand have another type than the rest: elsewhere a
// precision makes them agree. What passes make has the types that they give.
static inline void check_types(const struct op_case *c) {
    const bool first = td_op_types(c->op) == TD_OP_TYPES_FIRST;
    struct op_case mixed = *c;
    struct bench b = {0};
    uint32_t n_any = 0;
    for (uint32_t i = 0; i < c->n_in; i++) {
        n_any += c->in[i].dtype == ANY;
    }
    if (n_any < 2 || c->in[0].dtype != ANY || (first && td_op_is(c->op, TD_OP_IS_MADE))) return;
    mixed.in[0].dtype = TD_F64;
    assert_ok(td_state_table_create(&b.r.state));
    assert_ok(td_graph_create("op", TD_MODE_TRAIN, b.r.state, &b.g));
    for (uint32_t i = 0; i < c->n_in; i++) {
        add_operand(&b, &mixed, i, TD_F32, false);
        free(b.host[i]);
    }
    td_status s = td_graph_op(b.g, c->op, b.in, c->n_in, &c->attrs, b.out);
    if (!s != first) fail_msg("%s: types in ops.def", td_op_name(c->op));
    td_status_free(s);
    td_graph_destroy(b.g);
    td_state_table_destroy(b.r.state);
}

static inline void check(struct subject *s, const struct op_case *c) {
    static struct result got, want;
    bool itself = strcmp(s->name, "reference") == 0; // its table is a copy
    bool writes = false;
    if (itself) check_types(c);
    for (uint32_t i = 0; i < c->n_in; i++) {
        writes |= td_op_writes(c->op, &c->attrs, i);
    }
    for (int copied = 0; copied < (writes ? 1 : 2); copied++) {
        run_on(s->ops, c, TD_F32, copied, &got);
        run_on(td_accelerator_reference.ops, c, itself ? TD_F64 : TD_F32, false, &want);
        compare(c, s, TD_F32, &got, &want);
        static const enum td_dtype others[] = {TD_F64, TD_BF16, TD_F16};
        for (size_t i = 0; i < TD_COUNTOF(others) && !itself; i++) {
            if (!(s->dtypes >> others[i] & 1)) continue;
            run_on(s->ops, c, others[i], copied, &got);
            run_on(td_accelerator_reference.ops, c, others[i], false, &want);
            compare(c, s, others[i], &got, &want);
        }
    }
    s->n_cases++;
}

// ---- shapes
static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33};
static const int64_t rows[] = {0, 1, 5, 16, 31};

static inline struct operand tensor(struct td_shape shape) {
    return (struct operand){ANY, shape, TD_ROLE_PARAM, -1, 1};
}

// ---- programs: every suite on every accelerator that is here
struct suite {
    const char *what;
    void (*cases)(struct subject *s);
};

struct run {
    struct subject *subject;
    void (*cases)(struct subject *s);
};

static inline void run_suite(void **state) {
    struct run *run = *state;
    run->cases(run->subject);
}

// Of those that are here (tests/accelerators.h). far computes with the reference's loops: what is
// tested is the way there and back, which has no type and no CPU level.
static inline size_t find_subjects(const struct accelerators *all, struct subject *out) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct accelerator *a = &all->at[i];
        const bool is_far = strncmp(a->name, "far", 3) == 0;
        if (is_far && bench_held) continue;
        out[n++] = (struct subject){a->ops, a->name, is_far ? 0 : a->dtypes, 1e-5, 0};
    }
    return n;
}

// TRAIND_CPU_ISA holds the program to a lower CPU level, as it does a worker.
static inline bool read_environment(void) {
    const char *name = getenv("TRAIND_CPU_ISA");
    enum td_cpu_level level;
    const char *threads = getenv("TRAIND_TEST_THREADS");
    if (threads) bench_threads = (int)strtol(threads, NULL, 10);
    if (!name || !*name) return true;
    if (!td_cpu_level_parse(name, &level)) {
        print_message("# TRAIND_CPU_ISA: '%s' is no CPU level\n", name);
        return false;
    }
    assert_ok(td_cpu_level_hold(level));
    bench_held = true;
    return true;
}

// What main does. name: the program's, for the report.
static inline int run_suites(const char *program, const char *name, const struct suite *suites,
                             size_t n_suites) {
    enum { MOST = 128 };
    static struct subject subjects[ACCELERATORS];
    static struct run runs[MOST];
    static struct CMUnitTest tests[MOST];
    static char names[MOST][96];
    struct accelerators here;
    if (!read_environment()) return 1;
    size_t n = 0, n_subjects = 0;
    if (open_accelerators(program, &here)) n_subjects = find_subjects(&here, subjects);
    for (size_t i = 0; i < n_subjects; i++) {
        for (size_t k = 0; k < n_suites; k++, n++) {
            TD_CHECK(n < MOST);
            snprintf(names[n], sizeof names[n], "test_%s_agrees_with_reference_when_on_%s",
                     suites[k].what, subjects[i].name);
            runs[n] = (struct run){&subjects[i], suites[k].cases};
            tests[n] = (struct CMUnitTest){names[n], run_suite, NULL, NULL, &runs[n]};
        }
    }
    int failed = n ? _cmocka_run_group_tests(name, tests, n, NULL, NULL) : 1;
    close_accelerators(&here);
    return failed;
}

#endif
