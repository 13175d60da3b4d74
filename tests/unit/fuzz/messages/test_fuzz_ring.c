// A bounded run of the ring's fuzz entry: formatted rings, full, empty, broken, then mutations of
// them.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_ring.c"

enum { RECORDS = 8, MEMORY = sizeof(struct td_ring_header) + RECORDS * RECORD };
static _Alignas(TD_LINE_BYTES) char memory[3][MEMORY];

static const char *const words[] = {"TRNG", "\x10", "\x08", "\xff\xff\xff\xff", "\x80", "\x01"};

static void test_ring_stands_when_attached_to_mutated_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(memory); i++) {
        struct td_ring r;
        assert_ok(td_ring_format(memory[i], MEMORY, RECORD, RECORDS, &r));
        for (size_t n = 0; i > 0 && n < 3 * RECORDS; n++) {
            (void)td_ring_push(&r, memory[0]);
        }
        if (i == 2) atomic_store(&r.header->head, UINT64_MAX - 3);
    }
    const struct td_fuzz_input corpus[] = {
        {memory[0], MEMORY}, {memory[1], MEMORY}, {memory[2], MEMORY}, {memory[1], 64}, {"", 0},
    };
    td_fuzz_arrays(corpus, words, 50000);
}

TD_FUZZ_MAIN(test_ring_stands_when_attached_to_mutated_memory)
