#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ATTEMPT_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ATTEMPT_H

// One attempt on this node, as the shell holds it: its directory, its launcher, what is forwarded.
//
// A launcher is started here, or was found: then its record, its start time and this boot's id say
// whether it lives. Either way its end is a readable pidfd. A launcher that is gone without having
// said so was killed; then this node is the log's single writer and completes it (launcher_lost,
// segments.h). Ranks that a killed launcher had are dead, by their parent-death signal.

#include <sys/types.h>

#include "daemon/node/shell/assignment/assignment.h"
#include "daemon/node/core/core.h"
#include "daemon/node/shell/attempts/forward.h"
#include "lib/base/machine/proc.h"
#include "lib/base/machine/ports.h"

struct td_launcher_link;
struct td_local_attempt;
struct td_loop;
struct td_loop_fd;
struct td_loop_timer;
struct td_shards;
struct td_fetch;
struct td_given_dir;

enum { TD_ATTEMPT_CORES = 8192 };

struct td_local_attempt_events {
    void (*on_started)(struct td_local_attempt *a);
    void (*on_failed)(struct td_local_attempt *a, td_status take_failure);
    void (*on_again)(struct td_local_attempt *a); // launch it, as before
    void (*on_gone)(struct td_local_attempt *a);  // the log is complete now
    void (*on_connected)(struct td_local_attempt *a);
    // status NULL: this launcher does not say it, look at the files.
    void (*on_status)(struct td_local_attempt *a, const Traind__V1__LauncherStatus *status);
    // Of the rendezvous store, as in td_launcher_link_events.
    void (*on_store_set)(struct td_local_attempt *a, const Traind__V1__LauncherStoreSet *set);
    void (*on_store_want)(struct td_local_attempt *a, const Traind__V1__LauncherStoreWant *want);
    void (*on_store_taken)(struct td_local_attempt *a, uint32_t n_values);
};

struct td_local_attempt {
    uint32_t magic;
    struct td_loop *loop;
    const struct td_local_attempt_events *events;
    void *owner;                  // the node
    struct td_node_attempt *core; // its row in the core
    struct td_assignment assigned;
    char dir[TD_FS_PATH_BYTES - 64];
    char state_dir[1024];
    char *plan_json; // until the launcher runs
    char cores[TD_ATTEMPT_CORES];
    char socket[128];                     // in use; "": not known yet
    char wanted_socket[TD_FS_PATH_BYTES]; // as the launcher received it
    char boot_id[37];
    uint32_t major;
    char build[48];
    struct td_proc launcher; // pid 0: none
    bool ended, abandoned, linked;
    bool save_waits;      // it is asked to save when it connects
    uint32_t n_waits;     // for a descriptor, before the launcher was started
    uint32_t n_finalizes; // its log could not be ended so often
    bool rebooted;        // its launcher ran before the machine's last start
    uint64_t own; // found ended: its log from here on is ours and unsent; UINT64_MAX: none is
    int ack_fd;
    struct td_buf ack;
    td_status failed; // why the start failed, until the launcher is gone
    struct td_loop_fd *ack_watch, *end_watch;
    struct td_loop_timer *timer; // ack deadline; then, without a link, looks at the files
    struct td_launcher_link *link;
    bool store_dropped;   // what the launcher said of the rendezvous store found no room
    uint32_t store_taken; // values that have left, and the coordinator has not received that
    struct td_forward *forward;
    struct td_shards *shards;   // NULL: store fs
    bool waits_for_files;       // until the reconciler has let go of them
    struct td_given_dir *place; // while it runs, before the next
    struct td_fetch *fetch;     // while it runs
};

struct td_launch_context {
    const char *bin_dir, *runtime_dir;
    const char *plugin_dirs; // of the user's own plugins; "": none
    const char *path_rules;  // of the job's processes
    const char *cores;       // lists; "": unpinned
    const char *gpus;        // names of GPUs for CUDA, equally many a rank; "": they get none
    bool shared_cores;
    struct td_ports ports; // of commands
    int64_t orphan_timeout_ns, silent_after_ns, gpu_idle_ns;
    mode_t rank_umask;
};

// takes nothing; dir need not exist. attempt->assigned is filled by the caller.
TD_MUST_USE td_status td_local_attempt_create(struct td_loop *loop,
                                              const struct td_assignment *assigned,
                                              const char *state_dir,
                                              const struct td_local_attempt_events *events,
                                              void *owner, struct td_local_attempt **out_attempt);
void td_local_attempt_destroy(struct td_local_attempt *a); // leaves processes and files
TD_DEFINE_AUTO(td_local_attempt, td_local_attempt_destroy);

// Writes the files, starts the launcher; on_started or on_failed follows, unless this fails.
// Without a descriptor or memory for it on_again comes in a moment, for half a minute.
TD_MUST_USE td_status td_local_attempt_launch(struct td_local_attempt *a, const char *boot_id,
                                              const struct td_launch_context *c);
// A directory that was found. OK: a->ended says whether its launcher has ended, and if not the log
// is complete. A launcher whose record cannot be read is killed (fence.h) and counts as lost.
// NOT_FOUND: nothing ever ran here, the directory can go.
TD_MUST_USE td_status td_local_attempt_recover(struct td_local_attempt *a, const char *boot_id,
                                               const char *runtime_dir);

// The coordinator reported how much of the log it has committed, before anything is sent.
void td_local_attempt_committed(struct td_local_attempt *a, uint64_t events);

// To the launcher, by its socket; while it has none, when it connects. A launcher of another
// version gets SIGTERM. TD_STOP_KILL without a socket: SIGKILL. mode: enum td_stop_mode.
void td_local_attempt_stop(struct td_local_attempt *a, int mode, uint32_t grace_ms);
void td_local_attempt_save(struct td_local_attempt *a); // likewise, without the signal
void td_local_attempt_kill(struct td_local_attempt *a);
// Still waiting or fetching: on_failed follows, in a later turn. A launcher that was spawned
// already answers first; the core gives the stop then.
void td_local_attempt_abandon(struct td_local_attempt *a);
// Deletes the directory, and the job's if that is empty then.
void td_local_attempt_remove_files(const struct td_local_attempt *a);

#endif
