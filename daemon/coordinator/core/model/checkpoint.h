#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_CHECKPOINT_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_CHECKPOINT_H

// A checkpoint as the catalog lists it (catalog.h): where it is, of which step, what is known to be
// wrong with it, and its files. Plain data: rows are read and written by catalog.c.

#include "lib/base/base.h"

enum { TD_JOB_PATH_MAX = 64 };

struct td_checkpoint_file {
    char *name;
    char digest[33];
    uint64_t bytes;
    bool here; // durable at the coordinator
};

struct td_checkpoint {
    char path[TD_JOB_PATH_MAX]; // "a1/step-2340"
    char node[64];
    char *directory; // on that node; "": unknown
    uint32_t attempt;
    uint32_t step;
    uint32_t epoch;
    uint32_t boundary; // at which all ranks saved (boundaries.h); 0: unknown
    bool committed;
    char *damage;    // how it was found damaged; NULL: it was not
    bool missing;    // the damage is that files are gone: it ends when they are back
    bool streamed;   // its files are at the coordinator
    bool leaving;    // its rank removed it
    bool registered; // by a command, which owns its files: nothing here touches or looks at them
    uint64_t asked;  // the newest Reconcile that named its files; not durable
    int64_t time_ns;
    char *metrics_json; // an object of numbers, or NULL
    struct td_checkpoint_file *files;
    uint32_t n_files;
};

void td_checkpoint_destroy(struct td_checkpoint *c);
TD_DEFINE_AUTO(td_checkpoint, td_checkpoint_destroy);
uint64_t td_checkpoint_bytes(const struct td_checkpoint *c);

#endif
