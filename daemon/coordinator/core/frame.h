#ifndef TRAIND_DAEMON_COORDINATOR_CORE_FRAME_H
#define TRAIND_DAEMON_COORDINATOR_CORE_FRAME_H

// The frame of every input: enter(now), the change, leave. At its end one record is made of each
// job and attempt that changed.

#include "daemon/coordinator/core/model/exchange.h"

struct td_core;

void td_core_enter(struct td_core *core, struct td_now now);
void td_core_leave(struct td_core *core);

#endif
