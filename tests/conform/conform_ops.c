// Every op on every accelerator, against the reference: generated shapes with odd sizes, ones,
// empty rows and sizes off every vector width, operands from state and from the arena (where
// results may be written in place), direct gradient writes, and whole training programs. The
// reference itself is held against its own fp64. An accelerator that answers UNIMPLEMENTED for a
// type it claims fails, unless the gap stands in `unsupported`.

#include "tests/unit/graph_rig.h"

#include "lib/base/registry.h"

enum { MAX_IN = 5, N_FLOATS = 1 << 16 };
#define ANY ((enum td_dtype)TD_DTYPE_COUNT) // the float type under test

static struct td_shape vec(int64_t n) {
    return rig_shape(1, n, 0, 0);
}

static struct td_shape mat(int64_t a, int64_t b) {
    return rig_shape(2, a, b, 0);
}

struct operand {
    enum td_dtype dtype;
    struct td_shape shape;
    enum td_role role; // of float operands, which are state
    double low, high;
};

struct op_case {
    enum td_op op;
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

// ---- permanent gaps -----------------------------------------------------------------------------
static const struct {
    const char *accelerator;
    enum td_op op;
    const char *reason;
} unsupported[] = {
    {"none", TD_OP_COUNT, "the list is empty"},
};

static bool is_listed(const struct subject *s, enum td_op op) {
    for (size_t i = 0; i < TD_COUNTOF(unsupported); i++) {
        if (unsupported[i].op == op && !strcmp(unsupported[i].accelerator, s->name)) return true;
    }
    return false;
}

// ---- one case on one accelerator
// ------------------------------------------------------------------
struct result {
    bool unimplemented;
    size_t n;
    double x[N_FLOATS];
};

static double operand_value(const struct operand *o, uint32_t i, int64_t k) {
    char name[16];
    snprintf(name, sizeof name, "operand%u", i);
    double v = o->low + (o->high - o->low) * (rig_random(name, (uint64_t)k) + 1) / 2;
    return o->dtype == ANY ? (double)(float)v : floor(v);
}

static enum td_dtype dtype_of(const struct operand *o, enum td_dtype t) {
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
    td_value out[2];
};

static void add_operand(struct bench *b, const struct op_case *c, uint32_t i, enum td_dtype t,
                        bool copied) {
    const struct operand *o = &c->in[i];
    enum td_dtype dtype = dtype_of(o, t);
    char name[16];
    snprintf(name, sizeof name, "in%u", i);
    b->state[i] = UINT32_MAX;
    if (o->dtype != ANY) {
        assert_ok(td_graph_input(b->g, name, dtype, &o->shape, &b->in[i]));
        size_t n = (size_t)td_shape_elems(&o->shape);
        b->host[i] = calloc(n + 1, td_dtype_bytes(dtype));
        for (size_t k = 0; k < n; k++) {
            double v = operand_value(o, i, (int64_t)k);
            if (dtype == TD_U8)
                ((uint8_t *)b->host[i])[k] = (uint8_t)v;
            else
                ((int32_t *)b->host[i])[k] = (int32_t)v;
        }
        b->inputs[b->n_inputs++] = b->host[i];
        return;
    }
    struct td_init init = {0};
    uint32_t owner;
    struct td_shape none = vec(0); // gradients and moments belong to a parameter
    assert_ok(td_state_add(b->r.state, "owner", TD_ROLE_PARAM, t, &none, init, 0, &owner));
    assert_ok(td_state_add(b->r.state, name, o->role, dtype, &o->shape, init, 0, &b->state[i]));
    assert_ok(td_graph_state_value(b->g, b->state[i], &b->in[i]));
    if (!copied) return;
    struct td_attrs same = {.dtype = dtype, .scale = 1};
    assert_ok(td_graph_op(b->g, TD_OP_CAST, &b->in[i], 1, &same, &b->in[i]));
}

static td_status halve(void *arg, uint32_t bucket) {
    struct rig *r = arg;
    assert_int_equal(bucket, 0);
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        for (int64_t k = 0; s->role == TD_ROLE_GRAD && k < td_shape_elems(&s->shape); k++) {
            rig_set(s->dtype, rig_state(r, i), k, rig_get(s->dtype, rig_state(r, i), k) / 2);
        }
    }
    return TD_OK;
}

static void add_node(struct bench *b, const struct op_case *c, enum td_dtype t) {
    struct td_attrs a = c->attrs;
    if (c->op == TD_OP_FILL || (c->op == TD_OP_CAST && a.dtype == ANY)) a.dtype = t;
    bool into = c->store;
    a.accumulate = c->op == TD_OP_STORE && a.accumulate;
    assert_ok(td_graph_op(b->g, c->op, b->in, c->n_in, &a, b->out));
    if (!into) return;
    const struct td_value_info *y = td_graph_value(b->g, b->out[0]);
    struct td_init zero = {0};
    uint32_t grad;
    td_value in[2] = {0, b->out[0]};
    struct td_shape shape = y->shape;
    assert_ok(td_state_add(b->r.state, "grad", TD_ROLE_GRAD, t, &shape, zero, 0, &grad));
    assert_ok(td_graph_state_value(b->g, grad, &in[0]));
    struct td_attrs store = {.accumulate = c->attrs.accumulate};
    assert_ok(td_graph_op(b->g, TD_OP_STORE, in, 2, &store, NULL));
    assert_ok(td_pass_fuse(b->g));
    assert_int_equal(td_graph_node(b->g, td_graph_n_nodes(b->g) - 1)->op, c->op);
}

static void append(struct result *out, enum td_dtype t, const void *p, int64_t n) {
    assert_true(out->n + (size_t)n < N_FLOATS);
    for (int64_t k = 0; k < n; k++) {
        out->x[out->n++] = t == TD_I32 ? ((const int32_t *)p)[k] : rig_get(t, p, k);
    }
}

static void collect(struct bench *b, const struct op_case *c, struct result *out) {
    struct rig *r = &b->r;
    const struct td_program *p = &r->program[0].compiled->program;
    uint32_t n_out = c->store ? 0 : 2;
    for (uint32_t i = 0; i < n_out && b->out[i]; i++) {
        const struct td_value_info *y = td_graph_value(b->g, b->out[i]);
        size_t bytes = (size_t)td_shape_elems(&y->shape) * td_dtype_bytes(y->dtype);
        struct td_buffer host;
        size_t at = p->placement[b->out[i]].offset;
        if (at == SIZE_MAX) { // a view of state, or of the input
            const struct td_value_info *home = td_graph_value(b->g, p->placement[b->out[i]].alias);
            const void *view =
                home->kind == TD_VALUE_INPUT ? b->inputs[home->index] : rig_state(r, home->index);
            append(out, y->dtype, view, td_shape_elems(&y->shape));
            continue;
        }
        assert_ok(r->ops->mem_alloc(r->accel, bytes + 64, &host));
        if (bytes) assert_ok(r->ops->copy(r->accel, host, 0, r->program[0].arena, at, bytes));
        append(out, y->dtype, td_buffer_host(host), td_shape_elems(&y->shape));
        r->ops->mem_free(r->accel, host);
    }
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        append(out, s->dtype, rig_state(r, i), td_shape_elems(&s->shape));
    }
}

static void load_operands(struct bench *b, const struct op_case *c, enum td_dtype t) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (b->state[i] == UINT32_MAX) continue;
        int64_t n = td_shape_elems(&c->in[i].shape);
        for (int64_t k = 0; k < n; k++) {
            rig_set(t, rig_state(&b->r, b->state[i]), k, operand_value(&c->in[i], i, k));
        }
    }
    uint32_t grad;
    td_status s = td_state_find(b->r.state, "grad", &grad);
    for (int64_t k = 0; !s && k < td_shape_elems(&td_state_at(b->r.state, grad)->shape); k++) {
        rig_set(t, rig_state(&b->r, grad), k, (double)(float)rig_random("old", (uint64_t)k));
    }
    td_status_free(s);
}

// rig_place, but an UNIMPLEMENTED compile is an answer.
static bool place(struct bench *b) {
    struct rig *r = &b->r;
    assert_ok(td_state_layout(r->state));
    struct td_bindings bind = {.struct_bytes = sizeof bind,
                               .scalars = r->scalars,
                               .outputs = r->program[0].outputs,
                               .all_reduce = halve,
                               .all_reduce_arg = r};
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        size_t bytes = td_state_region_bytes(r->state, (enum td_role)i);
        assert_ok(r->ops->mem_alloc(r->accel, TD_MAX(bytes, 64), &r->region[i]));
        bind.region[i] = r->region[i];
    }
    struct rig_program *p = &r->program[0];
    size_t bytes = TD_MAX(p->compiled->program.arena_bytes, 64);
    assert_ok(r->ops->mem_alloc(r->accel, bytes, &p->arena));
    memset(td_buffer_host(p->arena), 0xff, bytes); // NaN: what is read must have been written
    bind.arena = p->arena;
    td_status s = r->ops->compile(r->accel, &p->compiled->program, &bind, &p->exe);
    bool fits = !s;
    if (s && td_status_code(s) != TD_UNIMPLEMENTED) fail_msg("%s", td_status_message(s));
    td_status_free(s);
    return fits;
}

static void run_on(const struct td_accelerator_ops *ops, const struct op_case *c, enum td_dtype t,
                   bool copied, struct result *out) {
    struct bench b = {0};
    rig_open_on(&b.r, ops, 2);
    b.r.scalars[TD_SCALAR_STEP] = 3;
    assert_ok(td_graph_create("op", TD_MODE_TRAIN, b.r.state, &b.g));
    for (uint32_t i = 0; i < c->n_in; i++) {
        add_operand(&b, c, i, t, copied);
    }
    add_node(&b, c, t);
    assert_ok(td_graph_verify(b.g));
    struct td_compiled *compiled = td_calloc(1, sizeof *compiled);
    compiled->graph = b.g;
    assert_ok(td_pass_memory(b.g, &compiled->placement, &compiled->program.arena_bytes));
    compiled->program.graph = b.g;
    compiled->program.placement = compiled->placement;
    snprintf(compiled->program.key.step, sizeof compiled->program.key.step, "op");
    b.r.program[b.r.n_programs++].compiled = compiled;
    out->n = 0;
    out->unimplemented = !place(&b);
    if (!out->unimplemented) {
        load_operands(&b, c, t);
        rig_run(&b.r, 0, TD_SEGS_ALL, b.inputs);
        collect(&b, c, out);
    }
    rig_close(&b.r);
    for (uint32_t i = 0; i < c->n_in; i++) {
        free(b.host[i]);
    }
}

static void describe(const struct op_case *c, const struct subject *s, enum td_dtype t) {
    print_message("# %s on %s, %s, trans %d %d act %d accumulate %d store %d:", td_op_name(c->op),
                  s->name, td_dtype_name(t), c->attrs.trans_a, c->attrs.trans_b, c->attrs.act,
                  c->attrs.accumulate, c->store);
    for (uint32_t i = 0; i < c->n_in; i++) {
        char text[96];
        td_shape_text(dtype_of(&c->in[i], t), &c->in[i].shape, text, sizeof text);
        print_message(" %s", text);
    }
    print_message("\n");
}

static void compare(const struct op_case *c, const struct subject *s, enum td_dtype t,
                    const struct result *got, const struct result *want) {
    if (got->unimplemented) {
        if (!is_listed(s, c->op)) {
            describe(c, s, t);
            fail_msg("%s answers UNIMPLEMENTED for %s", s->name, td_op_name(c->op));
        }
        return;
    }
    assert_int_equal(got->n, want->n);
    for (size_t i = 0; i < got->n; i++) {
        double difference = fabs(got->x[i] - want->x[i]);
        if (got->x[i] == want->x[i]) continue; // infinities too
        if (difference <= s->tolerance * (1 + fabs(want->x[i]))) continue;
        describe(c, s, t);
        fail_msg("element %zu is %.9g, not %.9g", i, got->x[i], want->x[i]);
    }
}

static void check(struct subject *s, const struct op_case *c) {
    static struct result got, want;
    bool itself = s->ops == td_accelerator_reference.ops;
    bool writes = c->op == TD_OP_STORE || c->op == TD_OP_ALL_REDUCE || c->op == TD_OP_SGD ||
                  c->op == TD_OP_ADAM || c->op == TD_OP_ADAMW;
    for (int copied = 0; copied < (writes ? 1 : 2); copied++) {
        run_on(s->ops, c, TD_F32, copied, &got);
        run_on(td_accelerator_reference.ops, c, itself ? TD_F64 : TD_F32, false, &want);
        compare(c, s, TD_F32, &got, &want);
        if (!itself && (s->dtypes >> TD_F64 & 1)) {
            run_on(s->ops, c, TD_F64, copied, &got);
            run_on(td_accelerator_reference.ops, c, TD_F64, false, &want);
            compare(c, s, TD_F64, &got, &want);
        }
    }
    s->n_cases++;
}

// ---- cases, by op
// ---------------------------------------------------------------------------------
static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33};
static const int64_t rows[] = {0, 1, 5, 16, 31};

static struct operand tensor(struct td_shape shape) {
    return (struct operand){ANY, shape, TD_ROLE_PARAM, -1, 1};
}

static void matmul_forms(struct subject *s, int64_t m, int64_t k, int64_t n) {
    for (int form = 0; form < 16; form++) {
        bool ta = form & 1, tb = form & 2, bias = form & 4, act = form & 8;
        struct op_case c = {.op = TD_OP_MATMUL, .n_in = bias ? 3 : 2};
        c.in[0] = tensor(ta ? mat(k, m) : mat(m, k));
        c.in[1] = tensor(tb ? mat(n, k) : mat(k, n));
        c.in[2] = tensor(vec(n));
        c.attrs.trans_a = ta;
        c.attrs.trans_b = tb;
        c.attrs.act = act ? TD_ACT_RELU : TD_ACT_NONE;
        check(s, &c);
        if (bias || act) continue;
        c.store = true;
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
    }
}

static void cases_matmul(struct subject *s) {
    static const int64_t mkn[][3] = {
        {1, 1, 1},     {3, 5, 7}, {16, 16, 16}, {17, 33, 15}, {2, 1, 9},    {1, 64, 3},  {5, 3, 1},
        {31, 100, 10}, {0, 4, 3}, {3, 0, 4},    {4, 3, 0},    {33, 65, 17}, {64, 48, 32}};
    for (size_t i = 0; i < TD_COUNTOF(mkn); i++) {
        matmul_forms(s, mkn[i][0], mkn[i][1], mkn[i][2]);
    }
    struct op_case c = {.op = TD_OP_MATMUL, .n_in = 3};
    c.in[0] = tensor(rig_shape(3, 2, 3, 5)); // leading dimensions are rows
    c.in[1] = tensor(mat(7, 5));
    c.in[2] = tensor(vec(7));
    c.attrs.trans_b = true;
    check(s, &c);
}

static void binary(struct subject *s, enum td_op op) {
    const struct td_shape pairs[][2] = {
        {vec(1), vec(1)},
        {mat(5, 17), mat(5, 17)},
        {mat(5, 17), vec(17)},
        {vec(33), mat(3, 33)},
        {mat(4, 1), mat(1, 6)},
        {mat(0, 3), vec(3)},
        {rig_shape(3, 2, 3, 4), mat(3, 4)},
        {rig_shape(3, 2, 1, 4), mat(3, 1)},
        {mat(3, 3), rig_shape(0, 0, 0, 0)},
        {mat(65, 129), mat(65, 129)},
    };
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct op_case c = {.op = op, .n_in = 2};
        c.in[0] = tensor(pairs[i][0]);
        c.in[1] = tensor(pairs[i][1]);
        check(s, &c);
    }
}

static void cases_add(struct subject *s) {
    binary(s, TD_OP_ADD);
}

static void cases_mul(struct subject *s) {
    binary(s, TD_OP_MUL);
}

static void cases_elementwise(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
            struct td_shape shape = mat(rows[i], sizes[j]);
            struct op_case c = {.op = TD_OP_RELU, .n_in = 1, .in = {tensor(shape)}};
            check(s, &c);
            c.op = TD_OP_CAST;
            c.attrs = (struct td_attrs){.dtype = ANY, .scale = 0.25};
            check(s, &c);
            c.op = TD_OP_RESHAPE;
            c.attrs = (struct td_attrs){.shape = vec(rows[i] * sizes[j])};
            check(s, &c);
            c.op = TD_OP_RELU_GRAD;
            c.n_in = 2;
            c.in[1] = tensor(shape);
            c.attrs = (struct td_attrs){0};
            check(s, &c);
            c.op = TD_OP_SCALE;
            c.in[1] = tensor(rig_shape(0, 0, 0, 0));
            check(s, &c);
        }
    }
}

static void cases_cast_of_pixels(struct subject *s) {
    struct op_case c = {.op = TD_OP_CAST, .n_in = 1, .attrs = {.dtype = ANY, .scale = 1.0 / 255.0}};
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        c.in[0] = (struct operand){TD_U8, mat(5, sizes[j]), TD_ROLE_PARAM, 0, 256};
        check(s, &c);
    }
}

// A view of an input must leave it alone; labels (B,1) are reshaped before the loss.
static void cases_view_of_input(struct subject *s) {
    struct op_case c = {.op = TD_OP_RESHAPE, .n_in = 1, .attrs = {.shape = vec(15)}};
    c.in[0] = (struct operand){TD_I32, mat(5, 3), TD_ROLE_PARAM, 0, 256};
    check(s, &c);
}

static void cases_fill(struct subject *s) {
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        struct op_case c = {.op = TD_OP_FILL};
        c.attrs = (struct td_attrs){.shape = mat(3, sizes[j]), .scale = -1.5};
        check(s, &c);
        c.n_in = 1;
        c.in[0] = tensor(rig_shape(0, 0, 0, 0));
        check(s, &c);
    }
}

static void cases_classifier(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
            struct op_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2};
            c.in[0] = tensor(mat(rows[i], sizes[j]));
            c.in[1] = (struct operand){TD_I32, vec(rows[i]), TD_ROLE_PARAM, 0, (double)sizes[j]};
            check(s, &c);
            c.op = TD_OP_COUNT_CORRECT;
            check(s, &c);
            c.op = TD_OP_SOFTMAX_CE; // large logits must not overflow
            c.in[0].low = -300;
            c.in[0].high = 300;
            check(s, &c);
        }
    }
}

static void cases_reduce_sum(struct subject *s) {
    const struct td_shape pairs[][2] = {
        {mat(5, 17), vec(17)},
        {mat(0, 3), vec(3)},
        {mat(129, 33), vec(33)},
        {mat(7, 1), vec(1)},
        {rig_shape(3, 3, 5, 4), vec(4)},
        {rig_shape(3, 3, 5, 4), mat(5, 4)},
        {mat(6, 5), rig_shape(0, 0, 0, 0)},
        {mat(6, 5), mat(6, 1)},
        {rig_shape(3, 3, 5, 4), rig_shape(3, 1, 5, 1)},
    };
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct op_case c = {.op = TD_OP_REDUCE_SUM, .n_in = 1, .in = {tensor(pairs[i][0])}};
        c.attrs.shape = pairs[i][1];
        check(s, &c);
        c.store = true;
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
    }
}

static void cases_reductions(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct op_case c = {.op = TD_OP_MEAN, .n_in = 1, .in = {tensor(mat(rows[i], 17))}};
        check(s, &c);
        c.n_in = 3;
        c.in[1] = tensor(vec(1));
        c.in[2] = tensor(vec(1000));
        c.op = TD_OP_SUM_SQUARES;
        check(s, &c);
        c.op = TD_OP_ALL_FINITE;
        check(s, &c);
        c.in[2].high = (double)INFINITY;
        check(s, &c);
    }
    for (int i = 0; i < 3; i++) {
        struct op_case c = {.op = TD_OP_CLIP_COEF, .n_in = 1};
        c.in[0] = (struct operand){ANY, rig_shape(0, 0, 0, 0), TD_ROLE_PARAM, i, i};
        c.attrs.max_norm = 1.2;
        check(s, &c);
    }
}

static void cases_state(struct subject *s) {
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        struct op_case c = {.op = TD_OP_STORE, .n_in = 2};
        c.in[0] = tensor(mat(3, sizes[j]));
        c.in[1] = tensor(mat(3, sizes[j]));
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
    }
}

static void optimizer(struct subject *s, enum td_op op, int64_t n, bool clip, bool nesterov) {
    struct op_case c = {.op = op};
    c.attrs.optim = (struct td_optim_attrs){.beta1 = 0.9f,
                                            .beta2 = 0.95f,
                                            .eps = 1e-8f,
                                            .weight_decay = 0.1f,
                                            .momentum = clip ? 0.9f : 0,
                                            .dampening = nesterov ? 0 : 0.5f,
                                            .nesterov = nesterov};
    uint32_t n_state = op != TD_OP_SGD ? 2 : clip ? 1 : 0;
    c.in[c.n_in++] = tensor(vec(n));
    c.in[c.n_in++] = (struct operand){ANY, vec(n), TD_ROLE_GRAD, -1, 1};
    for (uint32_t i = 0; i < n_state; i++) {
        c.in[c.n_in++] = (struct operand){ANY, vec(n), TD_ROLE_OPTIM, 0.01, 1};
    }
    if (clip) c.in[c.n_in++] = tensor(rig_shape(0, 0, 0, 0));
    check(s, &c);
}

static void cases_optimizers(struct subject *s) {
    static const int64_t lengths[] = {0, 1, 3, 16, 17, 1000};
    static const enum td_op ops[] = {TD_OP_SGD, TD_OP_ADAM, TD_OP_ADAMW};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        for (size_t o = 0; o < TD_COUNTOF(ops); o++) {
            optimizer(s, ops[o], lengths[i], false, false);
            optimizer(s, ops[o], lengths[i], true, false);
            optimizer(s, ops[o], lengths[i], true, true);
        }
    }
}

// all_reduce is the binding's: here it halves every gradient.
static void cases_all_reduce(struct subject *s) {
    struct op_case c = {.op = TD_OP_ALL_REDUCE, .n_in = 2};
    c.in[0] = c.in[1] = (struct operand){ANY, vec(17), TD_ROLE_GRAD, -1, 1};
    check(s, &c);
}

// ---- whole programs
// -------------------------------------------------------------------------------
static td_status sync_all(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg, (void)key;
    TD_TRY(td_rewrite_assign_buckets(g, 1024, 4096));
    return td_rewrite_all_reduce(g);
}

enum { STEPS = 4, SAMPLES = 19 };

static void train(const struct td_accelerator_ops *ops, bool one_by_one, struct result *out) {
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 4, .width = {50, 33, 16, 10}};
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f},
        .clip_norm = 0.5};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, SAMPLES, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .strategy = sync_all,
                                   .optimizer = &opt};
    struct rig r;
    rig_open_on(&r, ops, 2);
    int p = rig_add(&r, &o);
    rig_place(&r);
    float x[SAMPLES * 50];
    int32_t y[SAMPLES];
    const void *in[] = {x, y};
    for (int step = 1; step <= STEPS; step++) {
        rig_batch(&m, step * SAMPLES, SAMPLES, x, y);
        r.scalars[TD_SCALAR_STEP] = (float)step;
        r.scalars[TD_SCALAR_LR] = 1e-3f;
        for (int g = 0; g < TD_SEG_COUNT && one_by_one; g++) {
            rig_run(&r, p, 1u << g, in);
        }
        if (!one_by_one) rig_run(&r, p, TD_SEGS_ALL, in);
    }
    assert_int_equal(r.n_reduced, STEPS * (int)td_state_n_buckets(r.state));
    out->n = 0;
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *s = td_state_at(r.state, i);
        append(out, s->dtype, rig_state(&r, i), td_shape_elems(&s->shape));
    }
    append(out, TD_F32, r.program[p].outputs, 2);
    rig_close(&r);
}

static void cases_training(struct subject *s) {
    static struct result fused, parts, want;
    train(s->ops, false, &fused);
    train(s->ops, true, &parts);
    train(td_accelerator_reference.ops, false, &want);
    assert_int_equal(fused.n, parts.n);
    assert_memory_equal(fused.x, parts.x, fused.n * sizeof *fused.x); // same bits
    for (size_t i = 0; i < fused.n; i++) {
        assert_true(fabs(fused.x[i] - want.x[i]) <= 1e-4 * (1 + fabs(want.x[i])));
    }
}

// ---- the programs of this file
// ----------------------------------------------------------------------
static const struct {
    const char *what;
    void (*cases)(struct subject *s);
} suites[] = {
    {"matmul", cases_matmul},
    {"add", cases_add},
    {"mul", cases_mul},
    {"elementwise", cases_elementwise},
    {"pixels", cases_cast_of_pixels},
    {"view_of_input", cases_view_of_input},
    {"fill", cases_fill},
    {"classifier", cases_classifier},
    {"reduce_sum", cases_reduce_sum},
    {"reductions", cases_reductions},
    {"state", cases_state},
    {"optimizers", cases_optimizers},
    {"all_reduce", cases_all_reduce},
    {"training", cases_training},
};

struct run {
    struct subject *subject;
    void (*cases)(struct subject *s);
};

static void run_suite(void **state) {
    struct run *run = *state;
    run->cases(run->subject);
}

// Accelerators of the registry that are here: the reference, and plugins that were built.
static size_t find_subjects(struct td_registry *registry, struct subject *out) {
    static const char *const names[] = {"reference", "cpu", "cuda"};
    size_t n = 0;
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        const struct td_plugin_desc *desc = &td_accelerator_reference;
        td_status s =
            i ? td_registry_find(registry, TD_PLUGIN_ACCELERATOR, names[i], &desc) : TD_OK;
        struct td_accel_facts facts = {.struct_bytes = sizeof facts};
        const struct td_accelerator_ops *ops = s ? NULL : desc->ops;
        if (!s) s = ops->probe(&facts);
        bool here = !s && facts.n_devices > 0;
        if (!here) print_message("# %s is not here: %s\n", names[i], td_status_message(s));
        if (here) out[n++] = (struct subject){ops, names[i], facts.dtypes, 1e-5, 0};
        td_status_free(s);
    }
    return n;
}

int main(int argc, char **argv) {
    (void)argc;
    char dir[4096];
    struct td_registry *registry = NULL;
    // build/tests/conform/conform_ops -> build/lib/traind
    snprintf(dir, sizeof dir, "%s", argv[0]);
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(dir, '/');
        if (slash) *slash = '\0';
    }
    strncat(dir, "/lib/traind", sizeof dir - strlen(dir) - 1);
    td_status s = td_registry_create(dir, &registry);
    if (s) {
        print_message("# %s\n", td_status_message(s));
        return 1;
    }
    static struct subject subjects[4];
    static struct run runs[4 * TD_COUNTOF(suites)];
    static struct CMUnitTest tests[TD_COUNTOF(runs)];
    static char names[TD_COUNTOF(runs)][96];
    size_t n = 0, n_subjects = find_subjects(registry, subjects);
    for (size_t i = 0; i < n_subjects; i++) {
        for (size_t k = 0; k < TD_COUNTOF(suites); k++, n++) {
            snprintf(names[n], sizeof names[n], "test_%s_agrees_with_reference_when_on_%s",
                     suites[k].what, subjects[i].name);
            runs[n] = (struct run){&subjects[i], suites[k].cases};
            tests[n] = (struct CMUnitTest){names[n], run_suite, NULL, NULL, &runs[n]};
        }
    }
    int failed = _cmocka_run_group_tests("conform_ops", tests, n, NULL, NULL);
    td_registry_destroy(registry);
    return failed;
}
