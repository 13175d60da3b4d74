#ifndef TRAIND_LIB_JOB_KIND_H
#define TRAIND_LIB_JOB_KIND_H

// What a job is: a training that traind's own worker does, or something of the submitter's. The
// spec has its name (`kind`), the others a number. Pure functions, any thread.

#include <stdbool.h>
#include <string.h>

enum td_job_kind {
    TD_KIND_TRAIN,   // what model, data and the rest describe; traind-worker runs it
    TD_KIND_COMMAND, // a program of the submitter's, which need not know of traind
    TD_KIND_PROGRAM, // one that links libtraind, and is attached as traind-worker is
    TD_KIND_COUNT
};

static inline const char *td_job_kind_name(enum td_job_kind kind) {
    static const char *const names[] = {"train", "command", "program"};
    _Static_assert(sizeof names / sizeof *names == TD_KIND_COUNT, "one name per kind");
    return kind < TD_KIND_COUNT ? names[kind] : "?";
}

// Any other name, or none, is a training: specs had no kind once.
static inline enum td_job_kind td_job_kind_parse(const char *name) {
    for (int kind = 0; kind < (int)TD_KIND_COUNT; kind++) {
        if (!strcmp(td_job_kind_name((enum td_job_kind)kind), name)) return (enum td_job_kind)kind;
    }
    return TD_KIND_TRAIN;
}

// A set of kinds: a bit each.
static inline unsigned td_job_kind_bit(enum td_job_kind kind) {
    return 1u << kind;
}
static inline bool td_job_kind_is_in(unsigned kinds, enum td_job_kind kind) {
    return (kinds & td_job_kind_bit(kind)) != 0;
}

#endif
