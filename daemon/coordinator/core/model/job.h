#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOB_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOB_H

// A job as the coordinator knows it: its states as one table, its attempts, its durable record.
//
// A job has at most one live attempt: the last of its list, until that is ended or fenced. The
// state changes only through td_job_next, the table (state, event) -> state; what an event is, is
// decided elsewhere (attempt.c from the event lines, core_verbs.c from people's verbs, queue.c from
// placement). Records are JSON texts, one per job and one per attempt. They are written whole, and
// read back by td_job_decode and td_attempt_decode. Every unknown key is ignored, so that a newer
// build's records can be read.
//
// Owned by the core (the loop's thread). Pure: no clock, no file.

#include "daemon/coordinator/core/model/part.h"
#include "daemon/coordinator/core/model/spec_text.h"
#include "lib/attempt/metric_names.h"
#include "lib/attempt/outcome.h"
#include "lib/base/arena.h"
#include "lib/base/floats/exact_sum.h"
#include "lib/base/json.h"
#include "lib/spec/spec.h"

enum td_job_state {
    TD_JOB_QUEUED, // numbers: traind.v1.Job.State minus 1
    TD_JOB_STARTING,
    TD_JOB_RUNNING,
    TD_JOB_RECOVERING,
    TD_JOB_PAUSING,
    TD_JOB_PAUSED,
    TD_JOB_STOPPING,
    TD_JOB_CANCELLED,
    TD_JOB_SUCCEEDED,
    TD_JOB_FAILED,
    TD_JOB_EXPIRED,
    TD_JOB_STATE_COUNT,
};

enum td_job_event {
    TD_JOB_ON_ASSIGN,  // an attempt was placed on a node
    TD_JOB_ON_RUN,     // its ranks are ready
    TD_JOB_ON_DONE,    // the attempt ended, all work done
    TD_JOB_ON_STOPPED, // the attempt ended by an agreed stop, or there was none to stop
    TD_JOB_ON_RETRY,   // the attempt failed and is worth another
    TD_JOB_ON_FAIL,    // it failed for good, or no plan can be made
    TD_JOB_ON_PAUSE,
    TD_JOB_ON_RESUME,
    TD_JOB_ON_CANCEL,
    TD_JOB_ON_EXPIRE, // waited too long without an attempt
    TD_JOB_EVENT_COUNT,
};

// What the table says. REFUSED: the event does not fit the state (a verb: FAILED_PRECONDITION).
enum td_job_step { TD_JOB_REFUSED, TD_JOB_KEPT, TD_JOB_MOVED };
enum td_job_step td_job_next(enum td_job_state from, enum td_job_event event,
                             enum td_job_state *out_to);
const char *td_job_state_name(enum td_job_state s); // "QUEUED"
const char *td_job_event_name(enum td_job_event e); // "PAUSE"
bool td_job_state_ended(enum td_job_state s);       // terminal
bool td_job_state_waits(enum td_job_state s);       // QUEUED or RECOVERING: wants a place

// ---- parts --------------------------------------------------------------------------------------
enum {
    TD_JOB_ID_MAX = 16, // "j-<12 hex>" and a NUL
    TD_JOB_MAX_NOTES = 32,
    TD_JOB_NOTE_BYTES = 1024, // of one, with its NUL; a longer one ends in "..."
    TD_JOB_MAX_METRICS = 64,
    TD_JOB_MAX_EXCLUDED = 8,
    TD_JOB_MAX_ATTEMPTS = 1000,
};

// Why a job does not run. Of one that waits for a place td_queue_reason knows it.
struct td_reason {
    char code[32];  // "": none
    char text[480]; // one that is longer ends in "..."
    uint32_t needed_slots;
    uint32_t free_slots;
    uint32_t needed_devices, free_devices, all_devices;
    uint32_t position; // from 1
};
void td_reason_set(struct td_reason *r, const char *code, const char *fmt, ...) TD_PRINTF(3, 4);

struct td_failure {
    bool set;
    bool secondary; // a consequence of another rank's failure: a cause replaces it
    enum td_class cls;
    enum td_code code;
    uint32_t attempt;
    int32_t rank; // -1: none
    uint32_t step;
    char *message;
    char *node;
    char *last_words;
};
void td_failure_finish(struct td_failure *f);
// Copies the texts. An earlier failure is replaced.
TD_MUST_USE td_status td_failure_set(struct td_failure *f, const struct td_failure *from);

// The last value of a metric, merged over the ranks that reported that step.
struct td_metric_last {
    char name[TD_METRIC_NAME_BYTES];
    uint32_t attempt;
    uint32_t step;
    uint32_t n_ranks;
    struct td_exact_mean mean; // of their sums and counts
    bool shown_set;            // the newest value that all ranks reported
    double shown;
};

// A boundary at which all ranks save, from 1, and the length of a rank's metrics when it passed.
struct td_boundary {
    uint32_t number; // 0: none
    uint64_t metrics;
};

// What was committed of one rank's segments, and how long they are (known at the end).
struct td_rank_cursor {
    uint64_t metrics, metrics_done; // taken; and committed
    uint64_t out, err;
    uint64_t metrics_end, out_end, err_end;
    uint64_t dropped_bytes, dropped_points;
    struct td_metric_names names; // that its points so far defined; gone once all are committed
    uint32_t kept;                // points up to that boundary are committed (boundaries.h)
    struct td_boundary passed[2]; // later ones: that is waited for, and the newest
    bool ready;                   // its plan is read
    bool final;                   // the ends above are final
};

enum td_stop_cause {
    TD_STOP_CAUSE_NONE,
    TD_STOP_CAUSE_PAUSE,
    TD_STOP_CAUSE_CANCEL,
    TD_STOP_CAUSE_DAEMON,  // the daemon was asked to end
    TD_STOP_CAUSE_UPGRADE, // launcher frames of another major
    TD_STOP_CAUSE_DRAIN,   // a node of it is drained
    TD_STOP_CAUSE_COUNT,
};

struct td_attempt {
    uint32_t number; // from 1
    uint64_t epoch;  // fencing number
    enum td_attempt_state state;
    enum td_stop_cause stop; // what it was asked to stop for
    bool stream;             // its checkpoints come to the coordinator
    enum td_outcome outcome; // what its parts came to, once all are over
    bool closing;            // all parts are over; the last metrics are on their way
    struct td_mono close_at; // and this is how long they are waited for
    uint32_t n_parts;
    struct td_attempt_part *parts; // n_parts, in the order of their ranks
    uint32_t n_ranks;
    uint32_t step; // the last one that its events name: a sample of an earlier one is stale
    // By its samples: the step when the first one had a step or their number, the last step that
    // was another one, and when that was. Not durable.
    uint32_t pace_step, pace_last;
    struct td_mono pace_since, pace_at; // 0: none has
    struct td_failure failure;
    struct td_rank_cursor *ranks; // n_ranks
    bool touched;                 // saved at the end of the input being handled
};

struct td_job_progress {
    uint32_t epoch, step, total_steps;
    float loss;
    double samples_per_s;
    uint32_t phase; // enum td_rank_phase
};

// What the coordinator itself reads of a spec. The tree of one takes 28 KiB; this is a few hundred
// bytes. Strings are never NULL; "": absent.
struct td_job_knobs {
    char *texts; // that the strings are in; NULL: not read yet
    struct td_spec_checkpoint checkpoint;
    struct td_spec_restart restart;
    struct td_spec_resources resources;
    const char *cpu_level, *precision, *ckpt_path, *init_from;
    const char *accelerator; // its key (host_devices.h)
    const char *node_labels; // that each of its nodes has (lib/job/labels.h)
    int64_t batch_size;      // per rank
    uint32_t num_nodes;      // that it spans, at least 1
    uint32_t stages;         // bits TD_STAGE_*
    enum td_job_kind kind;
    bool own_directory; // a program that starts in the job's directory, as no workdir is given
};

struct td_job {
    char id[TD_JOB_ID_MAX];
    char *name;
    uint64_t seq;       // order of creation
    uint64_t queue_seq; // order of waiting
    uint64_t turn;      // its key among those that wait (queue.c); 0: it is not one of them
    uint64_t version;   // counts durable changes: the etag
    enum td_job_state state;
    struct td_reason reason;
    uint32_t n_ranks;
    uint32_t restarts;
    uint32_t disk_restarts;
    uint32_t free_restarts; // by what others did to it; not counted among restarts
    struct td_failure failure;
    int64_t create_ns, start_ns, end_ns,
        wait_ns; // real time; 0: not yet; wait: since when it waits
    struct td_job_progress progress;
    char *notes[TD_JOB_MAX_NOTES];
    uint32_t n_notes;
    char excluded[TD_JOB_MAX_EXCLUDED][64]; // nodes that lost a launcher of it
    uint32_t n_excluded;
    struct td_metric_last *metrics; // (n_metrics)
    uint32_t n_metrics;             // at most TD_JOB_MAX_METRICS
    char *labels;                   // of its spec (lib/job/labels.h); NULL: none
    char *owner;       // name of the token that created it; NULL: nobody's, or of an older build
    char *owner_token; // its id
    bool trusted;      // that is the owner's, or an admin's; false of an older build
    char *cancel_why;  // what the person who cancelled it said; NULL: nothing
    char *frozen_json; // choices of the first start; NULL: none
    char *weights;     // that validate, test and predict used; NULL: none of them has begun
    struct td_spec_text spec; // canonical
    char spec_digest[33];
    // Of a spec that names a checkpoint of another job (source.h); NULL: of others, or not yet.
    char *source;       // the checkpoint that it was settled on: "<job>/a1/step-5"
    char *source_place; // its directory
    char *plan_spec;    // spec with that in place of the name; not durable
    char plan_digest[33];
    bool source_firm;  // settled when the job had a place; not durable
    bool source_waits; // it was removed, and the next one is on its way; not durable
    struct td_job_knobs knobs;
    struct td_mono waits_since; // by the same clock as plans; not durable
    struct td_mono retry_at;    // RECOVERING: not before; not durable, a restart retries at once
    struct td_attempt **attempts;
    uint32_t n_attempts;
    // committed or on their way, oldest first
    struct td_checkpoint **checkpoints;
    uint32_t n_checkpoints;
    bool unlisted; // it has more of them than the catalog holds: the files of the oldest stay
    struct td_mono hold_until; // not placed before, while a checkpoint of it is on its way
    // By the input being handled:
    bool touched; // a new version of it is saved and reported
    bool listed;  // among those that td_core_leave looks at: it, or an attempt of it, is saved
};
struct td_checkpoint;

// ---- job_knobs.c --------------------------------------------------------------------------------
void td_job_knobs_init(struct td_job_knobs *k);
void td_job_knobs_finish(struct td_job_knobs *k);
TD_MUST_USE td_status td_job_knobs_set(struct td_job_knobs *k, const struct td_spec *spec);

// ---- a job --------------------------------------------------------------------------------------
TD_MUST_USE td_status td_job_create(const char *id, struct td_job **out_job);
void td_job_destroy(struct td_job *j);
TD_DEFINE_AUTO(td_job, td_job_destroy);
// Sets spec, its digest, name, n_ranks and knobs. tree: what spec_json was printed from; NULL:
// it is parsed.
TD_MUST_USE td_status td_job_set_spec(struct td_job *j, const char *spec_json,
                                      const struct td_json *tree);
// Reads the knobs from spec, unless they were read before.
TD_MUST_USE td_status td_job_read_knobs(struct td_job *j);
// The same of one that has ended, whose knobs are read when they are needed. False: its spec was
// lost, or there is no memory.
bool td_job_has_knobs(struct td_job *j);
// What its plans are made of, and its digest: the spec, with a place where it names a checkpoint.
const char *td_job_plan_spec(const struct td_job *j);
const char *td_job_plan_digest(const struct td_job *j);
// Digest of such a spec. One that is not trusted has another: what its paths may name is judged
// when it is planned, so it takes no plan of one that is.
void td_plan_digest(const char *plan_spec, bool trusted, char out[33]);
void td_plan_digest_mark(bool trusted, char digest[33]); // of one that an older build kept
bool td_plan_digest_is_trusted(const char *digest);
// It was settled on the checkpoint `path` of that job.
bool td_job_source_is(const struct td_job *j, const struct td_job *of, const char *path);
uint32_t td_job_node_ranks(const struct td_job *j); // ranks that it has on each of its nodes
// The caller says td_core_touch. Adds a note once; when the list is full the oldest goes.
void td_job_note(struct td_job *j, const char *fmt, ...) TD_PRINTF(2, 3);
void td_job_exclude(struct td_job *j, const char *node);
bool td_job_excludes(const struct td_job *j, const char *node);

// n_parts has to divide n_ranks: each node has as many ranks. Their nodes are the caller's to set.
TD_MUST_USE td_status td_attempt_create(uint32_t number, uint32_t n_ranks, uint32_t n_parts,
                                        struct td_attempt **out_attempt);
void td_attempt_destroy(struct td_attempt *a);
TD_DEFINE_AUTO(td_attempt, td_attempt_destroy);
TD_MUST_USE td_status td_job_add_attempt(struct td_job *j, struct td_attempt *take_attempt);
struct td_attempt *td_job_attempt(const struct td_job *j, uint32_t number); // NULL: none
// The attempt that may be alive, or NULL.
struct td_attempt *td_job_live(const struct td_job *j);
bool td_attempt_live(const struct td_attempt *a);

// The part on that node; NULL: none is.
struct td_attempt_part *td_attempt_part_on(const struct td_attempt *a, const char *node);
// The part that has a rank of the attempt.
struct td_attempt_part *td_attempt_part_of(const struct td_attempt *a, uint32_t rank);
bool td_attempt_forgotten(const struct td_attempt *a); // everything of all parts is here
// Nothing more comes of it: each part is given up, or everything of it is here.
bool td_attempt_over(const struct td_attempt *a);
uint32_t td_attempt_n_live(const struct td_attempt *a); // parts
// A part fails, ended badly, or was given up, while some live: these are to end at once.
bool td_attempt_aborts(const struct td_attempt *a);
uint32_t td_attempt_slots(const struct td_attempt *a);
uint32_t td_attempt_n_devices(const struct td_attempt *a); // of all its parts

// ---- metrics ------------------------------------------------------------------------------------
// Merges one point of one rank into the last values. False: the table is
// full, or there is no memory.
bool td_job_take_metric(struct td_job *j, uint32_t attempt, uint32_t n_ranks,
                        const struct td_metric_point *p);
// One that was kept; its mean is taken. Nothing where the table is full.
void td_job_take_last(struct td_job *j, struct td_metric_last *m);
// Where no more points of a rank come, its names go.
void td_rank_cursor_look(struct td_rank_cursor *c);

// ---- records ------------------------------------------------------------------------------------
TD_MUST_USE td_status td_job_encode(const struct td_job *j, struct td_buf *out);
TD_MUST_USE td_status td_job_decode(struct td_job *j, const struct td_json *v);
TD_MUST_USE td_status td_attempt_encode(const struct td_attempt *a, struct td_buf *out);
TD_MUST_USE td_status td_attempt_decode(const struct td_json *v, struct td_attempt **out_attempt);

#endif
