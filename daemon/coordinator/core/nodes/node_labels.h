#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_LABELS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_LABELS_H

// Labels of nodes (lib/job/labels.h): given by people, and kept with what else operators decided
// (node_admin.h), so that they outlive the node's daemon and the coordinator's.

#include "lib/base/base.h"

struct td_core;
struct td_host;

enum { TD_NODE_LABEL_CHANGES = 64 }; // of one request

// All of them in their order, or none. Jobs that wait are looked at again.
TD_MUST_USE td_status td_node_labels_change(struct td_core *core, struct td_host *n,
                                            char *const *changes, size_t n_changes);

#endif
