#ifndef TRAIND_DAEMON_NODE_CORE_CORE_H
#define TRAIND_DAEMON_NODE_CORE_CORE_H

// daemon/node/core: the node's brain, sans I/O. It receives what happened and when, and answers
// with actions. cores.h, which cores a rank gets, and gpu_parts.h, how its GPUs are called, are
// functions of the same kind.
//
// It knows which attempts are here and in which state, what the coordinator wants of them, and when
// a stop must get stronger. It has no file, socket, process or clock; the shell
// (daemon/node/node.h) feeds it and carries the actions out at once, in order. Everything borrowed
// in an action (messages, the attempt) is good until the next call.
//
// An attempt's states:
//
//   PREPARING  assigned; files are fetched, the launcher is being started
//   RUNNING    its launcher lives
//   STOPPING   asked to stop; a stronger stop follows at `due`
//   KILLING    asked to die; its launcher is killed at `due`, again and again
//   ENDED      no launcher; its files are final and are forwarded until Forget
//
// A stop that comes while PREPARING is kept and given when the launcher is there. Silence of the
// coordinator changes nothing here: ranks go on. Messages of another incarnation, and those about
// an attempt with another epoch, are dropped and counted. Bound: TD_NODE_ATTEMPTS_MAX attempts;
// more assignments are refused.

#include "lib/base/base.h"
#include "traind/v1/node.pb-c.h"

enum {
    TD_NODE_ATTEMPTS_MAX = 1024,
    TD_NODE_JOB_MAX = 64,
    TD_NODE_STOP_MARGIN_S = 5, // the launcher's own escalation comes first
    TD_NODE_KILL_S = 5,
};

enum td_node_attempt_state {
    TD_AT_PREPARING,
    TD_AT_RUNNING,
    TD_AT_STOPPING,
    TD_AT_KILLING,
    TD_AT_ENDED,
    TD_AT_COUNT,
};
enum td_attempt_event {
    TD_AE_STARTED, // the launcher answered
    TD_AE_FAILED,  // it could not be started; nothing runs
    TD_AE_STOP,    // asked by the coordinator
    TD_AE_TIME,    // `due` has come
    TD_AE_GONE,    // the launcher has ended, its log is complete
    TD_AE_FORGET,  // everything of it is committed
    TD_AE_COUNT,
};

struct td_node_attempt {
    char job[TD_NODE_JOB_MAX];
    uint32_t attempt;
    uint64_t epoch;
    enum td_node_attempt_state state;
    uint32_t slots; // taken while not ENDED
    uint32_t n_ranks;
    uint32_t major;         // of its launcher
    char build[48];         //
    int stop_mode;          // strongest asked: enum td_stop_mode
    uint32_t stop_grace_ms; //
    bool forget;            // remove when it has ended
    struct td_mono due;     // INT64_MAX: none
    void *shell;            // the shell's own
};

enum td_node_action_kind {
    TD_NA_REGISTER,  // send Register with all attempts
    TD_NA_HEARTBEAT, // send Heartbeat, n = slots used
    TD_NA_START,     // attempt, assign: fetch, start a launcher; then td_node_core_event
    TD_NA_ABANDON,   // attempt: give up starting it if it can be; FAILED follows, or STARTED
    TD_NA_REFUSE,    // id, status: send AttemptRefused
    TD_NA_STOP,      // attempt: LauncherStop with stop_mode, stop_grace_ms
    TD_NA_KILL,      // attempt: SIGKILL to its launcher
    TD_NA_SAVE,      // attempt: checkpoint now
    TD_NA_ADOPT,     // attempt, cursor: forward from these offsets
    TD_NA_ACK,       // attempt, ack: committed up to there
    TD_NA_FINAL,     // attempt: it has ended, say how long its segments are
    TD_NA_REMOVE,    // attempt: delete its directory; the attempt is gone after this
    TD_NA_PLAN,      // plan: run a one-shot worker
    TD_NA_PLAN_DROP, // plan_cancel: end it
    TD_NA_RECONCILE, // reconcile: of a job, what its disk is to hold
    TD_NA_STORE,     // attempt, store: of its rendezvous store, for its launcher
};
struct td_node_action {
    enum td_node_action_kind kind;
    struct td_node_attempt *attempt;
    uint32_t n;
    const Traind__V1__AttemptId *id;
    const Traind__V1__Assign *assign;
    const Traind__V1__AttemptCursor *cursor;
    const Traind__V1__SegmentAck *ack;
    const Traind__V1__PlanRequest *plan;
    const Traind__V1__PlanCancel *plan_cancel;
    const Traind__V1__Reconcile *reconcile;
    const Traind__V1__CoordinatorMessage *store; // store_done or store_value
    td_status status;                            // owned by the core; borrow it
};

struct td_node_core;
TD_MUST_USE td_status td_node_core_create(uint32_t slots, struct td_node_core **out_core);
void td_node_core_destroy(struct td_node_core *c);
TD_DEFINE_AUTO(td_node_core, td_node_core_destroy);

// Before the first session: an attempt that was found on disk, RUNNING or ENDED.
TD_MUST_USE td_status td_node_core_found(struct td_node_core *c,
                                         const struct td_node_attempt *attempt,
                                         struct td_node_attempt **out_attempt);

// What happened. After each, the actions must be taken with td_node_core_next until it is false.
void td_node_core_up(struct td_node_core *c);
void td_node_core_down(struct td_node_core *c);
void td_node_core_message(struct td_node_core *c, struct td_mono now,
                          const Traind__V1__CoordinatorMessage *m);
// take_failure: of FAILED, else TD_OK.
void td_node_core_event(struct td_node_core *c, struct td_mono now, struct td_node_attempt *a,
                        enum td_attempt_event event, td_status take_failure);
void td_node_core_tick(struct td_node_core *c, struct td_mono now);
bool td_node_core_next(struct td_node_core *c, struct td_node_action *out_action);

// When td_node_core_tick wants to be called; INT64_MAX: not by time.
struct td_mono td_node_core_wake(const struct td_node_core *c);
uint64_t td_node_core_incarnation(const struct td_node_core *c);
bool td_node_core_registered(const struct td_node_core *c);
uint32_t td_node_core_slots_used(const struct td_node_core *c);
uint64_t td_node_core_stale(const struct td_node_core *c); // messages dropped so far
// Iteration in order of assignment; NULL at the end.
struct td_node_attempt *td_node_core_attempt(const struct td_node_core *c, size_t i);
struct td_node_attempt *td_node_core_find(const struct td_node_core *c, const char *job,
                                          uint32_t attempt);
const char *td_node_attempt_state_name(enum td_node_attempt_state state);

#endif
