// Fuzz entry of the readers of TensorBoard's event files. After an even first byte the bytes come
// as they are; after an odd one they are an event, put into a record with the checksums that it
// needs. Whatever came, a record is no longer than its bytes, its tags end within their bounds, and
// a record that is cut short is none. The scalars of an event (daemon/worker/reports) have tags
// within its bytes, and come to an end. Run by tests/unit/fuzz/files/test_fuzz_tfevents.c.

#include "tests/fuzz/fuzz.h"

#include "daemon/worker/reports/board_event.h"
#include "lib/base/files/tfevents.h"

enum { HEAD = 12, TAIL = 4 };

static uint32_t masked(const void *data, size_t bytes) {
    const uint32_t crc = td_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little(uint8_t *p, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(v >> 8 * i);
    }
}

// The record is the caller's to free.
static uint8_t *record_of(const uint8_t *event, size_t size) {
    uint8_t *record = malloc(HEAD + size + TAIL);
    if (!record) abort();
    put_little(record, size, 8);
    put_little(record + 8, masked(record, 8), 4);
    if (size) memcpy(record + HEAD, event, size);
    put_little(record + HEAD + size, masked(event, size), 4);
    return record;
}

// What is read; 0: nothing.
static size_t read_record(const uint8_t *data, size_t size) {
    static struct td_tfevent event;
    const size_t bytes = td_tfevent_read(data, size, &event);
    td_fuzz_expect(bytes <= size);
    if (!bytes) return 0;
    td_fuzz_expect(event.n <= TD_TFEVENT_VALUES);
    for (size_t i = 0; i < event.n; i++) {
        td_fuzz_expect(memchr(event.tag[i], '\0', TD_TFEVENT_TAG) != NULL);
    }
    td_fuzz_expect(!td_tfevent_read(data, bytes - 1, &event));
    td_fuzz_expect(td_tfevent_read(data, bytes, &event) == bytes);
    return bytes;
}

static void read_scalars(const uint8_t *data, size_t size) {
    const struct td_str event = {(const char *)data, size};
    struct td_board_event e;
    struct td_board_scalar scalar;
    bool more = true;
    td_status s = td_board_event_read(event, &e);
    for (size_t n = 0; !s && more; n++) {
        td_fuzz_expect(n <= size);
        s = td_board_event_next(&e, &scalar, &more);
        if (s || !more || !scalar.tag.len) continue;
        td_fuzz_expect(scalar.tag.data >= event.data);
        td_fuzz_expect(scalar.tag.data + scalar.tag.len <= event.data + event.len);
    }
    if (s) td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_INVALID_ARGUMENT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const uint8_t *rest = data + 1;
    size--;
    if (*data % 2 == 0) {
        for (size_t at = 0, bytes; (bytes = read_record(rest + at, size - at)); at += bytes) {}
        return 0;
    }
    read_scalars(rest, size);
    uint8_t *record = record_of(rest, size);
    const size_t bytes = read_record(record, HEAD + size + TAIL);
    td_fuzz_expect(bytes == 0 || bytes == HEAD + size + TAIL);
    free(record);
    return 0;
}
