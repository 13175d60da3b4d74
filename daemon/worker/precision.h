#ifndef TRAIND_DAEMON_WORKER_PRECISION_H
#define TRAIND_DAEMON_WORKER_PRECISION_H

// Precision: what `trainer.precision: auto` is, and what a 16-bit precision costs beside 32-true.
//
// auto is 32-true or bf16-mixed, whichever step the plan predicts to be shorter; both keep weights
// and optimizer in fp32, so a checkpoint of either resumes as the other. It is estimated only where
// known_precision.h does not know it; where no rates are known it is 32-true. Thread: training.

#include "fabric/attach.h"
#include "engine/train/plan/sizes.h"

struct td_worker_sized {
    struct td_rank *rank; // recorded in `precision`; destroy it
    struct td_sizes sizes;
    const char *precision;
    const char *other;         // the precision that it was compared with; NULL: with none
    struct td_estimate beside; // its step
};
// Builds the rank of a plan; chooses config's precision if it is auto.
TD_MUST_USE td_status td_worker_size_up(struct td_rank_config *config, struct td_rank_io *io,
                                        struct td_events *events, struct td_worker_sized *out);

// Of a run by hand, which has no plan before it: chooses what auto is, with a note.
TD_MUST_USE td_status td_worker_choose_precision(struct td_rank_config *config,
                                                 struct td_rank_io *io, struct td_events *events);

#endif
