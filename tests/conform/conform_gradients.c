// Every gradient rule against finite differences, in fp64 on the reference: each differentiable op
// with all its operands as parameters, behind a loss whose adjoint is not one; and parameters that
// are read twice, broadcast, or not reached at all.

#include "tests/unit/graph_rig.h"

enum { MAX_IN = 3 };

struct grad_case {
    enum td_op op;
    uint32_t n_in;
    struct td_shape in[MAX_IN];
    struct td_attrs attrs;
    bool twice; // all operands are the first parameter
    bool plain; // the op's own output is the loss
};

static struct td_shape vec(int64_t n) {
    return rig_shape(1, n, 0, 0);
}

static struct td_shape mat(int64_t a, int64_t b) {
    return rig_shape(2, a, b, 0);
}

static struct td_shape scalar(void) {
    return rig_shape(0, 0, 0, 0);
}

// loss = sum of squares of the op's output, or the output itself.
static td_status record(void *arg, struct td_graph *g, int64_t batch) {
    const struct grad_case *c = arg;
    td_value in[MAX_IN], out[2];
    (void)batch;
    uint32_t n_params = c->op == TD_OP_SOFTMAX_CE ? 1 : c->n_in;
    for (uint32_t i = 0; i < n_params; i++) {
        char name[16];
        struct td_init init = {0};
        snprintf(name, sizeof name, "p%u", c->twice ? 0 : i);
        TD_TRY(td_graph_param(g, name, TD_F64, &c->in[i], init, &in[i]));
    }
    if (c->op == TD_OP_SOFTMAX_CE) {
        TD_TRY(td_graph_input(g, "y", TD_I32, &c->in[1], &in[1]));
    }
    TD_TRY(td_graph_op(g, c->op, in, c->n_in, &c->attrs, out));
    if (!c->plain) TD_TRY(td_graph_op(g, TD_OP_SUM_SQUARES, out, 1, NULL, out));
    TD_TRY(td_graph_output(g, "loss", out[0], TD_OUTPUT_MEAN));
    return td_graph_loss(g, out[0]);
}

static double loss_of(struct rig *r, int program, const void *const *inputs) {
    const struct td_compiled *c = r->program[program].compiled;
    rig_run(r, program, 1u << TD_SEG_FORWARD, inputs);
    size_t at = c->program.placement[td_graph_loss_value(c->graph)].offset;
    double loss;
    memcpy(&loss, (char *)td_buffer_host(r->program[program].arena) + at, sizeof loss);
    return loss;
}

static void check_param(struct rig *r, int program, uint32_t grad, const void *const *inputs,
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
        fail_msg("%s element %d: %.9g, by differences %.9g", td_state_at(r->state, grad)->name,
                 (int)k, analytic[k], numeric);
    }
}

static void check_window(const struct grad_case *c, bool windowed) {
    struct rig r;
    rig_open(&r);
    struct grad_case copy = *c;
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 1, false),
                                   .windowed = windowed,
                                   .record = record,
                                   .record_arg = &copy};
    int program = rig_add(&r, &o);
    rig_place(&r);
    double window = windowed ? 0.25 : 1;
    r.scalars[TD_SCALAR_WINDOW] = (float)window;
    int32_t labels[16];
    for (int i = 0; i < 16; i++) {
        labels[i] = i % (int)TD_MAX(c->in[0].dim[1], 1);
    }
    const void *inputs[] = {labels};
    rig_run(&r, program, TD_SEGS_ALL, inputs);
    int n_grads = 0;
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *s = td_state_at(r.state, i);
        if (s->role != TD_ROLE_GRAD) continue;
        double *analytic = malloc(s->bytes + 1);
        memcpy(analytic, rig_state(&r, i), s->bytes);
        check_param(&r, program, i, inputs, analytic, window);
        free(analytic);
        n_grads++;
    }
    assert_int_equal(n_grads, c->twice || c->op == TD_OP_SOFTMAX_CE ? 1 : (int)c->n_in);
    rig_close(&r);
}

static void check(struct grad_case c) {
    check_window(&c, false);
    check_window(&c, true);
}

static void
test_matmul_gradient_matches_differences_when_transposed_biased_activated(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        struct grad_case c = {.op = TD_OP_MATMUL, .n_in = form & 4 ? 3 : 2};
        c.in[0] = form & 1 ? mat(4, 3) : mat(3, 4);
        c.in[1] = form & 2 ? mat(5, 4) : mat(4, 5);
        c.in[2] = vec(5);
        c.attrs.trans_a = form & 1;
        c.attrs.trans_b = form & 2;
        c.attrs.act = form & 8 ? TD_ACT_RELU : TD_ACT_NONE;
        check(c);
        if (form & 1) continue;
        c.in[0] = rig_shape(3, 2, 3, 4); // leading dimensions are rows
        check(c);
    }
    check((struct grad_case){
        .op = TD_OP_MATMUL, .n_in = 2, .in = {mat(3, 3), mat(3, 3)}, .twice = true});
    check((struct grad_case){.op = TD_OP_MATMUL, .n_in = 2, .in = {vec(3), mat(3, 2)}});
}

static void test_elementwise_gradients_match_differences_when_broadcast(void **state) {
    (void)state;
    static const enum td_op ops[] = {TD_OP_ADD, TD_OP_MUL};
    for (int i = 0; i < 2; i++) {
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 4), mat(3, 4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 4), vec(4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 1), mat(1, 4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {scalar(), rig_shape(3, 2, 1, 3)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {vec(5), vec(5)}, .twice = true});
    }
    check((struct grad_case){.op = TD_OP_RELU, .n_in = 1, .in = {mat(5, 7)}});
    check((struct grad_case){.op = TD_OP_SCALE, .n_in = 2, .in = {mat(3, 4), scalar()}});
    check((struct grad_case){
        .op = TD_OP_SCALE, .n_in = 2, .in = {scalar(), scalar()}, .twice = true});
    check((struct grad_case){
        .op = TD_OP_RESHAPE, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.shape = mat(2, 6)}});
    check((struct grad_case){
        .op = TD_OP_CAST, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.dtype = TD_F64, .scale = -3}});
    check((struct grad_case){
        .op = TD_OP_CAST, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.dtype = TD_F64}});
    check((struct grad_case){.op = TD_OP_FILL,
                             .n_in = 1,
                             .in = {scalar()},
                             .attrs = {.dtype = TD_F64, .shape = mat(3, 2), .scale = 2}});
}

static void test_reduction_gradients_match_differences_when_loss_or_inner(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct grad_case c = {.n_in = 1, .in = {mat(3, 5)}, .plain = plain};
        c.op = TD_OP_MEAN;
        check(c);
        c.op = TD_OP_REDUCE_SUM;
        check(c);
        c.op = TD_OP_SUM_SQUARES;
        check(c);
        c.n_in = 2;
        c.in[1] = vec(4);
        check(c);
        c.n_in = 1;
        c.plain = false;
        c.op = TD_OP_REDUCE_SUM;
        c.attrs.shape = vec(5);
        check(c);
        c.attrs.shape = mat(3, 1);
        check(c);
    }
}

static void test_softmax_ce_gradient_matches_differences_when_loss_or_inner(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct grad_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2, .plain = plain};
        c.in[0] = mat(4, 6);
        c.in[1] = vec(4);
        check(c);
        c.in[0] = mat(1, 1);
        c.in[1] = vec(1);
        check(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_gradient_matches_differences_when_transposed_biased_activated),
        cmocka_unit_test(test_elementwise_gradients_match_differences_when_broadcast),
        cmocka_unit_test(test_reduction_gradients_match_differences_when_loss_or_inner),
        cmocka_unit_test(test_softmax_ce_gradient_matches_differences_when_loss_or_inner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
