#ifndef TRAIND_ENGINE_TRAIN_RANK_SCORES_VALIDATED_H
#define TRAIND_ENGINE_TRAIN_RANK_SCORES_VALIDATED_H

// Validated: what an evaluation measured of a split, and of each of its loaders where it has
// several. `val_loss` is the mean over all samples, `val_loss/1` that over loader 1. A checkpoint
// keeps those of the last validation, summed over ranks. So a monitor may name any of them, for
// the best checkpoint or for the learning rate, also after a resume.
//
// Plain values, at most TD_TALLIES of each loader. Any thread.

#include "engine/train/events/tallies.h"
#include "traind/dataset.h"

struct td_manifest;

struct td_validated {
    struct td_tallies all;
    struct td_tallies loader[TD_LOADERS_MAX];
    int n_loaders; // 0: there is one, which is all
};

// "val_loss", or "val_loss/1" of a loader; -1: of all.
void td_validated_name(char out[TD_METRIC_NAME_BYTES], const char *prefix, const char *metric,
                       int loader);
// name: as a monitor has it, with "val_". NULL: nothing of that name was measured.
const struct td_tally *td_validated_find(const struct td_validated *v, const char *name);
void td_validated_describe(const struct td_validated *v, struct td_manifest *m);
// What a checkpoint kept of a split that has so many loaders.
void td_validated_recall(struct td_validated *v, const struct td_manifest *m, int n_loaders);

#endif
