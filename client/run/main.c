// Order: spec, folder, plan, launcher, follow. Whatever fails before the ranks run leaves no
// folder; what fails later leaves what was written. Signals are taken from a descriptor from the
// beginning, so that Ctrl-C means the same at any moment.

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/run/run.h"
#include "client/screen/print.h"
#include "client/session/explain.h"
#include "lib/version/version.h"

static void print_version(FILE *out, struct argp_state *state) {
    (void)state;
    td_print(out, "traind-run %s\n", td_version);
}

void (*argp_program_version_hook)(FILE *, struct argp_state *) = print_version;

enum { OPT_SET = 1, OPT_RESUME, OPT_TIMEOUT };
enum { PLAN_S = 600 };

static const struct argp_option options[] = {
    {"set", OPT_SET, "KEY=VALUE", 0, "override a key of the spec: trainer.devices=2", 0},
    {"resume", OPT_RESUME, 0, 0, "go on in the folder, from its newest checkpoint", 0},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "give planning up after so long (600; exit 6)", 0},
    {"output-path", 'O', "DIR", 0, "the folder (./<name of the job>)", 0},
    {0},
};

static int64_t parse_seconds(struct argp_state *state, const char *text) {
    char *end;
    double s = strtod(text, &end);
    if (end == text || *end || !(s > 0 && s <= 1e7)) {
        argp_error(state, "--timeout takes seconds above 0, not '%s'", text);
    }
    return (int64_t)(s * TD_NS_PER_S);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct td_local_run *r = state->input;
    switch (key) {
    case OPT_SET:
        if (r->n_sets == TD_RUN_SETS) argp_error(state, "at most %d --set", TD_RUN_SETS);
        r->sets[r->n_sets++] = arg;
        return 0;
    case OPT_RESUME:
        r->resume = true;
        return 0;
    case OPT_TIMEOUT:
        r->plan_timeout_ns = parse_seconds(state, arg);
        return 0;
    case 'O':
        r->out_path = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (r->file) argp_error(state, "one spec only, found '%s' too", arg);
        r->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!r->file) argp_error(state, "name a job spec");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static td_status take_signals(struct td_local_run *r) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return td_fail_errno(TD_INTERNAL, "mask signals");
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signal_fd < 0 ? td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a signalfd") : TD_OK;
}

static td_status train(struct td_local_run *r, bool *out_started, int *out_exit) {
    TD_TRY(td_local_run_read_cpu_level(r));
    TD_TRY(take_signals(r));
    TD_TRY(td_proc_self_dir(r->bin_dir, sizeof r->bin_dir));
    TD_TRY(td_local_run_read_spec(r));
    TD_TRY(td_local_run_open_folder(r));
    if (r->spec.checkpoint.dir[0]) {
        td_print(stderr,
                 "note: checkpoint.dir is for jobs of a daemon, here checkpoints go to %s\n",
                 r->dir);
    }
    TD_TRY(td_local_run_prepare(r));
    TD_TRY(td_local_run_launch(r));
    *out_started = true;
    return td_local_run_follow(r, out_exit);
}

static int exit_of(td_status borrow_status) {
    return td_explain_job_fails(borrow_status) ? TD_CTL_JOB_FAILED
                                               : td_explain_exit_of(borrow_status);
}

TD_HOLD_STDIO_FIRST;

int main(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, "FILE", "Trains a job in the foreground, without a daemon (trainctl run).",
        NULL,    NULL,  NULL};
    struct td_local_run r = {.plan_timeout_ns = PLAN_S * TD_NS_PER_S,
                             .lock_fd = -1,
                             .signal_fd = -1,
                             .link_fd = -1,
                             .launcher = {.pidfd = -1}};
    bool started = false;
    int code = TD_CTL_OK;
    argp_err_exit_status = TD_CTL_USAGE;
    td_status failed = td_proc_hold_stdio();
    if (!failed) {
        argp_parse(&argp, argc, argv, 0, NULL, &r);
        failed = train(&r, &started, &code);
    }
    if (!failed && !code) failed = td_fs_flush_stdout();
    if (failed) {
        td_explain(failed);
        code = exit_of(failed);
        td_status_free(failed);
    }
    td_local_run_forget_launcher(&r);
    td_local_run_close_folder(&r, started);
    td_arena_destroy(r.arena);
    td_auto_close(&r.signal_fd);
    return code;
}
