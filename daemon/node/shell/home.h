#ifndef TRAIND_DAEMON_NODE_SHELL_HOME_H
#define TRAIND_DAEMON_NODE_SHELL_HOME_H

// The node's state and runtime directories: are they still where their paths lead? Looked at twice
// a second; td_node_daemon.trouble is what the last look found. While one is gone or another is in
// its place, no attempt starts and no plan is made here, and heartbeats say why. What runs goes on,
// and ends when its launcher misses its files. Nothing is made again below a mount point. Loop
// thread.

#include "lib/base/files/held_path.h"

struct td_node_home;
struct td_node_daemon;

TD_MUST_USE td_status td_node_home_create(struct td_node_daemon *n, struct td_node_home **out_home);
void td_node_home_destroy(struct td_node_home *h);
// Looks now, and reports what has changed to the coordinator before whoever asks can answer. NULL:
// OK. UNAVAILABLE, class disk.
TD_MUST_USE td_status td_node_home_check(struct td_node_home *h);

#endif
