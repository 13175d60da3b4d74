#ifndef TRAIND_ENGINE_TRAIN_LOOP_PREDICT_H
#define TRAIND_ENGINE_TRAIN_LOOP_PREDICT_H

// The predict stage: what a trained module says of data, or how it continues a text.
//
// Without a prompt every sample of the predict split is asked once; rank 0 writes one .npy with a
// row per sample in the order of the data: the class (i4), of a binary loss one for each logit; or
// the logits (f4), which are the numbers of a regression. Of a module that predicts tokens the row
// is what follows the sample. With a prompt such a module continues it, token by token, computing
// the whole row again for each (there is no cache of keys and values): rank 0 writes prompt and
// continuation, as bytes when the data's tokens are bytes, else as numbers; a note shows the
// beginning. All ranks compute the same continuation, so that they agree on stops as ever. The file
// appears whole, under its name, or not at all. Thread: the training thread.

#include "engine/train/loop/loop.h"

TD_MUST_USE td_status td_predict(struct td_loop *l, bool *out_interrupted);
// The part with a prompt (generate.c).
TD_MUST_USE td_status td_generate(struct td_loop *l, bool *out_interrupted);
// predict.output, or `name` in the attempt's directory; FAILED_PRECONDITION (bad_spec) without
// both.
TD_MUST_USE td_status td_predict_path(const struct td_rank *r, const char *name, char *out_path);

// A result of predict steps (td_graph_result) of n rows: their width, and the rows of the last run.
TD_MUST_USE td_status td_predict_columns(const struct td_rank *r, const char *name,
                                         int64_t *out_columns);
TD_MUST_USE td_status td_predict_result(struct td_rank *r, const char *name, int64_t n, float *out);

#endif
