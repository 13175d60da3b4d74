#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RECONCILE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RECONCILE_H

// Reconcile: the disks of the nodes come to hold what the catalog says, and the catalog learns what
// they have lost. Nothing is queued: what a node has to do follows from the catalog, so a node that
// is away, or a crash of either side, costs nothing but time.
//
// A job is due on a node when an attempt of it ran there and the node has not confirmed the catalog
// as it is now. That is so after a checkpoint left the catalog, after an attempt was over, and once
// after a start of the coordinator or of the node's daemon. Then the node is sent the attempts that
// are over and the checkpoints that stay. It removes the rest of those attempts' files, and reports
// which of those that only it has are gone (DAMAGED) or back.
//
// A job that was deleted has no catalog. What is still to be removed of it is a durable row for
// each node that had a part in it; the coordinator's own files are forget.c's. The row goes when
// that is done.
//
// All jobs are gone through when a node has registered, newest first. One that comes to be due
// after that is remembered for its node, so that the end of a job looks at no other job.
//
// Bounds: TD_RECONCILE_WINDOW messages are on their way to a node. TD_RECONCILE_DUE jobs are
// remembered; with more, the jobs are gone through again from the one that did not fit. There are
// at most TD_CORE_MAX_REMOVALS rows of removals; beyond that a job cannot be deleted. Part of the
// core: pure.

#include "daemon/coordinator/core/model/job.h"
#include "traind/v1/node.pb-c.h"

struct td_checkpoint;
struct td_core;
struct td_host;

enum { TD_RECONCILE_WINDOW = 16 };

// The catalog of j, or what may be removed, has changed: its nodes get it, now or when they come.
void td_reconcile_due(struct td_core *core, struct td_job *j);
// A node has the answer to its registration. fresh: its daemon has just started.
void td_reconcile_node_up(struct td_core *core, struct td_host *n, bool fresh);
void td_reconcile_node_down(struct td_host *n);
// Only n has its files, and nobody else removes them.
bool td_reconcile_is_here(const struct td_job *j, const struct td_checkpoint *c,
                          const struct td_host *n);
// Sends what is due and fits the window.
void td_reconcile_pump(struct td_core *core, struct td_host *n);

#endif
