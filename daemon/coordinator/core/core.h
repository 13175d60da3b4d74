#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CORE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CORE_H

// daemon/coordinator/core: the coordinator's brain, sans I/O: it receives what happened and when,
// and answers with records to commit, metric points to store and actions to take. No socket, no
// file, no clock, no thread; the same code runs in the daemon and in the simulator (tests/sim).
//
// Use: call one input, then td_core_take, then carry it out. Output rule: an action is released
// only when every record taken with it or before it is committed (gate.h does that). So nobody is
// ever informed of something that a crash could take back. Reads follow the same rule: their
// answers pass through the same gate.
//
// Exactly once: what an attempt does arrives as bytes of append-only segments with their offset.
// The bytes before the committed offset are skipped. A gap is refused by repeating the offset. The
// new offset is part of the same transaction as what the bytes meant.
//
// An input fails only for the caller's fault (td_status) or when memory is gone; then the core is
// as before. Bounds: TD_CORE_MAX_*; what exceeds them is refused or dropped and counted.
//
// Rooms, from the cellar to the roof; none calls one that is above it, and the header of its
// name has the story of each:
//   model/    what the core knows: jobs, attempts, hosts, specs; and what goes in and comes out
//   catalog/  checkpoints: pending, committed, kept, removed
//   attempt/  what happens to an attempt and its job: events, end, restart, moves from state to
//             state, until it is forgotten
//   plans/    what a job will need, and whether it could ever run
//   nodes/    registration, leases, adoption and fencing
//   queue/    who runs next, where, and why the others wait
// Above them the face, which the shell calls:
//   requests.h, what people asked before; frame.h, how each input begins and ends
//   core.c, the inputs of nodes and of time; core_bulk.c, of bytes; core_verbs.c, of people about
//   jobs; core_cordon.c, about nodes; core_load.c, rows back into it at the start; view.h,
//   view_labels.h and view_gpus.h, what clients read; page.h, how much of a list at a time

#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/core/model/jobs.h"
#include "traind/v1/checkpoint.pb-c.h"

// ---- life ---------------------------------------------------------------------------------------
struct td_core;
struct td_host;
TD_MUST_USE td_status td_core_create(const struct td_core_options *options,
                                     struct td_core **out_core);
void td_core_destroy(struct td_core *core);
TD_DEFINE_AUTO(td_core, td_core_destroy);

// Before start: every stored row, kinds in the order of the enum. DATA_LOSS names the row.
TD_MUST_USE td_status td_core_load(struct td_core *core, enum td_record_kind kind, const char *key,
                                   const char *body);
// Committed offsets that lie elsewhere: metrics (metrics.db), logs (files).
void td_core_load_offset(struct td_core *core, const char *job, uint32_t attempt, uint32_t rank,
                         Traind__V1__Segment__Kind kind, uint64_t offset);
// Last values of jobs that have not ended.
// The mean is taken.
void td_core_load_metric(struct td_core *core, const char *job, struct td_metric_last *m);
// A name that the points up to that offset had defined, in the order of their numbers.
void td_core_load_name(struct td_core *core, const char *job, uint32_t attempt, uint32_t rank,
                       uint32_t number, const char *name);
// All was loaded: every node gets one full grace from now.
void td_core_start(struct td_core *core, struct td_now now);

struct td_core_effects td_core_take(struct td_core *core);
// When td_core_tick wants to be called; INT64_MAX: not by time.
struct td_mono td_core_wake(const struct td_core *core);
void td_core_tick(struct td_core *core, struct td_now now);

// ---- nodes --------------------------------------------------------------------------------------
// 0: too many sessions. One that has not registered within a lease is ended. So is the oldest of
// these for each new one, when there are as many sessions as there can be nodes.
uint64_t td_core_session_open(struct td_core *core, struct td_now now, bool embedded);
// It was opened with a node token of this name. A node that has registered belongs to that name, so
// that no other token speaks for it (nodes.h). Not called: the owner's token, which may be any
// node.
void td_core_session_holder(struct td_core *core, uint64_t session, const char *holder);
// Where it comes from, for people. Not called: in process.
void td_core_session_from(struct td_core *core, uint64_t session, const char *address);
void td_core_session_message(struct td_core *core, struct td_now now, uint64_t session,
                             const Traind__V1__NodeMessage *m);
void td_core_session_close(struct td_core *core, struct td_now now, uint64_t session);

// ---- people -------------------------------------------------------------------------------------
// *out_again: request_id was answered before; *out_job is that job.
TD_MUST_USE td_status td_core_create_job(struct td_core *core, struct td_now now,
                                         const struct td_core_create_job *request,
                                         const struct td_job **out_job, bool *out_again);
// FAILED_PRECONDITION STATE_<from>_<verb>.
TD_MUST_USE td_status td_core_cancel(struct td_core *core, struct td_now now, const char *id,
                                     const char *reason, const struct td_job **out_job);
TD_MUST_USE td_status td_core_pause(struct td_core *core, struct td_now now, const char *id,
                                    const struct td_job **out_job);
TD_MUST_USE td_status td_core_resume(struct td_core *core, struct td_now now, const char *id,
                                     const struct td_job **out_job);
// Its ranks save and go on; nothing of the job changes by it. FAILED_PRECONDITION
// STATE_<state>_SAVE or PHASE_<phase>_SAVE, UNAVAILABLE NODE_AWAY.
TD_MUST_USE td_status td_core_save(struct td_core *core, struct td_now now, const char *id,
                                   const struct td_job **out_job);
// May the job be deleted? NOT_FOUND; FAILED_PRECONDITION STATE_<state>_DELETE, CHECKPOINT_IN_USE.
// *out_job NULL: it was, and is not gone everywhere. One that has not ended waits: cancel it first.
TD_MUST_USE td_status td_core_check_delete(const struct td_core *core, const char *id,
                                           bool keep_checkpoints, const struct td_job **out_job);
// Of a job by id that has ended and may be deleted; *out_job of the check is gone.
// RESOURCE_EXHAUSTED LIMIT_REMOVALS.
TD_MUST_USE td_status td_core_delete(struct td_core *core, struct td_now now, const char *id,
                                     bool keep_checkpoints);
// Asks a node for the plan of a canonical spec, trusted as that of a job is (job.h), with the graph
// that pass `dump` leaves unless that is "". TD_ACTION_PLANNED with token follows. It is
// UNAVAILABLE, reason NO_NODES, when no node can be asked and none was there in the last seconds.
TD_MUST_USE td_status td_core_plan(struct td_core *core, struct td_now now, const char *spec_json,
                                   bool trusted, const char *dump, uint64_t token);
void td_core_plan_abandon(struct td_core *core, uint64_t token);

// The node gets no new attempts from now on; `drains`: those that are there go elsewhere (drain.h).
// One that is cordoned stays so, and who asked last is shown. NOT_FOUND NODE_NOT_FOUND names what
// comes nearest; FAILED_PRECONDITION NODE_AMBIGUOUS: several have that name, NODE_NEVER_REGISTERED.
TD_MUST_USE td_status td_core_cordon(struct td_core *core, struct td_now now,
                                     const struct td_core_cordon *request,
                                     const struct td_host **out_node);
// Ends both. What a drain has asked to stop does so all the same.
TD_MUST_USE td_status td_core_uncordon(struct td_core *core, struct td_now now, const char *node,
                                       const struct td_host **out_node);
// All of the changes of its labels, or none (LabelNodeRequest of admin.proto). A node is refused as
// above; INVALID_ARGUMENT LABEL_INVALID, RESOURCE_EXHAUSTED LIMIT_LABELS.
TD_MUST_USE td_status td_core_label_node(struct td_core *core, struct td_now now, const char *node,
                                         char *const *changes, size_t n_changes,
                                         const struct td_host **out_node);
// No rank gets that GPU from now on, or ranks get it again (node_gpus.h). A node is refused as
// above.
TD_MUST_USE td_status td_core_disable_device(struct td_core *core, struct td_now now,
                                             const struct td_core_device *request,
                                             const struct td_host **out_node);
TD_MUST_USE td_status td_core_enable_device(struct td_core *core, struct td_now now,
                                            const char *node, const char *device,
                                            const struct td_host **out_node);

// Nothing is placed any more. stop_embedded: attempts of the embedded node are stopped with a
// checkpoint. td_core_n_stopping: attempts it still waits for.
void td_core_drain(struct td_core *core, struct td_now now, bool stop_embedded);
uint32_t td_core_n_stopping(const struct td_core *core);

// ---- bulk ---------------------------------------------------------------------------------------
// OK: the attempt may still speak. Else ABORTED FENCED, counted as stale.
TD_MUST_USE td_status td_core_check_attempt(struct td_core *core, const Traind__V1__AttemptId *id);
// The same, and who sends it is the node that holds that rank of the attempt: by its session, or,
// beside it, by the key that its session was given. PERMISSION_DENIED NOT_THE_HOLDER;
// INVALID_ARGUMENT: the attempt has no such rank.
TD_MUST_USE td_status td_core_check_session(struct td_core *core, uint64_t session,
                                            const Traind__V1__AttemptId *id, uint32_t rank);
TD_MUST_USE td_status td_core_check_key(struct td_core *core, const Traind__V1__AttemptId *id,
                                        const char *key, uint32_t rank);
// May the node with that key send this file of a checkpoint of the attempt? It is the one that
// reported the checkpoint. Before anybody has, the one of rank 0: a strategy may let another rank
// write, whose node then asks again. DATA_LOSS HASH_MISMATCH: it was reported with another digest.
// *out_here: that file is here, with that digest.
TD_MUST_USE td_status td_core_check_shard(struct td_core *core, const Traind__V1__AttemptId *id,
                                          const char *key, const char *path, const char *file,
                                          const char *digest, bool *out_here);
// May nodes of this holder (td_core_session_holder) read checkpoints of j? One of them has a part
// of a live attempt of j, or of a job that names a checkpoint of j to begin from. PERMISSION_DENIED
// NOT_THE_HOLDER.
TD_MUST_USE td_status td_core_check_reader(const struct td_core *core, const char *holder,
                                           const struct td_job *j);
// Points taken before are in metrics.db up to offset: acknowledged with the next take.
void td_core_points_committed(struct td_core *core, struct td_now now, const char *job,
                              uint32_t attempt, uint32_t rank, uint64_t offset);
// Log bytes are in the file up to offset: acknowledged with the next take.
void td_core_log_committed(struct td_core *core, struct td_now now, const char *job,
                           uint32_t attempt, uint32_t rank, Traind__V1__Segment__Kind kind,
                           uint64_t offset);
// A file of a checkpoint is durable here and its digest was verified.
TD_MUST_USE td_status td_core_shard_durable(struct td_core *core, struct td_now now,
                                            const Traind__V1__AttemptId *id, const char *path,
                                            const char *file, uint64_t bytes, const char *digest);

// The answer to TD_ACTION_FORGET. all_gone false: something could not be removed, ask again later.
void td_core_forgotten(struct td_core *core, struct td_now now, const char *job, bool all_gone);

// The answer to TD_ACTION_VERIFY, if it was no: why.
void td_core_checkpoint_damaged(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why);

// Its files here are gone (why), or there (NULL).
void td_core_checkpoint_missing(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why);

// ---- reads --------------------------------------------------------------------------------------
uint32_t td_core_counter(const struct td_core *core, enum td_core_counter c);

#endif
