#ifndef TRAIND_LIB_RPC_FRONT_H2_GUARD_H
#define TRAIND_LIB_RPC_FRONT_H2_GUARD_H

// A guard on the framing of one HTTP/2 connection, for its whole life: it sees every byte before
// gRPC does, and reads nothing but the 9-byte headers of frames. gRPC 1.51 bounds neither what
// CONTINUATION frames add to a header block nor how many control frames a peer may send.
//
// What ends a connection: a preface that is not HTTP/2's, a first frame that is not SETTINGS, a
// CONTINUATION out of place, PUSH_PROMISE. So does a frame above the size that the server
// announced, or of a size that its type cannot have. So does a header block that with its
// CONTINUATION frames is above TD_H2_BLOCK_MAX. So do requests far above what the server allows at
// a time. And so do control frames and empty DATA at a rate that no client needs (the table in the
// .c file). A client that receives much may send as many WINDOW_UPDATE and PING frames as that
// takes: some libraries send one per message.
//
// Pure: bytes and a clock in, a verdict out, no allocation. One thread at a time. Private to
// lib/rpc.

#include "lib/base/base.h"

enum {
    TD_H2_HEADER_BYTES = 9,
    TD_H2_BLOCK_MAX = 16 << 10, // of a header block, frame headers of its continuations included
    TD_H2_FRAME_MIN = 16 << 10, // SETTINGS_MAX_FRAME_SIZE until a server announces more
    TD_H2_OPEN_MAX = 1000, // requests without an answer; a client may not know the limit at first
};

// What every HTTP/2 connection begins with, without a zero at its end, and what frames are.
#define TD_H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
enum { TD_H2_PREFACE_BYTES = sizeof TD_H2_PREFACE - 1 };
enum td_h2_frame_type {
    TD_H2_FRAME_DATA,
    TD_H2_FRAME_HEADERS,
    TD_H2_FRAME_PRIORITY,
    TD_H2_FRAME_RST_STREAM,
    TD_H2_FRAME_SETTINGS,
    TD_H2_FRAME_PUSH_PROMISE,
    TD_H2_FRAME_PING,
    TD_H2_FRAME_GOAWAY,
    TD_H2_FRAME_WINDOW_UPDATE,
    TD_H2_FRAME_CONTINUATION,
    TD_H2_N_FRAME_TYPES,
};
enum td_h2_flags {
    TD_H2_ACK = 1, // of SETTINGS and PING
    TD_H2_END_STREAM = 1,
    TD_H2_END_HEADERS = 4,
};

// What has a rate of its own.
enum td_h2_kind {
    TD_H2_SETTINGS,
    TD_H2_PING,
    TD_H2_RST_STREAM,
    TD_H2_PRIORITY,
    TD_H2_WINDOW_UPDATE,
    TD_H2_EMPTY_DATA,
    TD_H2_OTHER, // GOAWAY, and types that HTTP/2 does not know
    TD_H2_N_KINDS,
};

// Where one direction of a connection is among its frames.
struct td_h2_scan {
    uint8_t header[TD_H2_HEADER_BYTES];
    uint8_t n_header;
    uint32_t n_left; // payload of the frame whose header was complete
};

struct td_h2_guard {
    struct td_h2_scan in;  // client to server
    struct td_h2_scan out; // server to client
    uint8_t n_preface;
    bool has_settings;     // the client's first frame was there
    bool in_block;         // a header block waits for a CONTINUATION
    bool out_begun;        // the server has sent something
    uint32_t n_requests;   // header blocks that were complete and opened a stream
    uint32_t last_stream;  // that was opened
    uint32_t n_open;       // requests that neither side has ended, at least
    uint32_t block_stream; // of the open block
    uint32_t block_bytes;  // of the open block so far
    uint32_t max_frame;    // that the server ever announced
    uint8_t entry[6];      // of the server's SETTINGS, as far as it is there
    uint8_t n_entry;
    // What the server sent pays for what a client sends in answer, until it is used up.
    uint64_t free_updates;
    uint64_t free_pings;
    int64_t spent_ns[TD_H2_N_KINDS]; // each kind's bucket: the time at which it is empty again
};

void td_h2_guard_init(struct td_h2_guard *g);
// Bytes from the client, in any pieces. An error ends the connection: none of these bytes may be
// passed on, nothing may be fed any more. INVALID_ARGUMENT HTTP2_MALFORMED, RESOURCE_EXHAUSTED
// HTTP2_FLOOD; the message names the frame and the bound.
TD_MUST_USE td_status td_h2_guard_take(struct td_h2_guard *g, struct td_mono now, const void *data,
                                       size_t bytes);
// Bytes of the server, in any pieces: what it announces, and how much the client has to answer.
void td_h2_guard_watch(struct td_h2_guard *g, const void *data, size_t bytes);
// How many requests the client has begun, each with a whole header block.
uint32_t td_h2_guard_n_requests(const struct td_h2_guard *g);
// A frame may be put in between what the server has sent and what it sends next.
bool td_h2_guard_is_between(const struct td_h2_guard *g);

enum td_h2_error { TD_H2_NO_ERROR = 0, TD_H2_PROTOCOL_ERROR = 1, TD_H2_ENHANCE_YOUR_CALM = 11 };
enum { TD_H2_GOAWAY_MAX = 256 };
// A GOAWAY of the server's that says why, after an empty SETTINGS if nothing was sent before.
// last_stream: up to which requests may have been acted on. The bytes written to out.
size_t td_h2_goaway(const struct td_h2_guard *g, uint32_t last_stream, enum td_h2_error code,
                    const char *text, uint8_t out[TD_H2_GOAWAY_MAX]);

#endif
