#ifndef TRAIND_ENGINE_TRAIN_EVENTS_BACKGROUND_H
#define TRAIND_ENGINE_TRAIN_EVENTS_BACKGROUND_H

// The one background thread of a rank: it writes snapshots, and calls a tick a few times a second
// (without a launcher the tick prints the metrics). It takes one job at a time: a second one is
// refused while the first is running, which is how a checkpoint comes to wait or to be skipped. It
// is created before the first step and joined in destroy, after its job and a last tick. Thread:
// submit and wait on the training thread.

#include "lib/base/base.h"

struct td_background;
typedef void (*td_background_fn)(void *arg);

// tick may be NULL.
TD_MUST_USE td_status td_background_create(td_background_fn tick, void *tick_arg,
                                           struct td_background **out_background);
void td_background_destroy(struct td_background *b); // accepts NULL; waits for the job
TD_DEFINE_AUTO(td_background, td_background_destroy);

// False: busy with another job, nothing was taken.
bool td_background_submit(struct td_background *b, td_background_fn job, void *arg);
bool td_background_busy(struct td_background *b);
// Waits until idle. DEADLINE_EXCEEDED: still busy after timeout_ns.
TD_MUST_USE td_status td_background_wait(struct td_background *b, int64_t timeout_ns);

#endif
