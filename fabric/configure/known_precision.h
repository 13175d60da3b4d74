#ifndef TRAIND_FABRIC_CONFIGURE_KNOWN_PRECISION_H
#define TRAIND_FABRIC_CONFIGURE_KNOWN_PRECISION_H

// Known precision: the one that a rank trains in, where no estimate is needed to say it.
//
// `trainer.precision: auto` is settled once. A job keeps what it was frozen with. A run that
// continues from a checkpoint keeps what that was trained in. A first start keeps what its plan
// chose (run.precision). With trainer.deterministic, or where nothing is trained, it is 32-true.
// What is left is for precision.h. Reads manifests; thread: training.

#include "engine/train/config/config.h"
#include "lib/spec/plan.h"

#define TD_PRECISION_AUTO  "auto"
#define TD_PRECISION_PLAIN "32-true"
#define TD_PRECISION_MIXED "bf16-mixed"

// TD_PRECISION_AUTO if only an estimate can decide. Static, or of the arena or the plan. Of train
// stages, deterministic and resume_from are read.
const char *td_known_precision(struct td_arena *arena, const struct td_plan *plan,
                               const struct td_train_config *train);

#endif
