#ifndef TRAIND_DAEMON_NODE_NODE_H
#define TRAIND_DAEMON_NODE_NODE_H

// The node: this machine's slots, and the attempts that run on them.
//
// In reading order, from the brain outward:
//
//   core/core.h     the brain, without I/O: (state, event, now) -> actions, a table
//   core/cores.h    gives cores to ranks
//   node.h, node.c  starts, stops, and carries out what the core answers
//
// shell/ has what needs files, processes and messages:
//
//   shell.h       its state; the way into the core and the way up
//   home.h        its directories: are they still there?
//   disk_work.h   what a disk may be slow at, by a thread
//   messages.h    what it says to the coordinator
//   transport.h   the control stream: transport_local.c, in process, or transport_rpc.c
//   assignment/   what the coordinator assigned -> the files that a launcher needs
//   shards/       checkpoint files: to the coordinator and from it, unreported, gone
//   attempts/     attempts and their launchers: started, found, adopted, fenced
//   planner/      plans, and what this machine has for them
//   gpus/         GPUs, as the NVIDIA driver lists them
//
// The header of its name has the story of each room.
//
// A node owns no job. Its ranks belong to launchers, which outlive it. What they did is in files
// with offsets, so a node that was killed and restarted goes on where the coordinator's commits
// end. It keeps no state of its own but its id; stopping ranks when a daemon stops is the
// coordinator's word, too (td_coordinator_drain). One loop thread owns everything here.

#include <sys/types.h>

#include "lib/base/base.h"
#include "lib/base/machine/ports.h"

struct td_loop;
struct td_node_daemon;
struct td_rpc_channel;
struct td_topology;
struct td_transport;

// Strings and the topology are copied; zero means the default.
struct td_node_options {
    const char *state_dir;               // exists, locked by the caller
    const char *runtime_dir;             // for launcher sockets; exists, 0700
    const char *bin_dir;                 // holds traind-launcher and traind-worker
    const char *plugin_dirs;             // where specs may name plugins, ':' between; "": nowhere
    const char *read_roots;              // of submitters' specs (path_rules.h); "": none
    const char *write_roots;             // likewise
    const char *token_file;              // which no spec may read
    unsigned kinds;                      // of job that it runs (lib/job/kind.h); TRAIN always
    struct td_ports ports;               // MASTER_PORT of commands
    const char *collective_interface;    // of ranks on several nodes (interface.h); "": none
    const char *version;                 // of this build
    const char *name;                    // shown to people; host name
    const struct td_topology *topology;  // the cores that ranks may use
    int32_t slots;                       // cores
    struct td_transport *take_transport; // kept, also on failure
    struct td_rpc_channel *channel;      // bulk; NULL when embedded; outlives the node
    int64_t orphan_timeout_ns;           // 1 h
    int64_t silent_after_ns;             // 30 s
    int64_t plan_timeout_ns;             // 60 s
    int64_t measure_after_ns;            // as td_measurer's after_ns
    const char *gpus, *visible_gpus;     // as in gpu_cut.h; NULL: "none", not set
    bool shares_busy_gpus;               // jobs may have also those that another process uses
    int64_t gpu_timeout_ns;              // 30 s: after which the NVIDIA driver does not answer
    int64_t gpu_idle_ns;                 // after which a job's idle GPU is noted; 0: never
    mode_t user_umask;                   // of ranks that write outside state_dir
};

// Scans the attempts that are here, attaches to living launchers, starts the transport.
TD_MUST_USE td_status td_node_daemon_create(struct td_loop *loop,
                                            const struct td_node_options *options,
                                            struct td_node_daemon **out_node);
// All ranks here save and go on.
void td_node_daemon_save(struct td_node_daemon *n);
// Leaves ranks running. Accepts NULL.
void td_node_daemon_destroy(struct td_node_daemon *n);
TD_DEFINE_AUTO(td_node_daemon, td_node_daemon_destroy);

#endif
