#ifndef TRAIND_CLIENT_CLIENT_H
#define TRAIND_CLIENT_CLIENT_H

// trainctl: talks to a coordinator for a person or a script, and owns nothing.
//
//   trainctl.c   argv -> verb, the table of verbs
//   flags.c      the table of flags, and argv -> flags
//   find_verb.c  which row of the table the first words mean
//   rows.h       what help and completion ask of these
//   help.c       the list of verbs, examples, variables
//   config.c     environment: where the daemon is, the token, colours (the only getenv)
//   contexts.c   coordinators by name, in a file of the person's own
//   session.c    channel to the daemon, unary calls, errors as people read them, exit codes
//   json.c       protobuf-c messages as proto3 JSON
//   print.c      text on a terminal: control characters are shown
//   table.c      aligned columns, as wide as the terminal; format.c: numbers, spans, ages
//   screen.c     width and characters of the terminal; plot.c draws curves on it
//   flag_values.c  numbers and spans after flags
//   pages.c      a listing from its first page to its last
//   follow.c     WatchJob until a job ends, across restarts of the daemon; progress.c draws it,
//                epochs.c adds a line an epoch
//   spec_yaml.c  the spec of a job as YAML
//   explain.c    an error on stderr
//   find_job.c   the jobs that a word means; states.c: states as words
//   spec_file.c  the text of a job spec
//   place.c      what relative paths of a spec begin at
//   submission.c the two together, as submit and plan hand them in
//   series.c     the answer to a question about metrics; metrics_rows.c, metrics_plot.c and
//                metrics_follow.c show it
//   tail.c       the last lines of streams; last_lines.c asks for those of who is to blame
//   log_positions.c how far a reader of logs is; follow_logs.c shows them beside progress
//
// The verbs, a file each, or one for those that differ by a word:
//
//   cmd_submit.c      submit
//   cmd_retry.c       retry, clone
//   cmd_plan.c        plan, and what submit --dry-run has of it
//   cmd_run.c         run: becomes traind-run, which trains without a daemon (run/run.h)
//   cmd_init.c        init; templates.c has the files that it writes
//   cmd_list.c        list
//   cmd_describe.c    describe
//   cmd_spec.c        spec
//   cmd_watch.c       watch, wait
//   cmd_steer.c       cancel, pause, resume, delete
//   cmd_logs.c        logs
//   cmd_metrics.c     metrics
//   cmd_compare.c     compare; spec_diff.c finds what specs say differently
//   cmd_checkpoint.c  checkpoint list, download
//   cmd_checkpoint_create.c  checkpoint create
//   cmd_cluster.c     node list, cluster info, version
//   cmd_top.c         top; top_page.c is what it shows, live.c a terminal that is drawn again
//   cmd_plugins.c     plugins
//   cmd_completion.c  completion for shells; complete.c finds the words
//   cmd_token.c       token create, request, list, revoke
//   cmd_node.c        node token, node revoke
//   cmd_context.c     context add, use, list
//
// One thread. A verb gets its parsed flags and returns a td_status; main turns that into one
// message and one exit code. Exit codes are API: scripts branch on them.

#include "lib/base/base.h"
#include "lib/base/files/files.h"

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
    const char *role, *expires, *csr; // of a token
    const char *name;                 // of a token, or of jobs
    int rank;                         // -1: all
    int logs_of;                      // follow_logs.h
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
TD_VERB(td_cmd_cancel);
TD_VERB(td_cmd_checkpoint_create);
TD_VERB(td_cmd_checkpoint_download);
TD_VERB(td_cmd_checkpoint_list);
TD_VERB(td_cmd_clone);
TD_VERB(td_cmd_cluster_info);
TD_VERB(td_cmd_compare);
TD_VERB(td_cmd_completion);
TD_VERB(td_cmd_context_add);
TD_VERB(td_cmd_context_list);
TD_VERB(td_cmd_context_use);
TD_VERB(td_cmd_delete);
TD_VERB(td_cmd_describe);
TD_VERB(td_cmd_init);
TD_VERB(td_cmd_list);
TD_VERB(td_cmd_logs);
TD_VERB(td_cmd_metrics);
TD_VERB(td_cmd_node_list);
TD_VERB(td_cmd_node_revoke);
TD_VERB(td_cmd_node_token);
TD_VERB(td_cmd_pause);
TD_VERB(td_cmd_plan);
TD_VERB(td_cmd_plugins);
TD_VERB(td_cmd_resume);
TD_VERB(td_cmd_retry);
TD_VERB(td_cmd_run);
TD_VERB(td_cmd_spec);
TD_VERB(td_cmd_submit);
TD_VERB(td_cmd_token_create);
TD_VERB(td_cmd_token_list);
TD_VERB(td_cmd_token_request);
TD_VERB(td_cmd_token_revoke);
TD_VERB(td_cmd_top);
TD_VERB(td_cmd_version);
TD_VERB(td_cmd_wait);
TD_VERB(td_cmd_watch);

#endif
