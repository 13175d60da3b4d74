#ifndef TRAIND_DAEMON_LAUNCHER_REPORTS_LINES_H
#define TRAIND_DAEMON_LAUNCHER_REPORTS_LINES_H

// Lines: what rank 0 prints, in messages of whole lines to the reports child.
//
// Sending never waits: what the socket does not take is dropped and counted, whole lines always. So
// no line is cut into one that says something else. A line that is longer than TD_REPORT_LINE goes
// on as one byte more than that; the child sees that it is too long, and counts it.
// Bounds: one line of memory; the socket has what the kernel gives it.
// Thread: the launcher's.

#include "lib/attempt/report_message.h"
#include "lib/base/base.h"

struct td_launch_lines {
    int fd; // of the socket; -1: they are not taken now
    uint64_t dropped_bytes;
    size_t n;                      // of `held`
    char held[TD_REPORT_LINE + 1]; // the line whose end has not come
};

void td_launch_lines_take(struct td_launch_lines *l, const char *data, size_t bytes);
void td_launch_lines_end(struct td_launch_lines *l); // nothing more comes: the last line is whole

#endif
