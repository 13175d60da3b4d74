#ifndef TRAIND_ENGINE_TRAIN_LOOP_EARLY_STOPPING_H
#define TRAIND_ENGINE_TRAIN_LOOP_EARLY_STOPPING_H

// Early stopping: when the monitored metric is looked at, and when fit obeys.
//
// It is checked when a validation of fit has ended, or when an epoch of training has, as the knob
// says. By default it is the epoch where each one is validated once, at its end, as in Lightning.
// An epoch that limits cut short is not checked: a run with higher limits, which goes on in it,
// would count it twice. A metric of training is its mean over the epoch so far. What is not known
// is not counted: no validation yet, or one whose labels are all to be ignored.
//
// Fit ends at the boundary where the end was decided, or at the first later one where min_epochs
// and min_steps are met. If that is inside an epoch it validates once more there, as Lightning
// does. Patience that ran out before min_epochs is judged again at their end, by the last check:
// until then nothing is ended, and an improvement takes it back. An end that is decided in the
// middle of an accumulation window waits for the window's end. All ranks hold the same value, so
// all decide alike. Thread: the training thread.

#include "engine/train/loop/loop.h"

// After each validation of fit that was not interrupted. Collective.
TD_MUST_USE td_status td_early_stopping_validated(struct td_train_loop *l);
// After the last batch of an epoch. Collective.
TD_MUST_USE td_status td_early_stopping_epoch_ended(struct td_train_loop *l);
// Was the end decided for good, and would fit obey with so many epochs and steps done?
bool td_early_stopping_ends(const struct td_train_loop *l, int64_t n_epochs, int64_t steps_done);
// Where the end was decided at an earlier boundary: does it ask for one more validation here? An
// epoch that this boundary ends does not count: it is not yet done.
bool td_early_stopping_validates(const struct td_train_loop *l);

#endif
