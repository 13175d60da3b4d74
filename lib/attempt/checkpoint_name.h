#ifndef TRAIND_LIB_ATTEMPT_CHECKPOINT_NAME_H
#define TRAIND_LIB_ATTEMPT_CHECKPOINT_NAME_H

// Names of checkpoints and of their files, as nodes and coordinator exchange them. What
// arrives becomes part of a path, so both sides hold it against the same rule. Any thread.

#include <stdbool.h>

enum {
    TD_CHECKPOINT_FILE_BYTES = 128, // of a file's name, with its NUL
    TD_CHECKPOINT_MAX_FILES = 64,   // of one checkpoint, beside its manifest
};

// "a<N>/step-<n>", each number of 1 to 9 digits, and nothing else. False for NULL.
bool td_checkpoint_path_ok(const char *path);
// A checkpoint of another job, as a canonical spec names it: "<id>/last", "<id>/best" or
// "<id>/a<N>/step-<n>".
enum { TD_CHECKPOINT_JOB_BYTES = 16 }; // of an id, with its NUL
struct td_checkpoint_of_job {
    char job[TD_CHECKPOINT_JOB_BYTES];
    const char *which; // what follows the id, of the same text
};
bool td_checkpoint_of_job_read(const char *text, struct td_checkpoint_of_job *out);

// A plain file name: letters, digits, '.', '-' and '_', no '.' at the beginning. False for NULL.
bool td_checkpoint_file_ok(const char *name);

// A name that ranks give to a file of a checkpoint: what else is beside those is somebody's own.
bool td_checkpoint_file_written(const char *name);

// Files for people that ranks leave beside the checkpoints of an attempt, and what a rank that was
// killed may leave of one. <...>: "val" or "test".
#define TD_RESULT_PREDICTIONS "predictions.npy"
#define TD_RESULT_SAMPLE      "sample.txt"
#define TD_RESULT_PROFILE     "profile.json"
#define TD_RESULT_CONFUSION   "confusion-%s.json"
bool td_checkpoint_result_written(const char *name);

#endif
