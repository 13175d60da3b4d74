#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_APART_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_APART_H

// Apart: state of which each rank has a piece alone, to and from a checkpoint, which has the whole.
// Pieces travel tensor by tensor, in parts of 8 MiB at most, so neither side needs more. Thread:
// the training thread. Collective.

#include "engine/train/rank/rank.h"

// All tensors of a role, by whole_offset into `whole`, on the rank that passes it; NULL elsewhere.
TD_MUST_USE td_status td_rank_bring_pieces(struct td_rank *r, enum td_role role, char *whole);
// Of a run that resumes: the rank that reads optimizer state gives each its pieces of it. What the
// checkpoint never had stays as it is.
TD_MUST_USE td_status td_rank_hand_out_pieces(struct td_rank *r);

#endif
