#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_ADMIN_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_ADMIN_H

// What operators decided about a node, as a row of state.db of its own. What the node says of
// itself is another (node_record.h), which each registration writes: so a node that comes back
// keeps what was decided, whatever it says.
//
// The row is an object with a key for each thing that can be decided ("cordon", "labels", "gpus").
// A key that is not there was not decided, and where none is there is no row. A key that a later
// build adds goes beside the others, in no schema of its own. GPUs are also excluded by traind
// itself, and brought back by operators alone (gpu_marks.h).

#include "lib/base/base.h"

struct td_core;
struct td_host;

// It has a row.
bool td_node_admin_is_set(const struct td_host *n);
// Something was decided about it that must not be forgotten.
bool td_node_admin_holds(const struct td_host *n);
void td_node_admin_save(struct td_core *core, struct td_host *n);
// After the rows of nodes. DATA_LOSS and others of td_json_parse: not JSON. Of a node that is not
// known (its row was lost in a salvage) nothing is loaded.
TD_MUST_USE td_status td_node_admin_load(struct td_core *core, const char *key, const char *body);

#endif
