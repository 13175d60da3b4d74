#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLANS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_PLANS_H

// Plans: what a job will need, asked of a node once per canonical spec, CPU level and plugins'
// files. It is kept while a node has these plugins, and the files that it was made from are the
// same.
//
// A question about a plan that is kept has what that read: the node compares its files, and answers
// that they are the same, or what has changed. Then the plan goes, and the node is asked for
// another. So is one that does not know the question, and plans at once.
//
// A question is a PlanRequest to a ready node, which runs a one-shot worker under limits. The
// answer is its sizes as JSON, of the level that the node holds. Kernels of another need other
// scratch. One question per spec and level is on its way, however many jobs and PlanJob calls wait.
// A node that goes away takes its questions with it: they are asked again elsewhere. An answer of
// class bad_spec or data is final and fails the jobs that wait for the plan. It is not while the
// node may just lack the accelerator: another one that has it, or may have it, is asked then. One
// that gave no plan where another did has no devices for it. A planner that did not end in time is
// final for its node: another one is asked, unless the job calls plugins of the user. Any other
// failure is asked again, max_tries in all, because it says more about the node than about the job.
// A node works on one plan at a time, so a question's time begins with the answer to the one before
// it. One that nobody waits for any more is cancelled at its node. A question for a graph, too, is
// apart from the one for sizes alone: its answer is not kept, and its failure fails no job. Jobs
// wait for a node as long as it takes. A caller of PlanJob is answered: with NO_NODES, when the
// start and the last word of any node are nodes_grace ago.
//
// The room, in reading order:
//
//   offers.h        which plugins nodes have
//   offers_check.h  specs against what those declare
//   capacity.h      whether a job could ever run
//   gpu_capacity.h  the same of GPUs that a program asks for, and how many ranks they mean
//   plans_cache.h   plans that are kept
//   plan_pick.h     which node a question goes to
//   plan_ends.h     what an end of one means for callers and jobs

#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/plans/plans_cache.h"
#include "lib/spec/plan.h"
#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;

// What was planned for the CPU level and the plugins of n, else for another level, else by others.
// NULL: any plan.
const struct td_plan_entry *td_plans_of(const struct td_core *core, const struct td_job *j,
                                        const struct td_host *n);
// The job could start on n as far as plans go, once its own is fresh.
bool td_plans_suffice(const struct td_core *core, const struct td_job *j, const struct td_host *n);
// Sees to it that a node is asked: n, where the job would run. NULL: any. Of a spec that asks for a
// level itself, one that has it. Of one whose accelerator has devices, one that has them, else one
// of which nobody knows. TD_RESOURCE_EXHAUSTED: too many at once.
TD_MUST_USE td_status td_plans_want(struct td_core *core, const char *digest,
                                    const struct td_host *n, const char *dump,
                                    const char *spec_json);
// True: it named devices of the node that were not known.
bool td_plans_on_result(struct td_core *core, struct td_host *node,
                        const Traind__V1__PlanResult *m);
void td_plans_node_gone(struct td_core *core, const char *node);
// Asks what can be asked, gives up what took too long.
void td_plans_tick(struct td_core *core);
// Is the job's trainer.precision auto? What its plan chose then; NULL: it is not, or e is NULL. And
// a note of the job that says it.
bool td_plans_precision_is_auto(const struct td_job *j);
const char *td_plans_precision(const struct td_plan_entry *e, const struct td_job *j);
void td_plans_note(const struct td_plan_entry *e, struct td_job *j);
// The plan of an attempt (or, attempt 0, of a question) as text. The caller frees.
TD_MUST_USE td_status td_plans_text(const char *spec_json, const char *frozen_json,
                                    const struct td_plan_run *run, char **out_text);

#endif
