// A bounded run of the fuzz entry of an event's line.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_event_line.c"

static const char *const words[] = {
#define TD_EVENT(kind, event, prose)              "{\"event\":\"" #event "\"",
#define TD_FIELD(event, field, type, need, prose) ",\"" #field "\":",
#include "lib/attempt/events.def"
    "\"rank\":", "-9223372036854775808",
    "1e300",     "null",
    "true",      "\"\\ud83d\\ude00\"",
    "[",         "]",
    "{",         "}",
};

static void test_lines_stand_when_they_are_mutated(void **state) {
    (void)state;
    static const char checkpoint[] =
        "{\"event\":\"checkpoint\",\"step\":7,\"epoch\":1,\"path\":\"a1/step-7\",\"bytes\":30,"
        "\"files\":[{\"name\":\"m\",\"bytes\":20,\"digest\":\"0\"},{}],\"metrics\":{\"a\":0.5,"
        "\"b\":"
        "null},\"final\":false,\"rank\":0,\"real_ns\":1}";
    static const char end[] =
        "{\"step\":7,\"message\":\"caf\xc3\xa9\",\"rank\":1,\"event\":\"end\"}";
    static const char frozen[] = "{\"event\":\"frozen\",\"plan\":{\"a\":[1,{\"b\":2.5}]}}";
    static const char odd[] = "{\"event\":\"note\",\"text\":7}";
    static char large[6000];
    int head = snprintf(large, sizeof large, "{\"event\":\"note\",\"text\":\"");
    memset(large + head, 'x', sizeof large - (size_t)head - 2);
    memcpy(large + sizeof large - 2, "\"}", 2);
    const struct td_fuzz_input corpus[] = {{checkpoint, sizeof checkpoint - 1},
                                           {end, sizeof end - 1},
                                           {frozen, sizeof frozen - 1},
                                           {odd, sizeof odd - 1},
                                           {large, sizeof large},
                                           {"", 0}};
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_lines_stand_when_they_are_mutated)
