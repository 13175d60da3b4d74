#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_WRITERS_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_WRITERS_H

// Writers: which rank has which roles of a checkpoint, and which one writes the files.
//
// A strategy may leave roles to several ranks (save_checkpoint). A role is one rank's. All roles go
// into one directory with one manifest, which the first of these ranks writes: at a save the others
// send it theirs, in pieces. Rejected: each rank writes files of its own into that directory. Ranks
// of other nodes may not reach it, and who renames it would have to wait for all.
// Thread: the training thread. Collective.

#include "engine/train/rank/rank.h"

// roles: (world) bits 1 << td_role that each rank writes. Errors, class user_code: two ranks claim
// one role, by name.
TD_MUST_USE td_status td_rank_claim_roles(struct td_rank *r, const uint32_t *roles);
// Is this the rank that writes the files of checkpoints?
bool td_rank_writes(const struct td_rank *r);
// The most that a rank needs besides for what others send it, if it has the roles `own` and writes:
// on its way, and once more in the snapshot. A plan knows no other rank's roles.
size_t td_rank_most_brought(const struct td_rank *r, uint32_t own);
// At a save: *out_memory has the regions of this rank, and where it writes, those of other writers.
// Borrowed until the next call.
TD_MUST_USE td_status td_rank_bring_state(struct td_rank *r, struct td_strategy_memory *out_memory);

#endif
