#ifndef TRAIND_DAEMON_WORKER_REPORTS_SINK_H
#define TRAIND_DAEMON_WORKER_REPORTS_SINK_H

// Sink: what sources have found, as messages to the launcher (lib/attempt/report_message.h).
//
// A report is begun with its step and progress, gets its values, and is ended. What is queued
// leaves with the end of the loop's turn, or sooner when it is much. Then this process waits until
// the launcher has taken it: the launcher takes a bounded amount at a time, and so slows a
// source that reports without end.
//
// Repeats of a value, those of later attempts, and the cap of names are the launcher's business
// (daemon/launcher/command/talk_values.h): sources keep no books of that.
//
// Thread: one. Bounds: one message; notes of a process are TD_REPORT_NOTES, and more are dropped.

#include "lib/base/base.h"

enum { TD_REPORT_NOTES = 32 };

struct td_report_sink;

TD_MUST_USE td_status td_report_sink_create(int fd, struct td_report_sink **out_sink);
void td_report_sink_destroy(struct td_report_sink *s); // accepts NULL; sends nothing
void td_report_sink_flush(struct td_report_sink *s);
bool td_report_sink_is_gone(const struct td_report_sink *s); // the launcher is

// What a source says of one rank at one moment.
struct td_report {
    int32_t rank;              // of the job
    int64_t step, total_steps; // -1: absent
    double epoch;              // its whole part counts; -1: absent
    bool aside;                // its step is progress only where nothing else says one
    // Where its source goes on after it, if this process is replaced: what of, and what. Texts
    // without blanks, of less than TD_REPORT_KEPT_NAME and TD_REPORT_KEPT bytes; NULL: nothing.
    const char *kept_name, *kept;
};
void td_report_begin(struct td_report_sink *s, const struct td_report *r);
// nan and inf are values. A name that cannot be a metric's is left out; a note names the first.
void td_report_value(struct td_report_sink *s, const char *name, double value);
void td_report_end(struct td_report_sink *s);

// A note of the job, between reports.
void td_report_note(struct td_report_sink *s, const char *fmt, ...) TD_PRINTF(2, 3);
// A whole line as it is, between reports.
void td_report_say(struct td_report_sink *s, const char *line);

#endif
