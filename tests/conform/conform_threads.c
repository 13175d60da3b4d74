// The cpu accelerator with 1 to 64 threads, however few cores there are: whole steps of every
// module, sizes that give each thread something to do, against one thread. Sums are split
// otherwise, so values agree within rounding; elementwise updates agree to the bit, and so does
// everything when the same number of threads does it again. The reference is asked by the other
// conform_ programs, which take TRAIND_TEST_THREADS.

#define BENCH_FLOATS (1 << 20)
#include "tests/conform/step_bench.h"

static const int counts[] = {2, 3, 7, 16, 33, 64};
static const int few_counts[] = {3, 33}; // of what takes longer
enum { COUNT_TWICE = 7 };                // whose bits are compared with its own

#define IMAGES(c, h, w)                                                                            \
    {                                                                                              \
        {.name = "x", .dtype = TD_F32, .sample_shape = {3, {c, h, w}}}, {                          \
            .name = "y", .dtype = TD_I32, .n_classes = 5                                           \
        }                                                                                          \
    }
#define TOKENS                                                                                     \
    {                                                                                              \
        {.name = "x", .dtype = TD_I32, .sample_shape = {1, {48}}, .n_classes = 300}, {             \
            .name = "y", .dtype = TD_I32, .sample_shape = {1, {48}}, .n_classes = 300              \
        }                                                                                          \
    }

static const struct step_case mlp = {
    .name = "mlp",
    .module = &td_module_mlp,
    .knobs = "{\"layers\":[200,512,260,5]}",
    .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {1, {200}}},
              {.name = "y", .dtype = TD_I32, .n_classes = 5}},
    .batch = 300};
static const struct step_case convnet = {
    .name = "convnet",
    .module = &td_module_convnet,
    .knobs = "{\"layers\":[" STEP_CONV(16) "," STEP_ONE("relu") "," STEP_POOL "," STEP_CONV(
        20) "," STEP_ONE("tanh") ",{\"name\":\"avg_pool\",\"kernel\":2}"
                                 "," STEP_ONE("flatten") ","
                                                         "{\"name\":\"dropout\",\"p\":"
                                                         "0.25}," STEP_LINEAR(5) "]}",
    .field = IMAGES(3, 20, 20),
    .batch = 70};
static const struct step_case resnet = {
    .name = "resnet",
    .module = &td_module_convnet,
    .knobs = "{\"layers\":[" STEP_CONV(16) "," STEP_ONE("batch_norm") "," STEP_ONE(
        "relu") ",{\"name\":\"residual\",\"channels\":16,\"blocks\":1}"
                ",{\"name\":\"residual\",\"channels\":32,\"blocks\":1,\"stride\":2}"
                "," STEP_ONE("global_avg_pool") "," STEP_LINEAR(5) "]}",
    .field = IMAGES(3, 12, 12),
    .batch = 35};
static const struct step_case gpt = {
    .name = "gpt",
    .module = &td_module_gpt,
    .knobs = "{\"n_layer\":2,\"n_head\":3,\"n_embd\":96,\"resid_pdrop\":0.2,\"embd_pdrop\":0.1}",
    .field = TOKENS,
    .batch = 24};
static const struct step_case llama = {
    .name = "llama",
    .module = &td_module_llama,
    .knobs = "{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"attention_dropout\":0.2}",
    .field = TOKENS,
    .batch = 24};

// ---- steps --------------------------------------------------------------------------------------
// Gradients, buffers and the loss of one program, run twice: written, then added to.
static void run_step(const struct td_accelerator_ops *ops, int n_threads, const struct step_case *c,
                     const struct td_plugin_desc *precision, struct result *out) {
    struct rig r;
    rig_open_on(&r, ops, n_threads);
    bench_random(r.random);
    struct td_compile_options o = step_options(c, NULL);
    step_set_precision(&o, precision);
    o.whole_logits_bytes = 1;
    bench_accumulate(&r, c, &o, out);
}

// An error counts against the largest value of all.
static double farthest(const struct result *got, const struct result *want) {
    double most = 0, off = 0;
    assert_int_equal(got->n, want->n);
    for (size_t k = 0; k < want->n; k++) {
        assert_true(isfinite(want->x[k]) && isfinite(got->x[k])); // fmax would pass over a NaN
        most = fmax(most, fabs(want->x[k]));
        off = fmax(off, fabs(got->x[k] - want->x[k]));
    }
    assert_true(most > 0);
    return off / most;
}

static void check_step(struct subject *s, const struct step_case *c,
                       const struct td_plugin_desc *precision, double tolerance) {
    static struct result want, got, again;
    const char *name = precision ? precision->name : "fp32";
    // Convolutions of oneDNN wait for each other by spinning: slow with a thread too many.
    const bool all = !precision && (c == &mlp || c == &gpt);
    const int *count = all ? counts : few_counts;
    const size_t n = all ? TD_COUNTOF(counts) : TD_COUNTOF(few_counts);
    run_step(s->ops, 1, c, precision, &want);
    for (size_t i = 0; i < n; i++) {
        run_step(s->ops, count[i], c, precision, &got);
        double off = farthest(&got, &want);
        if (off > tolerance) {
            fail_msg("%s, %s, %d threads: off by %.2g of the largest value", c->name, name,
                     count[i], off);
        }
        if (count[i] != COUNT_TWICE) continue;
        run_step(s->ops, count[i], c, precision, &again);
        if (memcmp(got.x, again.x, got.n * sizeof *got.x) != 0) {
            fail_msg("%s, %s, %d threads: other bits when run again", c->name, name, count[i]);
        }
    }
    s->n_cases++;
}

static void check_both(struct subject *s, const struct step_case *c) {
    check_step(s, c, NULL, 2e-5);
    check_step(s, c, &td_precision_bf16_mixed, 1e-2);
}

static void cases_mlp(struct subject *s) {
    check_both(s, &mlp);
}
static void cases_convnet(struct subject *s) {
    check_both(s, &convnet);
}
static void cases_resnet(struct subject *s) {
    check_step(s, &resnet, NULL, 2e-5);
}
static void cases_gpt(struct subject *s) {
    check_both(s, &gpt);
}
static void cases_llama(struct subject *s) {
    check_step(s, &llama, NULL, 2e-5);
}

// ---- optimizers ---------------------------------------------------------------------------------
// Two steps with a clipped gradient. A large eps keeps the update smooth in the gradient: a first
// step of Adam is otherwise the sign of it.
static void run_optimizer(const struct td_accelerator_ops *ops, int n_threads,
                          const struct td_optimizer_options *optimizer, struct result *out) {
    struct rig r;
    void *in[2];
    rig_open_on(&r, ops, n_threads);
    struct td_compile_options o = step_options(&mlp, optimizer);
    rig_add(&r, &o);
    rig_place(&r);
    step_batch(&mlp, in);
    for (int step = 1; step <= 2; step++) {
        r.scalars[TD_SCALAR_STEP] = step;
        rig_run(&r, 0, TD_SEGS_ALL, (const void *const *)in);
    }
    out->n = 0;
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *s = td_state_at(r.state, i);
        if (s->role == TD_ROLE_PARAM) {
            append(out, s->dtype, rig_state(&r, i), td_shape_elems(&s->shape));
        }
    }
    free(in[0]);
    free(in[1]);
    rig_close(&r);
}

static void choose_muon(const void *arg, const struct td_state_info *param,
                        struct td_optim_choice *io) {
    (void)arg;
    io->ns_steps = 5;
    io->ns_coefficients[0] = 3.4445f;
    io->ns_coefficients[1] = -4.775f;
    io->ns_coefficients[2] = 2.0315f;
    if (param->shape.n_dims == 2) return;
    io->op = TD_OP_SGD;
    io->attrs = (struct td_optim_attrs){.momentum = 0.9};
}

static const struct td_optimizer_options optimizers[] = {
    {.op = TD_OP_ADAMW,
     .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-2, .weight_decay = 0.01},
     .clip_norm = 1},
    {.op = TD_OP_SGD, .attrs = {.momentum = 0.9}, .clip_norm = 1},
    {.op = TD_OP_ADAFACTOR,
     .attrs = {.beta2_decay = -0.8, .eps = 1e-2, .eps2 = 1e-3, .threshold = 1}},
    {.op = TD_OP_MUON,
     .attrs = {.momentum = 0.95, .eps = 1e-7, .nesterov = true, .weight_decay = 0.1},
     .choose = choose_muon}};

static void cases_optimizers(struct subject *s) {
    static struct result want, got;
    for (size_t o = 0; o < TD_COUNTOF(optimizers); o++) {
        run_optimizer(s->ops, 1, &optimizers[o], &want);
        for (size_t i = 0; i < TD_COUNTOF(few_counts); i++) {
            run_optimizer(s->ops, few_counts[i], &optimizers[o], &got);
            double off = farthest(&got, &want);
            if (off > 2e-5) {
                fail_msg("%s, %d threads: off by %.2g of the largest value",
                         td_op_name(optimizers[o].op), few_counts[i], off);
            }
        }
        s->n_cases++;
    }
}

// Of 200,000 elements, with bf16 rounded by chance.
static void cases_updates(struct subject *s) {
    static struct result want, got;
    static const enum td_op ops[] = {TD_OP_ADAMW, TD_OP_LION};
    for (size_t o = 0; o < 2 * TD_COUNTOF(ops); o++) {
        const enum td_op op = ops[o / 2];
        const enum td_dtype type = o % 2 ? TD_BF16 : TD_F32;
        struct op_case c = {.op = op, .n_in = op == TD_OP_LION ? 3 : 4};
        c.attrs.optim = (struct td_optim_attrs){.beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .momentum = 0.9f,
                                                .weight_decay = 0.1,
                                                .stochastic = true};
        c.attrs.stream = td_stream_of("w");
        c.in[0] = tensor(vec(200003));
        for (uint32_t i = 1; i < c.n_in; i++) {
            c.in[i] = (struct operand){WIDE, vec(200003), i == 1 ? TD_ROLE_GRAD : TD_ROLE_OPTIM,
                                       .low = i == 1 ? -1 : 0.01, .high = 1};
        }
        c.in[1].dtype = ANY;
        bench_threads = 1;
        run_on(s->ops, &c, type, false, &want);
        for (size_t i = 0; i < TD_COUNTOF(few_counts); i++) {
            bench_threads = few_counts[i];
            run_on(s->ops, &c, type, false, &got);
            assert_int_equal(got.n, want.n);
            if (memcmp(got.x, want.x, want.n * sizeof *want.x) != 0) {
                fail_msg("%s of %s: other bits with %d threads", td_op_name(op),
                         td_dtype_name(type), few_counts[i]);
            }
        }
        s->n_cases++;
    }
}

// ---- the program --------------------------------------------------------------------------------
#define ON_CPU(what, cases)                                                                        \
    {                                                                                              \
        "test_" what "_agrees_with_one_thread_when_on_many", run_suite, NULL, NULL,                \
            &(struct run) {                                                                        \
            &cpu, cases                                                                            \
        }                                                                                          \
    }

int main(int argc, char **argv) {
    (void)argc;
    static struct subject cpu = {.name = BUILT_ACCELERATOR};
    struct accelerators here;
    if (!read_environment()) return 1;
    if (!open_accelerators(argv[0], &here)) return 1;
    for (size_t i = 0; i < here.n; i++) {
        if (strcmp(here.at[i].name, cpu.name) == 0) cpu.ops = here.at[i].ops;
    }
    const struct CMUnitTest tests[] = {
        ON_CPU("update", cases_updates), ON_CPU("optimizer", cases_optimizers),
        ON_CPU("mlp", cases_mlp),        ON_CPU("convnet", cases_convnet),
        ON_CPU("resnet", cases_resnet),  ON_CPU("gpt", cases_gpt),
        ON_CPU("llama", cases_llama),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_accelerators(&here);
    return failed;
}
