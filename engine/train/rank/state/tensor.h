#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_TENSOR_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_TENSOR_H

// Tensor: one tensor of a rank's state, read by name as numbers of the host, whatever type and
// place it has. Host code of a module and programs look at weights, gradients and results with it.
// A loop reads nothing so: it would wait. Gradients can also be set to zero, where they are.
// Thread: the training thread.

#include "engine/train/rank/rank.h"

// Copies a tensor as it is after all that is queued, row-major, rounded where it is no fp32. name:
// as the state has it ("fc1.weight", "fc1.weight:grad", "fc1.weight:exp_avg"); n: its elements.
// Errors: NOT_FOUND; INVALID_ARGUMENT names how many elements it has. Both are of class user_code,
// and change nothing.
TD_MUST_USE td_status td_rank_read_tensor(struct td_rank *r, const char *name, float *out,
                                          int64_t n);
// The same of a result (td_graph_result) of the last step over so many samples.
TD_MUST_USE td_status td_rank_read_result(struct td_rank *r, const char *name, int64_t n_samples,
                                          float *out, int64_t n);
// How many numbers it has of a sample; 0: no program that was recorded has such a result.
int64_t td_rank_result_width(const struct td_rank *r, const char *name);
// The gradients of what this training step trains become zero. Nothing is queued.
TD_MUST_USE td_status td_rank_clear_gradients(struct td_rank *r, const struct td_program_key *key);

#endif
