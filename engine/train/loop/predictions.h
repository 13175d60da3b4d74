#ifndef TRAIND_ENGINE_TRAIN_LOOP_PREDICTIONS_H
#define TRAIND_ENGINE_TRAIN_LOOP_PREDICTIONS_H

// Predictions: what predict steps leave in the rank's state, and where their file goes. For both
// halves of the predict stage (predict.h, generate.h). Thread: the training thread.

#include "engine/train/rank/rank.h"

// predict.output, or `name` in the attempt's directory; FAILED_PRECONDITION (bad_spec) without
// both.
TD_MUST_USE td_status td_predict_path(const struct td_rank *r, const char *name, char *out_path);

// The width of a result of predict steps (td_graph_result); rank/tensor.h reads its rows.
TD_MUST_USE td_status td_predict_columns(const struct td_rank *r, const char *name,
                                         int64_t *out_columns);

#endif
