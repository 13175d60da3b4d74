#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RETAIN_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RETAIN_H

// What stays of a job's checkpoints, over all its attempts: the rule of lib/attempt/retention.h,
// given the whole checkpoints oldest first. See catalog.h for what the rule may not take.
//
// It runs where the answer can change: a checkpoint was committed, an attempt is over, a job that
// named one of these has ended, the coordinator starts. What it takes leaves the catalog in the
// transaction of that event, so a crash leaves both or neither; the files follow (reconcile.h).
// A damaged one does not count and stays: it costs no choice, and somebody may want to look at it.
// One whose files are missing goes where it would go if it were whole: a rank or node was killed
// while it removed it.

#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/job.h"

struct td_core;

// Of this attempt nothing comes any more, so its checkpoints are the catalog's to remove.
bool td_retain_is_over(const struct td_job *j, uint32_t attempt);
// What save_top_k does not keep leaves the catalog.
void td_retain(struct td_core *core, struct td_job *j);
// The same for every job that attempts have left something of; at the start.
void td_retain_all(struct td_core *core);
// A job has ended: what it alone kept of another's may go.
void td_retain_released(struct td_core *core, const struct td_job *ended);
// Job k names a checkpoint of j as the one that it begins from.
bool td_retain_names(const struct td_job *k, const struct td_job *j);
// The same of one checkpoint, by name or because k was settled on it (source.h).
bool td_retain_needs(const struct td_job *k, const struct td_job *j, const char *path);
// A job that waits or runs and needs this checkpoint (NULL: any) of j; NULL: none.
const struct td_job *td_retain_user(const struct td_core *core, const struct td_job *j,
                                    const struct td_checkpoint *c);
// The checkpoint that its rule would keep longest: by the monitored value, else the newest. NULL:
// the job has none that is whole.
const struct td_checkpoint *td_retain_best(struct td_job *j);
// What a listing says of them beside themselves. best is NULL where no value says so.
struct td_retain_marks {
    const char *monitor; // dies with the job; "": none
    const struct td_checkpoint *best, *last;
};
struct td_retain_marks td_retain_mark(struct td_job *j);
// NaN: monitor is "", or has no finite value there.
double td_retain_value(const struct td_checkpoint *c, const char *monitor);

#endif
