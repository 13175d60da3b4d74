#ifndef TRAIND_CLIENT_VERBS_H
#define TRAIND_CLIENT_VERBS_H

// The verbs: rows of a table, one or two words long, with the flags that they take (flags.h). main
// finds the row of a command line (find_verb.h) and calls it; help and completion show all of them.

#include "client/client.h"

// Row i in the order of the alphabet; NULL after the last one.
const struct td_verb *td_verb_at(size_t i);

#endif
