#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_PLAN_ASKS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_PLAN_ASKS_H

// Questions for plans that are on their way, as those see them that end what waits for one. The
// rest is in plans.c, which asks and answers. Owned by the core, on the loop's thread.

struct td_core;
struct td_plan_ask;

void td_plan_ask_destroy(struct td_plan_ask *ask);
// Somebody who waited for plans of this spec is gone. The next tick drops what nobody waits for.
void td_plan_asks_unused(struct td_core *core, const char *digest);

#endif
