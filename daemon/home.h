#ifndef TRAIND_DAEMON_HOME_H
#define TRAIND_DAEMON_HOME_H

// The state directory of a daemon while it runs: the lock that names it, the token, the address.

#include <sys/types.h>

#include "daemon/config.h"

struct td_home {
    int lock_fd;       // -1: not locked
    mode_t user_umask; // that the daemon was started with
    char token[TD_CONFIG_TEXT];
    char address_path[TD_CONFIG_TEXT + 16];
    bool wrote_address;
};

// Sets the umask of the process to 077. Makes the directories (0700), takes the lock
// (FAILED_PRECONDITION names its holder), reads the token. Roles that coordinate make one (0600)
// when there is none; a node that has joined needs none. A state directory that is there must
// belong to this user. Modes of it and of what it holds that let others in are repaired, with a
// line in the log. FAILED_PRECONDITION: it holds what no traind wrote, or its modes cannot be set.
TD_MUST_USE td_status td_home_open(const struct td_config *c, struct td_home *out_home);
// Says where clients connect; only after listening.
TD_MUST_USE td_status td_home_publish(struct td_home *h, const char *address);
// Takes the address back and releases the lock. Half-open homes are fine.
void td_home_close(struct td_home *h);

#endif
