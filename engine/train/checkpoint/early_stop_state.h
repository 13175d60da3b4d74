#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_EARLY_STOP_STATE_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_EARLY_STOP_STATE_H

// State of early_stopping in a manifest: its member `early_stopping`, which a job without a monitor
// does not have. A best or a value that is infinite is a text there, since JSON has no such number.
// Pure, any thread.

#include "engine/train/config/early_stop.h"
#include "lib/base/json.h"

// The arena's end shows when the manifest is whole (manifest.c).
void td_early_stop_put(struct td_arena *a, struct td_json *root, const struct td_early_stop *s);
// False: what is there cannot be. No member: s is all zero.
bool td_early_stop_get(const struct td_json *root, struct td_early_stop *s);

#endif
