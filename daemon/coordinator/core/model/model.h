#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_MODEL_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_MODEL_H

// The state of the core, which its files share. Private to this folder: nobody else includes it.
//
// Memory: an event is handled whole or the process ends. Small allocations inside the core go
// through td_core_must. When memory is gone in mid-event the state in memory cannot be trusted any
// more, while the one on disk can. So the daemon stops and its supervisor starts it again. Nothing
// acknowledged is lost by that, and ranks do not notice.
//
// The room, in reading order:
//
//   part.h                          what one node has of an attempt
//   job.h                           a job: its states as a table, its attempts, its record
//                                   (job_record.c) and what is read of its spec (job_knobs.c)
//   checkpoint.h                    a checkpoint, its files and its state
//   specs.h                         how much specs may take (spec_text.h: one, deflated)
//   exchange.h                      what goes into the core and comes out
//   effects.h                       the lists that an input fills
//   changes.h                       what is saved
//   jobs.h job_list.h               all jobs, and those in some order
//   hosts.h host_devices.h          all nodes, and the devices of one, by accelerator
//   host_gpus.h gpu_marks.h         the GPUs of one, and what is held against them
//   plan_asks.h                     plans that were asked for and are on their way

#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/core/model/host_devices.h"
#include "daemon/coordinator/core/model/host_gpus.h"
#include "lib/base/map.h"
#include "lib/spec/plan.h"

// What operators decided about new attempts on a node.
struct td_host_cordon {
    bool on;                             // it gets none
    bool drains;                         // those that are there go elsewhere (drain.h)
    char by[64];                         // who did it: the name of a credential
    char reason[TD_CORDON_REASON_BYTES]; // in his words; ""
    int64_t time_ns;                     // real
    uint64_t epoch;                      // no attempt from this epoch on is there
    bool is_empty;                       // of a drain, and the log says so; not durable
};

enum { TD_HOST_UNFIT_BYTES = 384 };
struct td_host {
    char id[64];
    char boot_id[40];
    char name[72];
    char version[48];
    char accelerators[512];      // comma-separated, of 16 with names of 31 bytes
    char cpu_level[24];          // of the machine; "": its build does not report it
    char cpu_level_held[24];     // the highest of its ranks
    char plugins[33];            // digest of its plugins' files; "": its build does not report it
    char collective_address[46]; // of the interface for traffic between nodes; "": none
    uint32_t first_port, last_port; // for MASTER_PORT of commands; 0: its build does not say
    uint32_t cores, slots;
    uint64_t memory_bytes;
    uint32_t launcher_major;
    uint32_t ranks_language; // lib/attempt/languages.h; 0: its build does not say
    bool embedded;
    char unfit[TD_HOST_UNFIT_BYTES];   // why it gets no plan and no attempt; "": it does
    bool refused;                      // that is why it has no session either
    struct td_mono refused_at;         // last
    bool shown_only;                   // it has never registered: no row, no session
    char trouble[TD_HOST_UNFIT_BYTES]; // why nothing can start there now; "": it can
    unsigned kinds;                    // of job that it allows (lib/job/kind.h)
    char *labels;                      // that people gave it (lib/job/labels.h); NULL: none
    bool lost;                         // its lease is gone
    bool settling;    // unwanted attempts are being stopped: nothing is placed here
    uint64_t session; // 0: none
    char daemon[33];  // which start of its daemon that is of; "": its build does not say
    char robbed[33];  // the start that lost the session to that one, and may still live
    char copy[33];    // a start that took it from one that lives: another machine, with its id
    char holder[64];  // name of the node token that it registered with; "": the owner's token
    char from[64];    // address of that session, or of its last one since this start
    char key[33];     // of that session, or of its last one; "": none since this start
    bool keyed;       // it shows the key with bulk
    struct td_mono last_message;
    int64_t seen_ns;   // real time of its last registration or goodbye: who is forgotten first
    bool holds;        // for a moment: something would be missed
    uint32_t used;     // slots of attempts that may be alive; by td_nodes_count
    uint64_t reserved; // turn of the waiting job that it is kept free for; 0: none
    uint32_t kept;     // of `used`, by jobs that wait for a plan or a checkpoint
    uint64_t kept_for; // turn of the first of them; 0: none
    // reconcile.h
    bool reconciles;                // it has the answer to its registration
    uint32_t reconciling;           // messages on their way
    uint64_t reconcile_from;        // first request of this session
    uint64_t reconcile_before;      // jobs from this seq on were looked at; 0: all were
    uint64_t due[TD_RECONCILE_DUE]; // seqs of those that came to be due since, in their order
    uint32_t n_due;
    uint32_t n_removals; // rows of deleted jobs
    struct td_host_devices devices;
    struct td_host_gpus gpus;
    uint32_t values_flying; // rendezvous.h
    uint32_t stale;         // messages that its daemon has dropped, by its last heartbeat
    struct td_host_cordon cordon;
};

struct td_node_session {
    uint64_t id;
    bool embedded;
    char holder[64];      // name of its node token; "": of the owner's token, or in process
    char from[64];        // address; "": in process
    struct td_host *node; // NULL until registered
    struct td_mono opened;
    bool ends; // it did not register in time, or another took its place: nothing of it counts
};

// What is left of a job that was deleted. Key: "<job>/<node>".
struct td_removal {
    char job[TD_JOB_ID_MAX];
    char node[64];
    char *directory;     // checkpoint.dir of its spec
    uint32_t n_attempts; // that it had
    bool keep_checkpoints;
    bool own_directory; // the job's is its program's, and goes whole
    bool results;       // what its ranks left for people goes
    uint64_t request;   // the newest Reconcile about it
};

// "<digest of the spec>/<CPU level of the node>/<digest of its plugins>"
enum { TD_PLAN_KEY_BYTES = 96 };

struct td_plan_entry { // cached result
    char key[TD_PLAN_KEY_BYTES];
    uint64_t used; // grows with each use: the smallest leaves a full cache
    char *json;
    char *read; // what it was made from (fabric/configure/reads.h); NULL: the node did not say
    // Since the start of this coordinator, by which node: made, or compared with its files.
    struct td_mono asked, confirmed; // when that was asked for, and answered; 0: not yet
    char confirmed_by[64];
    uint64_t memory_bytes; // of one rank, with its share of the group's mapping
    uint64_t beside_bytes; // that mapping, of an older node, which did not count it
    uint64_t shared_bytes; // of the group's mapping
    uint64_t order_bytes;  // of memory_bytes, the order of samples
    uint32_t total_steps;
    char *slow;          // which nodes run on plain loops; NULL: none
    bool recomputes_all; // there is nothing left to keep less of
    bool guesses;        // its step's time is not from rates of that node
    char precision[16];  // that the job trains in; "": an older node did not say
    char other[16];      // that it was compared with; "": none
    double step_seconds, other_seconds;
};

enum { TD_PLAN_MAX_TRIES = 3 };
struct td_plan_ask { // on its way; one per spec, level and graph
    char digest[33];
    char dump[32];    // pass whose graph is wanted; "": sizes only
    char level[24];   // held by the nodes it is for; "": any
    char minimum[24]; // trainer.cpu_level of the spec
    char accelerator[TD_ACCEL_KEY];
    char request[64];
    char node[64];                      // "": not asked yet
    char last[64];                      // asked last
    char prefer[64];                    // where a job would run; "": nobody said
    char failed[TD_PLAN_MAX_TRIES][64]; // nodes that gave no plan
    uint32_t n_failed;
    uint32_t n_ranks; // of the spec, on each node
    char *labels;     // that it asks of its nodes (lib/job/labels.h)
    char *spec_json;
    uint32_t tries;
    struct td_mono deadline, asked;
    bool compares;     // whether a plan that is kept is still good
    bool was_stale;    // one was not
    bool later;        // asked as for a job that has run
    bool has_plugins;  // files of the user's are called
    bool maybe_unused; // somebody who waited for it is gone
    char *unread; // a node cannot read it: of those that failed none is asked again; NULL: none
    struct td_mono reader_due; // until when another one may come
    char *late; // why a planner was given up: no node is asked twice then; NULL: none was
};

struct td_plan_waiter {
    uint64_t token;
    char digest[33], dump[32];
    uint32_t n_ranks; // on each node
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

struct td_spec_share { // of an owner, of the specs that are kept
    uint32_t n_jobs;
    uint64_t bytes;
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
    struct td_map *spec_shares;            // owner -> td_spec_share; specs.h
    uint64_t spec_bytes, spec_bytes_freed; // freed: since the heap was trimmed
    struct td_map *leaving;                // job id -> td_leaving
    uint32_t n_forgetting;                 // of them, that the shell is at
    struct td_mono retention_at;
    uint32_t n_looked;         // of waiting, since the last pass from the head
    uint32_t free_slots;       // that nobody holds or keeps, by that pass
    struct td_mono queue_wake; // a job that was looked at waits for this time
    struct td_map *nodes;      // id -> td_host
    uint32_t n_draining;       // of them
    struct td_map *offers;     // id of a node -> what it has of plugins (offers.h)
    struct td_node_session *sessions[TD_CORE_MAX_NODES + 64];
    uint32_t n_sessions;

    struct td_map *plans; // digest -> td_plan_entry
    struct td_plan_ask *asks[TD_CORE_MAX_PLAN_WAITERS];
    uint32_t n_asks;
    struct td_plan_waiter waiters[TD_CORE_MAX_PLAN_WAITERS];
    uint32_t n_waiters;
    struct td_map *requests;   // request id -> td_request
    struct td_map *shards;     // "<job>/<path>/<file>" -> td_checkpoint_file
    struct td_map *rendezvous; // "<job>/a<n>" of a live attempt -> td_rendezvous
    size_t rendezvous_bytes;   // of all their values
    struct td_map *removals;   // "<job>[/<node>]" -> td_removal

    uint32_t counters[TD_COUNT_COUNT];
    bool queue_dirty;   // the next pass begins at the head
    bool marks_changed; // of GPUs: rows of their nodes are saved when the input is over
    // td_queue_lacks_plan, for the plans, which are below the queue
    bool (*lacks_plan)(const struct td_core *core, const struct td_job *j);
    struct td_job **listed; // jobs with something to save
    uint32_t n_listed, cap_listed;
    struct td_core_effects out;
    struct td_record **records_tail;
    struct td_points **points_tail;
    struct td_action **actions_tail;
};

#endif
