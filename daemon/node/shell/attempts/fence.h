#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FENCE_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FENCE_H

// Fence: an attempt that this daemon does not run must not go on without it, or the coordinator's
// next one would be a second writer of the same job.
//
// Who runs an attempt holds the lock of its directory and is named in it by pid. After td_fence
// nobody does: a launcher of just that directory is killed, and its ranks with it. Any other holder
// gets a second, because it may hold the lock for a moment only. It may be a launcher that has not
// written its name yet, or a rank of a killed launcher that has not reached its exec. It may also
// be a tool that copies the directory. One that stays is not ours to kill: FAILED_PRECONDITION
// names it and the way out.
//
// Used when the daemon starts, before its loop: it waits, seven seconds at most.

#include "lib/base/base.h"

TD_MUST_USE td_status td_fence(const char *dir);

#endif
