// What ops mean, by values worked out by hand or taken from their published definitions: the
// reference is the specification of every accelerator, so something else must hold the reference.

#include "accelerators/reference/families.h"
#include "tests/unit/graph/graph_rig.h"

enum { MOST = 32, OPERANDS = 6 };

struct known {
    const char *what;
    enum td_op op;
    uint32_t n_in;
    struct {
        struct td_shape shape;
        double x[MOST];
    } in[OPERANDS];
    struct td_attrs attrs;
    struct {
        int64_t n;
        double x[MOST];
    } out[TD_MAX_OUT]; // n 0: not looked at
};

static bool is_label(const struct known *k, uint32_t i) {
    return k->op == TD_OP_SOFTMAX_CE && i == 1;
}

static td_status record_known(void *arg, struct td_graph *g, int64_t batch) {
    const struct known *k = arg;
    td_value in[OPERANDS], out[TD_MAX_OUT], end;
    struct td_init zero = {0};
    (void)batch;
    for (uint32_t i = 0; i < k->n_in; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        TD_TRY(is_label(k, i) ? td_graph_input(g, name, TD_I32, &k->in[i].shape, &in[i])
                              : td_graph_param(g, name, TD_F64, &k->in[i].shape, zero, &in[i]));
    }
    TD_TRY(td_graph_op(g, k->op, in, k->n_in, &k->attrs, out));
    // Keeps all outputs alive to the end, as an output of the step does.
    for (int i = 0; i < TD_MAX_OUT; i++) {
        char name[16];
        snprintf(name, sizeof name, "o%d", i);
        if (!k->out[i].n) continue;
        struct td_attrs cast = {.dtype = TD_F64};
        TD_TRY(td_graph_op(g, TD_OP_CAST, &out[i], 1, &cast, &end));
        TD_TRY(td_graph_op(g, TD_OP_SUM_SQUARES, &end, 1, NULL, &end));
        TD_TRY(td_graph_output(g, name, end, TD_OUTPUT_SUM));
    }
    return TD_OK;
}

// Output i of the first node, where it is when that node has run.
struct watch {
    struct rig *r;
    const struct known *k;
    bool seen;
};

static void compare(void *arg, td_node n) {
    struct watch *w = arg;
    const struct td_compiled *c = w->r->program[0].compiled;
    const struct td_node_info *node = td_graph_node(c->graph, n);
    if (node->op != w->k->op || w->seen) return;
    w->seen = true;
    for (uint32_t i = 0; i < TD_MAX_OUT; i++) {
        if (!w->k->out[i].n) continue;
        const struct td_value_info *v = td_graph_value(c->graph, node->outputs[i]);
        const char *at = (const char *)td_buffer_host(w->r->program[0].arena) +
                         c->placement[node->outputs[i]].offset;
        assert_int_equal(td_shape_elems(&v->shape), w->k->out[i].n);
        for (int64_t e = 0; e < w->k->out[i].n; e++) {
            double want = w->k->out[i].x[e];
            double got = v->dtype == TD_U8 ? ((const uint8_t *)at)[e] : rig_get(v->dtype, at, e);
            if (fabs(got - want) < 1e-6) continue;
            fail_msg("%s: element %d of output %u is %.9g, not %.9g", w->k->what, (int)e, i, got,
                     want);
        }
    }
}

// check: looks at what the op has written besides; NULL: nothing.
static void run_known(const struct known *k, void (*check)(struct rig *r)) {
    struct rig r;
    struct known copy = *k;
    struct td_compile_options o = {
        .key = rig_key(TD_MODE_EVAL, 1, false), .record = record_known, .record_arg = &copy};
    rig_open(&r);
    rig_add(&r, &o);
    rig_place(&r);
    int32_t label[MOST];
    for (int i = 0; i < MOST; i++) {
        label[i] = (int32_t)k->in[1].x[i];
    }
    for (uint32_t i = 0; i < k->n_in; i++) {
        char name[16];
        if (is_label(k, i)) continue;
        snprintf(name, sizeof name, "p%u", i);
        memcpy(rig_named(&r, name), k->in[i].x,
               (size_t)td_shape_elems(&k->in[i].shape) * sizeof(double));
    }
    struct watch w = {&r, k, false};
    td_reference_trace(r.program[0].exe, compare, &w);
    rig_run(&r, 0, TD_SEGS_ALL, (const void *const[]){label});
    assert_true(w.seen);
    if (check) check(&r);
    rig_close(&r);
}

#define S1(a)                                                                                      \
    {                                                                                              \
        1, {                                                                                       \
            a                                                                                      \
        }                                                                                          \
    }
#define S2(a, b)                                                                                   \
    {                                                                                              \
        2, {                                                                                       \
            a, b                                                                                   \
        }                                                                                          \
    }
#define S4(a, b, c, d)                                                                             \
    {                                                                                              \
        4, {                                                                                       \
            a, b, c, d                                                                             \
        }                                                                                          \
    }

static const struct known functions[] = {
    {"leaky_relu",
     TD_OP_LEAKY_RELU,
     1,
     {{S1(3), {-2, 0, 3}}},
     {.scale = 0.25},
     {{3, {-0.5, 0, 3}}}},
    {"gelu", TD_OP_GELU, 1, {{S1(3), {-1, 0, 2}}}, {0}, {{3, {-0.158655254, 0, 1.954499736}}}},
    {"gelu tanh",
     TD_OP_GELU,
     1,
     {{S1(3), {-1, 0, 2}}},
     {.gelu_tanh = true},
     {{3, {-0.158808009, 0, 1.954597694}}}},
    {"silu", TD_OP_SILU, 1, {{S1(2), {-1, 2}}}, {0}, {{2, {-0.268941421, 1.761594156}}}},
    {"softmax",
     TD_OP_SOFTMAX,
     1,
     {{S1(3), {1, 2, 3}}},
     {0},
     {{3, {0.090030573, 0.244728471, 0.665240956}}}},
    {"log_softmax",
     TD_OP_LOG_SOFTMAX,
     1,
     {{S1(2), {1000, 1000}}},
     {0},
     {{2, {-0.693147181, -0.693147181}}}},
    {"mse", TD_OP_MSE, 2, {{S1(2), {1, 5}}, {S1(2), {0, 2}}}, {0}, {{1, {5}}, {2, {1, 3}}}},
    {"right sides",
     TD_OP_COUNT_CORRECT,
     2,
     {{S1(3), {-1, 2, 0.5}}, {S1(3), {0, 1, 0}}},
     {0},
     {{1, {2}}}},
    {"bce",
     TD_OP_BCE,
     2,
     {{S1(2), {0, 2}}, {S1(2), {1, 0}}},
     {0},
     {{1, {1.410037596}}, {2, {-0.25, 0.440398539}}}},
};

static const struct known rearranged[] = {
    {"transpose",
     TD_OP_TRANSPOSE,
     1,
     {{S2(2, 3), {1, 2, 3, 4, 5, 6}}},
     {.perm = {1, 0}},
     {{6, {1, 4, 2, 5, 3, 6}}}},
    {"slice",
     TD_OP_SLICE,
     1,
     {{S2(2, 3), {1, 2, 3, 4, 5, 6}}},
     {.shape = S2(2, 2), .start = {0, 1}},
     {{4, {2, 3, 5, 6}}}},
    {"pad",
     TD_OP_PAD,
     1,
     {{S1(2), {1, 2}}},
     {.shape = S1(4), .start = {1}, .scale = 9},
     {{4, {9, 1, 2, 9}}}},
    {"concat",
     TD_OP_CONCAT,
     2,
     {{S2(2, 1), {1, 2}}, {S2(2, 2), {3, 4, 5, 6}}},
     {.axis = 1},
     {{6, {1, 3, 4, 2, 5, 6}}}},
    {"reduce_mean",
     TD_OP_REDUCE_MEAN,
     1,
     {{S2(2, 2), {1, 2, 3, 5}}},
     {.shape = S2(2, 1)},
     {{2, {1.5, 4}}}},
    {"reduce_max",
     TD_OP_REDUCE_MAX,
     1,
     {{S2(2, 2), {1, 7, 3, 5}}},
     {.shape = S1(2)},
     {{2, {3, 7}}}},
};

static const struct known norms[] = {
    {"layer_norm",
     TD_OP_LAYER_NORM,
     3,
     {{S2(1, 3), {1, 2, 3}}, {S1(3), {1, 1, 2}}, {S1(3), {0, 1, 0}}},
     {0},
     {{3, {-1.224744871, 1, 2.449489743}}}},
    {"rms_norm",
     TD_OP_RMS_NORM,
     2,
     {{S2(1, 2), {3, 4}}, {S1(2), {1, 2}}},
     {0},
     {{2, {0.848528137, 2.262741700}}}},
    {"add_layer_norm",
     TD_OP_ADD_LAYER_NORM,
     4,
     {{S2(1, 3), {5, 1, 0}}, {S2(1, 3), {-4, 1, 3}}, {S1(3), {1, 1, 2}}, {S1(3), {0, 1, 0}}},
     {0},
     {{3, {-1.224744871, 1, 2.449489743}}, {3, {1, 2, 3}}}},
    {"add_rms_norm",
     TD_OP_ADD_RMS_NORM,
     3,
     {{S2(1, 2), {1, 1}}, {S2(1, 2), {2, 3}}, {S1(2), {1, 2}}},
     {0},
     {{2, {0.848528137, 2.262741700}}, {2, {3, 4}}}},
    {"rms_norm_grad with more",
     TD_OP_RMS_NORM_GRAD,
     4,
     {{S2(1, 2), {1, 1}}, {S1(2), {1, 1}}, {S2(1, 2), {1, 3}}, {S2(1, 2), {10, 20}}},
     {0},
     {{2, {9, 21}}, {2, {1, 3}}}},
    {"layer_norm_grad with more",
     TD_OP_LAYER_NORM_GRAD,
     4,
     {{S2(1, 2), {0, 2}}, {S1(2), {1, 1}}, {S2(1, 2), {1, 3}}, {S2(1, 2), {10, 20}}},
     {0},
     {{2, {10, 20}}, {2, {-1, 3}}, {2, {1, 3}}}},
    {"batch_norm_eval",
     TD_OP_BATCH_NORM_EVAL,
     5,
     {{S2(2, 2), {1, 2, 3, 4}}, {S1(2), {2, 1}}, {S1(2), {0, 1}}, {S1(2), {1, 0}}, {S1(2), {4, 1}}},
     {0},
     {{4, {0, 3, 2, 5}}}},
};

// Losses and gradients are those of torch.nn.functional.cross_entropy.
static const struct known classes[] = {
    {"cross entropy",
     TD_OP_SOFTMAX_CE,
     2,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}}, {S1(3), {2, 0, 3}}},
     {0},
     {{1, {2.355059943}},
      {12,
       {0.074735939, 0.203153346, -0.323218924, 0.045329639, -0.318757939, 0.024030762, 0.292754612,
        0.001972565, 0.010686201, 0.078960939, 0.029048106, -0.118695247}}}},
    {"cross entropy with weights",
     TD_OP_SOFTMAX_CE,
     3,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}},
      {S1(3), {2, 0, 3}},
      {S1(4), {0.5, 2, 1, 1.5}}},
     {0},
     {{1, {1.906790187}},
      {12,
       {0.074735939, 0.203153346, -0.323218924, 0.045329639, -0.15937897, 0.012015381, 0.146377306,
        0.000986283, 0.016029302, 0.118441409, 0.043572159, -0.17804287}}}},
    {"smoothed cross entropy",
     TD_OP_SOFTMAX_CE,
     2,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}}, {S1(3), {2, 0, 3}}},
     {.label_smoothing = 0.2},
     {{1, {2.321726610}},
      {12,
       {0.058069273, 0.186486679, -0.273218924, 0.028662972, -0.268757939, 0.007364095, 0.276087946,
        -0.014694102, -0.005980466, 0.062294273, 0.01238144, -0.068695247}}}},
    {"smoothed cross entropy with weights",
     TD_OP_SOFTMAX_CE,
     3,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}},
      {S1(3), {2, 0, 3}},
      {S1(4), {0.5, 2, 1, 1.5}}},
     {.label_smoothing = 0.2},
     {{1, {2.035030469}},
      {12,
       {0.070139403, 0.17997768, -0.272713203, 0.022596121, -0.132192661, -0.017713338, 0.173623831,
        -0.023717833, 0.007161658, 0.081160029, 0.025453087, -0.113774774}}}},
    {"the same, and a label is ignored",
     TD_OP_SOFTMAX_CE,
     3,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}},
      {S1(3), {2, 0, 3}},
      {S1(4), {0.5, 2, 1, 1.5}}},
     {.label_smoothing = 0.2, .ignores = true, .ignore_index = 0},
     {{1, {1.648286422}},
      {12,
       {0.084167284, 0.215973216, -0.327255844, 0.027115345, 0, 0, 0, 0, 0.00859399, 0.097392034,
        0.030543705, -0.136529729}}}},
    {"smoothed cross entropy, and all labels weigh 0",
     TD_OP_SOFTMAX_CE,
     3,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}},
      {S1(3), {2, 0, 3}},
      {S1(4), {0, 2, 0, 0}}},
     {.label_smoothing = 0.2},
     {{1, {0.456517983}}, {12, {0}}}},
    {"cross entropy, and the last label is ignored",
     TD_OP_SOFTMAX_CE,
     2,
     {{{2, {3, 4}}, {1, 2, -1, 0.5, 0, 0.5, 3, -2, -1, 1, 0, 2}}, {S1(3), {2, 0, 3}}},
     {.ignores = true, .ignore_index = 3},
     {{1, {3.312495065}},
      {12,
       {0.112103909, 0.304730019, -0.484828386, 0.067994458, -0.478136909, 0.036046143, 0.439131919,
        0.002958848, 0, 0, 0, 0}}}},
};

static const struct known windows[] = {
    {"conv2d",
     TD_OP_CONV2D,
     3,
     {{S4(1, 1, 3, 3), {1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {S4(1, 1, 2, 2), {1, 0, 0, -1}},
      {S1(1), {10}}},
     {0},
     {{4, {6, 6, 6, 6}}}},
    {"conv2d padded",
     TD_OP_CONV2D,
     2,
     {{S4(1, 1, 2, 2), {1, 2, 3, 4}}, {S4(1, 1, 3, 3), {1, 1, 1, 1, 1, 1, 1, 1, 1}}},
     {.window = {.stride = {2, 2}, .pad = {1, 1}}},
     {{1, {10}}}},
    {"conv2d dilated",
     TD_OP_CONV2D,
     2,
     {{S4(1, 1, 3, 3), {1, 2, 3, 4, 5, 6, 7, 8, 9}}, {S4(1, 1, 2, 2), {1, 1, 1, 1}}},
     {.window = {.dilation = {2, 2}}},
     {{1, {20}}}},
    {"conv2d in groups",
     TD_OP_CONV2D,
     2,
     {{S4(1, 2, 1, 1), {3, 5}}, {S4(2, 1, 1, 1), {2, 10}}},
     {.window = {.groups = 2}},
     {{2, {6, 50}}}},
    {"max_pool",
     TD_OP_MAX_POOL,
     1,
     {{S4(1, 1, 2, 4), {1, 2, 9, 3, 4, 0, 9, 8}}},
     {.window = {.kernel = {2, 2}, .stride = {2, 2}}},
     {{2, {4, 9}}, {2, {2, 0}}}},
    {"avg_pool",
     TD_OP_AVG_POOL,
     1,
     {{S4(1, 1, 2, 2), {1, 2, 3, 4}}},
     {.window = {.kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 1}}},
     {{4, {0.25, 0.5, 0.75, 1}}}},
};

static const struct known attentions[] = {
    {"attention of equal keys",
     TD_OP_ATTENTION,
     3,
     {{S4(1, 2, 1, 1), {1, 2}}, {S4(1, 2, 1, 1), {3, 3}}, {S4(1, 2, 1, 1), {10, 20}}},
     {0},
     {{2, {15, 15}}, {2, {3.693147181, 6.693147181}}}},
    {"causal attention",
     TD_OP_ATTENTION,
     3,
     {{S4(1, 2, 1, 1), {1, 2}}, {S4(1, 2, 1, 1), {3, 3}}, {S4(1, 2, 1, 1), {10, 20}}},
     {.causal = true},
     {{2, {10, 15}}, {2, {3, 6.693147181}}}},
    {"attention scaled by the depth",
     TD_OP_ATTENTION,
     3,
     {{S4(1, 1, 1, 4), {2, 0, 0, 0}}, {S4(1, 2, 1, 4), {1, 0, 0, 0}}, {S4(1, 2, 1, 4), {1}}},
     {0},
     {{4, {0.731058579, 0, 0, 0}}}},
    {"attention in groups",
     TD_OP_ATTENTION,
     3,
     {{S4(1, 1, 4, 1), {1, 1, 1, 1}}, {S4(1, 1, 2, 1), {1, 1}}, {S4(1, 1, 2, 1), {5, 7}}},
     {0},
     {{4, {5, 5, 7, 7}}}},
    {"causal attention of one product",
     TD_OP_SELF_ATTENTION,
     1,
     {{S4(1, 2, 3, 1), {1, 3, 10, 2, 3, 20}}},
     {.causal = true, .groups = 1},
     {{2, {10, 15}}, {2, {3, 6.693147181}}}},
    {"rope by halves",
     TD_OP_ROPE,
     1,
     {{S4(1, 2, 1, 4), {1, 2, 3, 4, 1, 0, 0, 1}}},
     {0},
     {{8, {1, 2, 3, 4, 0.540302306, -0.009999833, 0.841470985, 0.999950000}}}},
    {"rope by pairs",
     TD_OP_ROPE,
     1,
     {{S4(1, 1, 1, 4), {1, 0, 0, 1}}},
     {.interleaved = true, .start = {1}},
     {{4, {0.540302306, 0.841470985, -0.009999833, 0.999950000}}}},
};

static void run_all(const struct known *k, size_t n) {
    for (size_t i = 0; i < n; i++) {
        run_known(&k[i], NULL);
    }
}

static void check_statistics(struct rig *r) {
    const double *mean = rig_named(r, "p3"), *var = rig_named(r, "p4");
    assert_true(mean[0] == 1.5 && mean[1] == 1);
    assert_true(var[0] == 2.5 && var[1] == 1.75);
}

// The variance that is kept is the one without bias.
static void test_running_statistics_are_torchs_when_known(void **state) {
    (void)state;
    static const struct known k = {
        "batch_norm",
        TD_OP_BATCH_NORM,
        5,
        {{S2(3, 2), {1, 2, 3, 6, 5, 4}},
         {S1(2), {1, 1}},
         {S1(2), {0, 0}},
         {S1(2), {1, 0}},
         {S1(2), {2, 1}}},
        {.momentum = 0.25},
        {{6, {-1.224744871, -1.224744871, 0, 1.224744871, 1.224744871, 0}}}};
    run_known(&k, check_statistics);
}

#define FAMILY(table, name)                                                                        \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        run_all(table, TD_COUNTOF(table));                                                         \
    }
FAMILY(functions, test_functions_give_their_values_when_known)
FAMILY(rearranged, test_rearrangements_give_their_values_when_known)
FAMILY(norms, test_norms_give_their_values_when_known)
FAMILY(classes, test_losses_of_classes_are_torchs_when_weighted_smoothed_ignored)
FAMILY(windows, test_windows_give_their_values_when_known)
FAMILY(attentions, test_attention_gives_its_values_when_known)

// What ops.def calls elementwise is what the reference computes element by element: elsewhere the
// memory plan would let a result overwrite an operand that is still read.
static void test_ops_are_elementwise_where_the_reference_computes_them_so(void **state) {
    (void)state;
    for (int op = 0; op < TD_OP_COUNT; op++) {
        bool so = td_op_is((enum td_op)op, TD_OP_IS_ELEMENTWISE);
        if (so != (td_ref_elementwise((enum td_op)op) != NULL)) {
            fail_msg("%s: elementwise in one place only", td_op_name((enum td_op)op));
        }
        assert_true(!so || td_op_is((enum td_op)op, TD_OP_IS_CHEAP));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_are_elementwise_where_the_reference_computes_them_so),
        cmocka_unit_test(test_functions_give_their_values_when_known),
        cmocka_unit_test(test_rearrangements_give_their_values_when_known),
        cmocka_unit_test(test_norms_give_their_values_when_known),
        cmocka_unit_test(test_losses_of_classes_are_torchs_when_weighted_smoothed_ignored),
        cmocka_unit_test(test_running_statistics_are_torchs_when_known),
        cmocka_unit_test(test_windows_give_their_values_when_known),
        cmocka_unit_test(test_attention_gives_its_values_when_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
