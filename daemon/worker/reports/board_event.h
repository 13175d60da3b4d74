#ifndef TRAIND_DAEMON_WORKER_REPORTS_BOARD_EVENT_H
#define TRAIND_DAEMON_WORKER_REPORTS_BOARD_EVENT_H

// The scalars of one event of TensorBoard: what a record of an event file holds.
//
// There are two kinds. A simple_value is what torch and TensorFlow 1 write. TensorFlow 2 writes a
// tensor without dimensions, of floats, integers or truth values, of the plugin `scalars` where it
// names one. All else is skipped: histograms, images, texts, graphs, tensors of other plugins and
// tensors with dimensions. Nothing is allocated, bytes are borrowed. Pure; any thread.

#include "lib/base/wire.h"

struct td_board_event {
    double wall_time; // seconds since 1970; 0: it has none
    int64_t step;
    struct td_wire values; // of its summary, as far as they were not read yet
};
struct td_board_scalar {
    struct td_str tag;
    double value;
};
// INVALID_ARGUMENT: the bytes are no event.
TD_MUST_USE td_status td_board_event_read(struct td_str bytes, struct td_board_event *out_event);
// The next scalar. *out_more is false after the last one.
TD_MUST_USE td_status td_board_event_next(struct td_board_event *e,
                                          struct td_board_scalar *out_scalar, bool *out_more);

#endif
