#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_COMM_HOOK_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_COMM_HOOK_H

// Comm hook: the job's hook around its buckets, with its wrapper (traind/comm_hook.h).
//
// A hook has no part in control flags: they are summed here, so that no hook can lose a stop. One
// rank reduces nothing: a note says that its hook has nothing to do. Thread: the training thread,
// but for td_rank_hook_reduce, which is called on that which reduces buckets (buckets.h).

#include "engine/train/rank/rank.h"

// A step of building (build.h), after the strategy's. INVALID_ARGUMENT (class bad_spec) where the
// strategy has no buckets, or reduces them by itself.
TD_MUST_USE td_status td_rank_open_hook(struct td_rank *r); // td_rank_close_hook ends it
// The next but one. INVALID_ARGUMENT (class bad_spec) when the precision may skip steps and the
// hook cannot take one back.
TD_MUST_USE td_status td_rank_check_hook(struct td_rank *r);

// Host memory that it takes, saves of its state included, when state is laid out; 0 without one.
// INVALID_ARGUMENT (class bad_spec) where all ranks keep more than a checkpoint takes.
TD_MUST_USE td_status td_rank_hook_bytes(const struct td_rank *r, size_t *out_bytes);
// Gives it the rank's buckets, when they are placed.
TD_MUST_USE td_status td_rank_lay_hook(struct td_rank *r);
TD_MUST_USE td_status td_rank_hook_reduce(struct td_rank *r, const struct td_bucket *bucket);
// The precision has decided about the last step.
void td_rank_hook_end_step(struct td_rank *r, bool taken);
// What it sent of the gradients of this attempt, as a note. While nothing is queued.
void td_rank_note_hook(const struct td_rank *r);

#endif
