// The memory plan, on random training graphs. Running inside it gives the same bits as giving every
// value its own memory, even when everything that is dead is overwritten with NaN at once. The
// arena is within 10 % of what is alive at the worst moment. Liveness is worked out here once more,
// the slow and obvious way.

#include "tests/unit/graph/memory_audit.h"

enum { GRAPHS = 60, MAX_POOL = 64, ROWS = 6 };

// ---- random graphs ------------------------------------------------------------------------------
struct dice {
    uint64_t seed, n;
};

static uint32_t roll(struct dice *d, uint32_t sides) {
    char name[32];
    snprintf(name, sizeof name, "dice %llu", (unsigned long long)d->seed);
    return (uint32_t)((rig_random(name, d->n++) + 1) / 2 * sides) % sides;
}

struct random_graph {
    struct dice dice;
    struct td_graph *g;
    td_value pool[MAX_POOL];
    uint32_t n_pool, n_params;
};

static td_value pick(struct random_graph *x) {
    return x->pool[roll(&x->dice, x->n_pool)];
}

static td_status param(struct random_graph *x, int64_t rows, int64_t cols, td_value *out_value) {
    char name[32];
    struct td_init init = {0};
    struct td_shape shape = rig_shape(2, rows, cols, 0);
    snprintf(name, sizeof name, "w%u", x->n_params++);
    return td_graph_param(x->g, name, TD_F32, &shape, init, out_value);
}

static td_status add_random_node(struct random_graph *x) {
    td_value in[3] = {pick(x)}, out[2];
    struct td_shape s = td_graph_value(x->g, in[0])->shape;
    struct td_attrs a = {0};
    static const enum td_op ops[] = {TD_OP_MATMUL, TD_OP_MATMUL, TD_OP_RELU,   TD_OP_ADD,
                                     TD_OP_MUL,    TD_OP_CAST,   TD_OP_RESHAPE};
    enum td_op op = ops[roll(&x->dice, TD_COUNTOF(ops))];
    uint32_t n_in = 1;
    if (op == TD_OP_MATMUL) {
        TD_TRY(param(x, s.dim[1], 1 + roll(&x->dice, 40), &in[1]));
        n_in = 2;
    } else if (op == TD_OP_ADD || op == TD_OP_MUL) {
        td_value other = pick(x); // of the same shape, else a parameter row
        bool same = td_shape_equal(&td_graph_value(x->g, other)->shape, &s);
        in[1] = other;
        if (!same) TD_TRY(param(x, 1, s.dim[1], &in[1]));
        n_in = 2;
    } else if (op == TD_OP_CAST) {
        a = (struct td_attrs){.dtype = TD_F32, .scale = 0.5};
    } else if (op == TD_OP_RESHAPE) {
        a.shape = rig_shape(2, s.dim[1], s.dim[0], 0);
    }
    TD_TRY(td_graph_op(x->g, op, in, n_in, &a, out));
    x->pool[x->n_pool++] = out[0];
    return TD_OK;
}

static td_status record_random(void *arg, struct td_graph *g, int64_t batch) {
    struct random_graph x = {.dice = {.seed = *(uint64_t *)arg}, .g = g};
    struct td_shape shape = rig_shape(2, batch, 5, 0);
    td_value loss = 0;
    TD_TRY(td_graph_input(g, "x", TD_F32, &shape, &x.pool[x.n_pool++]));
    uint32_t n_nodes = 5 + roll(&x.dice, 35);
    for (uint32_t i = 0; i < n_nodes; i++) {
        TD_TRY(add_random_node(&x));
    }
    for (uint32_t i = 0; i < 3; i++) { // a loss of several ends
        td_value end = i ? pick(&x) : x.pool[x.n_pool - 1], mean[2];
        TD_TRY(td_graph_op(g, TD_OP_MEAN, &end, 1, NULL, &mean[0]));
        mean[1] = loss;
        if (loss) TD_TRY(td_graph_op(g, TD_OP_ADD, mean, 2, NULL, &mean[0]));
        loss = mean[0];
    }
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static void check_graph(uint64_t seed, double *worst_ratio) {
    struct td_optimizer_options opt = {.op = TD_OP_SGD, .clip_norm = 1};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, ROWS, true),
                                   .record = record_random,
                                   .record_arg = &seed,
                                   .optimizer = &opt};
    struct rig r;
    rig_open(&r);
    int planned = rig_add(&r, &o), own = rig_add(&r, &o);
    give_own_places(r.program[own].compiled);
    rig_place(&r);
    struct audit a;
    audit_open(&a, &r.program[planned].compiled->program);
    a.arena = td_buffer_host(r.program[planned].arena);
    memset(r.program[planned].host_arena, 0xff, r.program[planned].arena.bytes);
    td_reference_trace(r.program[planned].exe, poison, &a);
    size_t worst = worst_moment(&a);
    double ratio = worst ? (double)a.p->arena_bytes / (double)worst : 1;
    *worst_ratio = fmax(*worst_ratio, ratio);
    float x[ROWS * 5];
    const void *in[] = {x};
    void *had[TD_ROLE_COUNT];
    double loss = 0;
    for (int way = 0; way < 2; way++) {
        int p = way ? own : planned;
        rig_reset_state(&r);
        for (int i = 0; i < ROWS * 5; i++) {
            x[i] = (float)rig_random("input", (uint64_t)i);
        }
        rig_run(&r, p, TD_SEGS_ALL, in);
        for (int i = 0; i < TD_ROLE_COUNT; i++) {
            size_t bytes = r.region[i].bytes;
            if (!way) {
                had[i] = memcpy(malloc(bytes), r.host[i], bytes);
            } else {
                assert_memory_equal(had[i], r.host[i], bytes);
            }
            if (way) free(had[i]);
        }
        if (!way) {
            loss = r.program[p].outputs[0];
        } else {
            assert_memory_equal(&loss, &r.program[p].outputs[0], sizeof loss);
        }
    }
    assert_true(isfinite(loss));
    audit_close(&a);
    rig_close(&r);
}

static void test_plan_keeps_the_bits_and_is_tight_when_graphs_are_random(void **state) {
    (void)state;
    double worst_ratio = 1;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        check_graph(seed, &worst_ratio);
    }
    print_message("# arena over what is alive at the worst moment: at most %.3f\n", worst_ratio);
    assert_true(worst_ratio <= 1.10);
}

static void test_plan_is_tight_when_the_step_is_an_mlp(void **state) {
    (void)state;
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 4, .width = {784, 512, 512, 10}};
    struct td_optimizer_options opt = {.op = TD_OP_SGD};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 128, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .optimizer = &opt};
    struct rig r;
    rig_open(&r);
    struct audit a;
    audit_open(&a, &r.program[rig_add(&r, &o)].compiled->program);
    size_t worst = worst_moment(&a);
    assert_true((double)a.p->arena_bytes <= 1.10 * (double)worst);
    // two hidden activations, their gradients in place, and little else
    assert_true(a.p->arena_bytes < (size_t)128 * 512 * 4 * 3 + 65536);
    audit_close(&a);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_keeps_the_bits_and_is_tight_when_graphs_are_random),
        cmocka_unit_test(test_plan_is_tight_when_the_step_is_an_mlp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
