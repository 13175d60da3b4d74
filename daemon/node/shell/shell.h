#ifndef TRAIND_DAEMON_NODE_SHELL_SHELL_H
#define TRAIND_DAEMON_NODE_SHELL_SHELL_H

// The shell's state, and the two ways that all its files share: into the core, and up to the
// coordinator.
//
// Every input goes the same way: into the core, carry out its actions at once and in order, arm the
// timer for its next wish. An action may cause further inputs (a launch that fails at once); their
// actions are queued in the core after those that wait. Loop thread.

#include <sched.h>
#include <sys/types.h>

#include "daemon/node/shell/attempts/attempt.h"
#include "daemon/node/shell/gpus/gpus.h"
#include "daemon/node/shell/planner/inventory.h"
#include "daemon/node/shell/planner/measurer.h"
#include "daemon/node/shell/planner/planner.h"
#include "daemon/node/shell/planner/plugin_list.h"
#include "daemon/node/shell/shards/reconcile.h"
#include "daemon/node/shell/transport.h"
#include "lib/base/machine/interface.h"
#include "lib/plugin/plugin_files.h"
#include "lib/topology/topology.h"

struct td_node_home;

enum { td_node_daemon_magic = 0x4e4f4445, TD_NODE_TROUBLE_BYTES = 300 };

struct td_node_daemon {
    uint32_t magic;
    struct td_loop *loop;
    char state_dir[1024], runtime_dir[1024], bin_dir[TD_FS_PATH_BYTES], version[64];
    int64_t orphan_timeout_ns, silent_after_ns, gpu_idle_ns;
    mode_t user_umask;
    struct td_inventory inventory;
    unsigned kinds;                                                   // as in td_node_options
    struct td_ports ports;                                            // for MASTER_PORT of commands
    char plugin_dir[TD_FS_PATH_BYTES], plugin_dirs[TD_FS_PATH_BYTES]; // ours, the users'
    char read_roots[TD_FS_PATH_BYTES], write_roots[TD_FS_PATH_BYTES]; // as in td_node_options
    char token_file[TD_FS_PATH_BYTES];
    char collective_interface[64];  // as in td_node_options
    struct td_interface collective; // where that is, as registered; name "": it is not here
    struct td_plugin_files plugins;
    struct td_topology topology;
    struct td_node_core *core;
    struct td_transport *transport;
    struct td_rpc_channel *channel;
    struct td_planner *planner, *comparer; // comparer: of files that plans have read
    struct td_measurer *measurer;
    struct td_plugin_list *plugin_list;
    struct td_gpus *gpus;
    struct td_reconciler *reconciler;
    struct td_node_home *home;
    char trouble[TD_NODE_TROUBLE_BYTES]; // why nothing can start here now (home.h); "": it can
    struct td_loop_timer *timer;
    bool closing;
    struct {
        char why[256]; // as the newest line about it says, cut; "": the coordinator is there
        struct td_mono said;
        int64_t pause_ns; // until the next line
    } down;
    char key[64]; // of the session
    bool known;   // it has registered since it started
    // node.c's: it is above the parts that give the core something
    void (*carry_out)(struct td_node_daemon *n, const struct td_node_action *action);
};

// The core has received something: carries out what it answers.
void td_node_daemon_answer(struct td_node_daemon *n);
// Something happened to an attempt. take_failure: of FAILED, else TD_OK.
void td_node_daemon_give(struct td_node_daemon *n, struct td_node_attempt *a,
                         enum td_attempt_event event, td_status take_failure);
// Sets the incarnation. The second is for parts of the shell that know it as their arg; false:
// refused.
enum td_transport_send td_node_daemon_send(struct td_node_daemon *n, Traind__V1__NodeMessage *m);
bool td_node_daemon_deliver(Traind__V1__NodeMessage *m, void *node);

// The path rules (lib/base/files/path_rules.h) of a job's processes, as text. job: NULL: it is
// planned.
TD_MUST_USE td_status td_node_daemon_path_rules(const struct td_node_daemon *n, const char *job,
                                                bool trusted, struct td_buf *out);

// An attempt as the shell holds it; NULL: it never came that far.
static inline struct td_local_attempt *td_node_local(const struct td_node_attempt *a) {
    return a->shell;
}
// No rank is here.
bool td_node_daemon_is_idle(const struct td_node_daemon *n);

#endif
