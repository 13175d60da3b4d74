#ifndef TRAIND_LIB_ATTEMPT_OUTCOME_H
#define TRAIND_LIB_ATTEMPT_OUTCOME_H

// How a rank, a stage or an attempt ended. The names are API: they are in events.log, and logs of
// older builds are read. The numbers are stored in job records, so a new one goes before COUNT.
//
// A rank and a stage end as done, stopped or failed; only its launcher knows whether it was killed.
// Rejected: the names as text where they are used; writer and reader then agree by luck.
// Pure functions, any thread.

enum td_outcome {
    TD_OUTCOME_NONE, // not yet
    TD_OUTCOME_DONE,
    TD_OUTCOME_STOPPED, // at an agreed step
    TD_OUTCOME_KILLED,  // by a stop whose grace was over
    TD_OUTCOME_FAILED,
    TD_OUTCOME_COUNT,
};

const char *td_outcome_name(enum td_outcome outcome); // of NONE: ""
enum td_outcome td_outcome_parse(const char *name);   // NONE where no outcome has that name

#endif
