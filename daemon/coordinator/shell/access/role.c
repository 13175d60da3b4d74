// See the header. Rejected: permissions one by one, as sets; five roles are what people remember,
// and every pair of role and method has a test.

#include "daemon/coordinator/shell/access/role.h"

const char *td_access_role_name(enum td_access_role role) {
    static const char *const names[] = {"none",  "viewer", "submitter", "operator",
                                        "admin", "node",   "join"};
    _Static_assert(sizeof names / sizeof names[0] == TD_ROLE_COUNT, "one name per role");
    return names[role];
}

bool td_access_role_allows(enum td_access_role held, enum td_access_role needed) {
    if (needed == TD_ROLE_NONE) return true;
    if (needed >= TD_ROLE_NODE || held >= TD_ROLE_NODE) return held == needed;
    return held >= needed;
}
