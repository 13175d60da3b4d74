#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLAN_ENDS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLAN_ENDS_H

// How a question for a plan ends: callers of PlanJob are answered, and where it has failed, the
// jobs that cannot start without it. Owned by the core, on the loop's thread.

#include "lib/base/base.h"

struct td_core;
struct td_plan_ask;
struct td_plan_entry;

bool td_plan_ask_is_waited_for(const struct td_core *core, const struct td_plan_ask *ask);
// Answers every PlanJob call that waits for it. e: what json says; NULL: a graph, or nothing.
void td_plan_ask_answer(struct td_core *core, const struct td_plan_ask *ask, const char *json,
                        const struct td_plan_entry *e, td_status borrow_failure);
// A failure that says something of the spec: no other node would do better.
bool td_plan_ask_is_final(enum td_class cls, uint32_t code);
// The question at that place has failed, and goes; another one takes the place.
void td_plan_ask_fail(struct td_core *core, uint32_t at, enum td_class cls, enum td_code code,
                      const char *message);
void td_plan_ask_drop(struct td_core *core, uint32_t at);

#endif
