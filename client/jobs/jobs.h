#ifndef TRAIND_CLIENT_JOBS_JOBS_H
#define TRAIND_CLIENT_JOBS_JOBS_H

// Verbs of jobs: submitted, planned, run here, watched, steered, compared.
//
//   cmd_submit.c    submit
//   cmd_plan.c      plan, and what submit --dry-run has of it
//   cmd_retry.c     retry, clone
//   cmd_run.c       run: becomes traind-run, which trains without a daemon (client/run/run.h)
//   cmd_init.c      init; templates.c has the files that it writes
//   cmd_list.c      list
//   cmd_describe.c  describe
//   cmd_spec.c      spec
//   cmd_watch.c     watch, wait
//   cmd_steer.c     cancel, pause, resume, delete
//   cmd_compare.c   compare; spec_diff.c finds what specs say differently
//
//   spec_file.h     the text of a job spec
//   place.h         what relative paths of a spec begin at
//   submission.h    the two together, as submit and plan hand them in
//   spec_yaml.h     the spec of a job as YAML
//   follow.h        WatchJob until a job ends, across restarts of the daemon
//   epochs.h        a line an epoch, beside it
//   job_gpus.h      what the GPUs of a job do
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"

TD_VERB(td_cmd_cancel);
TD_VERB(td_cmd_clone);
TD_VERB(td_cmd_compare);
TD_VERB(td_cmd_delete);
TD_VERB(td_cmd_describe);
TD_VERB(td_cmd_init);
TD_VERB(td_cmd_list);
TD_VERB(td_cmd_pause);
TD_VERB(td_cmd_plan);
TD_VERB(td_cmd_resume);
TD_VERB(td_cmd_retry);
TD_VERB(td_cmd_run);
TD_VERB(td_cmd_spec);
TD_VERB(td_cmd_submit);
TD_VERB(td_cmd_wait);
TD_VERB(td_cmd_watch);

#endif
