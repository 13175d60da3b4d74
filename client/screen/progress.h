#ifndef TRAIND_CLIENT_SCREEN_PROGRESS_H
#define TRAIND_CLIENT_SCREEN_PROGRESS_H

// How a job's changes look while one follows it. On a terminal it is one line that redraws itself,
// else plain lines when the state or a note changes. epochs.h adds one line an epoch. Written to
// stderr, so that stdout stays for what scripts read.

#include "client/client.h"
#include "traind/v1/job.pb-c.h"

// What a line about a job that has ended begins with, for td_print: names of metrics fit.
#define TD_END_LINE "  %-23s "

struct td_progress_line {
    bool bar, color;
    int state;       // last shown; -1: none
    char note[1024]; // last shown, or the beginning of it
    bool drawn;      // a bar is on the current line
    char reason[256];
};

// dumb: TERM says that the terminal obeys no control characters, so it gets no bar.
void td_progress_line_init(struct td_progress_line *p, bool dumb, bool color);
void td_progress_line_show(struct td_progress_line *p, const Traind__V1__Job *job);
// Leaves the cursor on a fresh line.
void td_progress_line_end(struct td_progress_line *p);

// "RUNNING"
const char *td_job_state_word(Traind__V1__Job__State state);
bool td_job_state_terminal(Traind__V1__Job__State state);
// "run=a7,team=vision"; "": it has none.
const char *td_job_labels_text(const Traind__V1__Job *job, char out[TD_LABELS_BYTES]);
bool td_job_has_labels(const Traind__V1__Job *job, const char *const *wishes, size_t n_wishes);
// The last value of a metric; false if there is none.
bool td_job_metric(const Traind__V1__Job *job, const char *name, double *out_value);
// The loss of its last step: what it reports while it runs, else the last point. False: none yet.
bool td_job_loss(const Traind__V1__Job *job, double *out_loss);

#endif
