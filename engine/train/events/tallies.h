#ifndef TRAIND_ENGINE_TRAIN_EVENTS_TALLIES_H
#define TRAIND_ENGINE_TRAIN_EVENTS_TALLIES_H

// Tallies: sums of what a program puts out, over batches. Value = sum / count, so tallies of
// windows merge to those of an epoch, and those of ranks to those of the job. Plain values, any
// thread.

#include <stdint.h>

#include "lib/attempt/rank_page.h"
#include "traind/types.h"

struct td_graph;

struct td_tally {
    char name[TD_METRIC_NAME_BYTES]; // as the module named the output: "loss"
    double sum, count;
};
enum { TD_TALLIES = 8 };
struct td_tallies {
    struct td_tally item[TD_TALLIES];
    size_t n;
};

// Adds the outputs of a run over n samples. Norms are left out, and outputs past TD_TALLIES (a job
// that trains such a module is refused: monitor.h).
void td_tallies_add(struct td_tallies *t, const struct td_graph *g, const double *outputs,
                    int64_t n);
// What the mean of the step's loss is over in a run over n samples: 0 where nothing counted.
double td_tallies_counted(const struct td_graph *g, const double *outputs, int64_t n);
// Adds to each tally the one of the same name; new names come last, as far as there is room.
void td_tallies_merge(struct td_tallies *t, const struct td_tallies *from);
const struct td_tally *td_tallies_find(const struct td_tallies *t, const char *name);

#endif
