#ifndef TRAIND_ENGINE_TRAIN_PLAN_PLAN_H
#define TRAIND_ENGINE_TRAIN_PLAN_PLAN_H

// engine/train/plan: what a job will need and what is chosen for it, before anything of it runs.
//
// In reading order:
//
//   plan.h      the programs of a job, and how much of the forward pass they keep
//   amounts.h   the batches that limits leave them
//   sizes.h     the bytes that they need
//   monitor.h   the metrics that they give
//   estimate.h  the time of a step
//   rates.h     what this machine does a second, from which that is
//   choices.h   what the first start settles for all attempts
//   autotune.h  the text of these choices
//   profile.h   where the time of a run went
//
// All of it reads a rank that is being built (rank/); nothing in rank/ knows of plans. Thread: the
// training thread.

#include "engine/train/rank/rank.h"

// Records the programs of the rank, and lays out its state. They keep as much of the forward pass
// as the memory allows (sizes.h). FAILED_PRECONDITION, class out_of_memory: no level fits.
TD_MUST_USE td_status td_plan_programs(struct td_rank *r);

#endif
