// trainctl's main: argv -> verb and flags, then one call of the verb, then one exit code.
//
// Wrong usage exits 2 before any daemon is looked for.

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/find_verb.h"
#include "client/flags.h"
#include "client/rows.h"
#include "client/screen/print.h"
#include "client/session/find_job.h"
#include "client/session/session.h"
#include "client/verbs.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"

// ---- help of all --------------------------------------------------------------------------------
static const char environment[] =
    "\nENVIRONMENT (a flag wins over its variable)\n"
    "  TRAIND_STATE_DIR   --state-dir: of a daemon on this machine\n"
    "  TRAIND_ADDRESS     --address: HOST:PORT of a coordinator\n"
    "  TRAIND_TOKEN_FILE  --token-file\n"
    "  TRAIND_CA          --ca\n"
    "  TRAIND_CERT        --cert\n"
    "  TRAIND_KEY         --key\n"
    "  TRAIND_CPU_ISA     of run: the newest instructions that ranks use\n"
    "  NO_COLOR           no colours\n";

// A summary goes on in the next line, under itself, where 80 columns end.
static void print_row(FILE *to, const char *name, const char *text) {
    enum { LEFT = 23, WIDTH = 79 };
    td_print(to, "  %-*s", LEFT - 2, name);
    for (int used = LEFT; *text;) {
        const int len = (int)strcspn(text, " ");
        if (used > LEFT && used + 1 + len > WIDTH) {
            td_print(to, "\n%*s", LEFT, "");
            used = LEFT;
        }
        td_print(to, "%s%.*s", used > LEFT ? " " : "", len, text);
        used += len + (used > LEFT);
        text += len + (text[len] == ' ');
    }
    td_print(to, "\n");
}

static void print_common_flags(FILE *to) {
    struct argp_option options[TD_VERB_OPTIONS_MAX];
    const size_t n = td_verb_options(td_verb_at(0), options);
    td_print(to, "\nFLAGS OF EVERY VERB\n");
    for (size_t i = 0; i < n; i++) {
        char name[40];
        if (options[i].group != TD_GROUP_COMMON) continue;
        (void)snprintf(name, sizeof name, "--%s=%s", options[i].name, options[i].arg);
        print_row(to, name, options[i].doc);
    }
}

static void print_help(FILE *to) {
    td_print(to, "usage: trainctl VERB [ARGUMENT...] [FLAG...]\n\n");
    for (size_t i = 0; td_verb_at(i); i++) {
        print_row(to, td_verb_at(i)->name, td_verb_at(i)->summary);
    }
    td_print(to, "\n`trainctl VERB --help` has flags and examples of a verb.\n");
    print_common_flags(to);
    td_print(to, "%s", environment);
    td_print(to, "\nExit codes: 0 ok, 1 job failed or cannot run, 2 usage, 3 not found, 4 denied,\n"
                 "5 unavailable, 6 timeout, 7 conflict, 8 done but not printed.\n");
}

// ---- one verb -----------------------------------------------------------------------------------
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
    if (!failed && is_several && !f->n_args) failed = td_find_labelled(s, &found);
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
            print_help(stdout);
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
        print_help(stderr);
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
