#ifndef TRAIND_LIB_PATTERN_PATTERN_H
#define TRAIND_LIB_PATTERN_PATTERN_H

// lib/pattern: what a pattern of a person's reads out of lines.
//
//   pattern.h  regular expressions; pattern.cc is the one file that knows RE2
//   line_pattern.h  what their named groups mean: a step, progress, metrics
//   line_pattern_check.h  the check of one in a job's spec
//
// Pattern: a regular expression with named groups. RE2 takes time that is linear in a line's
// length, whatever the pattern is, and has a budget of memory. So a coordinator may compile what a
// stranger sends. Rejected: POSIX regcomp, which has no named groups and no bound.
//
// Every std::exception ends in pattern.cc: as a status, or as a line that does not match. Thread:
// one at a time.

#include "traind/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TD_PATTERN_BYTES = 256,
    TD_PATTERN_GROUPS = 32,           // of all kinds
    TD_PATTERN_MEMORY_BYTES = 1 << 20 // of a compiled one with its caches
};

struct td_pattern;

// Errors: INVALID_ARGUMENT with RE2's own sentence.
TD_MUST_USE td_status td_pattern_create(const char *text, struct td_pattern **out_pattern);
void td_pattern_destroy(struct td_pattern *p); // accepts NULL

// Groups count from 1 to this.
int td_pattern_n_groups(const struct td_pattern *p);
const char *td_pattern_group(const struct td_pattern *p, int i); // NULL: it has no name

struct td_pattern_part {
    const char *text; // in the line; NULL: the group took no part
    size_t bytes;
};
// Does it match anywhere in the line? parts[i] is group i, as far as out_parts goes; 0 is all.
// Where memory is out, it does not.
bool td_pattern_match(const struct td_pattern *p, const char *line, size_t bytes,
                      struct td_pattern_part out_parts[TD_PATTERN_GROUPS + 1]);

#ifdef __cplusplus
}
#endif
#endif
