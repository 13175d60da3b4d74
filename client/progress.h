#ifndef TRAIND_CLIENT_PROGRESS_H
#define TRAIND_CLIENT_PROGRESS_H

// How a job's changes look while one follows it: on a terminal one line that redraws itself, else
// plain lines when the state or a note changes; epochs.h adds one an epoch. Written to stderr, so
// that stdout stays for what scripts read.

#include "client/client.h"
#include "traind/v1/job.pb-c.h"

struct td_progress {
    bool bar, color;
    int state; // last shown; -1: none
    size_t n_notes;
    bool drawn; // a bar is on the current line
    char reason[256];
};

void td_progress_init(struct td_progress *p, bool color);
void td_progress_show(struct td_progress *p, const Traind__V1__Job *job);
// Leaves the cursor on a fresh line.
void td_progress_end(struct td_progress *p);

// "RUNNING"
const char *td_job_state_name(Traind__V1__Job__State state);
bool td_job_state_terminal(Traind__V1__Job__State state);
// The last value of a metric; false if there is none.
bool td_job_metric(const Traind__V1__Job *job, const char *name, double *out_value);

#endif
