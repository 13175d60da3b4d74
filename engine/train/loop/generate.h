#ifndef TRAIND_ENGINE_TRAIN_LOOP_GENERATE_H
#define TRAIND_ENGINE_TRAIN_LOOP_GENERATE_H

// Continuing a prompt, token by token. The program has one shape, a row of the data's length. A
// short beginning is followed by tokens that nobody looks at (the attention is causal), and of a
// long one only the last row's worth is seen. Each draw has its own number of a named Philox
// stream, so the same seed gives the same text on any machine that computes the same logits.
// Thread: the training thread.

#include "engine/train/loop/loop.h"

// The predict stage of a job with a prompt; predict.h says what it writes.
TD_MUST_USE td_status td_generate(struct td_train_loop *l, bool *out_interrupted);

#endif
