#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_SHELL_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_SHELL_H

// daemon/coordinator/shell: what has files, threads and clocks. It feeds the core, and carries out
// what that answers. Private to the coordinator: what coordinator.c and the services of api/ share.
//
// In reading order; the header of its name has the story of each room:
//
//   disk/       threads that may wait for a disk, and the files there: logs, checkpoints
//   databases/  state.db and metrics.db
//   shell.h     one turn of the loop, and answers to calls
//   gate.h      holds every word to the outside until what it depends on is committed
//   watch.h     who sees changes
//   access/     whose call it is, whether he may, and until when
//
// A handler has always the same shape: decode and check, call the core, td_shell_after (takes its
// records, actions to the gate), build the answer in an arena, td_shell_reply. The answer shows
// the state as it was when it was built and leaves when that is on disk.
//
// A turn of the loop may bring many calls and messages. Their records are gathered, and handed to
// the store at its end as one batch under one ticket. So is what the core does by time, first of
// all the pass of the queue that the turn made due. Records that nobody waits for go with the next
// ones, or after a tenth of a second. They are lines of the log, changes of a job that nobody
// watches, acknowledgements of events and metrics. The acknowledgements go with the next message to
// their node, too.

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/view.h"
#include "daemon/coordinator/shell/databases/databases.h"
#include "daemon/coordinator/shell/disk/disk.h"
#include "daemon/coordinator/shell/gate.h"
#include "lib/base/files/held_path.h"
#include "lib/loop/loop.h"
#include "lib/rpc/server.h"

enum {
    TD_SHELL_ARENA_BYTES = 24 << 20,
    TD_SHELL_PATH_MAX = 4608,
    TD_SHELL_NODE_CALLS = TD_CORE_MAX_NODES + 64, // of each kind that only nodes make
};

// How long what nobody waits for may wait: for a commit, and for another message.
#define TD_SHELL_GATHER_NS (100 * TD_NS_PER_MS)

struct td_access;
struct td_watchers;
struct td_logs;
struct td_sessions;
struct td_planners;
struct td_readers;

struct td_coordinator;

// What the shell asks of the rooms above it. coordinator.c fills it in.
struct td_shell_roof {
    void (*act)(struct td_coordinator *c, struct td_action *take_action);
    void (*stopped)(struct td_coordinator *c); // a drain: no attempt is waited for any more
    void (*log_grew)(struct td_coordinator *c, const char *job);
    // The answer to a call that changed something is ready; its records, if any, are gathered.
    void (*changed)(struct td_coordinator *c, struct td_rpc_call *call);
    // Ends uploads into a checkpoint, or (path NULL) into all of an attempt. True: there was one,
    // and the disk may be at it still.
    bool (*end_uploads)(const char *job, uint32_t attempt, const char *path);
};

struct td_coordinator {
    uint32_t magic;
    const struct td_shell_roof *roof;
    struct td_loop *loop;
    char *state_dir, *token, *version, *role;
    struct td_held_path home; // state_dir: nothing is made again below it when it is gone
    int64_t join_token_ns, node_certificate_ns, renew_grace_ns; // coordinator.h
    struct td_core *core;
    struct td_databases *store;
    struct td_gate *gate;
    struct td_disk *disk;  // for what is written
    struct td_disk *reads; // for files that are read to clients
    struct td_checker *checker;
    struct td_rpc_server *server;
    struct td_loop_turn *turn;         // ends with a hand-over to the store
    struct td_loop_timer *timer;       // td_core_wake
    struct td_mono armed;              // when it fires
    struct td_loop_timer *drain_timer; // the drain's deadline
    struct td_access *access;
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
    char why[TD_DB_STORE_WHY]; // the disk refuses; "": it does not
    bool stuck;                // state.db refuses
    bool draining, ending, ended;
    struct td_mono drain_by; // when the attempts have stopped at the latest
    bool closing;            // destroy has begun: what still comes is stored, nothing new is begun
    void (*on_drained)(void *arg);
    void *on_drained_arg;
};
enum { td_coordinator_magic = 0x54444352 }; // "TDCR"

struct td_now td_shell_now(void);
// Takes what the core answered to the last input.
void td_shell_after(struct td_coordinator *c);
// Records of the shell's own (tokens): they go to the store with those of the core.
void td_shell_records(struct td_coordinator *c, struct td_record *take_records);
// Records that were gathered go to the store now.
void td_shell_hand_over(struct td_coordinator *c);

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

#endif
