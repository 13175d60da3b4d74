#ifndef TRAIND_LIB_JOB_LIMITS_H
#define TRAIND_LIB_JOB_LIMITS_H

// lib/job: what a job asks for, as plain values that both of its readers know.
//
// lib/spec fills them from a job's text, engine/train obeys them, and neither knows the other.
//
//   kind.h     what a job is
//   limits.h   the stages of a job, and how often things happen in them
//   labels.h   words to find and to choose by, of jobs and of nodes
//   command.h  bounds and reserved names of kinds command and program, for the launcher, too
//
// Pure data and functions, any thread.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_stage { // bits; they run in this order
    TD_STAGE_FIT = 1,
    TD_STAGE_VALIDATE = 2,
    TD_STAGE_TEST = 4,
    TD_STAGE_PREDICT = 8,
};

// "How many batches": a number of them, or a fraction of what there is.
struct td_amount {
    bool is_fraction;
    double fraction; // [0, 1]
    int64_t batches;
};

// From an epoch on, how many micro-batches make an optimizer step.
struct td_accumulation {
    int32_t epoch, batches;
};

enum { TD_LIMITS_WINDOWS = 64 };
struct td_limits {
    int32_t max_epochs; // -1: no limit
    int32_t max_steps;  // optimizer steps; -1: no limit
    int32_t min_epochs; // 0: none
    int32_t min_steps;  // 0: none
    int64_t max_time_s; // 0: no limit
    struct td_amount train_batches, val_batches, test_batches, predict_batches;
    struct td_amount val_check_interval; // of a training epoch
    int32_t check_val_every_n_epoch;
    int32_t log_every_n_steps;
    int32_t sanity_batches; // validation batches before the first step; -1: all
    struct td_accumulation accumulate[TD_LIMITS_WINDOWS]; // by ascending epoch; the first is 0
    size_t n_accumulate;                                  // at least 1
};

#endif
