// A bounded run of the frame reader's fuzz entry.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_frame.c"

static const char *const words[] = {"\x01", "\xff\xff\xff\xff", "\x10", "\x08\x01", "\x0a\x03",
                                    "\x12", "\xff\xff\x10",     "\x03"};

static void test_frames_stand_when_fed_mutated_streams(void **state) {
    (void)state;
    static const char frames[] =
        "\x05"
        "\x04\0\0\0\x03\0\x01\0\x08\x01\x10\x64"
        "\0\0\0\0\x04\0\x01\0"
        "\x09\0\0\0\x01\0\x01\0\x08\x01\x22\x03j-1\x28\x02"
        "\x0c\0\0\0\x02\0\x01\0\x08\x20\x12\x06\x08\x01\x20\x07\x68\x01\x18\x01";
    static const char huge[] = "\0\xff\xff\xff\xff\x01\0\x01\0rest";
    static const char just_over[] = "\0\x01\0\x10\0\x01\0\x01\0rest";
    static const char largest[] = "\0\0\0\x10\0\x01\0\x01\0rest";
    const struct td_fuzz_input corpus[] = {
        {frames, sizeof frames - 1},
        {huge, sizeof huge - 1},
        {just_over, sizeof just_over - 1},
        {largest, sizeof largest - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_frames_stand_when_fed_mutated_streams)
