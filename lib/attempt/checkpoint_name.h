#ifndef TRAIND_LIB_ATTEMPT_CHECKPOINT_NAME_H
#define TRAIND_LIB_ATTEMPT_CHECKPOINT_NAME_H

// Names of checkpoints and of their files, on disk and as nodes and coordinator exchange them. What
// arrives becomes part of a path, so both sides hold it against the same rule. Nobody else writes
// or reads "step-<n>". Any thread.

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_CHECKPOINT_FILE_BYTES = 128, // of a file's name, with its NUL
    TD_CHECKPOINT_MAX_FILES = 64,   // of one checkpoint, beside its manifest
};

// The directory of a checkpoint is "step-<n>" in that of its attempt; in its job's, it is
// "a<N>/step-<n>". One that is being written, or removed, has another end.
#define TD_CHECKPOINT_HALF ".tmp"
struct td_checkpoint_name {
    char text[40];
};
struct td_checkpoint_name td_checkpoint_name_of(int64_t step);
struct td_checkpoint_name td_checkpoint_path_of(uint32_t attempt, int64_t step);
// The step of "step-<n><end>", n of 1 to 9 digits; -1: that is another name.
int64_t td_checkpoint_name_step(const char *name, const char *end);
// "a<N>/step-<n>", each number of 1 to 9 digits, and nothing else. False for NULL.
bool td_checkpoint_path_parse(const char *path, uint32_t *out_attempt, int64_t *out_step);
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
