#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_FETCH_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_FETCH_H

// Fetch: a checkpoint that is at the coordinator, before an attempt resumes from it here.
//
// The resume sources are tried in their order, newest first, until one is whole and here. What the
// coordinator has, CheckpointService.GetCheckpoint names with sizes and digests. A copy on this
// node's disk is compared with that list. If there is none, or it is damaged, the files are read by
// ReadShard. They are written beside the target, checked against their digests, synced, and moved
// into place as a whole, over the damaged copy. A source that the coordinator does not have, or
// whose bytes differ, is skipped with a warning. One that cannot be reached is tried again a few
// times. Then, if a copy is here, the start goes on: with that copy when nobody could say that it
// is damaged, else with the one before. Without a copy the start fails, because taking an older one
// would lose work. (The rank that loads it looks at every file once more, by the checkpoint's own
// manifest.)
//
// Then the best checkpoint, which the manifest of that source names, where a stage after fit will
// use its weights and the job's checkpoints are streamed. It is compared and read in the same way.
// One that the coordinator does not have, or whose bytes differ, is left out with a warning: the
// rank says what it uses then. One that cannot be reached fails the start, as above.

#include "daemon/node/shell/assignment/assignment.h"

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
// Is there anything to look at?
bool td_fetch_needed(const struct td_assignment *assigned);

#endif
