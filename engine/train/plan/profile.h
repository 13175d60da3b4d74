#ifndef TRAIND_ENGINE_TRAIN_PLAN_PROFILE_H
#define TRAIND_ENGINE_TRAIN_PLAN_PROFILE_H

// Profile: where the time of a run went, by op and type, as a table for people. The accelerator
// counts runs and nanoseconds of every kernel (kernel_at), because it was opened with `profile`;
// one that does not has no table.

#include "engine/train/rank/programs.h"
#include "lib/base/buf.h"

// Appends the table of all bound programs, the costliest op first; a sentence where there is none.
TD_MUST_USE td_status td_profile_print(const struct td_programs *p, struct td_buf *out);

#endif
