#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PAGE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PAGE_H

// A page of a listing. It ends at a number of rows, and at a number of bytes, since rows have no
// size that one could count on. What is left has a token. Pure.
//
// One row is always taken. A message of 4 MiB (lib/rpc) has room for TD_PAGE_BYTES and the rest of
// an answer; a job, a node or a checkpoint is far smaller than that.

#include <protobuf-c/protobuf-c.h>

#include "lib/base/base.h"

enum { TD_PAGE_ROWS = 100, TD_PAGE_MAX_ROWS = 1000, TD_PAGE_BYTES = 3 << 20 };

struct td_page {
    size_t most, n; // rows
    size_t bytes;
};

// rows: as asked; 0: TD_PAGE_ROWS.
struct td_page td_page_of(uint32_t rows);
// Has it room for this row? Then it is counted.
bool td_page_takes(struct td_page *p, const ProtobufCMessage *row);
td_status td_page_bad_token(void); // INVALID_ARGUMENT TOKEN_INVALID

#endif
