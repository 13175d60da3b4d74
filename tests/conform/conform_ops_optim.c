// Optimizers against the reference on every accelerator: lengths and shapes of every kind, each
// option on and off, with and without the clip coefficient.

#include "tests/conform/op_bench.h"
#include "traind/random.h"

static struct operand gradient(struct td_shape shape) {
    return (struct operand){ANY, shape, TD_ROLE_GRAD, -1, 1};
}

static struct operand buffer(struct td_shape shape, bool wide, double low) {
    return (struct operand){wide ? WIDE : ANY, shape, TD_ROLE_OPTIM, low, 1};
}

static void add_clip(struct op_case *c) {
    c->in[c->n_in++] = tensor(rig_shape(0, 0, 0, 0));
}

static void optimizer(struct subject *s, enum td_op op, int64_t n, bool wide, bool clip,
                      bool nesterov) {
    struct op_case c = {.op = op};
    c.attrs.optim = (struct td_optim_attrs){.beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .lr_scale = nesterov ? 0.5f : 0,
                                            .momentum = clip ? 0.9f : 0,
                                            .dampening = nesterov ? 0 : 0.5f,
                                            .nesterov = nesterov,
                                            .stochastic = nesterov}; // of bf16 alone
    c.attrs.stream = td_stream_of("w");
    uint32_t n_state = op == TD_OP_LION ? 1 : op != TD_OP_SGD ? 2 : clip ? 1 : 0;
    c.in[c.n_in++] = tensor(vec(n));
    c.in[c.n_in++] = gradient(vec(n));
    for (uint32_t i = 0; i < n_state; i++) {
        c.in[c.n_in++] = buffer(vec(n), wide, 0.01);
    }
    if (clip) add_clip(&c);
    check(s, &c);
}

static void cases_elementwise(struct subject *s) {
    static const int64_t lengths[] = {0, 1, 3, 16, 17, 1000};
    static const enum td_op ops[] = {TD_OP_SGD, TD_OP_ADAM, TD_OP_ADAMW, TD_OP_LION};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        for (size_t o = 0; o < TD_COUNTOF(ops); o++) {
            for (int wide = 0; wide < 2; wide++) {
                optimizer(s, ops[o], lengths[i], wide, false, false);
                optimizer(s, ops[o], lengths[i], wide, true, false);
                optimizer(s, ops[o], lengths[i], wide, true, true);
            }
        }
    }
}

// A gradient that is zero from the start, as after a relu that never opens: decay alone moves.
static void cases_at_rest(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_SGD, TD_OP_ADAM, TD_OP_ADAMW, TD_OP_LION};
    for (size_t o = 0; o < TD_COUNTOF(ops); o++) {
        struct op_case c = {.op = ops[o], .n_in = ops[o] == TD_OP_LION || o == 0 ? 3 : 4};
        c.attrs.optim = (struct td_optim_attrs){
            .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9f, .weight_decay = 0.1};
        c.in[0] = tensor(vec(33));
        for (uint32_t i = 1; i < c.n_in; i++) {
            c.in[i] = (struct operand){ANY, vec(33), i == 1 ? TD_ROLE_GRAD : TD_ROLE_OPTIM,
                                       .low = 0, .high = 0};
        }
        check(s, &c);
    }
}

static const struct td_shape shapes[] = {
    {0, {0}},       {1, {0}},       {1, {1}},          {1, {17}},
    {1, {2500}},    {2, {0, 3}},    {2, {3, 0}},       {2, {1, 1}},
    {2, {1, 33}},   {2, {33, 1}},   {2, {7, 17}},      {2, {40, 64}},
    {2, {200, 48}}, {3, {2, 5, 3}}, {4, {6, 2, 3, 3}}, {4, {33, 4, 1, 1}},
};

static void adafactor(struct subject *s, struct td_shape shape, int options) {
    bool factored = shape.n_dims > 1;
    struct op_case c = {.op = TD_OP_ADAFACTOR};
    c.attrs.optim = (struct td_optim_attrs){.beta2_decay = -0.8f,
                                            .eps = 0x1p-23f,
                                            .eps2 = 1e-3f,
                                            .threshold = options & 1 ? 1 : 4,
                                            .weight_decay = options & 1 ? 0.1f : 0,
                                            .fixed_step = options & 2,
                                            .unscaled = options & 2,
                                            .factored = factored};
    c.in[c.n_in++] = tensor(shape);
    c.in[c.n_in++] = gradient(shape);
    struct td_shape row = shape, col = shape;
    if (factored) row.dim[row.n_dims - 1] = col.dim[col.n_dims - 2] = 1;
    bool wide = options & 8;
    c.in[c.n_in++] = buffer(row, wide, 0.01);
    if (factored) c.in[c.n_in++] = buffer(col, wide, 0.01);
    if (options & 4) add_clip(&c);
    check(s, &c);
}

static void cases_adafactor(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(shapes); i++) {
        for (int options = 0; options < 16; options++) {
            adafactor(s, shapes[i], options);
        }
    }
}

static void cases_muon(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(shapes); i++) {
        for (int options = 0; options < 8; options++) {
            struct op_case c = {.op = TD_OP_MUON_MOMENTUM, .n_in = 2};
            c.attrs.optim = (struct td_optim_attrs){
                .momentum = i % 2 ? 0 : 0.95, .eps = 1e-7, .nesterov = options & 1};
            c.in[0] = gradient(shapes[i]);
            c.in[1] = buffer(shapes[i], options & 4, -1);
            if (options & 2) add_clip(&c);
            check(s, &c);
            c = (struct op_case){.op = TD_OP_MUON, .n_in = 2};
            c.attrs.optim = (struct td_optim_attrs){.weight_decay = options & 1 ? 0.1f : 0,
                                                    .update_scale = options & 2 ? 3 : 0};
            c.in[0] = c.in[1] = tensor(shapes[i]);
            check(s, &c);
            c = (struct op_case){.op = TD_OP_AXPBY, .n_in = 2};
            c.in[0] = c.in[1] = tensor(shapes[i]);
            c.attrs.scale = 0.5 * options;
            c.attrs.scale_y = -1.25;
            check(s, &c);
        }
    }
}

// ---- the programs of this file ------------------------------------------------------------------
static const struct suite suites[] = {
    {"optimizers", cases_elementwise},
    {"at_rest", cases_at_rest},
    {"adafactor", cases_adafactor},
    {"muon", cases_muon},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_ops_optim", suites, TD_COUNTOF(suites));
}
