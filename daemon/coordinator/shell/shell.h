#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_SHELL_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_SHELL_H

// The shell around the core, private to the coordinator: what coordinator.c and the files of api/
// share.
//
// A handler has always the same shape: decode and check, call the core, td_shell_after (takes its
// records, actions to the gate), build the answer in an arena, td_shell_reply. The answer shows
// the state as it was when it was built and leaves when that is on disk.
//
// A turn of the loop may bring many calls and messages. Their records are gathered, and handed to
// the store at its end as one batch under one ticket; so is what the core does by time, first of
// all the pass of the queue that the turn made due. Records that nobody waits for go with the next
// ones, or after a tenth of a second: lines of the log, changes of a job that nobody watches,
// acknowledgements of events and metrics. These go with the next message to their node, too.

#include "daemon/coordinator/coordinator.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/shell/disk.h"
#include "daemon/coordinator/shell/gate.h"
#include "daemon/coordinator/shell/store.h"
#include "daemon/coordinator/core/view.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/server.h"

enum {
    TD_SHELL_ARENA_BYTES = 24 << 20,
    TD_SHELL_PATH_MAX = 4608,
    TD_SHELL_NODE_CALLS = TD_CORE_MAX_NODES + 64, // of each kind that only nodes make
};

// How long what nobody waits for may wait: for a commit, and for another message.
#define TD_SHELL_GATHER_NS (100 * TD_NS_PER_MS)

struct td_watchers;
struct td_logs;
struct td_sessions;
struct td_planners;
struct td_readers;

struct td_coordinator {
    uint32_t magic;
    struct td_loop *loop;
    char *state_dir, *token, *version, *role;
    struct td_core *core;
    struct td_store *store;
    struct td_gate *gate;
    struct td_disk *disk;
    struct td_checker *checker;
    struct td_rpc_server *server;
    struct td_loop_turn *turn;         // ends with a hand-over to the store
    struct td_loop_timer *timer;       // td_core_wake
    struct td_mono armed;              // when it fires
    struct td_loop_timer *drain_timer; // the drain's deadline
    struct td_watchers *watchers;
    struct td_logs *logs;
    struct td_readers *readers;
    struct td_sessions *sessions;
    struct td_planners *planners;
    struct td_record *records, **records_tail; // gathered, under the ticket; NULL: none
    struct td_mono records_due;                // when they are handed over at the latest
    uint64_t ticket;
    uint64_t event; // number of the newest durable event
    struct td_mono started;
    uint32_t rejected_calls; // wrong credentials
    bool failing;            // health says so
    char *damages[2];        // that checks found, one a database; health says so
    size_t n_damages;
    char why[TD_STORE_WHY]; // the disk refuses; "": it does not
    bool draining, ending;
    bool closing; // destroy has begun: what still comes is stored, nothing new is begun
    void (*on_drained)(void *arg);
    void *on_drained_arg;
};
#define td_coordinator_magic 0x54444352u // "TDCR"

struct td_now td_shell_now(void);
// ---- actions.c ----------------------------------------------------------------------------------
// Carries it out once the gate lets it pass.
void td_shell_act(struct td_coordinator *c, struct td_action *take_action);

// Takes what the core answered to the last input.
void td_shell_after(struct td_coordinator *c);

// ---- answers ------------------------------------------------------------------------------------
TD_MUST_USE td_status td_shell_arena(struct td_arena **out_arena);
// message lives in the arena (NULL: it was full). Leaves through the gate; call may be over by
// then. While the disk refuses it leaves at once, and its field `unsaved`, if it has one, says why.
void td_shell_reply(struct td_coordinator *c, struct td_rpc_call *call, struct td_arena *take_arena,
                    const ProtobufCMessage *message);
// The answer to a call that changed something: while the disk refuses it is UNAVAILABLE
// DISK_FAILING.
void td_shell_reply_changed(struct td_coordinator *c, struct td_rpc_call *call,
                            struct td_arena *take_arena, const ProtobufCMessage *message);
// An answer to a node, which waits for the disk however long that takes.
void td_shell_reply_held(struct td_coordinator *c, struct td_rpc_call *call,
                         struct td_arena *take_arena, const ProtobufCMessage *message);
// Before a call changes anything: UNAVAILABLE DISK_FAILING while state.db cannot be written.
TD_MUST_USE td_status td_shell_writable(const struct td_coordinator *c);
void td_shell_fail(struct td_coordinator *c, struct td_rpc_call *call, td_status take_status);

// INVALID_ARGUMENT FIELD_INVALID.
TD_MUST_USE td_status td_shell_bad_field(const char *field, const char *fmt, ...) TD_PRINTF(2, 3);
// "<state>/checkpoints/<job>/<path>[/<file>]"
void td_shell_checkpoint_path(const struct td_coordinator *c, const char *job, const char *path,
                              const char *file, char out[TD_SHELL_PATH_MAX]);

// ---- api/: each adds its service to the server --------------------------------------------------
TD_MUST_USE td_status td_api_jobs_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_nodes_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_shards_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_metrics_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_logs_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_checkpoints_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_admin_add(struct td_coordinator *c);

// ---- api/shards.c -------------------------------------------------------------------------------
// Ends uploads into a checkpoint, or (path NULL) into all of an attempt. True: there was one, and
// the disk may be at it still.
bool td_uploads_end(const char *job, uint32_t attempt, const char *path);

// ---- api/jobs.c ---------------------------------------------------------------------------------
TD_MUST_USE td_status td_planners_create(struct td_planners **out_planners);
void td_planners_destroy(struct td_planners *p);
void td_planners_on_plan(struct td_coordinator *c, uint64_t token, const char *json,
                         td_status take_failure);

// ---- api/logs.c ---------------------------------------------------------------------------------
TD_MUST_USE td_status td_readers_create(struct td_coordinator *c, struct td_readers **out_readers);
void td_readers_destroy(struct td_readers *r);
// Bytes came, or the job moved: who follows it looks again.
void td_readers_wake(struct td_coordinator *c, const char *job);
void td_readers_end_all(struct td_coordinator *c);
// Somebody reads logs of the job.
bool td_readers_have(const struct td_coordinator *c, const char *job);

// ---- api/nodes.c --------------------------------------------------------------------------------
TD_MUST_USE td_status td_sessions_create(struct td_sessions **out_sessions);
void td_sessions_destroy(struct td_sessions *s);
// by: when it must go at the latest. It goes with what else is for that node.
void td_sessions_send(struct td_coordinator *c, uint64_t session,
                      const Traind__V1__CoordinatorMessage *m, struct td_mono by);
// Sends what must go by now.
void td_sessions_flush(struct td_coordinator *c, struct td_mono now);
// When there is something to flush; INT64_MAX: nothing waits.
struct td_mono td_sessions_wake(const struct td_coordinator *c);
void td_sessions_close(struct td_coordinator *c, uint64_t session, const char *why);
void td_sessions_end_all(struct td_coordinator *c);

#endif
