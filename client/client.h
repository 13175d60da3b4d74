#ifndef TRAIND_CLIENT_CLIENT_H
#define TRAIND_CLIENT_CLIENT_H

// trainctl: talks to a coordinator for a person or a script, and owns nothing.
//
//   trainctl.c    argv -> verb, and help of all
//   verbs.h       the table of verbs, and which flags each takes
//   flags.c       the table of flags, and argv -> flags (flag_values.c: numbers and spans)
//   find_verb.c   which row of the table the first words mean
//   rows.h        what help and completion ask of the table of flags
//   help.c        what the help of one verb has beside its flags
//   cmd_completion.c  completion for shells; complete.c finds the words
//
// What all verbs share: screen/ shows things, session/ reaches the coordinator. The verbs are in
// rooms by what they are about, a file each, or one for those that differ by a word:
//
//   jobs/ checkpoints/ metrics/ logs/ nodes/ access/
//
// run/ is traind-run, a program of its own, which trains without a daemon.
//
// One thread. A verb gets its parsed flags and returns a td_status; main turns that into one
// message and one exit code. Exit codes are API: scripts branch on them.

#include "lib/base/base.h"
#include "lib/base/files/files.h"
#include "lib/job/labels.h"

enum td_exit {
    TD_CTL_OK = 0,
    TD_CTL_JOB_FAILED = 1, // the job did not succeed; also any error that has no code of its own
    TD_CTL_USAGE = 2,
    TD_CTL_NOT_FOUND = 3,
    TD_CTL_DENIED = 4,
    TD_CTL_UNAVAILABLE = 5,
    TD_CTL_TIMEOUT = 6,
    TD_CTL_CONFLICT = 7,
    TD_CTL_NOT_PRINTED = 8, // done, but its answer could not be printed: not to be asked again
};

enum td_output { TD_OUTPUT_TABLE, TD_OUTPUT_JSON, TD_OUTPUT_JSONL, TD_OUTPUT_NAME, TD_OUTPUT_CSV };
static inline bool td_output_is_json(enum td_output o) {
    return o == TD_OUTPUT_JSON || o == TD_OUTPUT_JSONL;
}

enum { TD_MAX_SETS = 256, TD_MAX_ARGS = 64 };

// Flags of all verbs; a verb accepts the ones its row names. Strings are argv's.
struct td_flags {
    enum td_output output;
    const char *address;
    const char *token_file;
    const char *ca;
    const char *certificate, *key; // files
    const char *state_dir;
    int64_t timeout_ns; // 0: the verb's own
    const char *args[TD_MAX_ARGS];
    int n_args;
    bool all;  // jobs that a name fits
    bool wide; // a table that leaves nothing out
    const char *sets[TD_MAX_SETS];
    size_t n_sets;
    char trace_set[TD_FS_PATH_BYTES + 32]; // one of them
    const char *request_id;
    const char *out_path;   // -O
    const char *dump_graph; // a pass
    const char *state;      // --state, --for
    const char *owner;      // of jobs
    const char *reason;
    const char *role, *expires, *csr;  // of a token
    const char *name;                  // of a token, or of jobs
    const char *labels[TD_LABELS_MAX]; // "KEY=VALUE" or "KEY", of jobs
    size_t n_labels;
    int rank;    // -1: all
    int logs_of; // follow_logs.h
    uint32_t attempt, from_step, to_step;
    uint32_t points; // 0: as they are
    uint64_t offset;
    int64_t tail_lines;   // -1: all
    int64_t limit;        // of a list; 0: none, -1: not said
    int64_t reconnect_ns; // how long a daemon that went away is waited for
    bool follow, dry_run, out_only, err_only, resume, keep_checkpoints, plot, force, once, wait;
};

struct td_session;

struct td_verb {
    const char *name; // "submit", "node list"
    const char *args; // "FILE", for the help
    const char *summary;
    int min_args, max_args;
    unsigned flags; // enum td_flag_bit
    // OK, or an error. *out_exit is TD_CTL_OK when called and counts only with OK.
    td_status (*run)(struct td_session *s, const struct td_flags *f, int *out_exit);
};

#define TD_VERB(fn) td_status fn(struct td_session *s, const struct td_flags *f, int *out_exit)
TD_VERB(td_cmd_completion);

#endif
