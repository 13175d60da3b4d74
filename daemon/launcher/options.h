#ifndef TRAIND_DAEMON_LAUNCHER_OPTIONS_H
#define TRAIND_DAEMON_LAUNCHER_OPTIONS_H

// Command line of `traind-launcher run`, and how core lists are written.
//
// Core lists: one list a rank, parted by ':'; a list is kernel style, "0-3,8". "" leaves a rank
// unpinned. Everything comes from argv, nothing from the environment. Bounds are checked here, so
// that the rest may rely on them.

#include <sched.h>

#include "lib/base/base.h"
#include "lib/base/machine/ports.h"
#include "lib/job/kind.h"

struct td_launch_options {
    const char *dir;       // of the attempt; exists
    const char *plan;      // file
    const char *job;       //
    uint32_t attempt;      //
    uint64_t epoch;        // fencing number
    int32_t world_size;    //
    int32_t first_rank;    //
    int32_t n_ranks;       // on this node, at most TD_LAUNCH_RANKS_MAX
    const char *cores;     // lists, one a rank
    int32_t threads;       // per rank
    const char *cpu_level; // the highest that ranks may use; "": the machine's
    const char *devices;   // one a rank (lib/attempt/devices.h); "": by the rank's number
    const char *gpus;      // names for CUDA, with ',' between, equally many a rank; "": none
    bool shared_cores;     // other processes train on the same cores: threads must not spin
    uint64_t shared_bytes;
    uint64_t memory_limit_bytes; // of all ranks and shared memory; 0: none
    const char *worker;          // absolute path of traind-worker
    const char *socket;          // absolute path
    const char *plugin_dirs;     // handed to ranks as it is; "": none
    const char *path_rules;      // likewise, and taken here; "": a path may name anything
    int64_t orphan_timeout_ns;
    int64_t silent_after_ns;  // then a rank that does not beat is reported
    int64_t stuck_timeout_ns; // and this much later ended; 0: never
    int64_t gpu_idle_ns;      // then a device that does nothing is noted; 0: never
    int umask;                // of the ranks, as a decimal number; -1: the one that is inherited
    enum td_job_kind kind;    // TRAIN: ranks run traind-worker, else the plan's command
    struct td_ports ports;    // MASTER_PORT of a command is one of them
    int ack_fd;               // -1: none
};

// Points into argv. INVALID_ARGUMENT names the option; ack_fd is set even then, if it came before.
TD_MUST_USE td_status td_launch_options_parse(int argc, char **argv,
                                              struct td_launch_options *out_options);
// Reads list number `idx` of lists into out; an empty list gives an empty set.
TD_MUST_USE td_status td_cores_parse(const char *lists, int idx, cpu_set_t *out_set);

#endif
