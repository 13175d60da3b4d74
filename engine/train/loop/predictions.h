#ifndef TRAIND_ENGINE_TRAIN_LOOP_PREDICTIONS_H
#define TRAIND_ENGINE_TRAIN_LOOP_PREDICTIONS_H

// Predictions: what predict steps leave in the rank's state, and where their file goes. For both
// halves of the predict stage (predict.h, generate.h). Thread: the training thread.

#include "engine/train/rank/rank.h"
#include "lib/base/files/named_output.h"

// predict.output, or `name` in the attempt's directory; FAILED_PRECONDITION (bad_spec) without
// both.
TD_MUST_USE td_status td_predict_path(const struct td_rank *r, const char *name, char *out_path);

// Holds predict.output until the attempt ends, if this rank will write it, so that no other job
// writes it meanwhile. *out_hold stays as it is where there is nothing to hold; a file system
// without locks is a note. Errors: bad_spec, and the other job; of class disk where an earlier
// attempt of this job still holds it.
TD_MUST_USE td_status td_predict_hold(const struct td_rank *r, struct td_named_hold *out_hold);

// The width of a result of predict steps (td_graph_result); rank/state/tensor.h reads its rows.
TD_MUST_USE td_status td_predict_columns(const struct td_rank *r, const char *name,
                                         int64_t *out_columns);

#endif
