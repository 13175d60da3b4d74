#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CORE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CORE_H

// The coordinator's brain, sans I/O: it receives what happened and when, and answers with records
// to commit, metric points to store and actions to take. No socket, no file, no clock, no thread;
// the same code runs in the daemon and in the simulator (tests/sim).
//
// Use: call one input, then td_core_take, then carry it out. Output rule: an action is released
// only when every record taken with it or before it is committed (gate.h does that), so nobody is
// ever informed of something that a crash could take back. Reads follow the same rule: their
// answers pass through the same gate.
//
// Exactly once: what an attempt does arrives as bytes of append-only segments with their offset.
// The bytes before the committed offset are skipped, a gap is refused by repeating the offset, and
// the new offset is part of the same transaction as what the bytes meant.
//
// An input fails only for the caller's fault (td_status) or when memory is gone; then the core is
// as before. Bounds: TD_CORE_MAX_*; what exceeds them is refused or dropped and counted.

#include "daemon/coordinator/core/job.h"
#include "lib/base/clock.h"
#include "traind/v1/checkpoint.pb-c.h"
#include "traind/v1/node.pb-c.h"

enum {
    TD_CORE_MAX_JOBS = 1 << 20, // known at a time; retention.c keeps far fewer
    TD_CORE_MAX_ACTIVE = 20000, // that wait or run: one more is refused
    TD_CORE_MAX_NODES = 1024,
    TD_CORE_MAX_PLANS = 256,        // cached
    TD_CORE_MAX_PLAN_WAITERS = 64,  // PlanJob calls waiting
    TD_CORE_MAX_REQUESTS = 20000,   // request ids remembered
    TD_CORE_MAX_CHECKPOINTS = 1000, // of one job
    TD_CORE_MAX_REMOVALS = 1 << 18, // places that have something of a deleted job
};

struct td_now {
    struct td_mono mono;
    struct td_real real;
};

// ---- output -------------------------------------------------------------------------------------
// A row of state.db: tables of (key, body). body NULL: the row goes.
enum td_record_kind {
    TD_RECORD_META,       // "epoch"
    TD_RECORD_NODE,       // node id
    TD_RECORD_PLAN,       // digest of the canonical spec, '/', CPU level of the node
    TD_RECORD_SPEC,       // job id -> canonical spec
    TD_RECORD_JOB,        // job id
    TD_RECORD_ATTEMPT,    // "<job>/a<n>"
    TD_RECORD_CHECKPOINT, // "<job>/a<n>/step-<n>"
    TD_RECORD_SHARD,      // "<job>/a<n>/step-<n>/<file>": durable here, checkpoint not yet known
    TD_RECORD_REQUEST,    // request id
    TD_RECORD_LEAVING,    // job id: it is forgotten, what it owned is not gone yet
    TD_RECORD_REMOVAL,    // "<job>/<node>": what is left of a job that is forgotten
    TD_RECORD_KIND_COUNT,
};
struct td_record {
    struct td_record *next;
    enum td_record_kind kind;
    char *key;
    char *body;
};

// Points of one rank for metrics.db; offset is the cursor after them, stored with them.
struct td_points {
    struct td_points *next;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint32_t rank;
    uint64_t offset;
    size_t n_points;
    struct td_metric_record *points;
};

enum td_action_kind {
    TD_ACTION_SEND,     // message to the node of `session`
    TD_ACTION_CLOSE,    // end `session`, with `text`
    TD_ACTION_EVENT,    // a durable change of `job`: watchers and waiters learn of it
    TD_ACTION_PROGRESS, // only progress or numbers of its reason changed
    TD_ACTION_QUEUE,    // a pass of the queue: positions and reasons of waiting jobs may differ
    TD_ACTION_PLANNED,  // answer of td_core_plan: token, text (result) or failure
    TD_ACTION_MOVED,    // `job` changed its state; text says how, for the log
    TD_ACTION_REMOVE,   // checkpoint files `text` ("a1/step-5") of `job` at the coordinator
    TD_ACTION_VERIFY,   // are the files of `text` at the coordinator what was committed?
    TD_ACTION_FORGET,   // remove what `job` owned here, as `text` says; td_core_forgotten answers
    TD_ACTION_SAY,      // text is for the log
    TD_ACTION_SWEEP,    // attempt `token` of `job` is over: what it left here and no row names
};
struct td_action {
    struct td_action *next;
    enum td_action_kind kind;
    uint64_t session;
    uint64_t token;
    char job[TD_JOB_ID_MAX];
    char *text;
    td_status failure;                       // owned
    Traind__V1__CoordinatorMessage *message; // owned
};

// What one input answered. Lists in order; the taker owns them.
struct td_core_out {
    struct td_record *records;
    struct td_points *points;
    struct td_action *actions;
};
void td_record_destroy(struct td_record *r);
void td_points_destroy(struct td_points *p);
void td_action_destroy(struct td_action *a);
void td_core_out_finish(struct td_core_out *out);

// ---- life ---------------------------------------------------------------------------------------
struct td_core;
struct td_core_options {
    uint64_t incarnation;
    const char *checkpoint_dir; // where streamed checkpoints lie, shown to clients; may be ""
    int64_t heartbeat_ns, lease_ns, lost_after_ns, stop_grace_ns;
    uint8_t secret[32];      // random: what the keys of sessions are made from
    uint32_t retention_jobs; // ended ones that are kept; 0: 10000
    int64_t retention_ns;    // for so long after their end; 0: however long ago that was
};
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
void td_core_load_metric(struct td_core *core, const char *job, const struct td_metric_last *m);
// All was loaded: every node gets one full grace from now.
void td_core_start(struct td_core *core, struct td_now now);

struct td_core_out td_core_take(struct td_core *core);
// When td_core_tick wants to be called; INT64_MAX: not by time.
struct td_mono td_core_wake(const struct td_core *core);
void td_core_tick(struct td_core *core, struct td_now now);

// ---- nodes --------------------------------------------------------------------------------------
// 0: too many sessions.
uint64_t td_core_session_open(struct td_core *core, struct td_now now, bool embedded);
void td_core_session_message(struct td_core *core, struct td_now now, uint64_t session,
                             const Traind__V1__NodeMessage *m);
void td_core_session_close(struct td_core *core, struct td_now now, uint64_t session);

// ---- people -------------------------------------------------------------------------------------
struct td_core_create_job {
    const char *id;             // fresh
    const char *spec_json;      // canonical
    const struct td_json *spec; // what spec_json was printed from; NULL: it is parsed
    const char *request_id;     // ""
    const char *digest;         // of the request's body
};
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
// May the job be deleted? NOT_FOUND; FAILED_PRECONDITION STATE_<state>_DELETE, CHECKPOINT_IN_USE.
// *out_job NULL: it was, and is not gone everywhere. One that has not ended waits: cancel it first.
TD_MUST_USE td_status td_core_check_delete(const struct td_core *core, const char *id,
                                           bool keep_checkpoints, const struct td_job **out_job);
// Of a job by id that has ended and may be deleted; *out_job of the check is gone.
// RESOURCE_EXHAUSTED LIMIT_REMOVALS.
TD_MUST_USE td_status td_core_delete(struct td_core *core, struct td_now now, const char *id,
                                     bool keep_checkpoints);
// The places that still have something of a deleted job, one a call; cursor from 0. False: no more.
struct td_removal;
bool td_core_is_leaving(const struct td_core *core, const char *job, size_t *inout_cursor,
                        const struct td_removal **out_part);
// One of them. NULL: nothing is left there.
struct td_removal *td_core_removal(const struct td_core *core, const char *job, const char *node);
// Asks a node for the plan of a canonical spec, with the graph that pass `dump` leaves unless that
// is ""; TD_ACTION_PLANNED with token follows: UNAVAILABLE, reason NO_NODES, when no node can be
// asked and none was there in the last seconds.
TD_MUST_USE td_status td_core_plan(struct td_core *core, struct td_now now, const char *spec_json,
                                   const char *dump, uint64_t token);
void td_core_plan_abandon(struct td_core *core, uint64_t token);

// Nothing is placed any more. stop_embedded: attempts of the embedded node are stopped with a
// checkpoint. td_core_n_stopping: attempts it still waits for.
void td_core_drain(struct td_core *core, struct td_now now, bool stop_embedded);
uint32_t td_core_n_stopping(const struct td_core *core);

// ---- bulk ---------------------------------------------------------------------------------------
// OK: the attempt may still speak. Else ABORTED FENCED, counted as stale.
TD_MUST_USE td_status td_core_check_attempt(struct td_core *core, const Traind__V1__AttemptId *id);
// The same, and who sends it is the node that holds the attempt: by its session, or, beside it, by
// the key that its session was given. PERMISSION_DENIED NOT_THE_HOLDER.
TD_MUST_USE td_status td_core_check_session(struct td_core *core, uint64_t session,
                                            const Traind__V1__AttemptId *id);
TD_MUST_USE td_status td_core_check_key(struct td_core *core, const Traind__V1__AttemptId *id,
                                        const char *key);
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
// By id, or by a name that only one job bears. NOT_FOUND JOB_NOT_FOUND, or FAILED_PRECONDITION
// NAME_AMBIGUOUS.
TD_MUST_USE td_status td_core_find_job(const struct td_core *core, const char *id_or_name,
                                       const struct td_job **out_job);
// Why a job does not run, with its position: written when it is asked for.
void td_core_reason(const struct td_core *core, const struct td_job *j, struct td_mono now,
                    struct td_reason *out_reason);
// Differs when that would say something else; of a position above 10 two digits count.
uint64_t td_core_reason_mark(const struct td_core *core, const struct td_job *j,
                             struct td_mono now);
// Newest first; before_seq UINT64_MAX: from the newest. NULL at the end.
const struct td_job *td_core_job_before(const struct td_core *core, uint64_t before_seq);

enum td_core_counter {
    TD_COUNT_STALE,       // messages of fenced attempts or other incarnations
    TD_COUNT_GAPS,        // segments that began past the committed offset
    TD_COUNT_BAD_LINES,   // event lines that were none
    TD_COUNT_BAD_POINTS,  // metric records that were none
    TD_COUNT_LOST,        // attempts given up
    TD_COUNT_RESTARTS,    //
    TD_COUNT_SESSIONS,    // registrations
    TD_COUNT_PLANS_ASKED, //
    TD_COUNT_STALLS,      // times that the coordinator itself was stopped for too long
    TD_COUNT_PASSES,      // of the queue
    TD_COUNT_LOOKS,       // at a waiting job, by passes
    TD_COUNT_DUE_LOOKS,   // at a job, for what is due on a node that has registered
    TD_COUNT_COUNT,
};
const char *td_core_counter_name(enum td_core_counter c); // "stale_messages"
uint32_t td_core_counter(const struct td_core *core, enum td_core_counter c);

#endif
