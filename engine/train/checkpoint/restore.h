#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_RESTORE_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_RESTORE_H

// Restore: from a checkpoint on disk to the state of a rank.
//
// choose walks the candidates, newest first, and takes the first whose manifest reads well and
// whose files have the sizes and digests that it names. Each one passed over is a
// "skipped_checkpoint" event with the reason. None left: DATA_LOSS, class data, naming them all.
// load copies tensors by name into the regions; a tensor that is missing, or of another shape or
// type, and a file that the manifest does not list are DATA_LOSS. But optimizer state that the
// manifest does not list was never there: it stays as it is (resume.h names it). (Weights of
// somebody else's making: weights.h.) Nothing is scanned for: the candidates come from the plan.
// Thread: the training thread.

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/checkpoint/safetensors.h"
#include "engine/train/events/events.h"
#include "traind/accelerator.h"
#include "traind/strategy.h"

struct td_restored {
    const char *path; // one of the candidates
    struct td_manifest manifest;
};

TD_MUST_USE td_status td_restore_choose(const char *const *paths, size_t n_paths,
                                        struct td_events *events, struct td_arena *a,
                                        struct td_restored *out_restored);
// The same for a plan: manifest and sizes, but not digests, which take as long as reading it all.
TD_MUST_USE td_status td_restore_look(const char *const *paths, size_t n_paths, struct td_arena *a,
                                      struct td_restored *out_restored);

struct td_restore_target {
    const struct td_state_table *state;
    struct td_strategy_memory *memory;
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
};
// Puts a tensor into the place of t, which has its shape; a float of another type is converted.
TD_MUST_USE td_status td_restore_tensor(const struct td_tensor *from, const struct td_state_info *t,
                                        const struct td_restore_target *to);
// May a tensor of a checkpoint become t? Errors: DATA_LOSS, by name; NULL: it is missing.
TD_MUST_USE td_status td_restore_check(const struct td_tensor *from, const struct td_state_info *t);
// All tensors of the roles (bits 1 << td_role) from the checkpoint's files, but those of which each
// rank has a piece alone (engine/train/rank/state/apart.h).
TD_MUST_USE td_status td_restore_load(const struct td_restored *r, uint32_t roles,
                                      const struct td_restore_target *to);
// Would load find all of these, of the right shapes and types? For a plan: no data is read.
TD_MUST_USE td_status td_restore_compare(const struct td_restored *r, uint32_t roles,
                                         const struct td_state_table *state);

#endif
