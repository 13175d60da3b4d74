// A bounded run of lib/rpc's fuzz entry: the real descriptor set, a real status and real messages
// as corpus, then mutations of them.

#include "tests/unit/test.h"

#include "lib/rpc/descriptors.h"
#include "tests/fuzz/messages/fuzz_rpc.c"

static const char *const words[] = {"\x0a",     "\x12",         "\x0a\x03",     "\x12\x00",
                                    "\xff",     "\xff\xff\x0f", "\x08\x01",     "\x22\x02\x0a",
                                    "\x0a\x7f", "\xc3\x28",     "\x1a\x04\x0a", "\xf8\x07"};

static void test_decoders_stand_when_fed_mutated_bytes(void **state) {
    (void)state;
    td_status s = td_fail(TD_NOT_FOUND, "no job");
    s = td_status_with_meta(s, "key", "value");
    s = td_status_with_field(s, "path", "text");
    struct td_wire_status status;
    td_wire_status_encode(s, "id", &status);
    static const char job[] = "\x0a\x03j-1\x12\x04name\x52\x0b\x0a\x04loss\x11\0\0\0\0\0\0\xf0";
    static const char node[] = "\x08\x07\x1a\x0e\x0a\x05\x0a\x03j-1\x10\x01\x18\x02*\x01x";
    struct td_str set = td_rpc_descriptors();
    const struct td_fuzz_input corpus[] = {
        {set.data, TD_MIN(set.len, (size_t)TD_FUZZ_MAX)},
        {status.details, status.details_bytes},
        {job, sizeof job - 1},
        {node, sizeof node - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 4000);
    td_wire_status_finish(&status);
}

TD_FUZZ_MAIN(test_decoders_stand_when_fed_mutated_bytes)
