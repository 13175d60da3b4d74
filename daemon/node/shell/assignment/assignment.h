#ifndef TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_ASSIGNMENT_H
#define TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_ASSIGNMENT_H

// Assignment: from what the coordinator sent to what a launcher needs, and the file that lets a
// restarted node know as much.
//
// The plan that arrives knows no path of this machine. Here it gets them: where checkpoints go
// (checkpoint.dir of the spec, else <state>/checkpoints; below it <job>/a<N>), the cache, and the
// checkpoints to resume from. assignment.json in the attempt's directory keeps what is needed after
// a restart: {"format":1,"epoch":E,"slots":S,"stream_store":B,"checkpoints":".../<job>",
// "first_rank":F,"n_ranks":K,"devices":"U,U"}. If that file cannot be read, the plan and the first
// line of the log say enough of it to bring home what the attempt did. Pure but for its files; loop
// thread.
//
// The room:
//
//   given_plan.h  a plan of the coordinator's, which another build may have written
//   given_dir.h   checkpoint.dir of a spec, before an attempt starts below it

#include <sys/types.h>

#include "lib/attempt/devices.h"
#include "lib/attempt/segments.h"
#include "lib/base/arena.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/interface.h"
#include "lib/job/kind.h"
#include "traind/v1/node.pb-c.h"

enum { TD_ASSIGNMENT_RESUME_MAX = 16, TD_ASSIGNMENT_PATH = 96 };

struct td_assignment {
    char job[64];
    uint32_t attempt;
    uint64_t epoch;
    uint32_t world_size, first_rank, n_ranks;
    uint32_t slots; // in all
    uint32_t threads;
    char master_address[46];        // of part 0, of a job over several nodes; "": of one
    uint32_t master_port;           // there; 0: none
    struct td_interface collective; // this node's; name "": it is not used
    char devices[TD_LAUNCH_RANKS_MAX * TD_DEVICE_UUID]; // of its ranks (lib/attempt/devices.h)
    bool gpu_indexes;                                   // of resources; not kept in the file
    uint64_t shared_bytes, memory_limit_bytes;
    uint32_t stuck_timeout_s; // 0: never
    bool stream_store;
    bool trusted;           // as Assign.trusted; not kept in the file
    enum td_job_kind kind;  // what ranks run
    bool evaluates_best;    // a stage after fit uses the best weights
    bool writes_outside;    // of the state directory: checkpoint.dir or predict.output is given
    bool place_is_given;    // by checkpoint.dir
    char checkpoints[1024]; // parent of "a<N>": <base>/<job>
    struct td_resume {
        char path[TD_ASSIGNMENT_PATH]; // "a1/step-2340"
        bool fetch;                    // the coordinator has it
    } resume[TD_ASSIGNMENT_RESUME_MAX];
    size_t n_resume;
};

// Where a job's checkpoints are: below checkpoint.dir of its spec, "" the node's own. out has room
// for a struct td_assignment's checkpoints.
TD_MUST_USE td_status td_assignment_checkpoints(const char *dir, const char *state_dir,
                                                const char *job, char *out, size_t out_bytes);
// Reads and checks the message. Errors: INVALID_ARGUMENT class bad_spec.
TD_MUST_USE td_status td_assignment_read(const Traind__V1__Assign *m, const char *state_dir,
                                         struct td_assignment *out_assignment);
// Makes the directory of the attempt's checkpoints with that mode, whatever the umask is. Of a
// place that is given this may hang, and is not for the loop (given_dir.h).
TD_MUST_USE td_status td_assignment_make_dir(const struct td_assignment *a, mode_t mode);
// Writes plan.json and assignment.json into dir; td_assignment_sync makes them durable. Makes the
// directory of the checkpoints, too, unless its place is given. Of the resume sources those that
// are here are named in the plan, in their order. DATA_LOSS, class data: there are some, and none
// is here.
TD_MUST_USE td_status td_assignment_write(const struct td_assignment *a, const char *plan_json,
                                          const char *dir, const char *state_dir,
                                          mode_t checkpoints_mode);
// Of <checkpoint.dir>/<job>, where the job has saved. NOT_FOUND: neither it nor anything else is
// there, as when the file system is not mounted. That is no proof that checkpoints are lost. Any
// other failure: checkpoint.dir cannot be read, so nothing is known.
TD_MUST_USE td_status td_assignment_find(const char *checkpoints);
// Makes both files durable. Done once the launcher runs, so that no rank waits for the disk. Power
// that fails before it may leave them empty: such a start never happened.
TD_MUST_USE td_status td_assignment_sync(const char *dir);
// assignment.json of a directory that was found; job and attempt are the caller's.
TD_MUST_USE td_status td_assignment_load(const char *dir, struct td_assignment *inout_assignment);

// The same from plan.json and events.log, but for the slots: for an attempt that is over.
TD_MUST_USE td_status td_assignment_rebuild(const char *dir,
                                            struct td_assignment *inout_assignment);

#endif
