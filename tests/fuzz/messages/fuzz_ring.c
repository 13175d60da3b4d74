// Fuzz entry of lib/base/ring: any bytes as the memory of a ring that another process made. An
// attach believes only a geometry that fits. Then popping ends, reads inside the memory (whose size
// the address sanitizer knows) and leaves a ring in which records go in and come out in order.
// Run by tests/unit/fuzz/messages/test_fuzz_ring.c.

#include "tests/fuzz/fuzz.h"

#include "lib/base/ring.h"

enum { RECORD = 16 };

static void use(struct td_ring *r) {
    char record[RECORD];
    uint32_t popped = 0;
    for (int tries = 0; tries < 2; tries++) { // one false is a repair or the end, then it is empty
        while (td_ring_pop(r, record)) {
            popped++;
        }
    }
    td_fuzz_expect(popped <= r->n_records);
    td_fuzz_expect(!td_ring_pop(r, record));
    uint64_t drops = td_ring_drops(r);
    for (uint32_t i = 0; i < r->n_records; i++) {
        memset(record, (int)i, sizeof record);
        td_fuzz_expect(td_ring_push(r, record));
    }
    td_fuzz_expect(!td_ring_push(r, record) && td_ring_drops(r) == drops + 1);
    for (uint32_t i = 0; i < r->n_records; i++) {
        td_fuzz_expect(td_ring_pop(r, record) && record[0] == (char)i);
    }
    td_fuzz_expect(!td_ring_pop(r, record));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void *memory = NULL; // a block of the exact size, so that a read past its end is seen
    td_fuzz_expect(posix_memalign(&memory, _Alignof(struct td_ring_header), size) == 0);
    if (size) memcpy(memory, data, size);
    struct td_ring r;
    td_status s = td_ring_attach(memory, size, RECORD, &r);
    if (s) {
        td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_DATA_LOSS);
    } else {
        td_fuzz_expect(td_ring_bytes(r.record_bytes, r.n_records) <= size);
        use(&r);
    }
    free(memory);
    return 0;
}
