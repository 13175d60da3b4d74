#ifndef TRAIND_LIB_PATTERN_LINE_PATTERN_H
#define TRAIND_LIB_PATTERN_LINE_PATTERN_H

// Line pattern: what a pattern's named groups say of a line.
//
// `step` is required. `epoch`, and `total_steps` or `total`, are progress. Each other named group
// is a metric of that name; groups without a name only group. A line that does not match says
// nothing. One whose step is no integer from 0 to 2^31 - 1 is left out whole. A value that is no
// number is left out alone; "nan", "inf" and "-inf" are numbers. Thread: one at a time.

#include "lib/pattern/pattern.h"

struct td_line_pattern;

// Errors: INVALID_ARGUMENT with RE2's sentence, or the rule that is broken.
TD_MUST_USE td_status td_line_pattern_create(const char *text, struct td_line_pattern **out_series);
void td_line_pattern_destroy(struct td_line_pattern *s); // accepts NULL

struct td_line_pattern_value {
    const char *name; // the series' own
    double value;
};
struct td_line_pattern_said {
    int64_t step, total_steps; // -1: absent
    double epoch;              // -1: absent
    int n_values;
    struct td_line_pattern_value values[TD_PATTERN_GROUPS];
    int n_bad; // groups whose text is no number
    const char *bad_name;
    struct td_pattern_part bad; // of the first of them
};
// False: it does not match, or its step is no step (then n_bad is above 0).
bool td_line_pattern_read(const struct td_line_pattern *s, const char *line, size_t bytes,
                          struct td_line_pattern_said *out_line);

#endif
