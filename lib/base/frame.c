// Frames: eight bytes of header, then the body.
//
// The reader keeps what has come so far in one bounded buffer: feed appends, next hands out frames
// in place. A caller that takes all whole frames after each feed never holds more than one frame
// and one feed, so the buffer's bound is one of each. A length over TD_FRAME_MAX is found as soon
// as the header is there, before any of its body is waited for.

#include "lib/base/frame.h"

enum { FRAME_WHOLE_MAX = TD_FRAME_HEADER + TD_FRAME_MAX };

static uint32_t load_le(const uint8_t *p, size_t bytes) {
    uint32_t v = 0;
    for (size_t i = 0; i < bytes; i++) {
        v |= (uint32_t)p[i] << (8 * i);
    }
    return v;
}

td_status td_frame_append(struct td_buf *out, uint16_t type, uint16_t version_major,
                          const void *body, size_t body_bytes) {
    if (body_bytes > TD_FRAME_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "frame of type %u has %zu bytes, at most %d may be",
                       type, body_bytes, (int)TD_FRAME_MAX);
    }
    TD_TRY(td_buf_reserve(out, TD_FRAME_HEADER + body_bytes)); // all of it or nothing
    TD_TRY(td_buf_u32le(out, (uint32_t)body_bytes));
    TD_TRY(td_buf_u32le(out, (uint32_t)type | (uint32_t)version_major << 16));
    return td_buf_append(out, body, body_bytes);
}

void td_frame_reader_init(struct td_frame_reader *r) {
    td_buf_init(&r->pending, 2 * FRAME_WHOLE_MAX);
    r->consumed = 0;
}

void td_frame_reader_finish(struct td_frame_reader *r) {
    if (!r) return;
    td_buf_finish(&r->pending);
    r->consumed = 0;
}

td_status td_frame_reader_feed(struct td_frame_reader *r, const void *data, size_t bytes) {
    td_buf_consume(&r->pending, r->consumed);
    r->consumed = 0;
    return td_buf_append(&r->pending, data, bytes);
}

td_status td_frame_reader_next(struct td_frame_reader *r, struct td_frame *out_frame,
                               bool *out_have) {
    size_t left = r->pending.len - r->consumed;
    if (left < TD_FRAME_HEADER) {
        *out_have = false;
        return TD_OK;
    }
    const uint8_t *p = (const uint8_t *)r->pending.data + r->consumed;
    uint32_t body_bytes = load_le(p, 4);
    if (body_bytes > TD_FRAME_MAX) {
        return td_fail(TD_DATA_LOSS,
                       "frame announces %u bytes, at most %d may be: the stream is damaged",
                       body_bytes, (int)TD_FRAME_MAX);
    }
    *out_have = left - TD_FRAME_HEADER >= body_bytes;
    if (!*out_have) return TD_OK;
    *out_frame = (struct td_frame){
        .type = (uint16_t)load_le(p + 4, 2),
        .version_major = (uint16_t)load_le(p + 6, 2),
        .body = p + TD_FRAME_HEADER,
        .body_bytes = body_bytes,
    };
    r->consumed += TD_FRAME_HEADER + body_bytes;
    return TD_OK;
}
