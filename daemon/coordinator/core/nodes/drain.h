#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_DRAIN_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_DRAIN_H

// A node that is drained: it is cordoned, and what runs there is stopped with a checkpoint, as a
// pause does it, on all nodes of the attempt. Its job waits again, in its old place and for no
// restart of its own, and goes on where there is room. What would lose its work by that stays, and
// people see which it is: they cancel it, or wait for its end. It is judged again with each tick,
// so that it leaves once it can.
//
// A job leaves that has something to go on from. A training saves when it is stopped. A command or
// a program does, or does not, so one that has brought no checkpoint stays. Where the checkpoints
// are on this node alone the job leaves as well, and goes on here when the drain is over. Nothing
// of it is lost by that, and the node is empty. One over several nodes stays then: no other node
// reads its checkpoint, so its parts would never meet again.
//
// The node is empty when nothing of any attempt is there: no rank, and no metric, log or checkpoint
// that is still to come from it. Part of the core: pure.

#include "lib/base/base.h"

struct td_attempt;
struct td_core;
struct td_host;
struct td_job;

// The live attempt of j leaves a node that is drained. *out_why: it stays: why; it leaves: what to
// know of that, or "". A text of the program.
bool td_drain_leaves(const struct td_job *j, const struct td_attempt *a, const char **out_why);
// Nothing of any job is on it, or comes from it.
bool td_drain_is_empty(const struct td_core *core, const struct td_host *n);
// What can leave a node that is drained is asked to; one that is empty is said in the log.
void td_drain_look(struct td_core *core);

#endif
