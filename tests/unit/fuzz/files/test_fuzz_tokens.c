// A bounded run of the token reader's fuzz entry: llm.c's files of both widths, NumPy's, bare ones,
// and headers that lie, then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_tokens.c"

enum { HEADER = 1024, IDS = 40 };

static const char *const words[] = {"\x88\xd8\x34\x01",
                                    "\xa1\xd9\x34\x01",
                                    "\1",
                                    "\7",
                                    "\xff\xff\xff\xff",
                                    "\x50\xc4",
                                    "<u2",
                                    "<i8",
                                    "<f4"};

static void put_u32(uint8_t *at, uint32_t v) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(v >> (8 * i));
    }
}

static void test_tokens_stand_when_fed_mutated_files(void **state) {
    (void)state;
    static uint8_t wide[HEADER + 4 * IDS], narrow[HEADER + 2 * IDS], lying[HEADER + IDS];
    static const uint32_t head[3][3] = {
        {20240801, 7, IDS}, {20240520, 1, IDS}, {20240520, 1, UINT32_MAX}};
    uint8_t *const file[3] = {wide, narrow, lying};
    for (int f = 0; f < 3; f++) {
        for (int i = 0; i < 3; i++) {
            put_u32(file[f] + 4 * i, head[f][i]);
        }
    }
    static const char array[] = "\x93NUMPY\1\0\x46\0"
                                "{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }"
                                "           \n";
    static uint8_t numpy[80 + 4 * IDS];
    _Static_assert(sizeof array == 81, "the literal has 70 bytes");
    memcpy(numpy, array, 80);
    const struct td_fuzz_input corpus[] = {{wide, sizeof wide},
                                           {narrow, sizeof narrow},
                                           {numpy, sizeof numpy},
                                           {lying, sizeof lying},
                                           {"\1\0\2\0\3\0", 6}};
    struct td_tokens t; // the corpus begins with files that are right
    for (size_t i = 0; i < 3; i++) {
        assert_ok(td_tokens_read("a", corpus[i].data, corpus[i].bytes, 256, 0, &t));
        assert_int_equal(t.n, IDS);
    }
    td_fuzz_arrays(corpus, words, 10000);
}

TD_FUZZ_MAIN(test_tokens_stand_when_fed_mutated_files)
