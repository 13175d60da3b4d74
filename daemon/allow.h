#ifndef TRAIND_DAEMON_ALLOW_H
#define TRAIND_DAEMON_ALLOW_H

// What of a submitter's own a node runs (--allow), and the ports that it gives commands
// (--port-range).
//
// A plugin, a program or a command of a spec is code that runs as the daemon's user. Where only
// this machine can reach the daemon, whoever submits has that user's token, and could run it
// anyway: all is allowed. Anywhere else nothing is, until somebody says what. Pure but for
// td_allow_ports, which reads /proc.

#include "lib/base/machine/ports.h"

enum td_allow { TD_ALLOW_PLUGINS = 1, TD_ALLOW_PROGRAMS = 2, TD_ALLOW_COMMANDS = 4 };

// HOST:PORT is of this machine alone.
bool td_allow_is_loopback(const char *address);
// "auto", "all", "none", or names with ',' between. INVALID_ARGUMENT names the setting.
TD_MUST_USE td_status td_allow_parse(const char *text, bool is_loopback, unsigned *out_allowed);
// "auto" or FIRST-LAST.
TD_MUST_USE td_status td_allow_ports(const char *text, struct td_ports *out_ports);
// "auto", beside the range that the kernel takes for connections: 20000-29999 where that is free,
// else what is free right below it, or right above it.
struct td_ports td_allow_ports_beside(int first_taken, int last_taken);

#endif
