#ifndef TRAIND_LIB_BASE_FRAME_H
#define TRAIND_LIB_BASE_FRAME_H

// Length-prefixed frames over a byte stream (launcher <-> node daemon):
//   u32 body_bytes | u16 type | u16 version_major | body          (little-endian)
// The body is a packed protobuf of proto/traind/v1/launcher.proto. A body over TD_FRAME_MAX is
// DATA_LOSS: the stream cannot be trusted any more and is closed. Reading is incremental: bytes go
// in as they come, whole frames come out.

#include "lib/base/buf.h"

enum { TD_FRAME_HEADER = 8, TD_FRAME_MAX = 1 << 20 };

struct td_frame {
    uint16_t type;
    uint16_t version_major;
    const uint8_t *body; // dies with the next call on the reader
    size_t body_bytes;
};

TD_MUST_USE td_status td_frame_append(struct td_buf *out, uint16_t type, uint16_t version_major,
                                      const void *body, size_t body_bytes);

struct td_frame_reader {
    struct td_buf pending;
    size_t consumed;
};
void td_frame_reader_init(struct td_frame_reader *r);
void td_frame_reader_finish(struct td_frame_reader *r);
TD_MUST_USE td_status td_frame_reader_feed(struct td_frame_reader *r, const void *data,
                                           size_t bytes);
// *out_have says whether a whole frame was there.
TD_MUST_USE td_status td_frame_reader_next(struct td_frame_reader *r, struct td_frame *out_frame,
                                           bool *out_have);

#endif
