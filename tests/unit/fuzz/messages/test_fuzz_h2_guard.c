// A bounded run of the fuzz entry of the guard on HTTP/2 framing.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_h2_guard.c"

// Without their ends: a word is a string, so frames begin with what is not zero.
static const char *const words[] = {"\x01", "\x04", "\x05", "\x08\x06", "\x09", "\xff\xff\xff"};

static void test_guard_judges_the_same_when_fed_mutated_frames(void **state) {
    (void)state;
    static const char call[] = "\x05"
                               "\0\0\x03\x01\x04\0\0\0\x01"
                               "abc"
                               "\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0"
                               "\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff"
                               "\0\0\x08\x06\0\0\0\0\0"
                               "12345678";
    static const char split[] = "\x02"
                                "\0\0\x01\x01\0\0\0\0\x01"
                                "a"
                                "\0\0\x01\x09\0\0\0\0\x01"
                                "b"
                                "\0\0\0\x09\x04\0\0\0\x01";
    static const char settings[] = "\0\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x80\0\0\0\0\x04\x01\0\0\0\0";
    static const char huge[] = "\0\xff\xff\xff\0\0\0\0\0\x01";
    const struct td_fuzz_input corpus[] = {
        {call, sizeof call - 1},
        {split, sizeof split - 1},
        {settings, sizeof settings - 1},
        {huge, sizeof huge - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_guard_judges_the_same_when_fed_mutated_frames)
