#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_OUTPUTS_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_OUTPUTS_H

// Places: where a run will write, looked at before its first step, so that hours of training do not
// end in want of a directory.

#include "engine/train/config/config.h"

// Rank 0 writes a file, and leaves none, where checkpoints and predictions will go; directories are
// made, as they would be later. Class disk: a place that was found good when the job was planned is
// missing, refuses or is full. Class bad_spec: something else is in its way. Thread: training.
TD_MUST_USE td_status td_outputs_check(const struct td_train_config *config);
// The same for a plan: no directory is made, the nearest that is there is tried. Class bad_spec.
TD_MUST_USE td_status td_outputs_look(const struct td_train_config *config);

#endif
