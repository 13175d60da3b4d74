#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLAN_PICK_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLAN_PICK_H

// Which node a question for a plan goes to, and which it does not go to again. Owned by the core,
// on the loop's thread.

#include "lib/base/base.h"

struct td_core;
struct td_host;
struct td_plan_ask;

// The ready node that suits best, among equals that with the most slots; NULL: none may be asked.
struct td_host *td_plan_ask_pick(struct td_core *core, const struct td_plan_ask *ask);
// It gave no plan.
void td_plan_ask_note_failed(struct td_plan_ask *ask, const char *node);
bool td_plan_ask_has_failed(const struct td_plan_ask *ask, const struct td_host *n);
// What a node refused may be what it lacks: nobody knows that it has the accelerator, and another
// ready one has it, or may have it.
bool td_plan_ask_other_may_know(struct td_core *core, const struct td_plan_ask *ask,
                                const struct td_host *node);

#endif
