// Simplify where it joins casts and folds constants: which nodes are left, and that every pixel and
// every constant comes out with the bits that it had.

#include "tests/unit/graph/graph_rig.h"

enum { B = 4, SIDE = 8 }; // 256 pixels: each value once

struct images {
    bool twice;          // something else reads the pixels as f32, through their view
    double constant;     // of the fill that is cast
    enum td_dtype dtype; // of the cast
    bool detour;         // both come there through bf16, which is narrower
};

// out = cast(view(pixels / 255)) * cast(constant), as a result that is read back.
static td_status record(const struct images *m, struct td_graph *g) {
    const struct td_shape images = rig_shape(3, B, SIDE, SIDE);
    const struct td_attrs pixels = {.dtype = TD_F32, .scale = 1.0 / 255};
    const struct td_attrs flat = {.shape = rig_shape(2, B, SIDE * SIDE, 0)};
    const struct td_attrs fill = {.dtype = TD_F32, .shape = flat.shape, .scale = m->constant};
    const struct td_attrs half = {.dtype = m->dtype}, narrow = {.dtype = TD_BF16};
    td_value x, c, y;
    TD_TRY(td_graph_input(g, "x", TD_U8, &images, &x));
    TD_TRY(td_graph_op(g, TD_OP_CAST, &x, 1, &pixels, &x));
    TD_TRY(td_graph_op(g, TD_OP_RESHAPE, &x, 1, &flat, &x));
    TD_TRY(td_graph_op(g, TD_OP_FILL, NULL, 0, &fill, &c));
    y = x;
    if (m->detour) TD_TRY(td_graph_op(g, TD_OP_CAST, &c, 1, &narrow, &c));
    if (m->detour) TD_TRY(td_graph_op(g, TD_OP_CAST, &y, 1, &narrow, &y));
    TD_TRY(td_graph_op(g, TD_OP_CAST, &c, 1, &half, &c));
    TD_TRY(td_graph_op(g, TD_OP_CAST, &y, 1, &half, &y));
    TD_TRY(td_graph_op(g, TD_OP_MUL, (td_value[]){y, c}, 2, NULL, &y));
    TD_TRY(td_graph_result(g, "y", y));
    return m->twice ? td_graph_result(g, "x", x) : TD_OK;
}

static struct td_graph *compile(struct rig *r, const struct images *m, bool simplifies) {
    struct td_compiled *c = td_calloc(1, sizeof *c);
    assert_non_null(c);
    r->program[r->n_programs++].compiled = c;
    assert_ok(td_graph_create("predict", TD_MODE_PREDICT, r->state, &c->graph));
    c->program.graph = c->graph;
    assert_ok(record(m, c->graph));
    if (simplifies) assert_ok(td_pass_simplify(c->graph));
    assert_ok(td_graph_verify(c->graph));
    assert_ok(td_pass_memory(c->graph, NULL, &c->placement, &c->program.arena_bytes));
    c->program.placement = c->placement;
    return c->graph;
}

static int count(const struct td_graph *g, enum td_op op, enum td_dtype dtype) {
    int n = 0;
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        const struct td_node_info *node = td_graph_node(g, i);
        n += node->op == op && td_graph_value(g, node->outputs[0])->dtype == dtype;
    }
    return n;
}

static void run(const struct images *m, bool simplifies, float out[B * SIDE * SIDE]) {
    uint8_t x[B * SIDE * SIDE];
    struct rig r;
    for (int i = 0; i < B * SIDE * SIDE; i++) {
        x[i] = (uint8_t)i;
    }
    rig_open(&r);
    compile(&r, m, simplifies);
    rig_place(&r);
    rig_run(&r, 0, TD_SEGS_ALL, (const void *const[]){x});
    memcpy(out, rig_named(&r, "y:4"), sizeof x * sizeof *out);
    rig_close(&r);
}

static void test_pixels_and_constants_keep_their_bits_when_cast_at_once(void **state) {
    (void)state;
    static const double constants[] = {1.0 / 49, 0.1, -3, 1 + 1.0 / 256 + 1e-12};
    float apart[B * SIDE * SIDE], joined[B * SIDE * SIDE];
    for (size_t i = 0; i < 4 * TD_COUNTOF(constants); i++) {
        const struct images m = {
            .constant = constants[i / 4], .dtype = i % 2 ? TD_F16 : TD_BF16, .detour = i & 2};
        run(&m, false, apart);
        run(&m, true, joined);
        assert_true(apart[255] != 0);
        assert_memory_equal(apart, joined, sizeof apart);
    }
}

static void test_pixels_are_cast_once_when_a_view_stands_between(void **state) {
    (void)state;
    const struct images m = {.constant = 0.5, .dtype = TD_BF16};
    struct rig r;
    rig_open(&r);
    const struct td_graph *g = compile(&r, &m, true);
    assert_int_equal(count(g, TD_OP_CAST, TD_BF16), 1);
    assert_int_equal(count(g, TD_OP_RESHAPE, TD_BF16), 1);
    assert_int_equal(count(g, TD_OP_CAST, TD_F32), 1); // of the result
    assert_int_equal(count(g, TD_OP_FILL, TD_BF16), 1);
    assert_int_equal(count(g, TD_OP_FILL, TD_F32), 0);
    rig_close(&r);
}

static void test_pixels_stay_f32_when_their_view_is_read_as_such(void **state) {
    (void)state;
    const struct images m = {.twice = true, .constant = 0.5, .dtype = TD_BF16};
    struct rig r;
    rig_open(&r);
    const struct td_graph *g = compile(&r, &m, true);
    assert_int_equal(count(g, TD_OP_RESHAPE, TD_F32), 1);
    assert_int_equal(count(g, TD_OP_CAST, TD_BF16), 1);
    assert_int_equal(count(g, TD_OP_CAST, TD_F32), 2);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pixels_and_constants_keep_their_bits_when_cast_at_once),
        cmocka_unit_test(test_pixels_are_cast_once_when_a_view_stands_between),
        cmocka_unit_test(test_pixels_stay_f32_when_their_view_is_read_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
