// Module `llama`: Hugging Face's names, shapes and initial values; keys and values of fewer heads;
// a head of its own or the table; sizes from knobs and data. What does not fit is refused, in the
// knobs and in a foreign config.json.

#include "tests/unit/workloads/module_rig.h"

#define WITH_HEADS(n)                                                                              \
    "\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,\"num_attention_"          \
    "heads\":" #n
#define SIZES WITH_HEADS(2)

static const struct td_field tokens = {
    .name = "x", .dtype = TD_I32, .sample_shape = {.n_dims = 1, .dim = {6}}, .n_classes = 256};

static struct td_field named(struct td_field f, const char *name) {
    snprintf(f.name, sizeof f.name, "%s", name);
    return f;
}

struct recorded {
    char ops[2048], tensors[2048];
    struct td_attrs rope, attention;
};

static void record(const char *knobs, enum td_mode mode, struct recorded *out) {
    struct td_state_table *t;
    struct td_graph *g;
    const struct td_field fields[] = {tokens, named(tokens, "y")};
    assert_ok(td_state_table_create(&t));
    module_record(&td_module_llama, knobs, fields, mode, 3, t, &g);
    module_op_names(g, out->ops, sizeof out->ops);
    module_state(t, out->tensors, sizeof out->tensors);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (node->op == TD_OP_ROPE) out->rope = node->attrs;
        if (node->op == TD_OP_ATTENTION) out->attention = node->attrs;
    }
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static void test_parameters_are_those_of_hugging_face_when_recorded(void **state) {
    (void)state;
    struct recorded r;
    record("{" SIZES ",\"num_key_value_heads\":1,\"rope_theta\":500000}", TD_MODE_TRAIN, &r);
    const char *start = "model.embed_tokens.weight 256x8 normal 0.02 not-hidden\n"
                        "model.layers.0.input_layernorm.weight 8 const 1 no-decay\n"
                        "model.layers.0.self_attn.q_proj.weight 8x8 normal 0.02\n"
                        "model.layers.0.self_attn.k_proj.weight 4x8 normal 0.02\n"
                        "model.layers.0.self_attn.v_proj.weight 4x8 normal 0.02\n"
                        "model.layers.0.self_attn.o_proj.weight 8x8 normal 0.02\n"
                        "model.layers.0.post_attention_layernorm.weight 8 const 1 no-decay\n"
                        "model.layers.0.mlp.gate_proj.weight 12x8 normal 0.02\n"
                        "model.layers.0.mlp.up_proj.weight 12x8 normal 0.02\n"
                        "model.layers.0.mlp.down_proj.weight 8x12 normal 0.02\n"
                        "model.layers.1.input_layernorm.weight 8 const 1 no-decay\n";
    assert_memory_equal(r.tensors, start, strlen(start));
    const char *end = "model.norm.weight 8 const 1 no-decay\n"
                      "lm_head.weight 256x8 normal 0.02 not-hidden\n";
    assert_string_equal(r.tensors + strlen(r.tensors) - strlen(end), end);
    const char *block = "embedding rms_norm matmul reshape matmul reshape matmul reshape rope rope "
                        "attention reshape matmul add rms_norm matmul matmul silu mul matmul add ";
    assert_memory_equal(r.ops, block, strlen(block));
    assert_non_null(strstr(r.ops, "add rms_norm reshape matmul reshape softmax_ce"));
    assert_true(r.rope.base == 500000 && !r.rope.interleaved && r.attention.causal);
}

static void test_head_is_the_table_when_it_is_tied(void **state) {
    (void)state;
    struct recorded r;
    record("{" SIZES ",\"tie_word_embeddings\":true,\"initializer_range\":0.5}", TD_MODE_TRAIN, &r);
    assert_null(strstr(r.tensors, "lm_head"));
    assert_non_null(strstr(r.tensors, "model.layers.1.self_attn.k_proj.weight 8x8 normal 0.5\n"));
}

static void test_weights_are_dropped_when_training_only(void **state) {
    (void)state;
    struct recorded r;
    record("{" SIZES ",\"attention_dropout\":0.25}", TD_MODE_TRAIN, &r);
    assert_true(r.attention.drop == 0.25 && r.attention.stream != 0);
    record("{" SIZES ",\"attention_dropout\":0.25}", TD_MODE_EVAL, &r);
    assert_true(r.attention.drop == 0);
}

static void test_open_names_both_sides_when_data_and_knobs_do_not_fit(void **state) {
    (void)state;
    struct td_field pixels = tokens, short_rows = tokens;
    pixels.dtype = TD_U8;
    short_rows.sample_shape.dim[0] = 5;
    const struct {
        const char *knobs;
        struct td_field x, y;
        const char *text;
    } cases[] = {
        {"{" WITH_HEADS(0) "}", tokens, tokens, "num_key_value_heads are at least 1"},
        {"{" WITH_HEADS(3) "}", tokens, tokens,
         "model.hidden_size is 8, which model.num_attention_heads, 3, does not divide"},
        {"{" WITH_HEADS(8) "}", tokens, tokens, "heads of an even width"},
        {"{" SIZES ",\"num_key_value_heads\":4}", tokens, tokens,
         "model.num_attention_heads is 2, which model.num_key_value_heads, 4, does not divide"},
        {"{" SIZES "}", pixels, tokens, "llama takes rows of i32 tokens 'x'"},
        {"{" SIZES "}", tokens, short_rows, "gives 6 of i32 and 5 of i32"},
        {"{" SIZES ",\"max_position_embeddings\":5}", tokens, tokens,
         "rows have 6 tokens, but model.max_position_embeddings is 5"},
        {"{" SIZES ",\"vocab_size\":255}", tokens, tokens,
         "tokens are below 256, but model.vocab_size is 255"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_module *m = NULL;
        const struct td_field fields[] = {cases[i].x, named(cases[i].y, "y")};
        td_status s = module_open(&td_module_llama, cases[i].knobs, fields, 2, &m);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
        assert_null(m);
    }
}

// ---- config.json --------------------------------------------------------------------------------
static td_status judged(const char *knobs, const char *config_text) {
    const struct td_module_ops *ops = td_module_llama.ops;
    const struct td_field fields[] = {tokens, named(tokens, "y")};
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *config;
    struct td_module *m;
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_ok(module_open(&td_module_llama, knobs, fields, 2, &m));
    if (!config_text) config_text = ops->config(m);
    assert_ok(td_json_parse(arena, config_text, strlen(config_text), &config));
    td_status s = ops->check_config(m, config);
    ops->close(m);
    return s;
}

static void test_config_fits_when_it_says_the_same(void **state) {
    (void)state;
    static const char *const knobs[] = {
        "{" SIZES "}", "{" SIZES ",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5}",
        "{" SIZES ",\"num_key_value_heads\":1,\"rope_theta\":500}"};
    for (size_t i = 0; i < TD_COUNTOF(knobs); i++) {
        assert_ok(judged(knobs[i], NULL));
    }
    assert_ok(judged(knobs[0], "{\"num_attention_heads\":2}"));
    assert_ok(judged(knobs[2], "{\"num_attention_heads\":2,\"rope_parameters\":"
                               "{\"rope_type\":\"default\",\"rope_theta\":500.0}}"));
    assert_ok(judged(knobs[2], "{\"num_attention_heads\":2,\"rope_theta\":500,"
                               "\"rope_scaling\":{\"type\":\"default\"}}"));
}

static void test_config_is_refused_when_it_is_of_another_network(void **state) {
    (void)state;
    static const struct {
        const char *config, *text;
    } cases[] = {
        {"{\"model_type\":\"mistral\"}", "model_type: mistral, the model has llama"},
        {"{\"hidden_act\":\"gelu\"}", "hidden_act: gelu, the model has silu"},
        {"{\"attention_bias\":true}", "attention_bias: true, the model has false"},
        {"{\"mlp_bias\":true}", "mlp_bias: true, the model has false"},
        {"{\"mlp_bias\":1}", "mlp_bias: neither true nor false"},
        {"{\"tie_word_embeddings\":true}", "tie_word_embeddings: true, the model has false"},
        {"{}", "leaves out num_attention_heads, which is then 32, the model has 2"},
        {"{\"num_attention_heads\":2,\"rms_norm_eps\":1e-5}", "rms_norm_eps: 1e-05"},
        {"{\"num_attention_heads\":2,\"rope_theta\":500000.0}",
         "rope_theta: 500000, the model has 10000"},
        {"{\"num_attention_heads\":2,\"rope_parameters\":{\"rope_theta\":7}}", "rope_theta: 7"},
        {"{\"num_attention_heads\":2,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
         "config.json.low_freq_factor: expected a number from 1e-06 to 1e9, and it is missing"},
        {"{\"num_attention_heads\":2,\"rope_scaling\":{\"type\":\"linear\"}}",
         "config.json.factor: expected a number from 1 to 1e9, and it is missing"},
        {"{\"num_attention_heads\":2,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
         "config.json says rope_scaling: {\"rope_type\": \"linear\", \"factor\": 4}, the model has "
         "null; "
         "set model.rope_scaling"},
        {"{\"num_attention_heads\":2,\"head_dim\":64}", "head_dim: 64, the model has"},
        {"{\"num_attention_heads\":2,\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "'yarn'"},
        {"{\"num_attention_heads\":2,\"rope_parameters\":{\"rope_theta\":10000},"
         "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":8}}",
         "high_freq_factor has to be above low_freq_factor"},
        {"{\"num_attention_heads\":2,\"rope_parameters\":{\"rope_theta\":10000},"
         "\"rope_scaling\":{\"rope_theta\":7}}",
         "rope_theta: 7"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        td_status s = judged("{" SIZES "}", cases[i].config);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
    }
    assert_fails(judged("{" SIZES ",\"tie_word_embeddings\":true}", "{\"num_attention_heads\":2}"),
                 TD_INVALID_ARGUMENT,
                 "leaves out tie_word_embeddings, which is then false, the model has true");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_those_of_hugging_face_when_recorded),
        cmocka_unit_test(test_head_is_the_table_when_it_is_tied),
        cmocka_unit_test(test_weights_are_dropped_when_training_only),
        cmocka_unit_test(test_open_names_both_sides_when_data_and_knobs_do_not_fit),
        cmocka_unit_test(test_config_fits_when_it_says_the_same),
        cmocka_unit_test(test_config_is_refused_when_it_is_of_another_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
