// A bounded run of the JSON reader's fuzz entry.

#include "tests/unit/test.h"

#include "tests/fuzz/texts/fuzz_json.c"

static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "null",
    "true",
    "-0",
    "1e309",
    "1e-320",
    "-0.0",
    "0.1",
    "\\ud83d\\ude00",
    "\\n",
    "\\ud800",
    "\x7f",
    "\xc3\xa9",
    "\xed\xa0\x80",
    "\"a\":",
    "[[[[[[[[[[[[[[[[",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "4.9406564584124654e-324",
    "{\"a\":1,\"a\":2}",
};

static void test_json_stands_when_fed_mutated_texts(void **state) {
    (void)state;
    static const char plain[] =
        "{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\n\"], \"b\": {\"c\": {}}}";
    static const char numbers[] = "[0, -0, 1.0, 1e22, 1e-7, 0.30000000000000004, 5e-324, 1e16]";
    static const char text[] = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\\ud83d\\ude00\"";
    static char deep[2 * 70];
    memset(deep, '[', sizeof deep / 2);
    memset(deep + sizeof deep / 2, ']', sizeof deep / 2);
    const struct td_fuzz_input corpus[] = {
        {plain, sizeof plain - 1}, {numbers, sizeof numbers - 1}, {text, sizeof text - 1},
        {deep, sizeof deep},       {deep + 7, sizeof deep - 14},  {"", 0},
    };
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_json_stands_when_fed_mutated_texts)
