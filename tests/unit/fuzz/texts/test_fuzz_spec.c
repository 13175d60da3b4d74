// A bounded run of the job spec's fuzz entry: the examples and nasty texts as corpus, then
// mutations of them with words of the language.

#include "tests/unit/test.h"

#include "tests/fuzz/texts/fuzz_spec.c"

static const char *const words[] = {
    "model",     "mlp",   "layers",       "trainer", "devices",
    "optimizer", "adamw", "lr_scheduler", "name: ",  ": ",
    "\n",        "\n  ",  "- ",           "[",       "]",
    "{",         "}",     ", ",           "&a ",     "*a",
    "!!int ",    "<<: ",  "---\n",        "...\n",   "? ",
    "\"",        "'",     "|\n",          ">-\n",    "%YAML 1.2",
    ".nan",      "-.inf", "0x7f",         "1e309",   "-1",
    "auto",      "null",  "\xef\xbb\xbf", "\t",      "trainer.devices=",
    "=",         ".",     "\\ud83d",      "\": ",    "007",
};

static const char override_text[] = "model.layers=[4, 8, 2]";
static const char json[] =
    "{\"name\"\n:\"x\\n\\u00e9\",\"model\":{\"name\":\"mlp\",\"layers\":[4,2]},\n"
    "\"optimizer\":\"sgd\",\"data\":{\"name\":\"synthetic\",\"batch_size\":8}}";
static const char block[] = "name: >-\n  folded\n  text\nmodel:\n  name: \"m\\x6cp\"\n  layers:\n"
                            "  - 0x10\n  - 4 # four\ndata: {name: synthetic, batch_size: 8}\n"
                            "optimizer:\n  name: adam\n  betas: [.9, 9.99e-1]\n";

static void test_spec_stands_when_fed_mutated_documents(void **state) {
    (void)state;
    TD_AUTO_BUF fashion, synthetic;
    td_buf_init(&fashion, TD_FUZZ_MAX);
    td_buf_init(&synthetic, TD_FUZZ_MAX);
    assert_ok(td_fs_read("examples/fashion-mnist.yaml", TD_FUZZ_MAX, &fashion));
    assert_ok(td_fs_read("examples/synthetic.yaml", TD_FUZZ_MAX, &synthetic));
    const struct td_fuzz_input corpus[] = {
        {fashion.data, fashion.len},
        {synthetic.data, synthetic.len},
        {override_text, sizeof override_text - 1},
        {block, sizeof block - 1},
        {json, sizeof json - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 4000);
}

TD_FUZZ_MAIN(test_spec_stands_when_fed_mutated_documents)
