#ifndef TRAIND_CLIENT_JOBS_JOB_GPUS_H
#define TRAIND_CLIENT_JOBS_JOB_GPUS_H

// What the GPUs of a job do now, for people: a line each, and a word for all of them. The
// coordinator says it of those that the NVIDIA driver knows, while their node is connected. What
// the driver does not say of one is no word.

#include "traind/v1/job.pb-c.h"

// "gpu0           97 %, 12.0 GiB, 652 W, 61 C; GPU-8932f937 of node one"
void td_job_gpus_show(const Traind__V1__Job *job);
// "97% of 8": how busy they are on average. "-": nothing is known.
enum { TD_JOB_GPUS_BYTES = 32 };
const char *td_job_gpus_busy(const Traind__V1__Job *job, char out[TD_JOB_GPUS_BYTES]);

#endif
