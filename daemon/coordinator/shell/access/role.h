#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_ROLE_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_ROLE_H

// What a credential may do. Roles of people are a ladder: each may what the one before it may. A
// node is beside the ladder: it may what nodes do, and nothing else; no person may that. So is who
// joins. Each row
// of the method table (lib/rpc/call.h) names the role that it needs. Pure, any thread.

#include <stdbool.h>

enum td_access_role {
    TD_ROLE_NONE,   // numbers: traind.v1.Token.Role
    TD_ROLE_VIEWER, // the first step of the ladder
    TD_ROLE_SUBMITTER,
    TD_ROLE_OPERATOR,
    TD_ROLE_ADMIN, // the last
    TD_ROLE_NODE,
    TD_ROLE_JOIN, // may become a node, once
    TD_ROLE_COUNT,
};

// "submitter"; "none" for TD_ROLE_NONE.
const char *td_access_role_name(enum td_access_role role);
// TD_ROLE_NONE needs nothing; nobody who holds it may anything else.
bool td_access_role_allows(enum td_access_role held, enum td_access_role needed);

#endif
