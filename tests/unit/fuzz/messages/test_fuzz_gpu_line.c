// A bounded run of the fuzz entry of a line about GPUs.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_gpu_line.c"

static const char *const words[] = {
    "{\"inventory\":",
    "\"devices\":[",
    "\"uuid\":\"GPU-a\"",
    "\"parent\":",
    "\"index\":",
    "\"peers\":[",
    "\"notes\":",
    "\"memory_bytes\":",
    "\"none\":",
    "\"xid\":",
    "{\"samples\":[",
    "\"pid\":",
    "\"processes\":[",
    "\"power_w\":",
    "-1",
    "64",
    "1e300",
    "null",
    "true",
    "}",
    "]",
    ",",
};

static void test_lines_stand_when_they_are_mutated(void **state) {
    (void)state;
    static const char inventory[] =
        "{\"inventory\":{\"driver\":\"550.1\",\"notes\":\"n\",\"devices\":["
        "{\"index\":0,\"uuid\":\"GPU-a\",\"name\":\"H100\",\"memory_bytes\":80,\"peers\":[1]},"
        "{\"index\":1,\"uuid\":\"MIG-b\",\"parent\":\"GPU-b\",\"numa_nodes\":[0,1]}]}}";
    static const char samples[] =
        "{\"samples\":[{\"uuid\":\"GPU-a\",\"used_bytes\":5,\"power_w\":1.5,\"processes\":"
        "[{\"pid\":7,\"bytes\":9}],\"more_processes\":3}]}";
    static const char xid[] = "{\"xid\":79,\"uuid\":\"GPU-a\"}";
    static const char none[] = "{\"final\":true,\"none\":\"no driver\"}";
    const struct td_fuzz_input corpus[] = {{inventory, sizeof inventory - 1},
                                           {samples, sizeof samples - 1},
                                           {xid, sizeof xid - 1},
                                           {none, sizeof none - 1},
                                           {"", 0}};
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_lines_stand_when_they_are_mutated)
