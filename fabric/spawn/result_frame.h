#ifndef TRAIND_FABRIC_SPAWN_RESULT_FRAME_H
#define TRAIND_FABRIC_SPAWN_RESULT_FRAME_H

// Result frame: what a spawned rank writes to its parent, over a stream socket between the two.
//
//   struct td_result_header (64 bytes) | body, header.bytes long
//
// Both sides are the same program on one host, so numbers are the machine's. The parent checks all
// of it nevertheless: the rank may have been overwritten before it wrote. Nothing of a frame is
// queued beyond the socket: a body is read to where it stays, and memory grows as it comes. Hence a
// wrong length costs nothing. The reader never blocks.

#include "lib/base/buf.h"
#include "traind/spawn.h"

enum { TD_RESULT_MAGIC = 0x54525346, TD_RESULT_VERSION = 1 };
enum { TD_RESULT_PATH_BYTES = 4096, TD_RESULT_STATUS_BYTES = 64 << 10 };

enum td_result_kind {
    TD_RESULT_BYTES = 1,
    TD_RESULT_DOUBLE,
    TD_RESULT_INT,
    TD_RESULT_BEST_PATH,
    TD_RESULT_WEIGHTS, // the name is the file's
    TD_RESULT_FAILED,  // any rank: a status
    TD_RESULT_DONE,    // any rank: its function returned
    TD_RESULT_KIND_END,
};
const char *td_result_kind_name(enum td_result_kind kind);

struct td_result_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t bytes; // of the body
    char name[TD_SPAWN_NAME_BYTES];
};
_Static_assert(sizeof(struct td_result_header) == 64, "the same in every build");

// Blocks until the socket took it all. Errors: UNAVAILABLE, DEADLINE_EXCEEDED.
TD_MUST_USE td_status td_result_send(int fd, enum td_result_kind kind, const char *name,
                                     const void *body, size_t bytes);
// A status of another process, as it was: code, class, reason, message, metadata, fields.
TD_MUST_USE td_status td_result_send_status(int fd, td_status s);
// DATA_LOSS: it is none. *out_status is the caller's.
TD_MUST_USE td_status td_result_parse_status(const char *body, size_t bytes, td_status *out_status);

struct td_result_reader {
    struct td_result_header header;
    size_t header_bytes; // that came
    struct td_buf body;
    bool cut; // the error was that its end is missing
};
void td_result_reader_init(struct td_result_reader *r);
void td_result_reader_finish(struct td_result_reader *r);

enum td_result_read {
    TD_RESULT_READ_LATER, // no more is there now
    TD_RESULT_READ_FRAME, // one is whole: header and body, until td_result_reader_next
    TD_RESULT_READ_END,   // the other end is closed, between two frames
};
// max_body: how many bytes a body may have now. Errors: DATA_LOSS (no frame, or its end is
// missing), RESOURCE_EXHAUSTED (over max_body, or no memory).
TD_MUST_USE td_status td_result_read(struct td_result_reader *r, int fd, uint64_t max_body,
                                     enum td_result_read *out_what);
void td_result_reader_next(struct td_result_reader *r);

#endif
