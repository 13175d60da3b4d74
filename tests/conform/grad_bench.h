#ifndef TRAIND_TESTS_CONFORM_GRAD_BENCH_H
#define TRAIND_TESTS_CONFORM_GRAD_BENCH_H

// The bench of the conform_gradients programs: an op with its float operands as parameters, after a
// loss whose adjoint is not one. Operands are inputs instead where they are integers or no gradient
// is wanted. Every gradient that the op makes is compared with central differences, in fp64,
// on every accelerator that computes in it.

#include "tests/accelerators.h"
#include "tests/unit/graph/graph_rig.h"
#include "traind/random.h"

enum { MAX_IN = 6, MAX_OUT = TD_MAX_OUT, MAX_INPUTS = 64 };

static struct accelerators here;
static const char *subject; // whose turn it is

struct grad_case {
    td_status (*record)(void *arg, struct td_graph *g, int64_t batch); // NULL: the op alone
    enum td_op op;
    uint32_t n_in;
    struct td_shape in[MAX_IN];
    struct td_attrs attrs;
    bool twice;      // all operands are the first parameter
    bool plain;      // the op's own output is the loss
    uint32_t inputs; // bit i: operand i is an input of type input_dtype, not a parameter
    enum td_dtype input_dtype;
    uint32_t data;    // bit i: operand i is an f64 input in [0.5, 1.5)
    int64_t below;    // integers are in [0, below)
    bool split_head;  // the head pass makes its op of what was recorded
    double low, high; // of the parameters, if not both 0; else [-1, 1)
};

static inline struct td_shape vec(int64_t n) {
    return rig_shape(1, n, 0, 0);
}

static inline struct td_shape mat(int64_t a, int64_t b) {
    return rig_shape(2, a, b, 0);
}

static inline struct td_shape scalar(void) {
    return rig_shape(0, 0, 0, 0);
}

static inline td_status operand_of(const struct grad_case *c, struct td_graph *g, uint32_t i,
                                   td_value *out_value) {
    char name[16];
    struct td_init init = {0};
    snprintf(name, sizeof name, "p%u", c->twice ? 0 : i);
    if (c->data >> i & 1) return td_graph_input(g, name, TD_F64, &c->in[i], out_value);
    return c->inputs >> i & 1 ? td_graph_input(g, name, c->input_dtype, &c->in[i], out_value)
                              : td_graph_param(g, name, TD_F64, &c->in[i], init, out_value);
}

// loss = sum of squares of the op's output, or the output itself.
static inline td_status record(void *arg, struct td_graph *g, int64_t batch) {
    const struct grad_case *c = arg;
    td_value in[MAX_IN], out[MAX_OUT];
    (void)batch;
    for (uint32_t i = 0; i < c->n_in; i++) {
        TD_TRY(operand_of(c, g, i, &in[i]));
    }
    TD_TRY(td_graph_op(g, c->op, in, c->n_in, &c->attrs, out));
    if (!c->plain) TD_TRY(td_graph_op(g, TD_OP_SUM_SQUARES, out, 1, NULL, out));
    TD_TRY(td_graph_output(g, "loss", out[0], TD_OUTPUT_MEAN));
    return td_graph_loss(g, out[0]);
}

static inline double loss_of(struct rig *r, int program, const void *const *inputs) {
    const struct td_compiled *c = r->program[program].compiled;
    rig_run(r, program, 1u << TD_SEG_FORWARD, inputs);
    size_t at = c->program.placement[td_graph_loss_value(c->graph)].offset;
    double loss;
    memcpy(&loss, r->program[program].host_arena + at, sizeof loss);
    return loss;
}

static inline void check_param(struct rig *r, int program, uint32_t grad, const void *const *inputs,
                               const double *analytic, double window) {
    uint32_t param = td_state_at(r->state, grad)->param;
    double *p = rig_state(r, param), h = 1e-6;
    for (int64_t k = 0; k < td_shape_elems(&td_state_at(r->state, param)->shape); k++) {
        double was = p[k];
        p[k] = was + h;
        double up = loss_of(r, program, inputs);
        p[k] = was - h;
        double down = loss_of(r, program, inputs);
        p[k] = was;
        double numeric = window * (up - down) / (2 * h);
        if (fabs(numeric - analytic[k]) < 1e-6 * (1 + fabs(numeric))) continue;
        fail_msg("%s, %s element %d: %.9g, by differences %.9g", subject,
                 td_state_at(r->state, grad)->name, (int)k, analytic[k], numeric);
    }
}

// What an input holds: integers below the bound in turn (bool: 0 and 1), or data.
static inline void fill_input(const struct grad_case *c, bool data, void *out) {
    for (int64_t i = 0; i < MAX_INPUTS; i++) {
        int64_t v = c->below ? i * 7 % c->below : 0;
        if (!data && c->input_dtype == TD_I32) ((int32_t *)out)[i] = (int32_t)v;
        if (!data && c->input_dtype == TD_BOOL) ((uint8_t *)out)[i] = (uint8_t)(i % 3 == 0);
        if (data) ((double *)out)[i] = 1 + rig_random("input", (uint64_t)i) / 2;
    }
}

static inline void scale_params(const struct grad_case *c, struct rig *r) {
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        double *p = rig_state(r, i);
        for (int64_t k = 0; s->role == TD_ROLE_PARAM && k < td_shape_elems(&s->shape); k++) {
            p[k] = c->low + (c->high - c->low) * (p[k] + 1) / 2;
        }
    }
}

static inline bool has_op(const struct rig *r, int program, enum td_op op) {
    const struct td_graph *g = r->program[program].compiled->graph;
    bool found = false;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        found |= td_graph_node(g, n)->op == op;
    }
    return found;
}

static inline void check_window(const struct grad_case *c, const struct accelerator *a,
                                bool windowed) {
    struct rig r;
    rig_open_on(&r, a->ops, 1);
    struct grad_case copy = *c;
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 1, false),
                                   .windowed = windowed,
                                   .whole_logits_bytes = c->split_head ? 1 : 0,
                                   .record = copy.record ? copy.record : record,
                                   .record_arg = &copy};
    int program = rig_add(&r, &o), n_params = c->twice ? 1 : 0, n_grads = 0;
    assert_true(has_op(&r, program, TD_OP_LINEAR_CE_GRAD) == c->split_head);
    rig_place(&r);
    if (c->low != c->high) scale_params(c, &r);
    double window = windowed ? 0.25 : 1, input[MAX_IN][MAX_INPUTS];
    r.scalars[TD_SCALAR_WINDOW] = window;
    td_random_set(r.random, 7, 3, 5, 2);
    const void *inputs[MAX_IN];
    uint32_t n_inputs = 0;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!((c->inputs | c->data) >> i & 1)) continue;
        fill_input(c, c->data >> i & 1, input[n_inputs]);
        inputs[n_inputs] = input[n_inputs];
        n_inputs++;
    }
    rig_run(&r, program, TD_SEGS_ALL, inputs);
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *s = td_state_at(r.state, i);
        if (s->role != TD_ROLE_GRAD) continue;
        double *analytic = malloc(s->bytes + 1);
        memcpy(analytic, rig_state(&r, i), s->bytes);
        check_param(&r, program, i, inputs, analytic, window);
        free(analytic);
        n_grads++;
    }
    for (uint32_t i = 0; i < c->n_in && !c->twice; i++) {
        n_params += !((c->inputs | c->data) >> i & 1);
    }
    assert_int_equal(n_grads, n_params);
    rig_close(&r);
}

static inline void check(struct grad_case c) {
    int n = 0;
    for (size_t i = 0; i < here.n; i++) {
        const struct accelerator *a = &here.at[i];
        if (!(a->dtypes >> TD_F64 & 1)) continue;
        subject = a->name;
        check_window(&c, a, false);
        check_window(&c, a, true);
        n++;
    }
    assert_true(n > 0);
}

// What main does.
static inline int run_gradients(const char *program, const char *name,
                                const struct CMUnitTest *tests, size_t n_tests) {
    if (!open_accelerators(program, &here)) return 1;
    int failed = _cmocka_run_group_tests(name, tests, n_tests, NULL, NULL);
    close_accelerators(&here);
    return failed;
}

#endif
