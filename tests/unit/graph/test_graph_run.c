// Programs as the trainer runs them, on the reference: segments one by one or fused, overwriting or
// accumulating, with and without sync; optimizers against torch's formulas worked out by hand.

#include "tests/unit/graph/graph_rig.h"

enum { BATCH = 12 };

static struct rig_mlp mlp(enum td_dtype dtype) {
    return (struct rig_mlp){.dtype = dtype, .n_widths = 4, .width = {7, 9, 5, 4}};
}

static struct td_optimizer_options adamw(void) {
    return (struct td_optimizer_options){
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
        .clip_norm = 0.5};
}

static td_status ddp(void *arg, struct td_graph *g, const struct td_program_key *key) {
    TD_TRY(td_rewrite_assign_buckets(g, 64, *(size_t *)arg));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

static void snapshot(struct rig *r, void *out[TD_ROLE_COUNT]) {
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        out[i] = malloc(r->region[i].bytes);
        memcpy(out[i], r->host[i], r->region[i].bytes);
    }
}

static void compare(struct rig *r, void *had[TD_ROLE_COUNT]) {
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        assert_memory_equal(had[i], r->host[i], r->region[i].bytes);
        free(had[i]);
    }
}

static void test_step_gives_the_same_bits_when_segments_run_one_by_one(void **state) {
    (void)state;
    struct rig_mlp m = mlp(TD_F32);
    struct td_optimizer_options opt = adamw();
    struct rig r;
    rig_open(&r);
    size_t cap = 128;
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, BATCH, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .strategy = ddp,
                                   .strategy_arg = &cap,
                                   .optimizer = &opt};
    int p = rig_add(&r, &o);
    rig_place(&r);
    float x[BATCH * 7];
    double fused_loss = 0;
    int32_t y[BATCH];
    const void *in[] = {x, y};
    void *had[TD_ROLE_COUNT];
    for (int way = 0; way < 2; way++) {
        rig_reset_state(&r);
        for (int step = 1; step <= 3; step++) {
            rig_batch(&m, step * BATCH, BATCH, x, y);
            r.scalars[TD_SCALAR_STEP] = step;
            rig_raise(&r, step);
            if (!way) rig_run(&r, p, TD_SEGS_ALL, in);
            for (int s = 0; s < TD_SEG_COUNT && way; s++) {
                rig_run(&r, p, 1u << s, in);
            }
            rig_expect_agreed(&r, step);
        }
        if (!way) snapshot(&r, had);
        if (!way) fused_loss = r.program[p].outputs[0];
    }
    assert_true(r.program[p].outputs[0] == fused_loss && isfinite(fused_loss) && fused_loss > 0);
    compare(&r, had);
    int n = (int)td_state_n_buckets(r.state); // 6 steps reduced each bucket in ascending order
    assert_true(n >= 3 && r.n_reduced == 6 * n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r.reduced[i], i);
    }
    rig_close(&r);
}

static void test_window_of_two_equals_one_big_batch_when_accumulating(void **state) {
    (void)state;
    struct rig_mlp m = mlp(TD_F64);
    struct rig r;
    rig_open(&r);
    struct td_compile_options o = {.record = rig_record_mlp, .record_arg = &m};
    o.key = rig_key(TD_MODE_TRAIN, BATCH, false);
    int whole = rig_add(&r, &o);
    o.key = rig_key(TD_MODE_TRAIN, BATCH / 2, false);
    o.windowed = true;
    int first = rig_add(&r, &o);
    o.key.accumulate = true;
    int later = rig_add(&r, &o);
    rig_place(&r);
    double x[BATCH * 7], *grads = (double *)(void *)r.host[TD_ROLE_GRAD];
    int32_t y[BATCH];
    const void *in[] = {x, y};
    size_t n = td_state_control_offset(r.state) / sizeof(double);
    double *want = malloc(n * sizeof *want);
    rig_batch(&m, 0, BATCH, x, y);
    rig_run(&r, whole, TD_SEGS_ALL, in);
    memcpy(want, grads, n * sizeof *want);
    for (int again = 0; again < 2; again++) { // the first micro-batch overwrites
        r.scalars[TD_SCALAR_WINDOW] = 0.5f;
        rig_batch(&m, 0, BATCH / 2, x, y);
        rig_run(&r, first, TD_SEGS_ALL, in);
        rig_batch(&m, BATCH / 2, BATCH / 2, x, y);
        rig_run(&r, later, TD_SEGS_ALL, in);
        double largest = 0;
        for (size_t i = 0; i < n; i++) {
            assert_true(fabs(grads[i] - want[i]) < 1e-12);
            largest = fmax(largest, fabs(want[i]));
        }
        assert_true(largest > 1e-3);
    }
    free(want);
    rig_close(&r);
}

static void test_fusing_keeps_the_bits_when_run_on_the_reference(void **state) {
    (void)state;
    struct rig_mlp m = mlp(TD_F32);
    struct rig r;
    rig_open(&r);
    struct td_compile_options o = {.record = rig_record_mlp, .record_arg = &m};
    o.key = rig_key(TD_MODE_TRAIN, BATCH, false);
    o.key.accumulate = true;
    int fused = rig_add(&r, &o);
    // The same by hand, without simplify and fuse.
    struct td_compiled *c = td_calloc(1, sizeof *c);
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, r.state, &c->graph));
    assert_ok(rig_record_mlp(&m, c->graph, BATCH));
    struct td_autodiff_options ad = {.accumulate = true, .windowed = true};
    assert_ok(td_pass_autodiff(c->graph, &ad));
    assert_ok(td_pass_memory(c->graph, NULL, &c->placement, &c->program.arena_bytes));
    c->program.key = o.key;
    c->program.graph = c->graph;
    c->program.placement = c->placement;
    int plain = r.n_programs;
    r.program[r.n_programs++].compiled = c;
    assert_true(td_graph_n_nodes(c->graph) >
                td_graph_n_nodes(r.program[fused].compiled->graph) + 5);
    rig_place(&r);
    float x[BATCH * 7];
    int32_t y[BATCH];
    const void *in[] = {x, y};
    void *had[TD_ROLE_COUNT];
    for (int way = 0; way < 2; way++) {
        rig_reset_state(&r);
        for (int i = 0; i < 2; i++) {
            rig_batch(&m, i * BATCH, BATCH, x, y);
            rig_run(&r, way ? plain : fused, TD_SEGS_ALL, in);
        }
        if (!way) snapshot(&r, had);
    }
    compare(&r, had);
    rig_close(&r);
}

// ---- optimizers by hand -------------------------------------------------------------------------
// One parameter of two elements; the loss is sum_squares, so the gradient is 2 p.
static td_status record_square(void *arg, struct td_graph *g, int64_t batch) {
    (void)batch;
    struct td_shape two = rig_shape(1, 2, 0, 0);
    struct td_init init = {0};
    td_value p, loss;
    TD_TRY(td_graph_param(g, "p", *(enum td_dtype *)arg, &two, init, &p));
    TD_TRY(td_graph_op(g, TD_OP_SUM_SQUARES, &p, 1, NULL, &loss));
    return td_graph_loss(g, loss);
}

struct hand { // torch, element by element
    double p, m, v;
};

// No rate that fp32 holds: fp64 has it whole.
static double lr_of(int t) {
    return 0.1 / t;
}

static void hand_step(struct hand *h, const struct td_optimizer_options *o, double g, int t) {
    double b1 = o->attrs.beta1, b2 = o->attrs.beta2, lr = lr_of(t);
    double wd = o->attrs.weight_decay, mu = o->attrs.momentum;
    if (o->op == TD_OP_SGD) {
        g = g + wd * h->p;
        h->m = t == 1 ? g : mu * h->m + (1 - o->attrs.dampening) * g;
        h->p -= lr * (mu == 0 ? g : o->attrs.nesterov ? g + mu * h->m : h->m);
        return;
    }
    if (o->op == TD_OP_ADAMW) {
        h->p = h->p * (1 - lr * wd);
    } else {
        g = g + wd * h->p;
    }
    h->m = b1 * h->m + (1 - b1) * g;
    h->v = b2 * h->v + (1 - b2) * g * g;
    double denominator = sqrt(h->v) / sqrt(1 - pow(b2, t)) + o->attrs.eps;
    h->p -= lr / (1 - pow(b1, t)) * h->m / denominator;
}

static void check_optimizer(struct td_optimizer_options o) {
    enum td_dtype dtype = TD_F64;
    struct rig r;
    rig_open(&r);
    struct td_compile_options c = {.key = rig_key(TD_MODE_TRAIN, 1, true),
                                   .record = record_square,
                                   .record_arg = &dtype,
                                   .optimizer = &o};
    int program = rig_add(&r, &c);
    rig_place(&r);
    double *p = rig_named(&r, "p");
    p[0] = 3, p[1] = -0.5;
    struct hand h[2] = {{.p = 3}, {.p = -0.5}};
    for (int t = 1; t <= 5; t++) {
        r.scalars[TD_SCALAR_STEP] = t;
        r.scalars[TD_SCALAR_LR] = lr_of(t);
        double norm = sqrt(4 * h[0].p * h[0].p + 4 * h[1].p * h[1].p), coef = 1;
        if (o.clip_norm > 0) coef = fmin(1, o.clip_norm / (norm + 1e-6));
        for (int i = 0; i < 2; i++) {
            hand_step(&h[i], &o, 2 * h[i].p * coef, t);
        }
        rig_run(&r, program, TD_SEGS_ALL, NULL);
        assert_true(fabs(p[0] - h[0].p) < 1e-14 && fabs(p[1] - h[1].p) < 1e-14);
    }
    rig_close(&r);
}

static void test_sgd_is_torchs_when_plain_with_momentum_and_nesterov(void **state) {
    (void)state;
    struct td_optimizer_options o = {.op = TD_OP_SGD};
    check_optimizer(o);
    o.attrs.weight_decay = 0.1;
    check_optimizer(o);
    o.attrs.momentum = 0.9;
    o.attrs.dampening = 0.25;
    check_optimizer(o);
    o.attrs.dampening = 0;
    o.attrs.nesterov = true;
    check_optimizer(o);
    o.clip_norm = 0.5;
    check_optimizer(o);
}

static void test_adam_and_adamw_are_torchs_when_decayed_and_clipped(void **state) {
    (void)state;
    struct td_optimizer_options o = adamw();
    check_optimizer(o);
    o.clip_norm = 0;
    check_optimizer(o);
    o.op = TD_OP_ADAM;
    check_optimizer(o);
    o.clip_norm = 2;
    check_optimizer(o); // what decays is not clipped
    o.attrs.weight_decay = 0;
    check_optimizer(o);
}

// What torch 2 gives: p = [3, -0.5], grad = 2 p, AdamW(lr=0.1), one step.
static void test_adamw_matches_a_published_step_when_defaults_are_used(void **state) {
    (void)state;
    enum td_dtype dtype = TD_F32;
    struct td_optimizer_options o = adamw();
    o.clip_norm = 0;
    struct rig r;
    rig_open(&r);
    struct td_compile_options c = {.key = rig_key(TD_MODE_TRAIN, 1, true),
                                   .record = record_square,
                                   .record_arg = &dtype,
                                   .optimizer = &o};
    int program = rig_add(&r, &c);
    rig_place(&r);
    float *p = rig_named(&r, "p");
    p[0] = 3, p[1] = -0.5f;
    r.scalars[TD_SCALAR_LR] = 0.1f;
    rig_run(&r, program, TD_SEGS_ALL, NULL);
    // 3 (1 - 0.001) - 0.1 and -0.5 (1 - 0.001) + 0.1: the first step is lr times the sign
    assert_true(fabsf(p[0] - 2.897f) < 1e-6f && fabsf(p[1] + 0.3995f) < 1e-6f);
    // 1 - 0.999 before it is rounded; 1 - 0.999f is a hundred thousandth less
    const float *v = rig_named(&r, "p:exp_avg_sq");
    assert_true(fabsf(v[0] - 0.036f) < 1e-8f);
    rig_close(&r);
}

static void choose(const void *arg, const struct td_state_info *param, struct td_optim_choice *io) {
    (void)arg;
    io->frozen = strcmp(param->name, "fc2.bias") == 0;
    if (param->shape.n_dims < 2) return;
    io->op = TD_OP_SGD;
    io->attrs.weight_decay = 0.5;
}

static void test_update_is_the_hooks_when_chosen_per_parameter(void **state) {
    (void)state;
    struct rig_mlp m = mlp(TD_F32);
    struct td_optimizer_options opt = adamw();
    opt.choose = choose;
    struct rig r;
    rig_open(&r);
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, BATCH, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .optimizer = &opt};
    const struct td_graph *g = r.program[rig_add(&r, &o)].compiled->graph;
    int seen = 0;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (node->op != TD_OP_ADAMW && node->op != TD_OP_SGD) continue;
        bool matrix = td_graph_value(g, node->inputs[0])->shape.n_dims == 2;
        assert_int_equal(node->op, matrix ? TD_OP_SGD : TD_OP_ADAMW);
        assert_true(node->attrs.optim.weight_decay == (matrix ? 0.5 : 0.01));
        seen++;
    }
    assert_int_equal(seen, 5);
    td_status none = td_state_find(r.state, "fc2.bias:exp_avg", &(uint32_t){0});
    assert_fails(none, TD_NOT_FOUND, "fc2.bias");
    rig_close(&r);
}

static void test_eval_program_is_the_forward_part_when_compiled_for_eval(void **state) {
    (void)state;
    struct rig_mlp m = mlp(TD_F32);
    struct td_optimizer_options opt = adamw();
    struct rig r;
    rig_open(&r);
    struct td_compile_options o = {.key = rig_key(TD_MODE_EVAL, BATCH, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .optimizer = &opt};
    int p = rig_add(&r, &o);
    const struct td_graph *g = r.program[p].compiled->graph;
    assert_int_equal(td_graph_n_nodes(g), 5);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        assert_int_equal(td_graph_node(g, n)->segment, TD_SEG_FORWARD);
    }
    rig_place(&r);
    float x[BATCH * 7];
    int32_t y[BATCH];
    const void *in[] = {x, y};
    rig_batch(&m, 0, BATCH, x, y);
    rig_run(&r, p, TD_SEGS_ALL, in);
    double correct = r.program[p].outputs[1];
    assert_true(correct >= 0 && correct <= (int)BATCH && correct == trunc(correct));
    y[3] = 4; // outside the classes
    td_ticket ticket;
    assert_fails(rig_begin(&r, p, TD_SEGS_ALL, in, &ticket), TD_INVALID_ARGUMENT,
                 "label 4 in row 3 is outside the model's 4 classes");
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_gives_the_same_bits_when_segments_run_one_by_one),
        cmocka_unit_test(test_window_of_two_equals_one_big_batch_when_accumulating),
        cmocka_unit_test(test_fusing_keeps_the_bits_when_run_on_the_reference),
        cmocka_unit_test(test_sgd_is_torchs_when_plain_with_momentum_and_nesterov),
        cmocka_unit_test(test_adam_and_adamw_are_torchs_when_decayed_and_clipped),
        cmocka_unit_test(test_adamw_matches_a_published_step_when_defaults_are_used),
        cmocka_unit_test(test_update_is_the_hooks_when_chosen_per_parameter),
        cmocka_unit_test(test_eval_program_is_the_forward_part_when_compiled_for_eval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
