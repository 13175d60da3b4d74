#ifndef TRAIND_DAEMON_NODE_SETTLE_H
#define TRAIND_DAEMON_NODE_SETTLE_H

// Settle: the log of an attempt whose launcher is surely gone gets its last line.

#include "lib/base/base.h"

// If events.log in dir ends with launcher_end or launcher_lost, nothing happens; else a
// half-written line is cut and launcher_lost is appended, with fsync. rebooted: the machine took it
// down.
TD_MUST_USE td_status td_settle(const char *dir, bool rebooted);

#endif
