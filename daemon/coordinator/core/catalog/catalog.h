#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_CATALOG_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_CATALOG_H

// The catalog: only what is COMMITTED here exists as a checkpoint; nobody scans directories.
//
// Store fs: the rank said "durable on disk" in its event, so the event commits it. Store stream:
// the event makes it PENDING and names its files with their digests. Each file that arrives
// (PutShard) and is durable and verified here is a shard row. With the last of both it is
// COMMITTED, in one transaction. Either may come first. Of an attempt over several nodes the points
// that all ranks recorded before it must be here as well (boundaries.h); where some are lost, it
// goes. A removed event takes the row away; the
// files of a streamed one are deleted after that is committed. But a rank removes when the newer
// one is on its own disk. While that is on its way to here, the last committed one stays, LEAVING,
// and goes in the transaction that commits another. So what a job has once, it never has not. One
// that waits for points alone stays in the same way, so that saves which come faster than points
// do put off none for ever.
//
// A command registers checkpoints of its own (kind: command): rows without files, of a path on its
// node. They are where its next attempt goes on. Nobody here reads, verifies or removes what they
// name, and save_top_k does not hold for them.
//
// A checkpoint that a loader had to pass over is DAMAGED when its only files are those that the
// loader saw. Of a streamed one the loader may have seen a copy: its own files are hashed then
// (TD_ACTION_VERIFY), and it is DAMAGED if they are not what was committed.
//
// What is kept of a job is decided over all its attempts (retain.h): save_top_k's rule, the same as
// a rank's, over the whole checkpoints. The rank of a live attempt removes its own. What attempts
// that are over left leaves the catalog here, and reconcile.h has its files removed. While a live
// attempt has no checkpoint of its own nothing goes, because it may be reading any of them. What a
// job that waits or runs names as ckpt_path or init_from stays as long as it does. So does what it
// was settled on where it names a job's newest or best (source.h). Part of the core: pure.
//
// The room, in reading order:
//
//   boundaries.h        whether the points before a checkpoint are here
//   removals.h          what nodes still have of jobs that are gone
//   reconcile.h         what nodes have to do about checkpoints
//   reconcile_answer.h  what they answer
//   retain.h            which are kept
//   attempt_over.h      nothing more comes of an attempt

#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/job.h"

struct td_core;
struct td_event_checkpoint;
struct td_event_registered;

// NULL path or "": the newest committed one that is whole. NULL: none.
struct td_checkpoint *td_catalog_find(const struct td_job *j, const char *path);
// A committed one that can be reached from node: there, or at the coordinator.
bool td_catalog_reachable(const struct td_checkpoint *c, const char *node);
// A checkpoint of it is PENDING.
bool td_catalog_pending(const struct td_job *j);

// ---- events (called by attempt.c, core_bulk.c and reconcile_answer.c) ---------------------------
// True: it is committed with this; the caller says td_retain.
bool td_catalog_on_checkpoint(struct td_core *core, struct td_job *j, struct td_attempt *a,
                              const struct td_attempt_part *part,
                              const struct td_event_checkpoint *e);
// Points of the attempt came, or are known not to come: what waited for them is committed, or goes.
// True: the same.
bool td_catalog_settle(struct td_core *core, struct td_job *j, struct td_attempt *a);
// A command named a checkpoint of its own: it is committed with this, and stays.
void td_catalog_on_registered(struct td_core *core, struct td_job *j, struct td_attempt *a,
                              const struct td_attempt_part *part,
                              const struct td_event_registered *e);
void td_catalog_on_removed(struct td_core *core, struct td_job *j, const char *path);
// A loader passed over the checkpoint in `directory`.
void td_catalog_on_skipped(struct td_core *core, struct td_job *j, const char *directory,
                           const char *why);
void td_catalog_on_damaged(struct td_core *core, struct td_job *j, const char *path,
                           const char *why);
// *out_committed: the same.
TD_MUST_USE td_status td_catalog_on_shard(struct td_core *core, struct td_job *j, const char *path,
                                          const char *file, uint64_t bytes, const char *digest,
                                          bool *out_committed);
// Whoever alone has its files (a name) found some gone (why), or all there (NULL).
void td_catalog_on_missing(struct td_core *core, struct td_job *j, struct td_checkpoint *c,
                           const char *where, const char *why);
// Row `at` goes, and the files of a streamed one.
void td_catalog_remove(struct td_core *core, struct td_job *j, uint32_t at);
// Shards of which no checkpoint came, of keys that begin so.
void td_catalog_drop_shards(struct td_core *core, const char *prefix);
// Forgets all rows of a job that is forgotten; no file is touched.
void td_catalog_forget(struct td_core *core, struct td_job *j);

// ---- loading ------------------------------------------------------------------------------------
TD_MUST_USE td_status td_catalog_load(struct td_core *core, const char *key, const char *body);
TD_MUST_USE td_status td_catalog_load_shard(struct td_core *core, const char *key,
                                            const char *body);

#endif
