#ifndef TRAIND_ENGINE_TRAIN_ESTIMATE_H
#define TRAIND_ENGINE_TRAIN_ESTIMATE_H

// Estimate: how long an optimizer step will take, before any step ran.
//
// Each node of the training program takes the longer of two times: its arithmetic at a share of the
// rate that products usually reached a moment ago, and its bytes at the measured bandwidth; plus
// the fixed cost of starting a kernel on all threads. The shares are rules by op, calibrated once
// on the cpu accelerator (docs/engine.md has the figures). So a prediction holds for cores as they
// were when it was made: who slows them for minutes slows both. What runs on the reference's loops
// takes far longer than this says (the rank has a note about it). Collectives between ranks are not
// in it. Thread: the training thread, for some 50 ms, more where a step goes through much memory.

#include "engine/train/rank.h"

// Seconds; 0 where the accelerator cannot measure its peak, or nothing is trained.
TD_MUST_USE td_status td_estimate_step(const struct td_rank *r, double *out_seconds);

#endif
