#ifndef TRAIND_ENGINE_TRAIN_PLAN_AUTOTUNE_H
#define TRAIND_ENGINE_TRAIN_PLAN_AUTOTUNE_H

// Autotune: the last "pass" of `--dump-graph`. It shows what the last pass of the graph left and,
// below each node whose kernel is a choice by timing, what is known of that choice. Nothing is
// measured for it. Thread: the training thread.

#include "engine/train/rank/programs/dump.h"
#include "engine/train/rank/rank.h"

// When the rank that d took a program of (td_rank_create_plan) is there: adds what its accelerator
// says of the program's kernels. Leaves d as it is unless it wants choices.
TD_MUST_USE td_status td_autotune_text(struct td_dump *d, struct td_rank *r);

#endif
