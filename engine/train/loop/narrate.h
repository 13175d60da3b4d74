#ifndef TRAIND_ENGINE_TRAIN_LOOP_NARRATE_H
#define TRAIND_ENGINE_TRAIN_LOOP_NARRATE_H

// Narrate: the lines in which a rank says what it does: its plan, the epochs, a stop. They go to
// the rank's log through td_events_say, for people who wonder whether it does anything; programs
// read events and metrics.
//
// A line costs one write of the training thread, never more often than an epoch ends. An epoch may
// last a millisecond, so the first TD_NARRATED_EPOCHS have lines, and of later ones those that
// begin a second after the last line. Thread: the training thread.

#include "engine/train/loop/loop.h"

enum { TD_NARRATED_EPOCHS = 100 };

// Once fit knows its length.
void td_narrate_plan(const struct td_train_loop *l);
void td_narrate_epoch_begin(struct td_train_loop *l);
// After its validation. Nothing if its begin had no line.
void td_narrate_epoch_end(struct td_train_loop *l);
void td_narrate_stop(const struct td_train_loop *l, bool saves);

#endif
