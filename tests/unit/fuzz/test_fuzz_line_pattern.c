// A bounded run of the fuzz entry of patterns over lines. In check-full many more rounds.

#include "tests/unit/test.h"

#include "tests/fuzz/fuzz_line_pattern.c"

static const char *const words[] = {"(?P<",  "step>",      "epoch>", "total>", "\\d+", "\\S+",
                                    ".*",    ")",          "{1000}", "(",      "|",    "[^",
                                    "]",     "\\pL",       "\n",     "step=",  "nan",  "-inf",
                                    "1e308", "2147483648", "0x1p4"};

static void test_patterns_stand_when_they_are_mutated(void **state) {
    (void)state;
    static const char plain[] =
        "step=(?P<step>\\d+)/(?P<total>\\d+) e=(?P<epoch>\\S+) l=(?P<l>\\S+)\n"
        "step=1/2 e=0.5 l=nan\nstep=2/2 e=1 l=0.25\nother\n";
    static const char odd[] = "(?P<step>(a|aa)*)$|(?P<x>.)\naaaaaaaaaaaaaaaaaaaaab\n\n";
    const struct td_fuzz_input corpus[] = {
        {plain, sizeof plain - 1}, {odd, sizeof odd - 1}, {"", 0}};
    td_fuzz_arrays(corpus, words, 4000, 100000);
}

TD_FUZZ_MAIN(test_patterns_stand_when_they_are_mutated)
