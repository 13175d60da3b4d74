#ifndef TRAIND_DAEMON_NODE_SHELL_GPUS_GPUS_H
#define TRAIND_DAEMON_NODE_SHELL_GPUS_GPUS_H

// GPUs of this machine, as its driver lists them. One process for all of the daemon's life asks the
// driver (`traind-worker devices`), since any call of it may hang for good: then that process
// hangs, and no daemon. It begins when the node does, also without a coordinator.
//
//   gpus.h       that process: begun, watched, replaced
//   gpu_lines.h  what it writes
//   gpu_cut.h    which of them jobs may have
//   gpu_errors.h errors that the driver reported (XIDs)
//
// It has timeout_ns for its first line, and for each later one after an interval. One that is
// silent for longer is killed, and another begins after a pause that doubles, from 1 s to 5
// minutes, until a list comes. What was known stays, with the reason. A kill may not end it, where
// the kernel waits for the card: then it is left alone, and no other begins beside it until it has
// ended. Where there is no driver's library, nothing begins again. Each reason is logged once.
//
// Loop thread. Bounds: TD_GPU_LINE_BYTES of a line; a longer one, or one that cannot be read, is
// dropped and logged. Of a list it is also a reason that the node shows.

#include <sys/types.h>

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

struct td_gpus;
struct td_loop;

struct td_gpus_options { // strings are copied
    const char *bin_dir;
    const char *gpus, *visible; // as in gpu_cut.h
    bool shares_busy;           // jobs may have also those that another process uses
    int64_t timeout_ns;
    void (*fn)(void *arg);         // from the loop: what is known is another
    void (*on_samples)(void *arg); // likewise: new ones are in the list; NULL: not called
    void *arg;
    int (*kill_fn)(pid_t pid, int sig); // of tests; NULL: kill
    int64_t pause_ns;                   // of tests: the first pause; 0: 1 s
};
TD_MUST_USE td_status td_gpus_create(struct td_loop *loop, const struct td_gpus_options *o,
                                     struct td_gpus **out_gpus);
// Ends the process, within 2 s; one that a kill did not end before is not waited for. Accepts NULL.
void td_gpus_destroy(struct td_gpus *g);
TD_DEFINE_AUTO(td_gpus, td_gpus_destroy);

// Something has ended that used some: what they do is asked for now, not after an interval.
void td_gpus_look(struct td_gpus *g);
// NULL: not known yet. Dies with the next call of fn.
const Traind__V1__GpuList *td_gpus_list(const struct td_gpus *g);

#endif
