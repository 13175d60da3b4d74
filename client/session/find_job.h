#ifndef TRAIND_CLIENT_SESSION_FIND_JOB_H
#define TRAIND_CLIENT_SESSION_FIND_JOB_H

// Find job: which jobs a word of the command line means: an id, the beginning of one, or a name.
//
// A whole id is taken as it is, without asking. A name goes before an id that begins like it. Where
// several jobs have a name, a verb that only reads gets the newest, and stderr says so. A verb that
// changes something gets none, but a list of what there is, unless --all was given. A word that
// fits no job, and there is no --label, is handed on as it is: the coordinator says what it says of
// a job that is not there.

#include "client/session/session.h"

enum { TD_FOUND_JOBS_MAX = 1000, TD_FOUND_ID_BYTES = 256 };

struct td_found_jobs {
    char id[TD_FOUND_JOBS_MAX][TD_FOUND_ID_BYTES];
    size_t n;
};

// Adds what the word means to *found, what is there already but once. Errors:
// INVALID_ARGUMENT with the jobs that it fits; RESOURCE_EXHAUSTED for more than there is room for.
TD_MUST_USE td_status td_find_jobs(struct td_session *s, const char *word, bool changes,
                                   struct td_found_jobs *found);
// Adds all jobs that have the labels of the flags. Errors: NOT_FOUND, RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_find_labelled(struct td_session *s, struct td_found_jobs *found);

#endif
