#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_STEPS_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_STEPS_H

// Steps: the training steps of a module, by name, and what each of them trains.
//
// They are listed when the module is opened, and checked when all programs were recorded: then the
// parameters are known, and which of them each step gives a gradient. Who trains nothing, what two
// steps train and what none reaches is named, before anything runs.
// Thread: the training thread.

#include "engine/train/rank/rank.h"

// Into r->steps. FAILED_PRECONDITION (class user_code) where names are none, or twice the same.
TD_MUST_USE td_status td_rank_list_steps(struct td_rank *r);
// Does the step of this program train the parameter, if its loss reaches it?
bool td_rank_step_trains(const struct td_rank *r, const struct td_program_key *key,
                         const char *param);
// Of a job that trains, after it was recorded. Says in r->steps which optimizer each step has.
// FAILED_PRECONDITION, class user_code: a step that trains nothing, a pattern that matches nothing,
// a parameter of two steps. Class bad_spec: a parameter that no step reaches, unless the job allows
// it (FAILED_PRECONDITION); a step of two optimizers (INVALID_ARGUMENT).
TD_MUST_USE td_status td_rank_check_steps(struct td_rank *r);

// Does somebody else than fit say forward, backward and optimizer step?
bool td_rank_is_manual(const struct td_rank *r);
// May gradients of several backward calls add up there?
bool td_rank_adds_up(const struct td_rank *r);
// May forwards of several steps be open at once? Each has activations of its own then.
bool td_rank_keeps_forwards(const struct td_rank *r);

#endif
