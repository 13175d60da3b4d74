#ifndef TRAIND_DAEMON_NODE_SHELL_DISK_WORK_H
#define TRAIND_DAEMON_NODE_SHELL_DISK_WORK_H

// Disk work: what may never be answered or takes long, by a thread of its own. checkpoint.dir of a
// spec may be on a server that is away, and a directory may hold a million files. The node's loop
// waits for neither. Loop thread, but for `run`.
//
// A thread that hangs in the kernel cannot be ended. Who does not want its end any more gives it
// up: then the thread frees what it has, whenever that is, and nothing else of the node is touched.
// Rejected: a join with a deadline, as the loop would wait for that long.

#include "lib/base/base.h"

struct td_disk_work;
struct td_loop;

struct td_disk_work_calls {
    void (*run)(void *work);                  // on the thread; touches the work alone
    void (*on_over)(void *work, void *owner); // on the loop; the work is the owner's from here on
    void (*destroy)(void *work);              // of one that was given up, on either thread
};

// The work is kept if this returns OK. Before on_over, *out_work has gone.
TD_MUST_USE td_status td_disk_work_create(struct td_loop *loop,
                                          const struct td_disk_work_calls *calls, void *work,
                                          void *owner, struct td_disk_work **out_work);
// Gives it up: on_over does not come.
void td_disk_work_destroy(struct td_disk_work *d);

#endif
