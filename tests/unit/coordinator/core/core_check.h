#ifndef TRAIND_TESTS_UNIT_COORDINATOR_CORE_CORE_CHECK_H
#define TRAIND_TESTS_UNIT_COORDINATOR_CORE_CORE_CHECK_H

// What holds of the core between two inputs, whatever these were. Tests ask after each input:
// tests/sim, tests/unit/coordinator/core/coord_rig.h and tests/fuzz/messages/fuzz_core.c. The
// daemon does not: what it has must be as its tests have found it.
//
// It counts once more what the core keeps count of, and finds out by itself where each thing
// belongs. So its cost grows with jobs, their attempts and checkpoints, and nodes. What only the
// sender of a message answers for is not judged.

#include "lib/base/base.h"

struct td_core;

// INTERNAL: the first thing that does not hold, with the job or the node. Before td_core_start
// nothing has to.
TD_MUST_USE td_status td_core_check(const struct td_core *core);

#endif
