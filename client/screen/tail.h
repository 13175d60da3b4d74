#ifndef TRAIND_CLIENT_SCREEN_TAIL_H
#define TRAIND_CLIENT_SCREEN_TAIL_H

// Tail: the last lines of several streams, as their bytes come. What is before them is let go, so
// that a stream takes TD_TAIL_BYTES_MAX at most; a line that is longer than that loses its begin.
// A line that is not ended yet counts.

#include "lib/base/buf.h"

enum {
    TD_TAIL_LINES_MAX = 1000000,
    TD_TAIL_BYTES_MAX = 64 << 20, // of a stream; what a coordinator keeps of one
};

struct td_tail_stream {
    struct td_buf text;
    uint64_t offset; // of text in the stream
};

struct td_tail {
    int64_t n_lines;
    struct td_tail_stream *stream;
    size_t n_streams;
};

// Bytes of a stream at offset, which come in order.
TD_MUST_USE td_status td_tail_add(struct td_tail *t, size_t stream, uint64_t offset,
                                  const void *data, size_t n);
// Lets go of all before the last lines. False: a stream that began at a later byte than its first
// has too few lines, so that more of it should be asked for.
bool td_tail_cut(struct td_tail *t);
// Nothing was added; the number of lines stays.
void td_tail_clear(struct td_tail *t);

#endif
