#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ADOPT_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ADOPT_H

// Scan: the attempts that are on disk when a node starts. One whose launcher lives is attached to.
// One that has ended waits for the coordinator to take the rest of it. A start that never came to a
// launcher is removed. One that can be neither is left as it is, with an error in the log.
//
// Before the transport is started, so that the first Register knows them all. It may wait
// (fence.h).

#include "lib/base/base.h"

struct td_node_daemon;

TD_MUST_USE td_status td_scan(struct td_node_daemon *n);

#endif
