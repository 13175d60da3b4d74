// A bounded run of the plan's fuzz entry: plans of an attempt and by hand, then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/texts/fuzz_plan.c"

static const char *const words[] = {
    "\"format\": 1",
    "\"run\"",
    "\"job\"",
    "\"attempt\"",
    "\"frozen\"",
    "\"world_size\"",
    "\"threads_per_rank\"",
    "\"resume_from\"",
    "\"resume_before\"",
    "\"checkpoint_dir\"",
    "\"trainer\"",
    "\"devices\"",
    "null",
    "-1",
    "2147483648",
    "1e309",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"auto\"",
    "[\"a\", \"b\"]",
};

static const char of_attempt[] =
    "{\"format\": 1, \"model\": {\"name\": \"mlp\", \"layers\": [4, 2]}, \"data\": {\"name\": "
    "\"synthetic\", \"batch_size\": 4}, \"optimizer\": {\"name\": \"sgd\"}, \"run\": {\"job\": "
    "\"j\", \"attempt\": 3, \"frozen\": {\"a\": [1, {\"b\": 2.5}]}}}";
static const char by_hand[] =
    "{\"format\": 1, \"model\": {\"name\": \"mlp\", \"layers\": [4, 2]}, \"data\": {\"name\": "
    "\"synthetic\", \"batch_size\": 4}, \"optimizer\": {\"name\": \"sgd\"}}";
static const char resumed[] =
    "{\"format\": 1, \"model\": {\"name\": \"mlp\", \"layers\": [4, 2]}, \"data\": {\"name\": "
    "\"synthetic\", \"batch_size\": 4}, \"optimizer\": {\"name\": \"sgd\"}, \"run\": {\"job\": "
    "\"j\", \"attempt\": 2, \"world_size\": 2, \"threads_per_rank\": 1, \"checkpoint_dir\": \"c\", "
    "\"cache_dir\": \"d\", \"resume_from\": \"c/step-7\", \"resume_before\": [\"c/step-5\"]}}";

static void test_plan_stands_when_fed_mutated_texts(void **state) {
    (void)state;
    const struct td_fuzz_input corpus[] = {
        {of_attempt, sizeof of_attempt - 1},
        {by_hand, sizeof by_hand - 1},
        {resumed, sizeof resumed - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_plan_stands_when_fed_mutated_texts)
