#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_EXCHANGE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_EXCHANGE_H

// What the core is given and what it answers: bounds, time, options; records to commit, points to
// store, actions to take; counters. Below the state of the core, so that its files and its
// interface (core.h) speak of the same things.

#include "daemon/coordinator/core/model/job.h"
#include "lib/base/clock.h"
#include "traind/v1/node.pb-c.h"

enum {
    TD_CORE_MAX_JOBS = 1 << 20, // known at a time; expiry.c keeps far fewer
    TD_CORE_MAX_ACTIVE = 20000, // that wait or run: one more is refused
    TD_CORE_MAX_NODES = 1024,
    TD_CORE_MAX_PLANS = 256,        // cached
    TD_CORE_MAX_PLAN_WAITERS = 64,  // PlanJob calls waiting
    TD_CORE_MAX_REQUESTS = 20000,   // request ids remembered
    TD_CORE_MAX_CHECKPOINTS = 1000, // of one job
    TD_RECONCILE_DUE = 64,          // jobs remembered for a node (reconcile.h)
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
    TD_RECORD_TOKEN,      // token id; the shell's (credentials.h), not the core's
    TD_RECORD_MEMBER,     // node id: of nodes that joined; the shell's, too
    TD_RECORD_AUDIT,      // number: a line of the audit log; the shell's (audit.h)
    TD_RECORD_NODE_ADMIN, // node id: what operators decided about it (node_admin.h)
    TD_RECORD_KIND_COUNT,
};
struct td_record {
    struct td_record *next;
    enum td_record_kind kind;
    char *key;
    char *body;
};

// Points of one rank for metrics.db. Stored with them are the cursor after them, offset, and the
// names that were defined among them, the first of which has the number first_name.
struct td_points {
    struct td_points *next;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint32_t rank;
    uint64_t offset;
    size_t n_points;
    struct td_metric_point *points;
    uint32_t first_name;
    uint32_t n_names;
    char (*names)[TD_METRIC_NAME_BYTES];
};

enum td_action_kind {
    TD_ACTION_SEND,     // message to the node of `session`
    TD_ACTION_CLOSE,    // end `session`, with `text`; `token` 1: it may not say what it said; or
                        // `failure`
    TD_ACTION_EVENT,    // a durable change of `job`: watchers and waiters learn of it
    TD_ACTION_PROGRESS, // only progress or numbers of its reason changed
    TD_ACTION_QUEUE,    // a pass of the queue: positions and reasons of waiting jobs may differ
    TD_ACTION_PLANNED,  // answer of td_core_plan: token, text (result) or failure
    TD_ACTION_MOVED,    // `job` changed its state; text says how, for the log
    TD_ACTION_REMOVE,   // checkpoint files `text` ("a1/step-5") of `job` at the coordinator
    TD_ACTION_VERIFY,   // are the files of `text` at the coordinator what was committed?
    TD_ACTION_FORGET,   // remove what `job` owned here, as `text` says; td_core_forgotten answers
    TD_ACTION_SAY,      // text is for the log
    TD_ACTION_HURRY,    // somebody waits for the points that were handed over to be committed
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
struct td_core_effects {
    struct td_record *records;
    struct td_points *points;
    struct td_action *actions;
};
void td_record_destroy(struct td_record *r);
void td_points_destroy(struct td_points *p);
void td_action_destroy(struct td_action *a);
void td_core_effects_finish(struct td_core_effects *out);

// ---- options ------------------------------------------------------------------------------------
struct td_core_options {
    uint64_t incarnation;
    const char *checkpoint_dir; // where streamed checkpoints lie, shown to clients; may be ""
    int64_t heartbeat_ns, lease_ns, lost_after_ns, stop_grace_ns;
    uint8_t secret[32];      // random: what the keys of sessions are made from
    uint32_t retention_jobs; // ended ones that are kept; 0: 10000
    int64_t retention_ns;    // for so long after their end; 0: however long ago that was
};

// ---- a request to create a job ------------------------------------------------------------------
struct td_core_create_job {
    const char *id;                  // fresh
    const char *spec_json;           // canonical
    const struct td_json *spec;      // what spec_json was printed from; NULL: it is parsed
    const char *request_id;          // ""
    const char *digest;              // of the request's body
    const char *owner, *owner_token; // name and id of the token that asks; NULL: nobody's
    bool shares;                     // its owner has a share of what is kept only (specs.h)
    bool trusted;                    // it is the owner's or an admin's
};

// ---- a request about a node ---------------------------------------------------------------------
enum { TD_CORDON_REASON_BYTES = 201 }; // with its end
struct td_core_cordon {
    const char *node;   // id, or a name that it alone has
    const char *by;     // name of the credential that asks
    const char *reason; // ""; then what an earlier one gave stays; a longer one is cut
    bool drains;
};
struct td_core_device {
    const char *node, *device; // device: uuid of a GPU, or the beginning of one
    const char *by, *reason;   // as above; reason "": none
};

// ---- counters -----------------------------------------------------------------------------------
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
    TD_COUNT_NODE_STALE,  // messages that nodes dropped, by their heartbeats
    TD_COUNT_COUNT,
};
const char *td_core_counter_name(enum td_core_counter c); // "stale_messages"

#endif
