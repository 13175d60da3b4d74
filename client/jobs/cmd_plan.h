#ifndef TRAIND_CLIENT_JOBS_CMD_PLAN_H
#define TRAIND_CLIENT_JOBS_CMD_PLAN_H

// What `plan` and `submit --dry-run` share: the question, and how a warning looks.

#include <stdio.h>

#include "client/session/session.h"
#include "traind/v1/job.pb-c.h"

// PlanJob of the spec that the first argument names, with the flags' overrides and pass; the answer
// is a Traind__V1__PlanJobResponse.
TD_MUST_USE td_status td_plan_ask(struct td_session *s, const struct td_flags *f,
                                  struct td_rpc_message **out_answer);
// A line each: "warning: 14 nodes run on plain loops ...".
void td_plan_show_warnings(const Traind__V1__PlanJobResponse *r, FILE *to);

#endif
