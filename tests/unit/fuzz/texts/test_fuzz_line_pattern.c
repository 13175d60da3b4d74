// A bounded run of the fuzz entry of patterns over lines.

#include "tests/unit/test.h"

#include "tests/fuzz/texts/fuzz_line_pattern.c"

static const char *const words[] = {
    "(?P<step>",
    "(?P<loss>",
    "(?P<epoch>",
    "(?P<total>",
    "(?P<total_steps>",
    "(?:",
    ")",
    "\\d+",
    "\\S+",
    "(.*)",
    ".*?",
    "{1,1000}",
    "[^ ]",
    "|",
    "\\pN",
    "\\b",
    "$",
    "step=",
    "loss=",
    "\n",
    "nan",
    "-inf",
    "1e400",
    "2147483648",
    "-1",
    "0x10",
    "\xff",
    "\xc3\xa9",
    "(?i)(?P<step>",
};

static void test_patterns_and_lines_stand_when_they_are_mutated(void **state) {
    (void)state;
    static const char usual[] = "step=(?P<step>\\d+) loss=(?P<loss>\\S+)\n"
                                "step=1 loss=0.5\nstep=2 loss=nan\nstep=3 loss=x\nnothing\n";
    static const char all[] = "(?P<step>\\S+)/(?P<total>\\S+) e(?P<epoch>\\S+)( x=(?P<x_1>\\S+))?\n"
                              "3/70 e1.75 x=-2e3\n4/70 e2\n9999999999/1 e1\n-1/2 e3\n";
    static const char wild[] = "(?P<step>(a|b|ab)*)(?P<loss>.*)\nabababababab\n";
    static const char no_step[] = "loss=(?P<loss>\\S+)\nloss=1\n";
    const struct td_fuzz_input corpus[] = {{usual, sizeof usual - 1},
                                           {all, sizeof all - 1},
                                           {wild, sizeof wild - 1},
                                           {no_step, sizeof no_step - 1},
                                           {"", 0}};
    td_fuzz_arrays(corpus, words, 5000);
}

TD_FUZZ_MAIN(test_patterns_and_lines_stand_when_they_are_mutated)
