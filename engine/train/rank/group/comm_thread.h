#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_COMM_THREAD_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_COMM_THREAD_H

// Comm thread: makes sums over ranks while the program goes on.
//
// A sum that is posted is made on this thread, after those posted before it, and each is waited for
// by itself. The last bucket of a step closes when the backward pass is over, and nothing is left
// that could go on beside it. So the thread that waits makes it, without a switch to another. A
// step of one bucket never wakes the communication thread. Order and bits are those of a rank
// without it.
//
// From post to wait the group is the thread's: its calls have one order on all ranks, so two
// threads may not call it at once. A backward pass that sums over ranks (rank_sum, as
// sync_batchnorm has it) does so in a group of its own, with a mapping and connections of its own
// (join.h). Else these sums would wait for the buckets before them: steps of a resnet18 over 2
// hosts at 1 Gbit/s are 9 to 14 % shorter so (docs/measurements.md). All other calls of a rank come
// after the waits; group.c checks that in builds with TD_DEBUG.
//
// Rejected: a thread in each backend, where comm hooks and a strategy's own reduction would still
// stop the backward pass.
//
// Bounds: as many sums as one run of a program begins. Waiting: as long as the calls of the group,
// which have their deadline. Thread: post and wait from one thread at a time; create and destroy
// while nothing is posted, or after the group was aborted. It has the affinity of its creator, and
// no signals.

#include "lib/base/base.h"
#include "traind/sum.h"

struct td_comm_thread;

// Makes a sum. When it returns it is done.
typedef td_status (*td_comm_fn)(void *arg, const struct td_sum *sum);

// Errors: RESOURCE_EXHAUSTED when there can be no thread.
TD_MUST_USE td_status td_comm_thread_create(uint32_t n_sums, td_comm_fn fn, void *arg,
                                            struct td_comm_thread **out_thread);
// What was posted is finished first, but for a last one. Accepts NULL.
void td_comm_thread_destroy(struct td_comm_thread *t);
// is_last: it is left to wait, if nothing is posted after it. An error of a sum that was
// posted before comes out here, and nothing is posted: the pass ends there, not when it is over.
TD_MUST_USE td_status td_comm_thread_post(struct td_comm_thread *t, const struct td_sum *sum,
                                          bool is_last);
// All that was posted was waited for, so the group may be called. NULL: true.
bool td_comm_thread_is_idle(struct td_comm_thread *t);
// The sum is done. It was posted, and is waited for once. Errors: the first one of all that was
// posted, if no post gave it; the rest was not begun then, and nothing is to be waited for any
// more. NULL: OK.
TD_MUST_USE td_status td_comm_thread_wait(struct td_comm_thread *t, const struct td_sum *sum);
// All that was posted is done, and still to be waited for. Errors: as of wait. NULL: OK.
TD_MUST_USE td_status td_comm_thread_drain(struct td_comm_thread *t);

#endif
