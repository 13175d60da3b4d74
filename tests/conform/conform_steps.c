// Whole training steps on every accelerator against the reference: what single ops cannot show.
// Of convnets, images that stay in an accelerator's own order from layer to layer: channels that do
// and do not divide by 16, groups, dilation, odd sizes, padding, residuals. Of gpt, a weight that
// is table and head, whose logits are never whole, in fp32 and under a mixed precision. Gradients
// are written and then added to, and batch norm's running statistics are compared, too. And what an
// accelerator keeps of parameters from run to run: the bits are those of one that keeps nothing.
// And casts that it elides, whose place is the parameter's: the bits are those of a plan with room
// for them.

#include "tests/conform/step_bench.h"

#define CONV(n, more) "{\"name\":\"conv\",\"channels\":" #n ",\"kernel\":3" more "}"
#define PAD           ",\"padding\":1"
#define RELU          STEP_ONE("relu")
#define LEAKY         "{\"name\":\"leaky_relu\",\"negative_slope\":0.2}"
#define BOTH(a, b)    a "," b
#define NET(layers)   "{\"layers\":[" layers "]}"
#define IMAGE(c, h, w)                                                                             \
    {                                                                                              \
        {.name = "x", .dtype = TD_F32, .sample_shape = {3, {c, h, w}}}, {                          \
            .name = "y", .dtype = TD_I32, .n_classes = 5                                           \
        }                                                                                          \
    }
#define END BOTH(STEP_ONE("flatten"), STEP_LINEAR(5))

static const struct step_case nets[] = {
    {.name = "blocks of sixteen",
     .module = &td_module_convnet,
     .knobs =
         NET(CONV(16, PAD) "," RELU "," STEP_POOL "," CONV(32, PAD) "," RELU "," STEP_POOL "," END),
     .field = IMAGE(1, 12, 12),
     .batch = 5},
    {.name = "other channels",
     .module = &td_module_convnet,
     .knobs =
         NET(CONV(6, PAD) "," RELU
                          ",{\"name\":\"max_pool\",\"kernel\":3,\"stride\":2,\"padding\":1}," CONV(
                              20, "") "," LEAKY ",{\"name\":\"avg_pool\",\"kernel\":2}," END),
     .field = IMAGE(3, 11, 13),
     .batch = 3},
    {.name = "from blocks to others and back",
     .module = &td_module_convnet,
     .knobs = NET(CONV(32, PAD) "," STEP_ONE("tanh") "," CONV(7, PAD) "," RELU "," CONV(
         16, PAD) "," STEP_POOL "," END),
     .field = IMAGE(2, 9, 8),
     .batch = 2},
    {.name = "groups",
     .module = &td_module_convnet,
     .knobs = NET(CONV(32, "") "," RELU "," CONV(32, ",\"groups\":2") "," RELU "," CONV(
         32, ",\"groups\":32,\"padding\":2,\"dilation\":2") "," RELU
                                                            "," CONV(12, ",\"groups\":4") "," END),
     .field = IMAGE(3, 12, 10),
     .batch = 2},
    {.name = "residual",
     .module = &td_module_convnet,
     .knobs = NET(CONV(16, PAD) "," STEP_ONE(
         "batch_norm") "," RELU ",{\"name\":\"residual\",\"channels\":16,\"blocks\":1}"
                       ",{\"name\":\"residual\",\"channels\":32,\"blocks\":2,\"stride\":2}"
                       "," STEP_ONE("global_avg_pool") "," STEP_LINEAR(5)),
     .field = IMAGE(3, 10, 10),
     .batch = 4},
};

// Runs both programs of the rig; out: gradients and buffers.
static void run_net(const struct td_accelerator_ops *ops, const struct step_case *c,
                    const struct td_plugin_desc *precision, struct result *out) {
    struct rig r;
    rig_open_on(&r, ops, bench_threads);
    struct td_compile_options o = step_options(c, NULL);
    step_set_precision(&o, precision);
    o.whole_logits_bytes = 1;
    o.windowed = true;
    r.scalars[TD_SCALAR_WINDOW] = 0.5f;
    bench_accumulate(&r, c, &o, out);
}

// Values here are of all sizes: an error counts against the largest of the net.
static void check_net(struct subject *s, const struct step_case *c,
                      const struct td_plugin_desc *precision, double tolerance) {
    static struct result got, want;
    run_net(s->ops, c, precision, &got);
    run_net(td_accelerator_reference.ops, c, precision, &want);
    assert_int_equal(got.n, want.n);
    double most = 0, off = 0;
    for (size_t k = 0; k < want.n; k++) {
        assert_true(isfinite(want.x[k]) && isfinite(got.x[k])); // fmax would pass over a NaN
        most = fmax(most, fabs(want.x[k]));
        off = fmax(off, fabs(got.x[k] - want.x[k]));
    }
    print_message("# %s, %s: %.2g of the largest value\n", c->name,
                  precision ? precision->name : "fp32", off / most);
    assert_true(most > 0 && off <= tolerance * most);
    s->n_cases++;
}

static void cases_nets(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(nets); i++) {
        check_net(s, &nets[i], NULL, 2e-5);
    }
}

// More rows than a turn has, and a few left over; without and with a bias and accuracy.
static const struct step_case heads[] = {
    {.name = "gpt",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":16}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {67}}, .n_classes = 50},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {67}}, .n_classes = 50}},
     .batch = 33},
    {.name = "weighed mlp",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,12,5]," STEP_WEIGHED "}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 5}},
     .batch = 2211},
    {.name = "llama",
     .module = &td_module_llama,
     .knobs = "{\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":1,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {67}}, .n_classes = 50},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {67}}, .n_classes = 50}},
     .batch = 33},
    {.name = "mlp",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,12,50]}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 50}},
     .batch = 2211},
};

static void check_net_in_all(struct subject *s, const struct step_case *c) {
    check_net(s, c, NULL, 2e-5);
    check_net(s, c, &td_precision_bf16_mixed, 2e-2);
    check_net(s, c, &td_precision_bf16_true, 2e-2);
    check_net(s, c, &td_precision_fp16_mixed, 2e-3);
    check_net(s, c, &td_precision_fp16_true, 2e-3);
}

static void cases_heads(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(heads); i++) {
        check_net_in_all(s, &heads[i]);
    }
}

// Losses of numbers, and every option of cross entropy.
static void cases_losses(struct subject *s) {
    static const char *const names[] = {"regression", "several labels", "weighed gpt"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        check_net_in_all(s, step_case(names[i]));
    }
}

// ---- what is kept from run to run
// As the engine does: muon for matrices, adamw for the rest.
static void choose_muon(const void *arg, const struct td_state_info *param,
                        struct td_optim_choice *io) {
    (void)arg;
    io->ns_steps = 5;
    io->ns_coefficients[0] = 3.4445f;
    io->ns_coefficients[1] = -4.775f;
    io->ns_coefficients[2] = 2.0315f;
    if (param->shape.n_dims == 2) return;
    io->op = TD_OP_ADAMW;
    io->attrs = (struct td_optim_attrs){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

static const struct td_optimizer_options optimizers[] = {
    {.op = TD_OP_ADAMW,
     .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
     .clip_norm = 1},
    {.op = TD_OP_SGD, .attrs = {.momentum = 0.9}},
    {.op = TD_OP_LION, .attrs = {.beta1 = 0.9, .beta2 = 0.99}},
    {.op = TD_OP_ADAFACTOR,
     .attrs = {.beta2_decay = -0.8, .eps = 0x1p-23, .eps2 = 1e-3, .threshold = 1}},
    {.op = TD_OP_MUON,
     .attrs = {.momentum = 0.95, .eps = 1e-7, .nesterov = true, .weight_decay = 0.1},
     .choose = choose_muon}};

// A window of two, an evaluation and a step of another batch, three times; the first run is not
// steady, because state was written before. out: all state and every loss.
static void run_steady(struct rig *r, const struct step_case *c, bool steady, struct result *out) {
    void *in[2];
    uint32_t segments = TD_SEGS_ALL;
    step_batch(c, in);
    rig_reset_state(r);
    out->n = 0;
    for (int i = 0; i < 3; i++) {
        r->scalars[TD_SCALAR_STEP] = i + 1;
        for (int p = 0; p < r->n_programs; p++) {
            rig_run(r, p, segments, (const void *const *)in);
            if (steady) segments |= TD_RUN_STEADY;
            append(out, TD_F64, r->program[p].outputs, 1);
        }
    }
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        append(out, s->dtype, rig_state(r, i), td_shape_elems(&s->shape));
    }
    free(in[0]);
    free(in[1]);
}

static void check_steady(struct subject *s, const struct step_case *c,
                         const struct td_optimizer_options *optimizer,
                         const struct td_plugin_desc *precision) {
    static struct result got, want;
    struct rig r;
    rig_open_on(&r, s->ops, bench_threads);
    struct td_compile_options o = step_options(c, optimizer);
    step_set_precision(&o, precision);
    o.whole_logits_bytes = 1;
    o.key.apply = false;
    rig_add(&r, &o);
    o.key.apply = o.key.accumulate = true;
    rig_add(&r, &o);
    o.key = rig_key(TD_MODE_EVAL, c->batch, false);
    rig_add(&r, &o);
    o.key = rig_key(TD_MODE_TRAIN, c->batch / 2, true);
    rig_add(&r, &o);
    rig_place(&r);
    run_steady(&r, c, false, &want);
    run_steady(&r, c, true, &got);
    assert_int_equal(got.n, want.n);
    print_message("# %s, %s, %s: loss %g, %g, %g\n", c->name, td_op_name(optimizer->op),
                  precision ? precision->name : "fp32", want.x[0], want.x[4], want.x[8]);
    assert_true(want.x[8] > 0 && want.x[8] < want.x[4] && want.x[4] < want.x[0]); // it learns
    assert_memory_equal(got.x, want.x, want.n * sizeof *want.x);
    rig_close(&r);
    s->n_cases++;
}

// Rows that fill blocks of packed weights, and rows that end in one; of gpt's pairs of rows, too.
static const struct step_case packs[] = {
    {.name = "mlp",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[32,64,80,5]}",
     .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {1, {32}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 5}},
     .batch = 24},
    {.name = "gpt",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":32}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {7}}, .n_classes = 50},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {7}}, .n_classes = 50}},
     .batch = 4},
    {.name = "gpt of 40",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":40}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {7}}, .n_classes = 50},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {7}}, .n_classes = 50}},
     .batch = 4}};

static void cases_steady(struct subject *s) {
    const struct td_plugin_desc *const precisions[] = {NULL, &td_precision_bf16_mixed,
                                                       &td_precision_bf16_true};
    for (size_t i = 0; i < TD_COUNTOF(optimizers) * TD_COUNTOF(precisions); i++) {
        for (size_t c = 0; c < TD_COUNTOF(packs); c++) {
            check_steady(s, &packs[c], &optimizers[i / TD_COUNTOF(precisions)],
                         precisions[i % TD_COUNTOF(precisions)]);
        }
    }
}

static bool elides_nothing(const struct td_graph *g, td_node n) {
    (void)g, (void)n;
    return false;
}

static void check_elides(struct subject *s, const struct step_case *c,
                         const struct td_plugin_desc *precision, bool less) {
    static struct result got[2];
    size_t arena[2];
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_open_on(&r, s->ops, bench_threads);
        struct td_compile_options o = step_options(c, &optimizers[0]);
        step_set_precision(&o, precision);
        o.elides = i ? elides_nothing : s->ops->elides;
        rig_add(&r, &o);
        rig_add(&r, &o);
        o.key = rig_key(TD_MODE_EVAL, c->batch, false);
        rig_add(&r, &o);
        arena[i] = r.program[0].compiled->program.arena_bytes;
        rig_place(&r);
        run_steady(&r, c, true, &got[i]);
        rig_close(&r);
    }
    assert_true(less ? arena[0] < arena[1] : arena[0] == arena[1]);
    assert_int_equal(got[0].n, got[1].n);
    assert_memory_equal(got[0].x, got[1].x, got[0].n * sizeof *got[0].x);
    s->n_cases++;
}

static void cases_elides(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(packs); i++) {
        check_elides(s, &packs[i], &td_precision_bf16_mixed, s->ops->elides != NULL);
        check_elides(s, &packs[i], NULL, false);
    }
}

static const struct suite suites[] = {{"steps", cases_nets},
                                      {"heads", cases_heads},
                                      {"losses", cases_losses},
                                      {"steady", cases_steady},
                                      {"elides", cases_elides}};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_steps", suites, TD_COUNTOF(suites));
}
