#ifndef TRAIND_DAEMON_NODE_FETCH_H
#define TRAIND_DAEMON_NODE_FETCH_H

// Fetch: a checkpoint that lies at the coordinator, before an attempt resumes from it here.
//
// The resume sources are tried in their order, newest first, until one is here: on this node's disk
// already, or read by CheckpointService.GetCheckpoint and ReadShard. Files are written beside the
// target, checked against their digests, synced, and moved into place as a whole. A source that the
// coordinator does not have, or whose bytes differ, is skipped with a warning; one that cannot be
// reached is tried again a few times and then fails the start, because taking an older one would
// lose work.

#include "daemon/node/assignment.h"

struct td_fetch;
struct td_loop;
struct td_rpc_channel;

typedef void td_fetch_fn(td_status take_status, void *arg);
// resume is borrowed. fn comes once, from the loop; the fetch stays the caller's to destroy.
TD_MUST_USE td_status td_fetch_create(struct td_loop *loop, struct td_rpc_channel *channel,
                                      const struct td_assignment *assigned, td_fetch_fn *fn,
                                      void *arg, struct td_fetch **out_fetch);
// fn is not called any more. Leaves no half-written directory.
void td_fetch_destroy(struct td_fetch *f);
// Is there anything to fetch?
bool td_fetch_needed(const struct td_assignment *assigned);

#endif
