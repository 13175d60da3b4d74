#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_LEASES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_LEASES_H

// Leases: what the silence of a node means.
//
// A dead node is silent, and so is a slow one: the lease (10 s) only changes what is shown. After
// lost_after more, the attempt is given up and fenced by its epoch, so that a node which comes back
// has to stop it. Other ranks that lost the node's are witnesses: then it is given up before. Time
// in which the coordinator itself did not run counts for nobody: then every node gets one full
// grace.
//
// While a node is known the core asks to be run four times a lease. If it was not for half a lease,
// it was stopped, or the machine slept: what nodes sent meanwhile waits unread, and their silence
// is ours. A shorter stall takes no lease: nodes beat at least twice in one.

#include "lib/base/clock.h"

struct td_core;

void td_leases_tick(struct td_core *core);
// The core wants to be run at least so often, to notice when it is not.
void td_leases_stay_awake(struct td_core *core);
// Before an input is handled: if the core itself was not run since `before` for half a lease or
// more, every node gets one full grace from now.
void td_leases_after_stall(struct td_core *core, struct td_mono before);

#endif
