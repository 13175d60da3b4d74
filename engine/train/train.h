#ifndef TRAIND_ENGINE_TRAIN_TRAIN_H
#define TRAIND_ENGINE_TRAIN_TRAIN_H

// engine/train: a job's programs and state, trained.
//
// In reading order, from the floor up:
//
//   config/               what the job asks for
//   events/, checkpoint/  what leaves a rank
//   rank/                 one rank, with its plugins, programs and state
//   plan/                 what it will need, and what is chosen for it
//   loop/                 what it does
//   build.h               puts a rank together
//   start.h               looks for a plan at what a start needs
//   train.h               runs it
//
// Train: one rank of one attempt, from configuration to its end. This is what a worker calls.
//
//   build the rank -> fit -> validate -> test -> tear down
//
// Thread: the calling thread becomes the training thread.

#include "engine/train/events/events.h"
#include "engine/train/loop/loop.h"

struct td_train_result {
    enum td_train_loop_end end;
    int64_t step;
};

// On failure peers were woken and everything is freed; out_result->step is filled in either way.
TD_MUST_USE td_status td_train(const struct td_train_config *config, struct td_train_io *io,
                               struct td_events *events, struct td_train_result *out_result);

#endif
