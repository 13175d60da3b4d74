#ifndef TRAIND_TESTS_UNIT_REPORTS_BOARD_RIG_H
#define TRAIND_TESTS_UNIT_REPORTS_BOARD_RIG_H

// Events of TensorBoard, put together byte by byte, and their records: what writers of others make
// and the loggers of a launcher do not.

#include "lib/base/buf.h"
#include "lib/base/files/tfevents.h"
#include "tests/unit/test.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static inline void put_varint(struct td_buf *b, uint64_t v) {
    do {
        const char byte = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        assert_ok(td_buf_append(b, &byte, 1));
        v >>= 7;
    } while (v);
}
static inline void put_number(struct td_buf *b, unsigned field, uint64_t v) {
    put_varint(b, field << 3 | VARINT);
    put_varint(b, v);
}
static inline void put_bytes(struct td_buf *b, unsigned field, const void *data, size_t bytes) {
    put_varint(b, field << 3 | BYTES);
    put_varint(b, bytes);
    assert_ok(td_buf_append(b, data, bytes));
}
static inline void put_text(struct td_buf *b, unsigned field, const char *text) {
    put_bytes(b, field, text, strlen(text));
}
static inline void put_buf(struct td_buf *b, unsigned field, const struct td_buf *inner) {
    put_bytes(b, field, inner->data, inner->len);
}
static inline void put_float(struct td_buf *b, unsigned field, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_varint(b, field << 3 | FIXED32);
    assert_ok(td_buf_u32le(b, bits));
}
static inline void put_double(struct td_buf *b, unsigned field, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_varint(b, field << 3 | FIXED64);
    assert_ok(td_buf_u64le(b, bits));
}

// An event with one value, whose fields but the tag are in `value`.
static inline void put_event(struct td_buf *out, double time, int64_t step, const char *tag,
                             const struct td_buf *value) {
    TD_AUTO_BUF summary;
    TD_AUTO_BUF whole;
    td_buf_init(&summary, 1 << 20);
    td_buf_init(&whole, 1 << 20);
    put_text(&whole, 1, tag);
    assert_ok(td_buf_append(&whole, value->data, value->len));
    put_buf(&summary, 1, &whole);
    put_double(out, 1, time);
    put_number(out, 2, (uint64_t)step);
    put_buf(out, 5, &summary);
}

static inline uint32_t masked_crc(const void *data, size_t bytes) {
    const uint32_t crc = td_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
static inline void put_record(struct td_buf *out, const void *event, size_t bytes) {
    const size_t at = out->len;
    assert_ok(td_buf_u64le(out, bytes));
    assert_ok(td_buf_u32le(out, masked_crc(out->data + at, 8)));
    assert_ok(td_buf_append(out, event, bytes));
    assert_ok(td_buf_u32le(out, masked_crc(event, bytes)));
}
// A record with a simple value.
static inline void put_scalar(struct td_buf *out, double time, int64_t step, const char *tag,
                              float value) {
    TD_AUTO_BUF event;
    TD_AUTO_BUF simple;
    td_buf_init(&event, 1 << 20);
    td_buf_init(&simple, 64);
    put_float(&simple, 2, value);
    put_event(&event, time, step, tag, &simple);
    put_record(out, event.data, event.len);
}

#endif
