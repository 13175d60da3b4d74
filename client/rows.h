#ifndef TRAIND_CLIENT_ROWS_H
#define TRAIND_CLIENT_ROWS_H

// What help and completion ask of the tables of verbs and flags.

#include <argp.h>

#include "client/client.h"

enum { TD_VERB_OPTIONS_MAX = 64 };
enum { TD_GROUP_COMMON = 1 }; // `group` of a flag that all verbs have, and few are about

// Row i in the order of the alphabet; NULL after the last one.
const struct td_verb *td_verb_at(size_t i);
// The flags that it takes; how many. out has room for TD_VERB_OPTIONS_MAX.
size_t td_verb_options(const struct td_verb *v, struct argp_option *out);

#endif
