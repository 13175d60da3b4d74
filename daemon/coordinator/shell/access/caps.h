#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CAPS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CAPS_H

// How many calls may be open at a time, by whom. caps.def has the caps; a call is in that of all
// calls, and in the one of its method if there is one.
//
// Of each cap, all viewers together have a quarter, and so have all submitters, and all that join;
// one name has half of its role's quarter. So one credential locks out neither the others of its
// role nor another role. Operators, admins and the owner have no share: they are bounded by the cap
// alone. An eighth is kept for them, which nodes do not get either.
//
// A seat is whose call it is: one for each name and role with calls. It stays while it has calls,
// also when its credential is gone. Bound: the calls. Loop's thread.

#include "daemon/coordinator/shell/access/caller.h"
#include "lib/base/base.h"

enum td_cap {
#define TD_CAP(name, most, reason, what, method) TD_CAP_##name,
#include "daemon/coordinator/shell/access/caps.def"
#undef TD_CAP
    TD_CAP_COUNT
};

struct td_caps;
struct td_seat;

TD_MUST_USE td_status td_caps_create(struct td_caps **out_caps);
// After the last td_caps_leave.
void td_caps_destroy(struct td_caps *caps);
TD_DEFINE_AUTO(td_caps, td_caps_destroy);
// A call of `method` begins. RESOURCE_EXHAUSTED with the cap's reason: it names the cap, the role,
// and how many the caller's name holds.
TD_MUST_USE td_status td_caps_enter(struct td_caps *caps, const struct td_caller *who,
                                    const char *method, struct td_seat **out_seat);
// It is over.
void td_caps_leave(struct td_caps *caps, struct td_seat *seat, const char *method);
// Open now.
uint32_t td_caps_count(const struct td_caps *caps, enum td_cap cap);

#endif
