#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOB_LIST_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOB_LIST_H

// Lists of jobs by a key: arrays of borrowed pointers that grow by doubling. A list is searched by
// halves; what is taken out or put in moves pointers only, 80 KB of ten thousand jobs.
// Owned by the core, on the loop's thread; a list dies with it. Without memory the daemon stops
// (model.h).

#include "daemon/coordinator/core/model/job.h"

// Lists of borrowed jobs; they grow. By key: smallest first.
typedef uint64_t td_job_key_fn(const struct td_job *j);
void td_jobs_push(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j);
uint32_t td_jobs_insert(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j,
                        td_job_key_fn *key); // after its equals; where it is now
// The job must be in it.
uint32_t td_jobs_find(struct td_job *const *list, uint32_t n, const struct td_job *j,
                      td_job_key_fn *key);
void td_jobs_remove(struct td_job **list, uint32_t *n, uint32_t at);
uint64_t td_job_key_seq(const struct td_job *j);

#endif
