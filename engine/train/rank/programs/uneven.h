#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_UNEVEN_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_UNEVEN_H

// Uneven: the last batch of an evaluation, of which some ranks have one sample less, or none.
//
// A program that sums over ranks waits for all of them. So every rank runs one at each batch, and
// all of these make the same sums. What differs is how many samples each has: as many as the first
// share of a split, or as the last. Where programs of a mode sum, each rank has the programs of
// both numbers. A rank without samples runs the smallest program of the mode on zeros, and what
// that puts out is dropped (step.h). What its sums then add is the module's business.
//
// Batches of training are even: their samples are padded, or cut. So are those of ranks that have
// one share, and a last batch that a limit leaves out. Thread: the training thread.

#include "engine/train/rank/rank.h"

// After the rank's own programs of all splits that are evaluated.
TD_MUST_USE td_status td_rank_add_uneven(struct td_rank *r);
// After state is laid out. Class bad_spec: two programs that ranks may run at the same batch make
// other sums; names step, numbers of samples and the first node that differs.
TD_MUST_USE td_status td_rank_check_uneven(struct td_rank *r);
// The program of a rank without samples. False: it runs none, because those of the mode sum nothing
// over other ranks.
bool td_rank_idle_key(const struct td_rank *r, enum td_mode mode, struct td_program_key *out_key);

#endif
