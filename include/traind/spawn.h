#ifndef TRAIND_SPAWN_H
#define TRAIND_SPAWN_H

// Spawn: a program that starts its own ranks on this host, and what they give back to it.
//
//   static td_status fit(struct td_spawned *self, const void *args, size_t args_bytes);
//   static const struct td_spawn_function functions[] = {{"fit", fit}};
//
//   int main(int argc, char **argv) {
//       td_status s = td_main(argc, argv, functions, 1);
//       if (!s) s = td_results_create(&results);
//       if (!s) s = td_spawn(&(struct td_spawn_options){.function = "fit", .world_size = 2},
//       results);
//       ...
//
// Each rank is a new process of the same program. Its main calls td_main, which finds that it is a
// rank, runs the named function and never returns. Functions come from the program's table alone.
// Ranks get the parent's environment, working directory, stdin, stdout and stderr. No other
// descriptor is inherited, and signals are at their defaults.
//
// Rank 0 gives back: results (bytes, first in first out), metrics by name, the path of its best
// checkpoint, and a file of weights. The parent takes them while the ranks run, so that their size
// is bounded by its memory alone (max_bytes). Metric points that a rank logs for a launcher are
// taken and dropped.
//
// The ranks end with their parent, whatever ends it. They are in its process group: Ctrl-C in a
// terminal reaches parent and ranks. A parent without a handler of SIGINT ends, and they end with
// it; one that has a handler sees td_spawn fail with CANCELLED once a rank is gone. A parent that a
// signal ends leaves the temporary directory of that call.
//
// Threads: td_spawn works in the calling thread and returns when all its ranks are gone. Other
// threads may run and may spawn too, with results of their own. None may change the environment
// meanwhile, or wait for children that are not its own.

#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TD_SPAWN_NAME_BYTES = 48, // of a function and of a metric, the NUL included
    TD_SPAWN_FUNCTIONS_MAX = 256,
    TD_SPAWN_RANKS_MAX = 256,
    TD_RESULTS_MAX = 65536, // of one call
    TD_RESULT_METRICS_MAX = 4096,
};

// ---- in every process ---------------------------------------------------------------------------
struct td_spawned; // in a rank: which one it is, and its way to the parent

// What a rank runs. args: args_bytes bytes as the parent gave them, at the start of a page, read
// only; NULL if there are none. Its status is consumed: a failure surfaces in the parent.
typedef td_status (*td_spawn_fn)(struct td_spawned *self, const void *args, size_t args_bytes);

struct td_spawn_function {
    const char *name; // 1 to TD_SPAWN_NAME_BYTES - 1 bytes, unique
    td_spawn_fn fn;
};

// A program's first call, in main and before other threads. In a rank that td_spawn started it runs
// the function, then ends the process by exit(3) with a code of traind-worker. Everywhere else it
// returns, also in a rank of a launcher. argv and functions (n) are kept, not copied.
// Errors: INVALID_ARGUMENT (the table: an empty, long or double name, no function, too many).
// FAILED_PRECONDITION: called twice; or the variables that start a rank were handed to another
// process, or come from another build.
TD_MUST_USE td_status td_main(int argc, char **argv, const struct td_spawn_function *functions,
                              size_t n);

// ---- in the parent ------------------------------------------------------------------------------
struct td_spawn_options {
    const char *function; // a name of td_main's table
    int32_t world_size;   // ranks, 1 to TD_SPAWN_RANKS_MAX
    const void *args;     // (args_bytes) copied before the first rank starts; NULL: none
    size_t args_bytes;
    int64_t timeout_ns;   // of the whole call; 0: as long as it takes
    int64_t grace_ns;     // between each of: leave collectives, SIGTERM, SIGKILL; 0: 10 s
    uint64_t max_bytes;   // of all that rank 0 gives back in this call; 0: 1 GiB
    const char *temp_dir; // where a private directory is made, gone afterwards; NULL: $TMPDIR, /tmp
};

// What ranks gave back. Owned by the caller; one thread at a time.
struct td_results;

// Empty. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_results_create(struct td_results **out_results);
void td_results_destroy(struct td_results *r); // accepts NULL

// Starts the ranks, takes what rank 0 gives back, and returns when all of them are gone.
// results: those of a call that succeeds replace the ones before (bytes, best path, weights);
// metrics are merged by name. A call that fails leaves it as it was. NULL: all is checked, then
// dropped.
// The first failure of a rank is the call's: same code and class, message "rank N: ...". The other
// ranks leave their collectives; who is there after grace_ns gets SIGTERM, and SIGKILL
// after as long again. Metadata: "rank"; of a crash "signal" and "stack"; else "exit_code".
// Errors: what a function returned. INVALID_ARGUMENT: options. NOT_FOUND: no such function.
// FAILED_PRECONDITION: no td_main. RESOURCE_EXHAUSTED: memory, processes, descriptors, max_bytes.
// DEADLINE_EXCEEDED, class stuck, names the ranks that ran. ABORTED names a rank that a signal
// ended, or that left without a word. CANCELLED, class preempted: that signal was SIGINT or
// SIGTERM. DATA_LOSS: what a rank wrote is no frame. ALREADY_EXISTS: a metric changed its type.
TD_MUST_USE td_status td_spawn(const struct td_spawn_options *options, struct td_results *results);

// Results in the order in which they were given. The bytes die with the next td_spawn and with r.
size_t td_results_n(const struct td_results *r);
const void *td_results_at(const struct td_results *r, size_t i, size_t *out_bytes); // i < n
// NULL: none was given. They die as the results do. The weights of td_fabric_put_weights are what
// td_fabric_load_weights_from takes.
const char *td_results_best_path(const struct td_results *r);
const void *td_results_weights(const struct td_results *r, size_t *out_bytes);

// The table of metrics: a name has one type, double or integer.
// Errors: INVALID_ARGUMENT (an empty or long name); ALREADY_EXISTS (of the other type);
// RESOURCE_EXHAUSTED (more than TD_RESULT_METRICS_MAX).
TD_MUST_USE td_status td_results_set_double(struct td_results *r, const char *name, double value);
TD_MUST_USE td_status td_results_set_int(struct td_results *r, const char *name, int64_t value);
// Errors: NOT_FOUND; FAILED_PRECONDITION (it has the other type).
TD_MUST_USE td_status td_results_double(const struct td_results *r, const char *name,
                                        double *out_value);
TD_MUST_USE td_status td_results_int(const struct td_results *r, const char *name,
                                     int64_t *out_value);
// Names in the order in which they came first; i < n. They live as long as r.
size_t td_results_n_metrics(const struct td_results *r);
const char *td_results_metric_name(const struct td_results *r, size_t i);

// ---- in a rank ----------------------------------------------------------------------------------
int32_t td_spawned_rank(const struct td_spawned *self);
int32_t td_spawned_world_size(const struct td_spawned *self);
// A directory of this call's ranks alone, with mode 0700. It is gone when td_spawn returns.
const char *td_spawned_temp_dir(const struct td_spawned *self);

// Each returns when the bytes are on their way to the parent; until then it blocks.
// Thread: one at a time. Errors: FAILED_PRECONDITION on ranks other than 0; INVALID_ARGUMENT (a
// name); UNAVAILABLE (the parent takes no more: it ends this attempt); DEADLINE_EXCEEDED (it took
// nothing for 5 min).
TD_MUST_USE td_status td_spawned_put(struct td_spawned *self, const void *data, size_t bytes);
TD_MUST_USE td_status td_spawned_put_double(struct td_spawned *self, const char *name,
                                            double value);
TD_MUST_USE td_status td_spawned_put_int(struct td_spawned *self, const char *name, int64_t value);
// At most 4095 bytes.
TD_MUST_USE td_status td_spawned_put_best_path(struct td_spawned *self, const char *path);
// Names a regular file in the temporary directory, written to its end: no directory, 1 to
// TD_SPAWN_NAME_BYTES - 1 bytes. The parent reads it, then deletes it.
TD_MUST_USE td_status td_spawned_put_weights(struct td_spawned *self, const char *file_name);

#ifdef __cplusplus
}
#endif
#endif
