#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_RECONCILE_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_RECONCILE_H

// Reconcile: this node's disk comes to hold of a job's checkpoints what the coordinator's catalog
// says (node.proto, Reconcile).
//
// It enters only <checkpoint.dir>/<job>/a<N>/step-<M> (also step-<M>.tmp, half-written ones), of
// attempts that the message names as over, and follows no link below <checkpoint.dir>. There it
// removes the files that ranks write and directories that are empty then; what somebody else has
// put there stays. A job with an attempt that is held here and named, or that is being prepared (it
// may fetch or read them), waits until that has changed: call poke then.
//
// An older message does no harm: what was added to the catalog since is of attempts that it does
// not name. The disk is not the loop's: one thread is at jobs without checkpoint.dir, one at those
// with it. What is mounted there may never answer, and then only these wait. An attempt of a job
// whose files are at hand starts after that. Bound: the coordinator has 16 on their way; more than
// MAX_WAITING are dropped, and asked again in the next session. Loop thread.

#include "daemon/node/core/core.h"
#include "traind/v1/node.pb-c.h"

struct td_loop;
struct td_reconciler;

struct td_reconciler_options {
    struct td_loop *loop;
    const char *state_dir;           // borrowed
    const struct td_node_core *core; // borrowed: what is held
    // Sends the answer in the session; false: no room, poke follows.
    bool (*send)(Traind__V1__NodeMessage *m, void *arg);
    void (*on_over)(void *arg); // the files of a job are free again; NULL: nobody waits
    void *arg;
};

TD_MUST_USE td_status td_reconciler_create(const struct td_reconciler_options *o,
                                           struct td_reconciler **out_reconciler);
void td_reconciler_destroy(struct td_reconciler *r);
// Copies the message. Those of one job are carried out in their order.
void td_reconciler_submit(struct td_reconciler *r, const Traind__V1__Reconcile *m);
void td_reconciler_poke(struct td_reconciler *r);
// Is a thread at the files of that job? Until on_over, no attempt of it is to use them.
bool td_reconciler_is_at(const struct td_reconciler *r, const char *job);
// The session is gone: what waits is asked again in the next.
void td_reconciler_clear(struct td_reconciler *r);

#endif
