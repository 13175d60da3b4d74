#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_OWN_STATE_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_OWN_STATE_H

// Own state: what strategy, comm hook and precision of a rank keep of themselves in a checkpoint.
//
//   collect   at a save, on all ranks: parts of ranks are gathered, and the rank that writes has
//             all of them in r->own
//   read      at a resume, on the rank that reads: r->own from the file
//   load      after setup, on all ranks: r->own is sent to all, and each plugin gets its parts
//
// A part that has no taker is dropped: another strategy's, another precision's, and those of ranks
// at another world size. compare says so. Nothing is sent where no plugin of the job keeps
// anything. Contracts: traind/strategy.h, traind/precision.h. Thread: the training thread.

#include "engine/train/rank/rank.h"

TD_MUST_USE td_status td_rank_collect_own_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_read_own_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_load_own_state(struct td_rank *r);

// Why what plugins kept is not all that they will have: of the strategy, and of the precision. "":
// it is. On the rank that reads, before load.
void td_rank_compare_own_state(const struct td_rank *r, char *out_strategy, size_t strategy_bytes,
                               char *out_precision, size_t precision_bytes);
// The same of the comm hook.
void td_rank_compare_hook_state(const struct td_rank *r, char *out, size_t bytes);

#endif
