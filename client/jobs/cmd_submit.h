#ifndef TRAIND_CLIENT_JOBS_CMD_SUBMIT_H
#define TRAIND_CLIENT_JOBS_CMD_SUBMIT_H

// What submit, retry and clone share.

#include "client/session/session.h"
#include "traind/v1/job.pb-c.h"

// Hands in a request of spec and overrides; the request id is set here. Says which job it is, and
// follows it if the flags ask for that.
TD_MUST_USE td_status td_submit_request(struct td_session *s, Traind__V1__CreateJobRequest *request,
                                        int *out_exit);

#endif
