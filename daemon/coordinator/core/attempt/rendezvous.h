#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_RENDEZVOUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_RENDEZVOUS_H

// Rendezvous: the small values that ranks of an attempt on several nodes leave for each other
// (traind/store.h), as the nodes' launchers bring and fetch them.
//
// A live attempt whose nodes say something of it has one, in memory alone; it goes when the attempt
// is over. It is not durable: after a start of the coordinator, and after each registration, the
// launchers say all of it again. A set is answered with StoreDone; the same bytes again are fine.
// A want is remembered until the key is set, then answered with StoreValue.
//
// Bounds: those of traind/store.h of an attempt, as many wants as keys, TD_RENDEZVOUS_BYTES of all
// attempts; past one of them a StoreDone says which. At most TD_RENDEZVOUS_FLYING values are on
// their way to a node; the others wait here for its StoreTaken, and so the queue of its session
// does not fill up. A message of another job, attempt or epoch, or of a node without a part of it,
// is dropped and counted (TD_COUNT_STALE).

#include "daemon/coordinator/core/model/job.h"
#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;

enum { TD_RENDEZVOUS_BYTES = 256 << 20, TD_RENDEZVOUS_FLYING = 4 };

void td_rendezvous_on_set(struct td_core *core, struct td_host *node,
                          const Traind__V1__StoreSet *m);
void td_rendezvous_on_want(struct td_core *core, struct td_host *node,
                           const Traind__V1__StoreWant *m);
void td_rendezvous_on_taken(struct td_core *core, struct td_host *node,
                            const Traind__V1__StoreTaken *m);
// Its session begins: what is on its way to it is lost, and it says its wants again.
void td_rendezvous_node_up(struct td_core *core, struct td_host *node);
// The attempt is over.
void td_rendezvous_over(struct td_core *core, const struct td_job *j, const struct td_attempt *a);
size_t td_rendezvous_bytes(const void *rendezvous); // of its values
void td_rendezvous_destroy(void *rendezvous);

#endif
