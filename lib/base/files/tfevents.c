// See the header. Numbers of fields are those of TensorFlow's protos. Event: 1 wall_time, 2 step,
// 3 file_version, 5 summary, 7 session_log. Summary: 1 value. Its Value: 1 tag, 2 simple_value.
// SessionLog: 1 status, of which 1 is START.

#include "lib/base/files/tfevents.h"

#include <string.h>

#include "lib/base/wire.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // protobuf's kinds of fields
enum { HEAD = TD_TFRECORD_HEAD, TAIL = TD_TFRECORD_TAIL, VALUE_MAX = 128 };

// ---- checksums ----------------------------------------------------------------------------------
// Bit by bit, as few bytes are written that nobody waits for.
uint32_t td_crc32c(const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t bytes) {
    const uint32_t crc = td_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// ---- writing ------------------------------------------------------------------------------------
static td_status put_varint(uint64_t v, struct td_buf *out) {
    unsigned char byte[10];
    size_t n = 0;
    do {
        byte[n++] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    return td_buf_append(out, byte, n);
}

static td_status put_key(unsigned field, unsigned kind, struct td_buf *out) {
    return put_varint(field << 3 | kind, out);
}

static td_status put_bytes(unsigned field, const void *data, size_t bytes, struct td_buf *out) {
    TD_TRY(put_key(field, BYTES, out));
    TD_TRY(put_varint(bytes, out));
    return td_buf_append(out, data, bytes);
}

static td_status begin(int64_t real_ns, int64_t step, struct td_buf *event) {
    const double seconds = (double)real_ns / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    TD_TRY(put_key(1, FIXED64, event));
    TD_TRY(td_buf_u64le(event, bits));
    if (step == 0) return TD_OK;
    TD_TRY(put_key(2, VARINT, event));
    return put_varint((uint64_t)step, event);
}

static td_status end(const struct td_buf *event, struct td_buf *out) {
    const size_t before = out->len;
    td_status s = td_buf_u64le(out, event->len);
    if (!s) s = td_buf_u32le(out, masked(out->data + before, 8));
    if (!s) s = td_buf_append(out, event->data, event->len);
    if (!s) s = td_buf_u32le(out, masked(event->data, event->len));
    if (s) out->len = before; // no half of a record
    return s;
}

td_status td_tfevent_version(int64_t real_ns, struct td_buf *out) {
    static const char version[] = "brain.Event:2";
    TD_AUTO_BUF event;
    td_buf_init(&event, TD_TFEVENT_MAX);
    TD_TRY(begin(real_ns, 0, &event));
    TD_TRY(put_bytes(3, version, sizeof version - 1, &event));
    return end(&event, out);
}

td_status td_tfevent_start(int64_t real_ns, int64_t step, struct td_buf *out) {
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    TD_AUTO_BUF event;
    td_buf_init(&event, TD_TFEVENT_MAX);
    TD_TRY(begin(real_ns, step, &event));
    TD_TRY(put_bytes(7, start, sizeof start, &event));
    return end(&event, out);
}

static td_status put_scalar(const struct td_tfscalar *scalar, struct td_buf *summary) {
    TD_AUTO_BUF value;
    const float number = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    td_buf_init(&value, VALUE_MAX);
    TD_TRY(put_bytes(1, scalar->tag, strnlen(scalar->tag, TD_TFEVENT_TAG - 1), &value));
    TD_TRY(put_key(2, FIXED32, &value));
    TD_TRY(td_buf_u32le(&value, bits));
    return put_bytes(1, value.data, value.len, summary);
}

td_status td_tfevent_scalars(int64_t real_ns, int64_t step, const struct td_tfscalar *scalar,
                             size_t n, struct td_buf *out) {
    TD_AUTO_BUF summary;
    TD_AUTO_BUF event;
    td_buf_init(&summary, TD_TFEVENT_MAX);
    td_buf_init(&event, TD_TFEVENT_MAX);
    for (size_t i = 0; i < n; i++) {
        TD_TRY(put_scalar(&scalar[i], &summary));
    }
    TD_TRY(begin(real_ns, step, &event));
    TD_TRY(put_bytes(5, summary.data, summary.len, &event));
    return end(&event, out);
}

// ---- reading ------------------------------------------------------------------------------------
static uint64_t little(const unsigned char *p, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = bytes; i-- > 0;) {
        v = v << 8 | p[i];
    }
    return v;
}

bool td_tfrecord_head(const void *head, uint64_t *out_event_bytes) {
    const unsigned char *p = head;
    if (little(p + 8, 4) != masked(p, 8)) return false;
    *out_event_bytes = little(p, 8);
    return true;
}

bool td_tfrecord_holds(const void *record, size_t event_bytes) {
    const unsigned char *event = (const unsigned char *)record + HEAD;
    return little(event + event_bytes, 4) == masked(event, event_bytes);
}

static struct td_wire fields_of(struct td_str bytes) {
    return td_wire_of("a record", bytes.data, bytes);
}

static td_status read_value(struct td_str value, struct td_tfevent *out) {
    struct td_wire w = fields_of(value);
    struct td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        if (f.number != 1 || f.wire_type != BYTES || out->n == TD_TFEVENT_VALUES) continue;
        if (f.bytes.len >= TD_TFEVENT_TAG) continue; // no tag of ours
        if (f.bytes.len) memcpy(out->tag[out->n], f.bytes.data, f.bytes.len);
        out->tag[out->n++][f.bytes.len] = '\0';
    }
}

static td_status read_summary(struct td_str summary, struct td_tfevent *out) {
    struct td_wire w = fields_of(summary);
    struct td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        if (f.number == 1 && f.wire_type == BYTES) TD_TRY(read_value(f.bytes, out));
    }
}

static td_status read_event(struct td_str event, struct td_tfevent *out) {
    struct td_wire w = fields_of(event);
    struct td_wire_field f;
    out->step = 0;
    out->n = 0;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        if (f.number == 2 && f.wire_type == VARINT) out->step = (int64_t)f.varint;
        if (f.number == 5 && f.wire_type == BYTES) TD_TRY(read_summary(f.bytes, out));
    }
}

size_t td_tfevent_read(const void *data, size_t bytes, struct td_tfevent *out_event) {
    uint64_t length;
    if (bytes < HEAD + TAIL || !td_tfrecord_head(data, &length)) return 0;
    if (length > TD_TFEVENT_MAX || length > bytes - HEAD - TAIL) return 0;
    if (!td_tfrecord_holds(data, (size_t)length)) return 0;
    const struct td_str event = {(const char *)data + HEAD, (size_t)length};
    td_status broken = read_event(event, out_event);
    td_status_free(broken);
    return broken ? 0 : HEAD + event.len + TAIL;
}
