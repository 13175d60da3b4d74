#ifndef TRAIND_ACCELERATORS_FAR_QUEUE_H
#define TRAIND_ACCELERATORS_FAR_QUEUE_H

// Queue: tasks one after the other, on a thread of its own; a task is known by its ticket alone.
// After a task that failed no other is run: what it would read has no known content. Thread: next,
// add and destroy on the thread that created it; wait and is_here on any.

#include "traind/accelerator.h"

enum { TD_FAR_TASKS = 8 }; // that may be queued; then add refuses

typedef td_status td_far_task_fn(void *arg, td_ticket ticket);

struct td_far_queue;
// fn runs each task, on the queue's thread, with arg. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_far_queue_create(td_far_task_fn *fn, void *arg,
                                          struct td_far_queue **out_queue);
void td_far_queue_destroy(struct td_far_queue *q); // accepts NULL; runs what is queued
// The ticket of the next task, which its caller prepares before add.
td_ticket td_far_queue_next(const struct td_far_queue *q);
// FAILED_PRECONDITION: TD_FAR_TASKS are queued.
TD_MUST_USE td_status td_far_queue_add(struct td_far_queue *q);
// DEADLINE_EXCEEDED: not yet. Else the error of the first task that failed, if that is not a later
// one: the first time itself, then as a failure that was reported before.
TD_MUST_USE td_status td_far_queue_wait(struct td_far_queue *q, td_ticket ticket,
                                        int64_t timeout_ns);
// From a task: lets that time pass, or what is left of it when the queue is destroyed.
void td_far_queue_rest(struct td_far_queue *q, int64_t ns);
bool td_far_queue_is_here(const struct td_far_queue *q); // on its thread

#endif
