#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_REPLICAS_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_REPLICAS_H

// Replicas: state that is the same bits on every rank, wherever accelerators keep it. Thread: the
// training thread; all ranks call.

#include "engine/train/rank/rank.h"

// The address of a region's memory; NULL: it is not the host's. Nothing else of the engine asks.
void *td_rank_address(const struct td_rank *r, enum td_role role);
// Makes the state of all ranks equal, as the strategy's setup does it. Where it has none,
// parameters, buffers and optimizer state become those of rank 0. Ranks compare digests first: at a
// fresh start nothing differs, and to compare 8 MB takes a third of the time of sending them.
TD_MUST_USE td_status td_rank_set_up_strategy(struct td_rank *r);
// Parameters, buffers and optimizer state of these roles (bits 1 << td_role) become those of rank 0
// where they differ; a role without memory is left out.
TD_MUST_USE td_status td_rank_share(struct td_rank *r, uint32_t which);

#endif
