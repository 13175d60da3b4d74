#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_RECORD_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_RECORD_H

// A node as a row of state.db: what it registered, so that it stays known when it is away. Keys
// that a row lacks have the value of the build that had none of them.

#include "lib/base/base.h"

struct td_core;
struct td_host;

void td_node_record_save(struct td_core *core, const struct td_host *n);
// DATA_LOSS and others of td_json_parse: not JSON.
TD_MUST_USE td_status td_node_record_load(struct td_core *core, const char *key, const char *body);

#endif
