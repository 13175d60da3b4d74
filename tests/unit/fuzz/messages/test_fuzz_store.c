// A bounded run of the rendezvous store's fuzz entry.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_store.c"

static const char *const words[] = {"\x03\x0a\x01\0\0\0\x01\x01\0\0kv",
                                    "\x03\x09\x02\0\0\0\x02\x01\0\0k",
                                    "\0\x03\x0a\x01k",
                                    "\x01\x06\x0a\x01k\x12\x01w",
                                    "\x02\0",
                                    "\x02\x02\x08\x01",
                                    "\0\x05\x0a\x01k\x10\x09"};

static void test_store_holds_when_fed_mutated_messages(void **state) {
    (void)state;
    static const char meeting[] = "\x03\x0a\x01\0\0\0\x01\x01\0\0kv"
                                  "\0\x03\x0a\x01k"
                                  "\x03\x09\x02\0\0\0\x02\x01\0\0j"
                                  "\x01\x06\x0a\x01j\x12\x01w";
    static const char refused[] = "\x03\x0a\x01\0\0\0\x01\x01\0\0kv"
                                  "\0\x05\x0a\x01k\x10\x09"
                                  "\x02\x02\x08\x01"
                                  "\x03\x09\x02\0\0\0\x02\x01\0\0k";
    static const char malformed[] = "\x03\x03\x01\0\0\x03\x09\x01\0\0\0\x07\x01\0\0k";
    const struct td_fuzz_input corpus[] = {
        {meeting, sizeof meeting - 1},
        {refused, sizeof refused - 1},
        {malformed, sizeof malformed - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 5000);
}

TD_FUZZ_MAIN(test_store_holds_when_fed_mutated_messages)
