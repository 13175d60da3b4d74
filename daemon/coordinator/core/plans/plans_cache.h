#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLANS_CACHE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLANS_CACHE_H

// Plans that nodes have given: one per canonical spec, CPU level and plugins' files. The one that
// was used longest ago leaves a full cache. Each is a row of state.db, too, so a coordinator that
// starts again has them.
//
// A plan is as good as the files that it was made from. It has a list of these, and a node compares
// that with its own before the plan is used. Until then the plan refuses no job and decides nothing
// about where one may run. A plan of no files is always good; that of a node which does not say
// what it read is good for the moment alone. Owned by the core, on the loop's thread.

#include "lib/base/base.h"

struct td_core;
struct td_host;
struct td_job;
struct td_plan_entry;

void td_plan_entry_destroy(struct td_plan_entry *e);
// "<digest of the spec>/<CPU level of the node>/<digest of its plugins>"; TD_PLAN_KEY_BYTES.
void td_plans_key(const char *digest, const struct td_host *n, char out[]);
// Of a node with this one's CPU level and plugins. NULL: of any.
const struct td_plan_entry *td_plans_find(const struct td_core *core, const char *digest,
                                          const struct td_host *n);
// The same, else of another CPU level and the same plugins, else any.
const struct td_plan_entry *td_plans_find_near(const struct td_core *core, const char *digest,
                                               const struct td_host *n);
// From what a node answered.
TD_MUST_USE td_status td_plans_read(const char *key, const char *json,
                                    struct td_plan_entry **out_entry);
// The core owns it from here on; it takes the place of one with the same key.
void td_plans_keep(struct td_core *core, struct td_plan_entry *take_e);
// It was needed just now: the last to leave the cache.
void td_plans_use(struct td_core *core, const char *digest, const struct td_host *n);
// It depends on no file.
bool td_plans_is_settled(const struct td_plan_entry *e);
// A node has made it, or compared its files, since the job waits. e: NULL: false.
bool td_plans_holds(const struct td_plan_entry *e, const struct td_job *j);
// The first such plan of the job; NULL: none.
const struct td_plan_entry *td_plans_find_held(const struct td_core *core, const struct td_job *j);
// And n did so just now: an attempt may start there.
bool td_plans_is_fresh(const struct td_core *core, const struct td_plan_entry *e,
                       const struct td_job *j, const struct td_host *n);
// n says that it is as it was. False: it is not kept any more.
bool td_plans_confirm(struct td_core *core, const char *digest, const struct td_host *n,
                      struct td_mono asked);
// n says that it is not.
void td_plans_drop(struct td_core *core, const char *digest, const struct td_host *n);
// A node has other plugins now: what no node's plugins gave is dropped.
void td_plans_drop_stale(struct td_core *core);
TD_MUST_USE td_status td_plans_load(struct td_core *core, const char *key, const char *body);

#endif
