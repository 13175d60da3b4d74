// See the header.

#include "daemon/node/shell/assignment/given_plan.h"

#include <string.h>

#include "lib/version/version.h"

enum { PLAN_MAX = 4 << 20 };

static td_status unreadable(td_status take_why) {
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "this node is traind %s and cannot read the plan that the "
                          "coordinator wrote: %s; install one release on both",
                          td_version, td_status_message(take_why));
    td_status_free(take_why);
    return td_status_with_class(td_status_with_reason(s, "PLAN_UNREADABLE"), TD_CLASS_INTERNAL);
}

td_status td_given_plan_parse(const char *text, struct td_arena **out_arena,
                              struct td_plan *out_plan) {
    size_t len = strlen(text);
    if (len > PLAN_MAX) return td_fail(TD_INVALID_ARGUMENT, "a plan of %zu bytes", len);
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    td_status s = td_plan_parse(arena, text, len, out_plan);
    if (td_status_code(s) == TD_INVALID_ARGUMENT) return unreadable(s);
    TD_TRY(s);
    *out_arena = td_steal(arena);
    return TD_OK;
}

bool td_given_plan_is_unreadable(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), "PLAN_UNREADABLE") == 0;
}
