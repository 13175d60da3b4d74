#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODES_H

// Nodes as the coordinator sees them: registration, adoption, slots.
//
// A node is a row that stays known when it is away, so that "could this job ever fit" has an answer
// after a restart. What it holds it reports itself, in Register, and is judged attempt by attempt:
//   held, and the job's live attempt      -> adopt, from the committed offsets (also when its
//                                            launcher is dead: the rest of its log is to come)
//   held, ended, not everything is here   -> adopt, for the logs
//   held, anything else                   -> stop and forget
//   not held, but live for us             -> lost: at once after work began; if it was only
//                                            assigned, the message never arrived: placed again
// What silence means is in leases.h. A new boot id, or a registration without the attempt, is a
// witness: then it is given up at once. Unwanted ranks that still run on a node keep it from
// getting work ("settling") until a heartbeat shows their slots free. A node belongs to the name of
// the node token that it registered with: no other token speaks for it, or takes it over.
//
// The room, in reading order:
//
//   node_record.h     a node as a row of state.db
//   node_admin.h      what operators decided about it
//   drain.h           what runs there goes elsewhere
//   node_labels.h     by which jobs choose it
//   node_gpus.h       its GPUs, their errors, and which are out of use
//   leases.h          what its silence means
//   register_check.h  who may not register
//   nodes_evict.h     which node is forgotten for a new one

#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;
struct td_node_session;

void td_nodes_register(struct td_core *core, struct td_node_session *s,
                       const Traind__V1__Register *m);
// It reports its plugins' files: if they are others, plans of the old ones are dropped.
void td_nodes_set_plugins(struct td_core *core, struct td_host *n, const char *plugins);
// Its devices are others now: they are saved, and jobs looked at again.
void td_nodes_devices_changed(struct td_core *core, const struct td_host *n);
void td_nodes_take_probe(struct td_core *core, struct td_host *n, const Traind__V1__PluginList *m);
void td_nodes_heartbeat(struct td_core *core, struct td_host *n, const Traind__V1__Heartbeat *m);
void td_nodes_session_gone(struct td_core *core, struct td_node_session *s);
// Sets node->used, and who has its devices, from the attempts that may be alive.
void td_nodes_count(struct td_core *core);

#endif
