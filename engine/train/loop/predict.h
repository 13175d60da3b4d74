#ifndef TRAIND_ENGINE_TRAIN_LOOP_PREDICT_H
#define TRAIND_ENGINE_TRAIN_LOOP_PREDICT_H

// The predict stage: what a trained module says of data, or how it continues a text.
//
// Without a prompt every sample of the predict split is asked once. Rank 0 writes one .npy with a
// row per sample, in the order of the data. A row is the class (i4), of a binary loss one for each
// logit, or the logits (f4), which are the numbers of a regression. Of a module that predicts
// tokens the row is what follows the sample. With a prompt such a module continues it, token by
// token, computing the whole row again for each: there is no cache of keys and values. Rank 0
// writes prompt and continuation, as bytes when the data's tokens are bytes, else as numbers; a
// note shows the beginning. All ranks compute the same continuation, so that they agree on stops as
// ever. The file appears whole, under its name, or not at all. Thread: the training thread.

#include "engine/train/loop/loop.h"

TD_MUST_USE td_status td_predict(struct td_train_loop *l, bool *out_interrupted);

#endif
