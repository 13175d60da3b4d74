// The residual pass: what it joins, what it must leave alone, and that no bit moves on the
// reference, whose arena is NaN before the step.

#include "tests/unit/graph/graph_rig.h"

enum { B = 3, T = 5, C = 8 };

struct block {
    enum td_dtype dtype;
    enum td_op norm;
    bool peek; // something else reads the first sum before its norm does
    bool post; // two sums read what comes back from a norm
};

static td_status norm_of(const struct block *b, struct td_graph *g, const char *name, td_value x,
                         td_value *out) {
    const struct td_attrs eps = {.eps = 1e-5};
    const struct td_shape channels = rig_shape(1, C, 0, 0);
    struct td_init zero = {0};
    td_value in[3] = {x};
    char path[32];
    for (int i = 1; i < (b->norm == TD_OP_LAYER_NORM ? 3 : 2); i++) {
        snprintf(path, sizeof path, "%s.%d", name, i);
        TD_TRY(td_graph_param(g, path, b->dtype, &channels, zero, &in[i]));
    }
    return td_graph_op(g, b->norm, in, b->norm == TD_OP_LAYER_NORM ? 3 : 2, &eps, out);
}

// h += silu(norm(h)), or, with y = silu(h): norm(h + y) + h y.
static td_status add_block(const struct block *b, struct td_graph *g, const char *name,
                           td_value *h) {
    td_value y = *h, product, normed;
    if (!b->post) TD_TRY(norm_of(b, g, name, y, &y));
    TD_TRY(td_graph_op(g, TD_OP_SILU, &y, 1, NULL, &y));
    if (!b->post) return td_graph_op(g, TD_OP_ADD, (td_value[]){*h, y}, 2, NULL, h);
    TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){*h, y}, 2, NULL, &normed));
    TD_TRY(norm_of(b, g, name, normed, &normed));
    TD_TRY(td_graph_op(g, TD_OP_MUL, (td_value[]){*h, y}, 2, NULL, &product));
    return td_graph_op(g, TD_OP_ADD, (td_value[]){normed, product}, 2, NULL, h);
}

// h = x + place, a block, twice, and the loss of a norm of it.
static td_status record(void *arg, struct td_graph *g, int64_t batch) {
    const struct block *b = arg;
    const struct td_shape stream = rig_shape(3, batch, T, C), place = rig_shape(2, T, C, 0);
    struct td_init zero = {0};
    td_value h, in[2], y, peeked;
    TD_TRY(td_graph_param(g, "x", b->dtype, &stream, zero, &in[0]));
    TD_TRY(td_graph_param(g, "place", b->dtype, &place, zero, &in[1]));
    TD_TRY(td_graph_op(g, TD_OP_ADD, in, 2, NULL, &h));
    for (int i = 0; i < 2; i++) {
        TD_TRY(add_block(b, g, i ? "second" : "first", &h));
        if (i || !b->peek) continue;
        TD_TRY(td_graph_op(g, TD_OP_MEAN, &h, 1, NULL, &peeked));
        TD_TRY(td_graph_output(g, "peeked", peeked, TD_OUTPUT_MEAN));
    }
    TD_TRY(norm_of(b, g, "last", h, &y));
    TD_TRY(td_graph_op(g, TD_OP_SILU, &y, 1, NULL, &y));
    TD_TRY(td_graph_op(g, TD_OP_MEAN, &y, 1, NULL, &y));
    TD_TRY(td_graph_output(g, "loss", y, TD_OUTPUT_MEAN));
    return td_graph_loss(g, y);
}

// As td_compile would, but with or without the pass.
static void compile(struct rig *r, struct block *b, bool joins) {
    const struct td_autodiff_options autodiff = {0};
    struct td_compiled *c = td_calloc(1, sizeof *c);
    assert_non_null(c);
    r->program[r->n_programs++].compiled = c;
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, r->state, &c->graph));
    c->program.graph = c->graph;
    assert_ok(record(b, c->graph, B));
    assert_ok(td_pass_autodiff(c->graph, &autodiff));
    if (joins) assert_ok(td_pass_residual(c->graph));
    assert_ok(td_graph_verify(c->graph));
    assert_ok(td_pass_memory(c->graph, NULL, &c->placement, &c->program.arena_bytes));
    c->program.placement = c->placement;
}

static int count(const struct rig *r, enum td_op op, uint32_t n_in) {
    const struct td_graph *g = r->program[r->n_programs - 1].compiled->graph;
    int n = 0;
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        const struct td_node_info *node = td_graph_node(g, i);
        n += node->op == op && (!n_in || node->n_inputs == n_in);
    }
    return n;
}

struct outcome {
    double loss;
    size_t bytes;
    char grads[4096];
};

static struct outcome run(struct block *b, bool joins) {
    struct outcome out = {0};
    struct rig r;
    rig_open(&r);
    compile(&r, b, joins);
    rig_place(&r);
    memset(r.program[0].host_arena, 0xff, r.program[0].arena.bytes);
    rig_run(&r, 0, TD_SEGS_ALL, NULL);
    out.loss = r.program[0].outputs[b->peek ? 1 : 0];
    out.bytes = r.region[TD_ROLE_GRAD].bytes;
    assert_true(out.bytes <= sizeof out.grads);
    memcpy(out.grads, r.host[TD_ROLE_GRAD], out.bytes);
    rig_close(&r);
    return out;
}

static void test_steps_have_the_same_bits_when_sums_and_norms_are_joined(void **state) {
    (void)state;
    static const enum td_dtype types[] = {TD_F32, TD_F64, TD_BF16, TD_F16};
    for (size_t i = 0; i < 4 * TD_COUNTOF(types); i++) {
        struct block b = {.dtype = types[i / 4],
                          .norm = i % 2 ? TD_OP_RMS_NORM : TD_OP_LAYER_NORM,
                          .post = i & 2};
        struct outcome apart = run(&b, false), joined = run(&b, true);
        assert_true(isfinite(apart.loss) && apart.loss == joined.loss && apart.loss != 0);
        assert_int_equal(apart.bytes, joined.bytes);
        assert_memory_equal(apart.grads, joined.grads, apart.bytes);
    }
}

static void test_every_sum_of_the_stream_is_joined_when_a_norm_reads_it_first(void **state) {
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        struct block b = {.dtype = TD_F32, .norm = rms ? TD_OP_RMS_NORM : TD_OP_LAYER_NORM};
        struct rig r;
        rig_open(&r);
        compile(&r, &b, true);
        assert_int_equal(count(&r, rms ? TD_OP_ADD_RMS_NORM : TD_OP_ADD_LAYER_NORM, 0), 2);
        // The last norm's gradient begins the stream's, the others add to it.
        assert_int_equal(count(&r, rms ? TD_OP_RMS_NORM_GRAD : TD_OP_LAYER_NORM_GRAD, 4), 2);
        assert_int_equal(count(&r, rms ? TD_OP_RMS_NORM_GRAD : TD_OP_LAYER_NORM_GRAD, 3), 1);
        assert_int_equal(count(&r, b.norm, 0), 1); // of the sum that broadcasts
        assert_int_equal(count(&r, TD_OP_ADD, 0), 1);
        rig_close(&r);
    }
}

static void test_sum_stays_apart_when_something_else_reads_it_first(void **state) {
    (void)state;
    struct block b = {.dtype = TD_F32, .norm = TD_OP_LAYER_NORM, .peek = true};
    struct rig r;
    rig_open(&r);
    compile(&r, &b, true);
    assert_int_equal(count(&r, TD_OP_ADD_LAYER_NORM, 0), 1);
    assert_int_equal(count(&r, TD_OP_LAYER_NORM, 0), 2);
    rig_close(&r);
}

// y = norm(a + b, gamma made of the sum's neighbour), in an order that one node cannot keep.
static void test_sum_stays_apart_when_the_scale_is_made_after_it(void **state) {
    (void)state;
    const struct td_shape rows = rig_shape(2, B, C, 0), channels = rig_shape(1, C, 0, 0);
    struct td_init zero = {0};
    struct td_graph *g;
    struct rig r;
    td_value in[2], gamma, h, y;
    rig_open(&r);
    assert_ok(td_graph_create("train", TD_MODE_EVAL, r.state, &g));
    assert_ok(td_graph_param(g, "a", TD_F32, &rows, zero, &in[0]));
    assert_ok(td_graph_param(g, "b", TD_F32, &rows, zero, &in[1]));
    assert_ok(td_graph_param(g, "gamma", TD_F32, &channels, zero, &gamma));
    assert_ok(td_graph_op(g, TD_OP_ADD, in, 2, NULL, &h));
    assert_ok(td_graph_op(g, TD_OP_EXP, &gamma, 1, NULL, &gamma));
    assert_ok(td_graph_op(g, TD_OP_RMS_NORM, (td_value[]){h, gamma}, 2, NULL, &y));
    assert_ok(td_graph_op(g, TD_OP_MEAN, &y, 1, NULL, &y));
    assert_ok(td_graph_output(g, "mean", y, TD_OUTPUT_MEAN));
    assert_ok(td_pass_residual(g));
    assert_ok(td_graph_verify(g));
    assert_int_equal(td_graph_n_nodes(g), 4);
    assert_int_equal(td_graph_node(g, 0)->op, TD_OP_ADD);
    assert_int_equal(td_graph_node(g, 2)->op, TD_OP_RMS_NORM);
    td_graph_destroy(g);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_have_the_same_bits_when_sums_and_norms_are_joined),
        cmocka_unit_test(test_every_sum_of_the_stream_is_joined_when_a_norm_reads_it_first),
        cmocka_unit_test(test_sum_stays_apart_when_something_else_reads_it_first),
        cmocka_unit_test(test_sum_stays_apart_when_the_scale_is_made_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
