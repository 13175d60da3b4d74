#ifndef TRAIND_DAEMON_NODE_FENCE_H
#define TRAIND_DAEMON_NODE_FENCE_H

// Fence: an attempt that this daemon cannot take over must not go on behind its back, or the
// coordinator's next one would be a second writer of the same job.
//
// Who runs an attempt holds the lock of its directory and stands in it by pid. After td_fence
// nobody does: a launcher of just that directory is killed, and its ranks with it. A holder that is
// anything else is not ours to kill: FAILED_PRECONDITION names it and the way out. Waits a few
// seconds at most for the end of what it killed. Used when the daemon starts, before its loop.

#include "lib/base/base.h"

TD_MUST_USE td_status td_fence(const char *dir);

#endif
