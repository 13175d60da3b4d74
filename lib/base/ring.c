// Ring: one producer, one consumer, two cache lines of counters.
//
// head and tail only grow; their difference is the fill. Each side writes one of them with release
// and reads the other with acquire, and takes geometry from its own struct, never from the shared
// header, once formatted or attached. So the worst a broken peer can do is to lose records. A tail
// beyond head looks full to the producer, which drops and counts. A head too far ahead makes the
// consumer skip to it.

#include "lib/base/ring.h"

#include <string.h>

enum { RING_MAGIC = 0x474e5254 }; // "TRNG"

size_t td_ring_bytes(uint32_t record_bytes, uint32_t n_records) {
    size_t slots;
    if (record_bytes == 0 || n_records == 0 || (n_records & (n_records - 1)) != 0) return 0;
    if (!td_size_mul(record_bytes, n_records, &slots)) return 0;
    return slots <= SIZE_MAX - sizeof(struct td_ring_header) ? slots + sizeof(struct td_ring_header)
                                                             : 0;
}

static void point(struct td_ring *r, void *memory, uint32_t record_bytes, uint32_t n_records) {
    *r = (struct td_ring){
        .header = memory,
        .slots = (char *)memory + sizeof(struct td_ring_header),
        .record_bytes = record_bytes,
        .n_records = n_records,
    };
}

td_status td_ring_format(void *memory, size_t bytes, uint32_t record_bytes, uint32_t n_records,
                         struct td_ring *out_ring) {
    TD_CHECK((uintptr_t)memory % _Alignof(struct td_ring_header) == 0);
    size_t needed = td_ring_bytes(record_bytes, n_records);
    if (needed == 0 || needed > bytes) {
        return td_fail(TD_INVALID_ARGUMENT, "ring of %u records of %u bytes does not fit %zu bytes",
                       n_records, record_bytes, bytes);
    }
    memset(memory, 0, sizeof(struct td_ring_header));
    point(out_ring, memory, record_bytes, n_records);
    out_ring->header->record_bytes = record_bytes;
    out_ring->header->n_records = n_records;
    out_ring->header->magic = RING_MAGIC;
    return TD_OK;
}

td_status td_ring_attach(void *memory, size_t bytes, uint32_t record_bytes,
                         struct td_ring *out_ring) {
    TD_CHECK((uintptr_t)memory % _Alignof(struct td_ring_header) == 0);
    if (bytes < sizeof(struct td_ring_header)) {
        return td_fail(TD_DATA_LOSS, "ring: %zu bytes cannot hold its header", bytes);
    }
    const struct td_ring_header *h = memory;
    uint32_t magic = h->magic, stored_bytes = h->record_bytes, n_records = h->n_records;
    size_t needed = td_ring_bytes(record_bytes, n_records);
    if (magic != RING_MAGIC || stored_bytes != record_bytes || needed == 0 || needed > bytes) {
        return td_fail(TD_DATA_LOSS,
                       "ring: magic %08x, %u records of %u bytes in %zu; expected magic %08x, "
                       "records of %u bytes",
                       magic, n_records, stored_bytes, bytes, (unsigned)RING_MAGIC, record_bytes);
    }
    point(out_ring, memory, record_bytes, n_records);
    return TD_OK;
}

static char *slot(const struct td_ring *r, uint64_t i) {
    return r->slots + (size_t)(i & (r->n_records - 1)) * r->record_bytes;
}

void td_ring_drop(struct td_ring *r) {
    atomic_fetch_add_explicit(&r->header->drops, 1, memory_order_relaxed);
}

uint64_t td_ring_room(const struct td_ring *r) {
    uint64_t head = atomic_load_explicit(&r->header->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&r->header->tail, memory_order_acquire);
    return head - tail < r->n_records ? r->n_records - (head - tail) : 0;
}

bool td_ring_push(struct td_ring *r, const void *record) {
    struct td_ring_header *h = r->header;
    if (td_ring_room(r) == 0) {
        td_ring_drop(r);
        return false;
    }
    uint64_t head = atomic_load_explicit(&h->head, memory_order_relaxed);
    memcpy(slot(r, head), record, r->record_bytes);
    atomic_store_explicit(&h->head, head + 1, memory_order_release);
    return true;
}

bool td_ring_pop(struct td_ring *r, void *out_record) {
    struct td_ring_header *h = r->header;
    uint64_t tail = atomic_load_explicit(&h->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&h->head, memory_order_acquire);
    if (head == tail) return false;
    if (head - tail > r->n_records) { // only a broken producer gets here
        atomic_store_explicit(&h->tail, head, memory_order_release);
        return false;
    }
    memcpy(out_record, slot(r, tail), r->record_bytes);
    atomic_store_explicit(&h->tail, tail + 1, memory_order_release);
    return true;
}

uint64_t td_ring_drops(const struct td_ring *r) {
    return atomic_load_explicit(&r->header->drops, memory_order_relaxed);
}
