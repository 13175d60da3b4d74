#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODES_EVICT_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODES_EVICT_H

// Which node is forgotten for a new one. A node that is away stays known, so that "could this job
// ever fit" has an answer. Where names change with each start (containers, spot machines) such
// nodes would fill the table. So a new node takes the place of the one that was seen longest ago,
// is not connected, and holds nothing. What a node may hold is an attempt that may be alive, or one
// of which something is still to come. It may also hold the only copy of a checkpoint of a job that
// has not ended. One about which operators decided something (node_admin.h) stays. If each holds
// something, the new one is refused.

#include "lib/base/base.h"

struct td_core;

// Where the table is full, forgets the node that was seen longest ago and holds nothing.
// RESOURCE_EXHAUSTED LIMIT_NODES.
TD_MUST_USE td_status td_nodes_evict(struct td_core *core);

#endif
