#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_STEP_SET_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_STEP_SET_H

// A set of steps, for which a metric has a value. Steps come at a stride nearly always, so it is
// kept as runs (first, last, stride), apart from each other and in order. A metric of every tenth
// step is one run, however long the job. Irregular steps are a run for two of them.
//
// Bound: the caller's, by n_runs. Plain data.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_step_run {
    int32_t first, last;
    int32_t stride; // 0: it is one step
};
struct td_step_set { // all zero: empty
    struct td_step_run *run;
    size_t n_runs, cap;
};
void td_step_set_finish(struct td_step_set *s);
bool td_step_set_has(const struct td_step_set *s, int32_t step);
// False: it was there, or there is no memory for it.
bool td_step_set_add(struct td_step_set *s, int32_t step);
// Forgets the lower half of its runs, and gives back their memory.
void td_step_set_halve(struct td_step_set *s);

#endif
