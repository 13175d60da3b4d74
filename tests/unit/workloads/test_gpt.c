// Module `gpt`: Hugging Face's names, shapes and GPT-2's initial values; sizes from presets, knobs
// and data; dropout only while training; what does not fit is refused with both sides.

#include "tests/unit/workloads/module_rig.h"

static const struct td_field tokens = {
    .name = "x", .dtype = TD_I32, .sample_shape = {.n_dims = 1, .dim = {8}}, .n_classes = 256};

static struct td_field named(struct td_field f, const char *name) {
    snprintf(f.name, sizeof f.name, "%s", name);
    return f;
}

static void record(const char *knobs, struct td_field x, enum td_mode mode, char *ops,
                   char *tensors, size_t bytes) {
    struct td_state_table *t;
    struct td_graph *g;
    const struct td_field fields[] = {x, named(x, "y")};
    assert_ok(td_state_table_create(&t));
    module_record(&td_module_gpt, knobs, fields, mode, 3, t, &g);
    module_op_names(g, ops, bytes);
    module_state(t, tensors, bytes);
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static void test_parameters_are_those_of_hugging_face_when_recorded(void **state) {
    (void)state;
    char ops[2048], tensors[2048];
    record("{\"n_layer\":2,\"n_head\":2,\"n_embd\":4}", tokens, TD_MODE_TRAIN, ops, tensors,
           sizeof ops);
    const char *start = "transformer.wte.weight 256x4 normal 0.02 not-hidden\n"
                        "transformer.wpe.weight 8x4 normal 0.02 not-hidden\n"
                        "transformer.h.0.ln_1.weight 4 const 1 no-decay\ntransformer.h.0.ln_1.bias "
                        "4 const 0 no-decay\n"
                        "transformer.h.0.attn.c_attn.weight 4x12 normal 0.02\n"
                        "transformer.h.0.attn.c_attn.bias 12 const 0 no-decay\n"
                        "transformer.h.0.attn.c_proj.weight 4x4 normal 0.01\n"
                        "transformer.h.0.attn.c_proj.bias 4 const 0 no-decay\n"
                        "transformer.h.0.ln_2.weight 4 const 1 no-decay\ntransformer.h.0.ln_2.bias "
                        "4 const 0 no-decay\n"
                        "transformer.h.0.mlp.c_fc.weight 4x16 normal 0.02\n"
                        "transformer.h.0.mlp.c_fc.bias 16 const 0 no-decay\n"
                        "transformer.h.0.mlp.c_proj.weight 16x4 normal 0.01\n"
                        "transformer.h.0.mlp.c_proj.bias 4 const 0 no-decay\n"
                        "transformer.h.1.ln_1.weight 4 const 1 no-decay\n";
    assert_memory_equal(tensors, start, strlen(start));
    assert_non_null(strstr(tensors, "transformer.ln_f.weight 4 const 1 no-decay\n"
                                    "transformer.ln_f.bias 4 const 0 no-decay\n"));
    assert_null(strstr(tensors, "lm_head")); // tied
    const char *block = "layer_norm matmul add reshape self_attention "
                        "reshape matmul add add layer_norm matmul add gelu matmul add add ";
    assert_memory_equal(ops, "embedding add ", 14);
    assert_memory_equal(ops + 14, block, strlen(block));
    assert_non_null(strstr(ops, "layer_norm reshape matmul reshape softmax_ce"));
}

static void test_dropout_is_recorded_when_training_only(void **state) {
    (void)state;
    const char *knobs = "{\"n_layer\":1,\"n_head\":1,\"n_embd\":4,\"embd_pdrop\":0.1,"
                        "\"resid_pdrop\":0.2,\"attn_pdrop\":0.3}";
    char ops[1024], tensors[2048];
    record(knobs, tokens, TD_MODE_TRAIN, ops, tensors, sizeof ops);
    int n = 0;
    for (const char *at = ops; (at = strstr(at, "dropout")); at++) {
        n++;
    }
    assert_int_equal(n, 3);
    record(knobs, tokens, TD_MODE_EVAL, ops, tensors, sizeof ops);
    assert_null(strstr(ops, "dropout"));
}

static void test_sizes_are_the_presets_when_not_given(void **state) {
    (void)state;
    static char ops[1 << 16], tensors[1 << 16];
    struct td_field long_rows = tokens;
    long_rows.sample_shape.dim[0] = 512;
    record("{\"preset\":\"gpt2-medium\",\"n_layer\":3}", long_rows, TD_MODE_TRAIN, ops, tensors,
           sizeof ops);
    assert_non_null(strstr(tensors, "wte.weight 50257x1024"));
    assert_non_null(strstr(tensors, "wpe.weight 1024x1024"));
    assert_non_null(strstr(tensors, "h.2.mlp"));
    assert_null(strstr(tensors, "h.3.mlp"));
    assert_memory_equal(ops, "embedding slice add ", 20); // rows shorter than the table
}

static void test_open_names_both_sides_when_data_and_knobs_do_not_fit(void **state) {
    (void)state;
    struct td_field pixels = tokens, short_rows = tokens;
    pixels.dtype = TD_U8;
    short_rows.sample_shape.dim[0] = 7;
    const struct {
        const char *knobs;
        struct td_field x, y;
        const char *text;
    } cases[] = {
        {"{}", tokens, tokens, "give a preset"},
        {"{\"n_layer\":1,\"n_head\":3,\"n_embd\":4}", tokens, tokens,
         "model.n_embd is 4, which model.n_head, 3, does not divide"},
        {"{\"preset\":\"gpt2\"}", pixels, tokens, "gives 8 of u8 and 8 of i32"},
        {"{\"preset\":\"gpt2\"}", tokens, short_rows, "gives 8 of i32 and 7 of i32"},
        {"{\"preset\":\"gpt2\",\"n_positions\":7}", tokens, tokens,
         "rows have 8 tokens, but model.n_positions is 7"},
        {"{\"preset\":\"gpt2\",\"vocab_size\":255}", tokens, tokens,
         "tokens are below 256, but model.vocab_size is 255"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_module *m = NULL;
        const struct td_field fields[] = {cases[i].x, named(cases[i].y, "y")};
        td_status s = module_open(&td_module_gpt, cases[i].knobs, fields, 2, &m);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
        assert_null(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_those_of_hugging_face_when_recorded),
        cmocka_unit_test(test_dropout_is_recorded_when_training_only),
        cmocka_unit_test(test_sizes_are_the_presets_when_not_given),
        cmocka_unit_test(test_open_names_both_sides_when_data_and_knobs_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
