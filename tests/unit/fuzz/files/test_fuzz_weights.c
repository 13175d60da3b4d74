// A bounded run of the fuzz entry of foreign weights: indices and config.json files, right and
// wrong, then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_weights.c"

static const char *const words[] = {"\"weight_map\"",
                                    "\"transformer.a\"",
                                    "\"a.safetensors\"",
                                    "\"b.safetensors\"",
                                    "\"../a\"",
                                    "\"none\"",
                                    "\"n_head\"",
                                    "\"layer_norm_epsilon\"",
                                    "{",
                                    "}",
                                    ":",
                                    ",",
                                    "1",
                                    "true",
                                    "null",
                                    "[]"};

static const char *const inputs[] = {
    "0{\"weight_map\":{\"transformer.a\":\"a.safetensors\",\"transformer.b\":\"b.safetensors\"}}",
    "0{\"metadata\":{},\"weight_map\":{\"transformer.b\":\"b.safetensors\"}}",
    "0{\"weight_map\":{\"a\":\"config.json\"}}",
    "0{\"weight_map\":{\"a\":\"../../etc/passwd\"}}",
    "0{\"weight_map\":[]}",
    ("1{\"model_type\":\"gpt2\",\"n_head\":1,\"layer_norm_epsilon\":1e-5,"
     "\"activation_function\":\"gelu_new\",\"tie_word_embeddings\":true}"),
    "1{\"model_type\":\"llama\"}",
    "1{\"n_head\":9223372036854775807,\"layer_norm_epsilon\":-1e308}",
};

static void test_weights_stand_when_fed_mutated_directories(void **state) {
    (void)state;
    struct td_fuzz_input corpus[TD_COUNTOF(inputs)];
    for (size_t i = 0; i < TD_COUNTOF(inputs); i++) {
        corpus[i] = (struct td_fuzz_input){inputs[i], strlen(inputs[i])};
    }
    td_fuzz_arrays(corpus, words, 1500);
}

TD_FUZZ_MAIN(test_weights_stand_when_fed_mutated_directories)
