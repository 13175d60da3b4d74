// trainctl's main: argv -> verb and flags, then one call of the verb, then one exit code.
//
// Verbs are rows of a table, one or two words long, with the flags that they take (flags.h). Wrong
// usage exits 2 before any daemon is looked for.

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/access/access.h"
#include "client/checkpoints/checkpoints.h"
#include "client/find_verb.h"
#include "client/flags.h"
#include "client/help.h"
#include "client/jobs/jobs.h"
#include "client/logs/logs.h"
#include "client/metrics/metrics.h"
#include "client/nodes/nodes.h"
#include "client/rows.h"
#include "client/screen/print.h"
#include "client/session/find_job.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"

// ---- verbs, in alphabetical order ---------------------------------------------------------------
static const struct td_verb verb_table[] = {
    {"cancel", "JOB...", "stop a job for good", 1, TD_MAX_ARGS,
     F_REASON | F_JOBS | F_CHANGES | F_ALL, td_cmd_cancel},
    {"checkpoint create", "JOB...", "the ranks save now, and train on", 1, TD_MAX_ARGS,
     F_WAIT | F_RECONNECT | F_JOBS | F_CHANGES | F_ALL, td_cmd_checkpoint_create},
    {"checkpoint download", "JOB [CHECKPOINT]",
     "copy a checkpoint's files here, digests checked: last (default), best or a1/step-N", 1, 2,
     F_FILE | F_FORCE | F_JOB, td_cmd_checkpoint_download},
    {"checkpoint list", "JOB", "the checkpoints of a job, newest first", 1, 1, F_JOB,
     td_cmd_checkpoint_list},
    {"clone", "JOB", "submit the spec of a job with changes (--set)", 1, 1,
     F_SET | F_FOLLOW | F_LOGS | F_RECONNECT | F_REQUEST_ID | F_TRACE | F_JOB, td_cmd_clone},
    {"cluster info", "", "the coordinator and its numbers", 0, 0, 0, td_cmd_cluster_info},
    {"compare", "JOB JOB... [NAME...]", "jobs: what differs in their specs, and their metrics", 2,
     TD_MAX_ARGS, F_PLOT, td_cmd_compare},
    {"completion", "bash|zsh|fish", "a script that completes words for a shell", 1, TD_MAX_ARGS, 0,
     td_cmd_completion},
    {"context add", "NAME",
     "name a coordinator, with --address, and --token-file or --cert and --key", 1, 1, 0,
     td_cmd_context_add},
    {"context list", "", "coordinators that have a name; * is in use", 0, 0, 0,
     td_cmd_context_list},
    {"context use", "NAME", "from now on where no flag says otherwise; - is none", 1, 1, 0,
     td_cmd_context_use},
    {"delete", "JOB...", "remove a job that does not run, with all it has on disks", 1, TD_MAX_ARGS,
     F_KEEP | F_JOBS | F_CHANGES | F_ALL | F_IN_THE_WAY, td_cmd_delete},
    {"describe", "JOB", "everything about a job", 1, 1, F_JOB, td_cmd_describe},
    {"init", "[DIR]", "write a spec, a module, a dataset and data to begin with", 0, 1, F_FORCE,
     td_cmd_init},
    {"list", "", "jobs, newest first", 0, 0, F_STATE, td_cmd_list},
    {"logs", "JOB", "what the ranks printed", 1, 1,
     F_FOLLOW | F_RECONNECT | F_RANK | F_ATTEMPT | F_STREAM | F_JOB, td_cmd_logs},
    {"metrics", "JOB [NAME...]",
     "points by step; without names the last value of each; -o csv, too", 1, TD_MAX_ARGS,
     F_STEPS | F_FOLLOW | F_RECONNECT | F_PLOT | F_CSV | F_JOB, td_cmd_metrics},
    {"node list", "", "nodes and their slots", 0, 0, 0, td_cmd_node_list},
    {"node revoke", "NODE", "take back a node's certificate, and end its calls", 1, 1, 0,
     td_cmd_node_revoke},
    {"node token", "", "let one machine join as a node; the text is shown once", 0, 0, F_NAME,
     td_cmd_node_token},
    {"pause", "JOB...", "stop with a checkpoint and free the slots", 1, TD_MAX_ARGS,
     F_JOBS | F_CHANGES | F_ALL | F_WAIT | F_RECONNECT, td_cmd_pause},
    {"plan", "FILE", "memory, FLOPs and steps of a spec; -O writes the plan", 1, 1,
     F_SET | F_FILE | F_DUMP, td_cmd_plan},
    {"plugins", "[NAME]", "what specs can name on the nodes; with NAME: the knobs that it declares",
     0, 1, 0, td_cmd_plugins},
    {"resume", "JOB...", "queue a paused job again", 1, TD_MAX_ARGS, F_JOBS | F_CHANGES | F_ALL,
     td_cmd_resume},
    {"retry", "JOB", "submit the spec of a job again", 1, 1,
     F_RESUME | F_FOLLOW | F_LOGS | F_RECONNECT | F_REQUEST_ID | F_JOB, td_cmd_retry},
    {"run", "FILE", "train here without a daemon; ./<name>/ gets what comes of it", 1, 1,
     F_SET | F_FILE | F_RESUME | F_TRACE, td_cmd_run},
    {"spec", "JOB", "a job's spec as YAML that submit takes; -o wide has every key", 1, 1, F_JOB,
     td_cmd_spec},
    {"submit", "FILE", "submit a job spec (- reads standard input)", 1, 1,
     F_SET | F_FOLLOW | F_LOGS | F_RECONNECT | F_DRY_RUN | F_REQUEST_ID | F_TRACE, td_cmd_submit},
    {"token create", "", "give out a credential; its text is shown once", 0, 0, F_TOKEN | F_NAME,
     td_cmd_token_create},
    {"token list", "", "credentials that were given out", 0, 0, 0, td_cmd_token_list},
    {"token request", "", "make the key of --key, and print the request for its certificate", 0, 0,
     F_NAME, td_cmd_token_request},
    {"token revoke", "ID", "end a credential, and its calls", 1, 1, 0, td_cmd_token_revoke},
    {"top", "", "nodes, slots and running jobs, drawn again each second; q ends it", 0, 0,
     F_ONCE | F_RECONNECT, td_cmd_top},
    {"version", "", "of this program", 0, 0, 0, td_cmd_version},
    {"wait", "JOB...", "until the job has ended; exit 1 if it did not succeed", 1, TD_MAX_ARGS,
     F_FOLLOW | F_LOGS | F_RECONNECT | F_JOBS | F_FOR, td_cmd_wait},
    {"watch", "JOB", "each change of a job, until it has ended; exit 1 as of wait", 1, 1,
     F_RECONNECT | F_JOB, td_cmd_watch},
};

const struct td_verb *td_verb_at(size_t i) {
    return i < TD_COUNTOF(verb_table) ? &verb_table[i] : NULL;
}

static int run_once(struct td_session *s, const struct td_verb *verb, const struct td_flags *f) {
    int code = TD_CTL_OK;
    td_status failed = verb->run(s, f, &code);
    return failed ? td_session_explain(s, failed) : code;
}

// One job after the other: each failure is explained, the first one is the exit code. That an
// answer was not printed is the code only if all was done.
static int run_for_jobs(struct td_session *s, const struct td_verb *verb, struct td_flags *f) {
    static struct td_found_jobs found;
    td_status failed = TD_OK;
    int first = TD_CTL_OK;
    const bool is_several = verb->flags & F_JOBS;
    for (int i = 0; i < (is_several ? f->n_args : 1) && !failed; i++) {
        failed = td_find_jobs(s, f->args[i], verb->flags & F_CHANGES, &found);
    }
    if (!failed && found.n > 1 && f->output == TD_OUTPUT_JSON) {
        failed = td_fail(TD_INVALID_ARGUMENT, "of several jobs use -o jsonl: a line for each");
    }
    if (failed) return td_session_explain(s, failed);
    for (size_t i = 0; i < found.n; i++) {
        f->args[0] = found.id[i];
        f->n_args = is_several ? 1 : f->n_args;
        const int code = run_once(s, verb, f);
        if (code && (!first || first == TD_CTL_NOT_PRINTED)) first = code;
    }
    return first;
}

static int run(struct td_session *s, const struct td_verb *verb, struct td_flags *f) {
    const bool is_for_jobs = verb->flags & (F_JOB | F_JOBS);
    const int code = is_for_jobs ? run_for_jobs(s, verb, f) : run_once(s, verb, f);
    td_status cut = td_fs_flush_stdout(); // an answer that is cut off is none
    if (cut && !code) return td_session_explain(s, cut);
    td_status_free(cut);
    return code;
}

static bool is_help(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "help") || !strcmp(word, "-h") ||
           !strcmp(word, "-?");
}

// `trainctl logs | head`: whoever reads has read enough, which is no failure.
static void on_closed_output(int sig) {
    (void)sig;
    _exit(TD_CTL_OK);
}

TD_HOLD_STDIO_FIRST;

int main(int argc, char **argv) {
    struct td_session session = {0};
    const int unheld = td_session_explain(&session, td_proc_hold_stdio());
    if (unheld) return unheld;
    signal(SIGPIPE, on_closed_output);
    static char version[] = "version", help[] = "--help";
    if (argc > 1 && is_help(argv[1])) {
        if (argc == 2 || argv[2][0] == '-') {
            td_help_print(stdout);
            return td_session_explain(&session, td_fs_flush_stdout());
        }
        memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof *argv); // `help VERB`: VERB --help
        argv[argc - 1] = help;
    }
    if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) argv[1] = version;
    int words = 0;
    const char *const *given = (const char *const *)(argv + 1);
    const struct td_verb *verb = td_verb_find(given, argc - 1, &words);
    if (argc < 2) {
        td_help_print(stderr);
        return TD_CTL_USAGE;
    }
    if (!verb) return td_verb_refuse(given, argc - 1);
    struct td_flags flags;
    td_flags_parse(verb, argc - words, argv + words, &flags);
    session.flags = &flags;
    const int code = run(&session, verb, &flags);
    td_session_close(&session);
    return code;
}
