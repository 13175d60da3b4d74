#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_H

// The catalog: only what stands here as COMMITTED exists as a checkpoint; nobody scans directories.
//
// Store fs: the rank said "durable on disk" in its event, so the event commits it. Store stream:
// the event makes it PENDING and names its files with their digests; each file that arrives
// (PutShard) and is durable and verified here is a shard row; with the last of both it is
// COMMITTED, in one transaction. Either may come first. A removed event takes the row away; the
// files of a streamed one are deleted after that is committed. But a rank removes when the newer
// one is on its own disk: while that is on its way to here, the last committed one stays, LEAVING,
// and goes in the transaction that commits another. So what a job has once, it never has not.
//
// A checkpoint that a loader had to pass over is DAMAGED when its only files are those that the
// loader saw. Of a streamed one the loader may have seen a copy: its own files are hashed then
// (TD_ACTION_VERIFY), and it is DAMAGED if they are not what was committed.
//
// What is kept of a job is decided over all its attempts (retain.c): save_top_k's rule, the same as
// a rank's, over the whole checkpoints. The rank of a live attempt removes its own; what attempts
// that are over left leaves the catalog here, and its files by reconcile.h. While a live attempt
// has no checkpoint of its own nothing goes, because it may be reading any of them. What a job that
// waits or runs names as ckpt_path or init_from stays as long as it does. Part of the core: pure.

#include "daemon/coordinator/core/job.h"

struct td_core;

struct td_checkpoint_file {
    char *name;
    char digest[33];
    uint64_t bytes;
    bool here; // durable at the coordinator
};

struct td_checkpoint {
    char path[TD_JOB_PATH_MAX]; // "a1/step-2340"
    char node[64];
    char *directory; // on that node; "": unknown
    uint32_t attempt;
    uint32_t step;
    uint32_t epoch;
    bool committed;
    char *damage;   // how it was found damaged; NULL: it was not
    bool missing;   // the damage is that files are gone: it ends when they are back
    bool streamed;  // its files are at the coordinator
    bool leaving;   // its rank removed it
    uint64_t asked; // the newest Reconcile that named its files; not durable
    int64_t time_ns;
    char *metrics_json; // an object of numbers, or NULL
    struct td_checkpoint_file *files;
    uint32_t n_files;
};

void td_checkpoint_destroy(struct td_checkpoint *c);
TD_DEFINE_AUTO(td_checkpoint, td_checkpoint_destroy);
uint64_t td_checkpoint_bytes(const struct td_checkpoint *c);

// NULL path or "": the newest committed one that is whole. NULL: none.
struct td_checkpoint *td_catalog_find(const struct td_job *j, const char *path);
// A committed one that can be reached from node: there, or at the coordinator.
bool td_catalog_reachable(const struct td_checkpoint *c, const char *node);
// A checkpoint of it is PENDING.
bool td_catalog_pending(const struct td_job *j);

// ---- events (called by attempt.c and core.c) ----------------------------------------------------
void td_catalog_on_checkpoint(struct td_core *core, struct td_job *j, struct td_attempt *a,
                              const struct td_json *line);
void td_catalog_on_removed(struct td_core *core, struct td_job *j, const char *path);
// A loader passed over the checkpoint in `directory`.
void td_catalog_on_skipped(struct td_core *core, struct td_job *j, const char *directory,
                           const char *why);
void td_catalog_on_damaged(struct td_core *core, struct td_job *j, const char *path,
                           const char *why);
TD_MUST_USE td_status td_catalog_on_shard(struct td_core *core, struct td_job *j, const char *path,
                                          const char *file, uint64_t bytes, const char *digest);
// Whoever alone has its files (a name) found some gone (why), or all there (NULL).
void td_catalog_on_missing(struct td_core *core, struct td_job *j, struct td_checkpoint *c,
                           const char *where, const char *why);
// Nothing more comes of an attempt: what was on its way is dropped, files without a row go.
void td_catalog_attempt_over(struct td_core *core, struct td_job *j, const struct td_attempt *a);
// Row `at` goes, and the files of a streamed one.
void td_catalog_remove(struct td_core *core, struct td_job *j, uint32_t at);
// Forgets all rows of a job that is forgotten; no file is touched.
void td_catalog_forget(struct td_core *core, struct td_job *j);

// ---- retain.c -----------------------------------------------------------------------------------
// Of this attempt nothing comes any more, so its checkpoints are the catalog's to remove.
bool td_retain_is_over(const struct td_job *j, uint32_t attempt);
// What save_top_k does not keep leaves the catalog.
void td_retain(struct td_core *core, struct td_job *j);
// The same for every job that attempts have left something of; at the start.
void td_retain_all(struct td_core *core);
// A job has ended: what it alone kept of another's may go.
void td_retain_released(struct td_core *core, const struct td_job *ended);
// A job that waits or runs and names this checkpoint (NULL: any) of j; NULL: none.
const struct td_job *td_retain_user(const struct td_core *core, const struct td_job *j,
                                    const struct td_checkpoint *c);

TD_MUST_USE td_status td_catalog_load(struct td_core *core, const char *key, const char *body);
TD_MUST_USE td_status td_catalog_load_shard(struct td_core *core, const char *key,
                                            const char *body);

#endif
