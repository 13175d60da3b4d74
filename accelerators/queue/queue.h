#ifndef TRAIND_ACCELERATORS_QUEUE_QUEUE_H
#define TRAIND_ACCELERATORS_QUEUE_QUEUE_H

// Queue: the tasks of a device, one after the other, on a thread of its own. For accelerators whose
// run and copy_begin return before the work is done. It is linked into each of them that wants it.
//
// A task is its ticket alone: 1, 2, 3 ... in the order of add. What it has to do its owner keeps by
// that number, as a rule in the place ticket % capacity.
//
// After a task that failed no other one is run: what it would read has no known content. The
// tickets of those are done all the same, so that waits end.
//
// Bounds: `capacity` tasks that are not done, the one that runs included; then add refuses.
//
// Thread: create, next, add and destroy on one thread, the owner's. wait and is_here on any, also
// from a task. rest from a task alone.

#include "traind/accelerator.h"

typedef td_status td_queue_task_fn(void *arg, td_ticket ticket);

struct td_queue;
// fn runs each task, on the queue's thread, with arg. name: what errors call the device ("the far
// device"), borrowed until destroy. capacity: at least 1. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_queue_create(const char *name, uint32_t capacity, td_queue_task_fn *fn,
                                      void *arg, struct td_queue **out_queue);
// Accepts NULL. First what is queued is run, to the first task that fails; a failure that was
// not waited for is dropped. It takes as long as these tasks do, but ends the rest of each. No
// thread is in wait any more.
void td_queue_destroy(struct td_queue *q);
// The ticket of the next task, which its owner prepares before add.
td_ticket td_queue_next(const struct td_queue *q);
// Errors: FAILED_PRECONDITION: it is full; nothing was added.
TD_MUST_USE td_status td_queue_add(struct td_queue *q);
// Until that task and all before it are done; ticket 0 always is. A task waits for earlier ones
// alone: for itself it would wait in vain. Errors: DEADLINE_EXCEEDED: not yet, and only then. Else
// the failure, where a task up to this one failed: the first who asks gets it as the task returned
// it, but ABORTED in place of DEADLINE_EXCEEDED. After that it is FAILED_PRECONDITION (class
// device), which says that it was reported before.
TD_MUST_USE td_status td_queue_wait(struct td_queue *q, td_ticket ticket, int64_t timeout_ns);
// Returns after ns, or as soon as the queue is being destroyed.
void td_queue_rest(struct td_queue *q, int64_t ns);
bool td_queue_is_here(const struct td_queue *q); // the calling thread is the queue's

#endif
