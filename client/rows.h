#ifndef TRAIND_CLIENT_ROWS_H
#define TRAIND_CLIENT_ROWS_H

// What help and completion ask of the table of flags (flags.c).

#include <argp.h>

#include "client/client.h"

enum { TD_VERB_OPTIONS_MAX = 64 };
enum { TD_GROUP_COMMON = 1 }; // `group` of a flag that all verbs have, and few are about

// The flags that a verb takes; how many. out has room for TD_VERB_OPTIONS_MAX.
size_t td_verb_options(const struct td_verb *v, struct argp_option *out);

#endif
