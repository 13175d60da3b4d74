#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_H

// `traind --salvage`: a start with what is readable of state.db. The old file is moved aside,
// whole, before anything else; every row that can be read goes into a new one. What cannot be read,
// and what makes no sense without it, is left out and listed in the log, a line each.

#include "lib/base/base.h"

struct td_core;
struct td_core_options;
struct td_databases;

// Loads core from the store without rows that the core refuses, and without jobs that lack their
// spec or an attempt. Those are removed from state.db with ticket 1, which is *out_ticket then.
TD_MUST_USE td_status td_salvage_load(struct td_databases *store,
                                      const struct td_core_options *options, struct td_core *core,
                                      uint64_t *out_ticket);

#endif
