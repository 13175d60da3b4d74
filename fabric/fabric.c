// What every call of a program begins and ends with: whether it may be made now, and what its
// failure means for those after it. Below create, setup, steps and finish, which all use it.

#include "fabric/fabric.h"

#include "engine/train/rank/group/group.h"

td_status td_fabric_misuse(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    td_status s = td_vfail(TD_FAILED_PRECONDITION, fmt, ap);
    va_end(ap);
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_USER_CODE), TD_MANUAL_MISUSE);
}

td_status td_fabric_need_setup(const struct td_fabric *f, const char *call) {
    TD_CHECK(f->magic == TD_FABRIC_MAGIC);
    if (f->ended) return td_fabric_misuse("%s after td_fabric_finish", call);
    if (f->failure) {
        return td_fabric_misuse("%s after a call that failed (%s); only td_fabric_finish and "
                                "td_fabric_destroy may follow",
                                call, f->failure);
    }
    return f->rank ? TD_OK : td_fabric_misuse("%s before td_fabric_setup", call);
}

td_status td_fabric_failed(struct td_fabric *f, td_status s) {
    s = td_rank_classify(s);
    if (!s) return TD_OK;
    if (!f->failure) f->failure = td_arena_strdup(f->arena, td_status_message(s));
    if (!f->failure) f->failure = "out of memory";
    if (f->rank) td_rank_fail(f->rank, s);
    return s;
}
