#ifndef TRAIND_CLIENT_FLAG_VALUES_H
#define TRAIND_CLIENT_FLAG_VALUES_H

// Flag values: the texts after flags, as numbers. What is none ends the program with the usage
// (argp_error), but for a span, which is read after the flags, too.

#include <argp.h>

#include "client/client.h"

// 0 to max.
uint64_t td_flag_number(struct argp_state *state, const char *flag, const char *text, uint64_t max);
// Of --timeout: seconds above 0.
int64_t td_flag_seconds(struct argp_state *state, const char *text);
// A span above 0, "30d", "12h", "90m", "45s"; false: it is none.
bool td_span_parse(const char *text, uint64_t *out_s);
// The same of a flag, in nanoseconds, at most 1000 days.
int64_t td_flag_span_ns(struct argp_state *state, const char *flag, const char *text);

#endif
