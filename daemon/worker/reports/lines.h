#ifndef TRAIND_DAEMON_WORKER_REPORTS_LINES_H
#define TRAIND_DAEMON_WORKER_REPORTS_LINES_H

// Lines: the source of what a rank prints on stdout. Each line that matches the pattern of
// `metrics_from.stdout` is a report (lib/pattern/line_pattern.h).
//
// Lines end with "\n" or "\r": a progress bar's versions are lines, too. Those that are longer than
// TD_REPORT_LINE are not matched. What was left out is counted: a note names the first, and one at
// the end says how many there were. Thread: one.

#include "lib/base/json.h"

struct td_report_lines;
struct td_report_sink;

// settings: {"pattern": TEXT, "rank": R}. INVALID_ARGUMENT: of the pattern, with RE2's sentence.
TD_MUST_USE td_status td_report_lines_create(const struct td_json *settings,
                                             struct td_report_sink *sink,
                                             struct td_report_lines **out_lines);
void td_report_lines_destroy(
    struct td_report_lines *l); // accepts NULL; says how many were left out
// Whole lines; the last may lack its end.
void td_report_lines_take(struct td_report_lines *l, const char *text, size_t bytes);

#endif
