#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CALLER_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CALLER_H

// Who calls, as the credential of a call says (access.h).

#include "daemon/coordinator/shell/access/role.h"

// Whose call it is. The strings die with the next change of tokens.
struct td_caller {
    const char *token;        // id; "owner" for the owner's; of a node its serial; "": nobody
    const char *name;         // "owner" for the owner's; of a certificate: the node's id
    enum td_access_role role; // the owner's is admin
    bool is_owner;            // and node
};

#endif
