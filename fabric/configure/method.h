#ifndef TRAIND_FABRIC_CONFIGURE_METHOD_H
#define TRAIND_FABRIC_CONFIGURE_METHOD_H

// How a job's weights move: the sections optimizer and lr_scheduler of a plan, as the engine knows
// them. Every kind reads the knobs of its own rows (lib/spec/knobs.def) and no others, and has no
// defaults of its own (lib/spec/read.h). What no row of the kind says is 0.
// Errors: INTERNAL when a reader and the rows differ. Thread: any.

#include "engine/train/config/config.h"
#include "lib/base/arena.h"
#include "lib/spec/spec.h"

// Groups are in the arena, texts are borrowed from the spec.
TD_MUST_USE td_status td_method_optimizer(const struct td_spec *spec, struct td_arena *arena,
                                          struct td_optimizer_config *out_optimizer);
TD_MUST_USE td_status td_method_schedule(const struct td_spec *spec,
                                         struct td_schedule_config *out_schedule);
// Several of both, in the arena; 0 of them: the two above are the only ones.
TD_MUST_USE td_status td_method_optimizers(const struct td_spec *spec, struct td_arena *arena,
                                           const struct td_named_optimizer **out_optimizers,
                                           int *out_n);

#endif
