#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_BEST_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_BEST_H

// Best: which of a job's checkpoints its monitor says is best, over all attempts.
//
// Every manifest carries the best up to itself, so an attempt that goes on knows those before it.
// The rule is retention's (retention.h): a value that is not a number is never best, and of two
// equal ones the older is. So the best is among the checkpoints that are kept. Pure values, any
// thread.

#include "engine/train/config/config.h"
#include "lib/base/files/files.h"

enum { TD_BEST_PATH_BYTES = 288 };

struct td_best {
    bool known;
    char monitor[64];
    bool larger_is_better;
    double value;
    int64_t step;
    char path[TD_BEST_PATH_BYTES]; // the last two parts of the directory: "a1/step-7"
};

// Does b answer to this monitor? Else it is of another, and counts for nothing.
bool td_best_is_of(const struct td_best *b, const struct td_checkpoint_config *config);
// The directory that holds dir, with a slash at its end: "a/b/" of "a/b/a1". In it begins the path
// of a best that was written to dir. dir is shorter than a path may be.
void td_best_parent(const char *dir, char out_path[TD_FS_PATH_BYTES]);
// Takes the checkpoint of `step` for the best where it is: value is that of config's monitor,
// which it has, and the path is where config writes it.
void td_best_offer(struct td_best *b, const struct td_checkpoint_config *config, int64_t step,
                   double value);

#endif
