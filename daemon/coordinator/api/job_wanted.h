#ifndef TRAIND_DAEMON_COORDINATOR_API_JOB_WANTED_H
#define TRAIND_DAEMON_COORDINATOR_API_JOB_WANTED_H

// Which jobs a list is of: the fields of ListJobsRequest, all of which have to hold. Pure.

#include "lib/base/base.h"
#include "traind/v1/job.pb-c.h"

struct td_job;

// INVALID_ARGUMENT LABEL_INVALID: what it says of labels is none.
TD_MUST_USE td_status td_jobs_wanted_check(const Traind__V1__ListJobsRequest *r);
bool td_job_is_wanted(const struct td_job *j, const Traind__V1__ListJobsRequest *r);

#endif
