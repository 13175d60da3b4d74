#ifndef TRAIND_LIB_BASE_LOG_H
#define TRAIND_LIB_BASE_LOG_H

// Log: one line per event on stderr, "<utc time> <level> <message> key=value ...".
//
// Only daemons, launcher and worker mains log, once, where an error stops travelling; libraries
// return a status. The thread's context (role, job, attempt, node, rank) is appended to each line.
// Lines are cut at 2 KiB and written with one write(2), so that lines of several processes on one
// descriptor do not mix. Control characters are escaped, and bytes that are no UTF-8. A line that
// cannot be written is dropped.

#include "lib/base/base.h"

enum td_log_level { TD_LOG_ERROR, TD_LOG_WARN, TD_LOG_INFO, TD_LOG_DEBUG };

// Process-wide; default INFO, stderr.
void td_log_set_level(enum td_log_level level);
TD_MUST_USE td_status td_log_level_parse(const char *text, enum td_log_level *out_level);
// Process-wide: lines begin with "<3>" to "<7>", which journald takes off and keeps as priorities.
void td_log_for_journal(bool is_journal);
// Context of this thread: at most 8 pairs; value NULL removes the key. Copies at most 63 bytes.
void td_log_context(const char *key, const char *value);

void td_log_line(enum td_log_level level, const char *fmt, ...) TD_PRINTF(2, 3);
#define td_log_error(...) td_log_line(TD_LOG_ERROR, __VA_ARGS__)
#define td_log_warn(...)  td_log_line(TD_LOG_WARN, __VA_ARGS__)
#define td_log_info(...)  td_log_line(TD_LOG_INFO, __VA_ARGS__)
#define td_log_debug(...) td_log_line(TD_LOG_DEBUG, __VA_ARGS__)

// Consumes s: "<what>: <message> code=... reason=...". TD_OK writes nothing.
void td_status_log(enum td_log_level level, td_status s, const char *what);

// A warning of what the machine lacks of a CPU level: gap is of td_cpu_level_of_machine, "" writes
// nothing. A hypervisor that hides one flag makes every job slower, and nothing else says why.
void td_log_cpu_gap(const char *gap);

#endif
