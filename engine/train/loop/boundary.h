#ifndef TRAIND_ENGINE_TRAIN_LOOP_BOUNDARY_H
#define TRAIND_ENGINE_TRAIN_LOOP_BOUNDARY_H

// Boundary: what there is to do right after an optimizer step, whoever owns the loop: count it,
// check it, log it, save. When each of them is due is the business of the loop. Thread: the
// training thread.

#include "engine/train/loop/loop.h"

// After each window that was read. A loss that is not finite ends training (class numeric). A step
// that the precision skipped counts nowhere: the next one is the same step on other samples. A
// failure of the writer of a checkpoint comes out here.
TD_MUST_USE td_status td_boundary_end_step(struct td_train_loop *l);
// The metrics of the last window, rates, norms and throughput.
TD_MUST_USE td_status td_boundary_log(struct td_train_loop *l);
// flags: enum td_checkpointer_save_flags. All ranks call at the same boundary; the owner writes.
TD_MUST_USE td_status td_boundary_save(struct td_train_loop *l, int flags);

#endif
