#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_SHARDS_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_SHARDS_H

// Shards: an attempt's checkpoint files to the coordinator (stream store), so that another node can
// resume from them.
//
// It follows events.log: after each "checkpoint" line it sends the files that the line names, one
// at a time, each from the byte that the coordinator already has. A restarted node follows the log
// from its start again: files that are there are asked about and skipped, those that retention has
// removed since are passed over. Nothing is remembered, and training waits for none of it.
//
// The room, in reading order:
//
//   put.h                     one file to the coordinator
//   unreported_checkpoints.h  those that a killed launcher had not written down
//   gone_checkpoints.h        those that are written down and that the disk has no more
//   fetch.h                   a checkpoint from the coordinator, before an attempt resumes from it
//   reconcile.h               the disk holds of a job what the catalog says

#include "daemon/node/shell/assignment/assignment.h"

struct td_loop;
struct td_rpc_channel;
struct td_shards;

// assigned, dir and key (of the session, it changes with each one) are borrowed and outlive it.
TD_MUST_USE td_status td_shards_create(struct td_loop *loop, struct td_rpc_channel *channel,
                                       const struct td_assignment *assigned, const char *dir,
                                       const char *key, struct td_shards **out_shards);
void td_shards_destroy(struct td_shards *s);
void td_shards_poke(struct td_shards *s);        // the log may have grown
void td_shards_up(struct td_shards *s, bool up); // there is a session that wants them

#endif
