#ifndef TRAIND_ENGINE_TRAIN_RANK_SCORES_RESULT_H
#define TRAIND_ENGINE_TRAIN_RANK_SCORES_RESULT_H

// Result: a file for people, such as a confusion matrix or a table of kernels. It is beside the
// checkpoints of the attempt, where it outlives the rank. Whoever writes one says where it is by a
// note of the job, and goes on if it cannot be written. Thread: the training thread of rank 0.

#include "engine/train/rank/rank.h"
#include "lib/base/buf.h"
#include "lib/base/files/files.h"

// Writes one, over one of that name, and says where it is. FAILED_PRECONDITION: the job has no such
// place.
TD_MUST_USE td_status td_rank_write_result(const struct td_rank *r, const char *name,
                                           const struct td_buf *text,
                                           char out_path[TD_FS_PATH_BYTES]);

#endif
