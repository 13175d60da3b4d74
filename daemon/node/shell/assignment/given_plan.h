#ifndef TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_GIVEN_PLAN_H
#define TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_GIVEN_PLAN_H

// A plan that came from the coordinator. It is canonical: the coordinator has checked it by its own
// tables. If it does not pass the same check here, the two are of different builds. That is
// nobody's mistake but the installation's, so another node is asked, and the job is not failed as
// bad_spec. Pure, any thread.

#include "lib/spec/plan.h"

// The plan dies with the arena, which is the caller's on success. Errors: FAILED_PRECONDITION
// PLAN_UNREADABLE, class internal, with this build's version; class bad_spec: it is too large.
TD_MUST_USE td_status td_given_plan_parse(const char *text, struct td_arena **out_arena,
                                          struct td_plan *out_plan);
bool td_given_plan_is_unreadable(td_status borrow_status);

#endif
