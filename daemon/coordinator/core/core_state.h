#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CORE_STATE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CORE_STATE_H

// What the files of the core share: its state, and the calls between them. Private to core*.c,
// attempt.c, queue*.c, fits.c, place.c, job_list.c, nodes.c, plans.c, catalog.c, view.c and out.c;
// nobody else includes it.
//
// Memory: an event is handled whole or the process ends. Small allocations inside the core go
// through td_core_must: when memory is gone in mid-event the state in memory cannot be trusted any
// more, while the one on disk can, so the daemon stops and its supervisor starts it again. Nothing
// acknowledged is lost by that, and ranks do not notice.

#include "daemon/coordinator/core/catalog.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/reconcile.h"
#include "lib/base/map.h"
#include "lib/spec/plan.h"

struct td_host {
    char id[64];
    char boot_id[40];
    char name[72];
    char version[40];
    char accelerators[512];  // comma-separated, of 16 with names of 31 bytes
    char cpu_level[24];      // of the machine; "": its build does not report it
    char cpu_level_held[24]; // the highest of its ranks
    char plugins[33];        // digest of its plugins' files; "": its build does not report it
    uint32_t cores, slots;
    uint64_t memory_bytes;
    uint32_t launcher_major;
    bool embedded;
    bool lost;            // its lease is gone
    bool settling;        // unwanted attempts are being stopped: nothing is placed here
    uint64_t session;     // 0: none
    char key[33];         // of that session, or of its last one; "": none since this start
    bool keyed;           // it shows the key with bulk
    struct td_mono heard; // last message
    int64_t seen_ns;      // real time of its last registration or goodbye: who is forgotten first
    bool holds;           // for a moment: something would be missed
    uint32_t used;        // slots of attempts that may be alive; by td_nodes_count
    uint64_t reserved;    // turn of the waiting job that it is kept free for; 0: none
    // reconcile.h
    bool reconciles;                // it has the answer to its registration
    uint32_t reconciling;           // messages on their way
    uint64_t reconcile_from;        // first request of this session
    uint64_t reconcile_before;      // jobs from this seq on were looked at; 0: all were
    uint64_t due[TD_RECONCILE_DUE]; // seqs of those that came to be due since, in their order
    uint32_t n_due;
    uint32_t n_removals; // rows of deleted jobs
};

struct td_session {
    uint64_t id;
    bool embedded;
    struct td_host *node; // NULL until registered
};

// "<digest of the spec>/<CPU level of the node>/<digest of its plugins>"
enum { TD_PLAN_KEY_BYTES = 96 };

struct td_plan_entry { // cached result
    char key[TD_PLAN_KEY_BYTES];
    uint64_t used; // grows with each use: the smallest leaves a full cache
    char *json;
    uint64_t memory_bytes; // of one rank, with its share of the group's mapping
    uint64_t beside_bytes; // that mapping, of an older node, which did not count it
    uint64_t shared_bytes; // of the group's mapping
    uint32_t total_steps;
    char *slow;          // which nodes run on plain loops; NULL: none
    bool recomputes_all; // there is nothing left to keep less of
    bool guesses;        // its step's time is not from rates of that node
    char precision[16];  // that the job trains in; "": an older node did not say
    char other[16];      // that it was compared with; "": none
    double step_seconds, other_seconds;
};

struct td_plan_ask { // on its way; one per spec, level and graph
    char digest[33];
    char dump[32];    // pass whose graph is wanted; "": sizes only
    char level[24];   // held by the nodes it is for; "": any
    char minimum[24]; // trainer.cpu_level of the spec
    char request[64];
    char node[64]; // "": not asked yet
    char last[64]; // asked last
    char *spec_json;
    uint32_t tries;
    struct td_mono deadline;
};

struct td_plan_waiter {
    uint64_t token;
    char digest[33], dump[32];
    uint32_t n_ranks;
};

enum { TD_FORGET_AT_ONCE = 64 };
struct td_leaving { // a job that is forgotten, until what it owned is gone
    char *body;
    bool asked; // the shell is at it
    struct td_mono again_at;
};

struct td_request {
    char job[TD_JOB_ID_MAX];
    char digest[33];
    int64_t time_ns;
};

struct td_core {
    struct td_core_options options;
    char *checkpoint_dir;
    struct td_now now; // of the event being handled
    struct td_mono wake;
    struct td_mono house_at; // when what takes days is looked at
    bool started;
    struct td_mono started_at;
    bool draining, stopping; // stopping: the embedded node's attempts are being stopped
    uint64_t next_seq, next_epoch, next_session, next_plan, next_use;
    uint64_t next_reconcile;

    struct td_map *jobs;   // id -> td_job, in order of creation
    struct td_job **order; // all jobs by seq
    uint32_t n_jobs, cap_jobs;
    struct td_job **active; // those that have not ended, by seq
    uint32_t n_active, cap_active;
    struct td_job **live; // every job whose attempt may be alive; td_nodes_count drops the others
    uint32_t n_live, cap_live;
    struct td_job **waiting; // those that want a place, by turn
    uint32_t n_waiting, cap_waiting;
    struct td_job **ended; // by the time of their end
    uint32_t n_ended, cap_ended;
    struct td_job **pinning; // that name a checkpoint to begin from; some have ended
    uint32_t n_pinning, cap_pinning;
    struct td_map *leaving; // job id -> td_leaving
    uint32_t n_forgetting;  // of them, that the shell is at
    struct td_mono retention_at;
    uint32_t n_looked;         // of waiting, since the last pass from the head
    uint32_t free_slots;       // that nobody holds or keeps, by that pass
    struct td_mono queue_wake; // a job that was looked at waits for this time
    struct td_map *nodes;      // id -> td_host
    struct td_session *sessions[TD_CORE_MAX_NODES + 64];
    uint32_t n_sessions;

    struct td_map *plans; // digest -> td_plan_entry
    struct td_plan_ask *asks[TD_CORE_MAX_PLAN_WAITERS];
    uint32_t n_asks;
    struct td_plan_waiter waiters[TD_CORE_MAX_PLAN_WAITERS];
    uint32_t n_waiters;
    struct td_map *requests; // request id -> td_request
    struct td_map *shards;   // "<job>/<path>/<file>" -> td_checkpoint_file
    struct td_map *removals; // "<job>[/<node>]" -> td_removal

    uint32_t counters[TD_COUNT_COUNT];
    bool queue_dirty;       // the next pass begins at the head
    struct td_job **listed; // jobs with something to save
    uint32_t n_listed, cap_listed;
    struct td_core_out out;
    struct td_record **records_tail;
    struct td_points **points_tail;
    struct td_action **actions_tail;
};

// ---- out.c --------------------------------------------------------------------------------------
void *td_core_must(void *p);
char *td_core_dup(const char *s);
void td_core_record(struct td_core *core, enum td_record_kind kind, const char *key,
                    const char *body);
void td_core_points(struct td_core *core, struct td_points *take_points);
struct td_action *td_core_act(struct td_core *core, enum td_action_kind kind);
void td_core_close_session(struct td_core *core, uint64_t session, const char *why);
// A line for the daemon's log, at most 640 bytes.
void td_core_log(struct td_core *core, const char *fmt, ...) TD_PRINTF(2, 3);
// Deep-copies m. Does nothing without a session.
void td_core_send(struct td_core *core, const struct td_host *node,
                  Traind__V1__CoordinatorMessage *m);
void td_core_meta(struct td_core *core, const char *key, uint64_t value);
// Its record is made at the end of the input, once, whatever else happens to it until then.
void td_core_save_attempt(struct td_core *core, struct td_job *j, struct td_attempt *a);
void td_core_attempt_id(const struct td_job *j, const struct td_attempt *a,
                        Traind__V1__AttemptId *out_id);

// ---- core.c -------------------------------------------------------------------------------------
void td_core_touch(struct td_core *core, struct td_job *j);
void td_core_progress(struct td_core *core, const struct td_job *j);
void td_core_wake_at(struct td_core *core, struct td_mono t);
struct td_job *td_core_job(const struct td_core *core, const char *id); // NULL: none
// Takes its place by age and, if it has not ended, among the active. RESOURCE_EXHAUSTED LIMIT_JOBS.
TD_MUST_USE td_status td_core_add_job(struct td_core *core, struct td_job *take_job);
// The table's answer, carried out. REFUSED changes nothing.
enum td_job_step td_core_apply(struct td_core *core, struct td_job *j, enum td_job_event event);
// For jobs that end without an attempt's failure.
void td_core_fail_job(struct td_core *core, struct td_job *j, enum td_class cls, enum td_code code,
                      const char *message);

// The frame of every input.
void td_core_enter(struct td_core *core, struct td_now now);
void td_core_leave(struct td_core *core);

// ---- removals.c ---------------------------------------------------------------------------------
struct td_removal;
// RESOURCE_EXHAUSTED LIMIT_REMOVALS: no more can be remembered.
TD_MUST_USE td_status td_removals_check(const struct td_core *core, const struct td_job *j);
void td_removals_plan(struct td_core *core, struct td_job *j, bool keep_checkpoints);
// Its nodes get it; the job is in no list any more.
void td_removals_pump(struct td_core *core, const char *job);
void td_core_drop_removal(struct td_core *core, struct td_removal *r);
TD_MUST_USE td_status td_core_load_removal(struct td_core *core, const char *key,
                                           const struct td_json *v);

// ---- core_verbs.c -------------------------------------------------------------------------------
void td_core_forget_requests(struct td_core *core); // those of a day ago

// ---- attempt.c ----------------------------------------------------------------------------------
void td_attempt_on_segment(struct td_core *core, struct td_host *node,
                           const Traind__V1__Segment *s);
void td_attempt_on_progress(struct td_core *core, struct td_host *node,
                            const Traind__V1__AttemptProgress *p);
void td_attempt_on_log_state(struct td_core *core, struct td_host *node,
                             const Traind__V1__LogState *m);
void td_attempt_on_refused(struct td_core *core, struct td_host *node,
                           const Traind__V1__AttemptRefused *m);
// Gives the attempt up: fenced, its job retried (counted or not) or ended.
void td_attempt_lost(struct td_core *core, struct td_job *j, struct td_attempt *a, bool counted,
                     const char *why);
// Asks its node to stop it; again after each registration.
void td_attempt_stop(struct td_core *core, struct td_job *j, struct td_attempt *a,
                     enum td_stop_cause cause);
void td_attempt_send_stop(struct td_core *core, struct td_job *j, struct td_attempt *a);
void td_attempt_tick(struct td_core *core, struct td_job *j);
// The reason of its job, once its node is not silent: none, or the rank that is silent.
void td_attempt_node_speaks(struct td_job *j, const struct td_attempt *a);
// Tells the node when everything of an ended attempt is here.
void td_attempt_maybe_forget(struct td_core *core, struct td_job *j, struct td_attempt *a);
// The node may drop what it has of an ended attempt.
void td_attempt_send_forget(struct td_core *core, const struct td_job *j,
                            const struct td_attempt *a);
void td_attempt_ack(struct td_core *core, const struct td_host *node, const struct td_job *j,
                    const struct td_attempt *a, Traind__V1__Segment__Kind kind, uint32_t rank,
                    uint64_t offset);

// ---- nodes.c ------------------------------------------------------------------------------------
struct td_host *td_nodes_find(const struct td_core *core, const char *id);
bool td_host_ready(const struct td_host *n);
// Its machine has the level, as far as it is known; "auto" has everyone.
bool td_host_has_level(const struct td_host *n, const char *level);
void td_nodes_register(struct td_core *core, struct td_session *s, const Traind__V1__Register *m);
// It reports its plugins' files: if they are others, plans of the old ones are dropped.
void td_nodes_set_plugins(struct td_core *core, struct td_host *n, const char *plugins);
// Does the node that holds the attempt send this, by its session or by its key (session 0)?
bool td_nodes_holds(const struct td_core *core, const struct td_attempt *a, uint64_t session,
                    const char *key);
void td_nodes_heartbeat(struct td_core *core, struct td_host *n, const Traind__V1__Heartbeat *m);
void td_nodes_session_gone(struct td_core *core, struct td_session *s);
void td_nodes_tick(struct td_core *core);
// Before an input is handled: if the core itself was not run since `before` for half a lease or
// more, every node gets one full grace from now.
void td_nodes_after_stall(struct td_core *core, struct td_mono before);
// Sets node->used from the attempts that may be alive.
void td_nodes_count(struct td_core *core);
TD_MUST_USE td_status td_nodes_load(struct td_core *core, const char *key, const char *body);

// ---- job_list.c ---------------------------------------------------------------------------------
// Lists of borrowed jobs; they grow. By key: smallest first.
typedef uint64_t td_job_key_fn(const struct td_job *j);
void td_jobs_push(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j);
uint32_t td_jobs_insert(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j,
                        td_job_key_fn *key); // after its equals; where it is now
// The job must be in it.
uint32_t td_jobs_find(struct td_job *const *list, uint32_t n, const struct td_job *j,
                      td_job_key_fn *key);
void td_jobs_remove(struct td_job **list, uint32_t *n, uint32_t at);
uint64_t td_job_key_seq(const struct td_job *j);

// ---- nodes_room.c -------------------------------------------------------------------------------
// There is room for one more node, or the one that was seen longest ago and holds nothing is
// forgotten. RESOURCE_EXHAUSTED LIMIT_NODES.
TD_MUST_USE td_status td_nodes_make_room(struct td_core *core);

// ---- queue.c ------------------------------------------------------------------------------------
void td_queue_pass(struct td_core *core);
// A pass has something to do.
bool td_queue_due(const struct td_core *core);
void td_queue_tick(struct td_core *core);
// Its state or its attempt changed: it takes its place among those that wait, or leaves them.
void td_queue_place(struct td_core *core, struct td_job *j);
uint32_t td_queue_position(const struct td_core *core, const struct td_job *j); // 0: it waits not
// Near enough to the head that its plan is asked for before it can start.
bool td_queue_ahead(const struct td_core *core, const struct td_job *j);
// It could start on n as far as plans go.
bool td_queue_planned(const struct td_core *core, const struct td_job *j, const struct td_host *n);
// What was planned for the CPU level of n (NULL: none), else for another's.
const struct td_plan_entry *td_queue_plan(const struct td_core *core, const struct td_job *j,
                                          const struct td_host *n);

// ---- forget.c -----------------------------------------------------------------------------------
// OK: an ended job that no other one begins from. FAILED_PRECONDITION JOB_NOT_ENDED or
// JOB_RESUMED_FROM.
TD_MUST_USE td_status td_forget_check(const struct td_core *core, const struct td_job *j);
// Ends the job's life: its rows and what it owns go. It was checked, and is not of this event.
void td_forget_job(struct td_core *core, struct td_job *take_job, bool keep_checkpoints);
void td_forget_ended(struct td_core *core, struct td_job *j);
void td_forget_note_pins(struct td_core *core, struct td_job *j); // its spec was read
void td_forget_tick(struct td_core *core);
TD_MUST_USE td_status td_forget_load(struct td_core *core, const char *key, const char *body);
void td_forget_destroy(void *p); // a td_leaving

// ---- retention.c --------------------------------------------------------------------------------
void td_retention_ended(struct td_core *core, struct td_job *j); // it has ended, or is loaded so
void td_retention_start(struct td_core *core);
void td_retention_due(struct td_core *core); // the next tick looks
void td_retention_tick(struct td_core *core);

// ---- fits.c -------------------------------------------------------------------------------------
// FAILED_PRECONDITION UNSATISFIABLE if no known node could ever hold the job.
TD_MUST_USE td_status td_fits_slots(const struct td_core *core, uint32_t n_ranks,
                                    const struct td_spec_resources *r);
// The same of the memory that a plan found; p NULL: OK, nothing is known.
TD_MUST_USE td_status td_fits_memory(const struct td_core *core, uint32_t n_ranks,
                                     const struct td_plan_entry *p);
// That its ranks need on n, together.
uint32_t td_fits_slots_of(const struct td_spec_resources *r, uint32_t n_ranks,
                          const struct td_host *n);

// ---- plans.c ------------------------------------------------------------------------------------
void td_plan_entry_destroy(struct td_plan_entry *e);
// Of a node with this one's CPU level and plugins. NULL: of any.
const struct td_plan_entry *td_plans_find(const struct td_core *core, const char *digest,
                                          const struct td_host *n);
// It was needed just now: the last to leave the cache.
void td_plans_use(struct td_core *core, const char *digest, const struct td_host *n);
// A node has other plugins now: what no node's plugins gave is dropped.
void td_plans_drop_stale(struct td_core *core);
// Sees to it that a node is asked, one that holds the level if there is; "": any. Of a spec that
// asks for a level itself, one that has it. TD_RESOURCE_EXHAUSTED: too many at once.
TD_MUST_USE td_status td_plans_want(struct td_core *core, const char *digest, const char *level,
                                    const char *dump, const char *spec_json);
void td_plans_on_result(struct td_core *core, struct td_host *node,
                        const Traind__V1__PlanResult *m);
void td_plans_node_gone(struct td_core *core, const char *node);
// Asks what can be asked, gives up what took too long.
void td_plans_tick(struct td_core *core);
TD_MUST_USE td_status td_plans_load(struct td_core *core, const char *key, const char *body);
// Is the job's trainer.precision auto? What its plan chose then; NULL: it is not, or e is NULL. And
// a note of the job that says it.
bool td_plans_settles(const struct td_job *j);
const char *td_plans_precision(const struct td_plan_entry *e, const struct td_job *j);
void td_plans_note(const struct td_plan_entry *e, struct td_job *j);
// The plan of an attempt (or, attempt 0, of a question) as text. The caller frees.
TD_MUST_USE td_status td_plans_text(const char *spec_json, const char *frozen_json,
                                    const struct td_plan_run *run, char **out_text);

#endif
