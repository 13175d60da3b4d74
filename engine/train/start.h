#ifndef TRAIND_ENGINE_TRAIN_START_H
#define TRAIND_ENGINE_TRAIN_START_H

// Start: what a job reads and writes in the file system from its start on, looked at by a plan on
// the same machine. A job that would fail at once is refused by the plan, with the same class.
//
// In the order of a start: the checkpoint to resume from, or the initial weights; the places of
// checkpoints and predictions; the weights to evaluate. The checks are those of the rank, but that
// digests of a checkpoint are left to it, and no directory is made. A job that resumes does not
// need its initial weights any more. Thread: the one that plans.

#include "engine/train/rank/rank.h"

// planned: of td_rank_create_plan. out_start: where it begins; all zero unless it resumes. Class
// bad_spec or data.
TD_MUST_USE td_status td_start_check(const struct td_rank *planned, struct td_progress *out_start);

#endif
