// A bounded run of the fuzz entry of a rank's events, and what it found.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_events.c"

static const char *const words[] = {
    "{\"event\":\"",
    "\"}",
    "\"event\":",
    "\"end\"",
    "\"rank\":9",
    "\"real_ns\":-1",
    "launched",
    "rank_exit",
    "stop",
    "launcher_end",
    "null",
    "\\u0000",
    "\xc3",
    "\\ud83d\\ude00",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"outcome\":\"failed\"",
    "\"message\":\"",
    "\"class\":\"data\"",
};

static const char life[] =
    "{\"event\":\"ready\",\"pid\":5}\0{\"event\":\"step1\",\"step\":1}\0"
    "{\"event\":\"checkpoint\",\"step\":7,\"path\":\"a1/step-7\",\"files\":[{\"name\":\"m\"}]}\0"
    "{\"event\":\"end\",\"outcome\":\"failed\",\"class\":\"data\",\"code\":\"DATA_LOSS\","
    "\"message\":\"caf\xc3\xa9\",\"step\":7}";
static const char forged[] =
    "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\0{\"event\":\"rank_exit\",\"rank\":0}\0"
    "{\"event\":\"note\",\"rank\":-1,\"real_ns\":0}\0[1]\0{\"event\":7}\0nonsense";

static void test_events_of_the_launcher_are_refused_when_a_rank_sends_them(void **state) {
    (void)state;
    LLVMFuzzerTestOneInput((const uint8_t *)forged, sizeof forged - 1);
}

static void test_launcher_stands_when_fed_mutated_events(void **state) {
    (void)state;
    static char large[5000];
    int head = snprintf(large, sizeof large, "{\"event\":\"note\",\"text\":\"");
    memset(large + head, 'x', sizeof large - (size_t)head - 2);
    memcpy(large + sizeof large - 2, "\"}", 2);
    const struct td_fuzz_input corpus[] = {
        {life, sizeof life - 1}, {forged, sizeof forged - 1}, {large, sizeof large}, {"", 0}};
    td_fuzz_arrays(corpus, words, 8000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_of_the_launcher_are_refused_when_a_rank_sends_them),
        cmocka_unit_test(test_launcher_stands_when_fed_mutated_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
