#ifndef TRAIND_CLIENT_SESSION_EXPLAIN_H
#define TRAIND_CLIENT_SESSION_EXPLAIN_H

// How an error looks to a person, and the exit code that goes with it.

#include "client/client.h"

int td_explain_exit_of(td_status borrow_status); // enum td_exit
// The status is what a job would have come to: it has the exit code of a failed job, whoever asked.
bool td_explain_job_fails(td_status borrow_status);
// On stderr: the message, then violations and details, a line each. Does not consume the status.
void td_explain(td_status borrow_status);

#endif
