#ifndef TRAIND_CLIENT_LOGS_LAST_LINES_H
#define TRAIND_CLIENT_LOGS_LAST_LINES_H

// Last lines: what the rank that a failure blames wrote to stderr last. Of a script that is its
// traceback.

#include "client/session/session.h"
#include "traind/v1/job.pb-c.h"

// To stdout: head, a line with the command that shows more, and the last 40 lines. Nothing where
// the failure says all by itself, blames no rank, or that rank wrote nothing. Where they cannot be
// read stderr says why.
void td_last_lines_show(struct td_session *s, const Traind__V1__Job *job, const char *head);

#endif
