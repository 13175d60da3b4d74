// Passes on whole training steps of the modules, on the reference. The memory plan is tight and
// right (dead memory is NaN). What is computed again has the same bits and needs less memory.
// Segments run one by one are the fused step.

#include "tests/unit/graph/memory_audit.h"
#include "tests/unit/graph/step_rig.h"

static const struct td_optimizer_options adamw = {
    .op = TD_OP_ADAMW,
    .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
    .clip_norm = 1};

struct result {
    void *state;
    size_t bytes;
    double outputs[8];
};

// Two steps of program p from the same start.
static struct result run_steps(struct rig *r, int p, const struct step_case *c, bool by_segment) {
    void *in[2];
    struct result out = {0};
    step_batch(c, in);
    rig_reset_state(r);
    for (int step = 0; step < 2; step++) {
        r->scalars[TD_SCALAR_STEP] = step + 1;
        r->random[TD_RANDOM_KEY] = (uint32_t)step;
        for (uint32_t s = 0; s < TD_SEG_COUNT; s++) {
            uint32_t segments = by_segment ? 1u << s : s == 0 ? (uint32_t)TD_SEGS_ALL : 0;
            if (segments) rig_run(r, p, segments, (const void *const *)in);
        }
    }
    memcpy(out.outputs, r->program[p].outputs, sizeof out.outputs);
    out.state = step_state(r, &out.bytes);
    free(in[0]);
    free(in[1]);
    return out;
}

static void assert_same(const struct step_case *c, const char *what, struct result *a,
                        struct result *b) {
    print_message("# %s: %s\n", c->name, what);
    assert_true(isfinite(a->outputs[0]) && a->outputs[0] > 0);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->state, b->state, a->bytes);
    assert_memory_equal(a->outputs, b->outputs, sizeof a->outputs);
    free(b->state);
}

// Without the nodes that make values again it is the arithmetic of a program that keeps all.
static void check_copies(const struct td_graph *g, const struct td_graph *plain, bool must) {
    double flops[2] = {0, 0};
    int copies = 0;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (!node->recomputes) flops[0] += td_op_flops(g, node);
        copies += node->recomputes;
    }
    for (td_node n = 0; n < td_graph_n_nodes(plain); n++) {
        assert_false(td_graph_node(plain, n)->recomputes);
        flops[1] += td_op_flops(plain, td_graph_node(plain, n));
    }
    assert_true(fabs(flops[0] - flops[1]) <= 1e-9 * flops[1]);
    assert_true(copies > 0 || !must);
    assert_true(td_graph_flops(g) >= td_graph_flops(plain));
}

static void check_case(const struct step_case *c, bool mixed, size_t whole_logits_bytes) {
    struct rig r;
    int level[3];
    struct td_compile_options o = step_options(c, &adamw);
    step_set_precision(&o, mixed ? &td_precision_bf16_mixed : NULL);
    o.whole_logits_bytes = whole_logits_bytes;
    rig_open(&r);
    for (int i = 0; i < 3; i++) {
        o.recompute = (enum td_recompute)i;
        level[i] = rig_add(&r, &o);
    }
    o.recompute = TD_RECOMPUTE_NONE;
    int own = rig_add(&r, &o);
    give_own_places(r.program[own].compiled);
    rig_place(&r);
    struct audit a[3];
    for (int i = 0; i < 3; i++) {
        const size_t less = r.program[level[0]].compiled->program.arena_bytes -
                            r.program[level[i]].compiled->program.arena_bytes;
        check_copies(r.program[level[i]].compiled->graph, r.program[own].compiled->graph, less > 0);
        audit_open(&a[i], &r.program[level[i]].compiled->program);
        a[i].arena = td_buffer_host(r.program[level[i]].arena);
        memset(r.program[level[i]].host_arena, 0xff, r.program[level[i]].arena.bytes);
        td_reference_trace(r.program[level[i]].exe, poison, &a[i]);
        size_t worst = worst_moment(&a[i]);
        print_message("# %s, recompute %s: arena %zu, alive at the worst moment %zu\n", c->name,
                      td_recompute_name((enum td_recompute)i), a[i].p->arena_bytes, worst);
        assert_true((double)a[i].p->arena_bytes <= 1.10 * (double)worst);
        assert_true(i == 0 || a[i].p->arena_bytes <= a[0].p->arena_bytes);
    }
    struct result want = run_steps(&r, own, c, false), got;
    for (int i = 0; i < 3; i++) {
        got = run_steps(&r, level[i], c, false);
        assert_same(c, td_recompute_name((enum td_recompute)i), &want, &got);
        got = run_steps(&r, level[i], c, true);
        assert_same(c, "one segment after the other", &want, &got);
        audit_close(&a[i]);
    }
    free(want.state);
    rig_close(&r);
}

static void test_steps_keep_their_bits_in_a_tight_plan_when_values_are_made_again(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(step_cases); i++) {
        check_case(&step_cases[i], false, 0);
        check_case(&step_cases[i], true, 0);
    }
    check_case(step_case("weighed gpt"), false, 1);
    check_case(step_case("weighed gpt"), true, 1);
    check_case(step_case("gpt"), false, 1);
    check_case(step_case("gpt"), true, 1);
}

// The same program with and without whole logits; the latter also one segment after the other.
static void check_head(const struct step_case *c, const struct td_compile_options *options) {
    struct td_compile_options o = *options;
    struct result got[2];
    struct rig r;
    rig_open(&r);
    for (int i = 0; i < 2; i++) {
        o.whole_logits_bytes = i ? 1 : 0;
        rig_add(&r, &o);
    }
    rig_place(&r);
    r.scalars[TD_SCALAR_WINDOW] = o.windowed ? 1.0f / 3 : 1;
    r.scalars[TD_SCALAR_LOSS_SCALE] = o.scales_loss ? 1024 : 1;
    size_t whole = r.program[0].compiled->program.arena_bytes;
    assert_true(r.program[1].compiled->program.arena_bytes < whole);
    for (int i = 0; i < 2; i++) {
        got[0] = run_steps(&r, 0, c, false);
        got[1] = run_steps(&r, 1, c, i == 1);
        assert_same(c, td_mode_name(o.key.mode), &got[0], &got[1]);
        free(got[0].state);
    }
    rig_close(&r);
}

// Enough rows that logits of 16 bits are larger than what a gradient of 16 bits is summed in.
static const struct step_case head_cases[] = {
    {.name = "gpt",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"embd_pdrop\":0.1}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100}},
     .batch = 6},
    {.name = "gpt that ignores a token",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":8,"
              "\"loss\":{\"name\":\"cross_entropy\",\"ignore_index\":3}}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100}},
     .batch = 6},
    {.name = "llama",
     .module = &td_module_llama,
     .knobs = "{\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
              "\"num_attention_heads\":2,\"num_key_value_heads\":1}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 100}},
     .batch = 6},
    {.name = "mlp without biases",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,8,40],\"bias\":false}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 40}},
     .batch = 90},
    {.name = "mlp",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,8,40]}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 40}},
     .batch = 90},
};

static void test_head_keeps_the_bits_of_the_step_when_logits_are_never_whole(void **state) {
    (void)state;
    const struct td_plugin_desc *const precisions[] = {NULL,
                                                       &td_precision_bf16_mixed,
                                                       &td_precision_fp16_mixed,
                                                       &td_precision_bf16_true,
                                                       &td_precision_fp16_true,
                                                       &td_precision_fp64};
    for (size_t i = 0; i < TD_COUNTOF(head_cases) * TD_COUNTOF(precisions); i++) {
        const struct step_case *c = &head_cases[i % TD_COUNTOF(head_cases)];
        struct td_compile_options o = step_options(c, &adamw);
        step_set_precision(&o, precisions[i / TD_COUNTOF(head_cases)]);
        check_head(c, &o);
        o.windowed = true;
        check_head(c, &o);
        o.counted = true; // the seed is no scalar
        check_head(c, &o);
        o.key = rig_key(TD_MODE_EVAL, c->batch, false);
        check_head(c, &o);
    }
}

// Wherever they are made: in the backward segment, and by the head in the forward one.
static void test_gradients_are_not_watched_when_the_loss_is_scaled(void **state) {
    (void)state;
    const struct step_case *c = step_case("gpt");
    td_value v[TD_MAX_WATCHED];
    for (int form = 0; form < 4; form++) {
        struct td_compile_options o = step_options(c, &adamw);
        struct rig r;
        bool scaled = form & 1;
        rig_open(&r);
        o.whole_logits_bytes = 1;
        o.key.apply = form & 2; // or a micro-batch in the middle of a window
        step_set_precision(&o, scaled ? &td_precision_fp16_mixed : &td_precision_bf16_mixed);
        const struct td_graph *g = r.program[rig_add(&r, &o)].compiled->graph;
        int heads = 0;
        for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
            const struct td_node_info *node = td_graph_node(g, n);
            uint32_t n_watched = td_graph_watched(g, n, v);
            if (node->segment == TD_SEG_BACKWARD) assert_true(n_watched ? !scaled : scaled);
            if (node->op != TD_OP_LINEAR_CE_GRAD) continue;
            assert_int_equal(n_watched, scaled ? 1 : 4);
            assert_int_equal(v[0], td_graph_loss_value(g));
            heads++;
        }
        assert_int_equal(heads, 1);
        rig_close(&r);
    }
}

// What full recomputation is for: the activations of a transformer grow by one value a block.
static size_t arena_of(const struct step_case *of, const char *knobs, enum td_recompute level,
                       bool mixed) {
    struct step_case c = *of;
    c.knobs = knobs;
    struct td_compile_options o = step_options(&c, &adamw);
    struct rig r;
    rig_open(&r);
    o.recompute = level;
    step_set_precision(&o, mixed ? &td_precision_bf16_mixed : NULL);
    size_t bytes = r.program[rig_add(&r, &o)].compiled->program.arena_bytes;
    rig_close(&r);
    return bytes;
}

#define LLAMA_OF(layers)                                                                           \
    "{\"hidden_size\":64,\"intermediate_size\":128,\"num_attention_heads\":4,"                     \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":" #layers "}"

static void test_memory_of_a_block_falls_to_one_value_when_all_is_made_again(void **state) {
    (void)state;
    static const struct {
        const char *name, *few, *many; // 16 blocks more
        double weights;                // of a block
    } nets[] = {{"gpt", "{\"n_layer\":8,\"n_head\":2,\"n_embd\":64}",
                 "{\"n_layer\":24,\"n_head\":2,\"n_embd\":64}", 12 * 64 * 64},
                {"llama", LLAMA_OF(8), LLAMA_OF(24), 9 * 64 * 64}};
    const double value = 2 * 6 * 64 * 4; // (B,T,C)
    for (size_t i = 0; i < 2 * TD_COUNTOF(nets); i++) {
        const struct step_case *c = step_case(nets[i / 2].name);
        const bool mixed = i % 2;
        const double shadows = nets[i / 2].weights * 2; // in bf16, which are kept: bytes a block
        double each[3];
        for (int k = 0; k < 3; k++) {
            size_t few = arena_of(c, nets[i / 2].few, (enum td_recompute)k, mixed);
            size_t many = arena_of(c, nets[i / 2].many, (enum td_recompute)k, mixed);
            double bytes = (double)(many - few) / 16;
            each[k] = mixed ? (bytes - shadows) / value * 2 : bytes / value;
            print_message("# %s %s, recompute %s: %.1f values a block\n", c->name,
                          mixed ? "bf16" : "fp32", td_recompute_name((enum td_recompute)k),
                          each[k]);
        }
        assert_true(each[TD_RECOMPUTE_SELECTIVE] < 0.75 * each[TD_RECOMPUTE_NONE]);
        assert_true(each[TD_RECOMPUTE_FULL] < 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_keep_their_bits_in_a_tight_plan_when_values_are_made_again),
        cmocka_unit_test(test_head_keeps_the_bits_of_the_step_when_logits_are_never_whole),
        cmocka_unit_test(test_gradients_are_not_watched_when_the_loss_is_scaled),
        cmocka_unit_test(test_memory_of_a_block_falls_to_one_value_when_all_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
