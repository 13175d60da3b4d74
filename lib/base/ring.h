#ifndef TRAIND_LIB_BASE_RING_H
#define TRAIND_LIB_BASE_RING_H

// Single-producer, single-consumer ring of fixed-size records in memory the caller gives, which may
// be shared between two processes (no pointers inside). When full, push drops the new record and
// counts it: metrics leave the training loop through this ring, and the loop never waits.
//
// Layout: one header page part (magic, geometry, head, tail, drops; head and tail on their own
// cache lines) followed by the slots. The consumer checks geometry against its own numbers on
// attach, because the producer may be a broken process.

#include <stdatomic.h>

#include "lib/base/base.h"
#include "lib/base/machine/machine.h"

struct td_ring_header {
    uint32_t magic;
    uint32_t record_bytes;
    uint32_t n_records; // a power of two
    uint32_t reserved;
    _Alignas(TD_LINE_BYTES) _Atomic uint64_t head; // next to write, by the producer
    _Atomic uint64_t drops;
    _Alignas(TD_LINE_BYTES) _Atomic uint64_t tail; // next to read, by the consumer
};

struct td_ring {
    struct td_ring_header *header;
    char *slots;
    uint32_t record_bytes;
    uint32_t n_records;
};

// Bytes needed for a ring; 0 if n_records is no power of two or sizes overflow.
size_t td_ring_bytes(uint32_t record_bytes, uint32_t n_records);
TD_MUST_USE td_status td_ring_format(void *memory, size_t bytes, uint32_t record_bytes,
                                     uint32_t n_records, struct td_ring *out_ring);
TD_MUST_USE td_status td_ring_attach(void *memory, size_t bytes, uint32_t record_bytes,
                                     struct td_ring *out_ring);
bool td_ring_push(struct td_ring *r, const void *record); // false: dropped and counted
uint64_t td_ring_room(const struct td_ring *r);           // of the producer: how many fit
bool td_ring_pop(struct td_ring *r, void *out_record);    // false: empty
void td_ring_drop(struct td_ring *r);                     // counts one that was not pushed
uint64_t td_ring_drops(const struct td_ring *r);

#endif
