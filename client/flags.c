// argp does the parsing, with the flags of one verb alone: others are unknown to it.

#include "client/flags.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/flag_values.h"
#include "client/help.h"
#include "client/logs/follow_logs.h"
#include "client/rows.h"
#include "client/screen/tail.h"
#include "client/session/session.h"

enum {
    KEY_ADDRESS = 256,
    KEY_TOKEN_FILE,
    KEY_CA,
    KEY_CERT,
    KEY_KEY,
    KEY_STATE_DIR,
    KEY_TIMEOUT,
    KEY_SET,
    KEY_TRACE,
    KEY_PROFILE,
    KEY_ALL,
    KEY_FORCE,
    KEY_DRY_RUN,
    KEY_RANK,
    KEY_ATTEMPT,
    KEY_OUT_ONLY,
    KEY_ERR_ONLY,
    KEY_OFFSET,
    KEY_FROM,
    KEY_TO,
    KEY_POINTS,
    KEY_STATE,
    KEY_REQUEST_ID,
    KEY_REASON,
    KEY_DUMP_GRAPH,
    KEY_RESUME,
    KEY_KEEP_CHECKPOINTS,
    KEY_ROLE,
    KEY_NAME,
    KEY_EXPIRES,
    KEY_CSR,
    KEY_RECONNECT,
    KEY_TAIL,
    KEY_LIMIT,
    KEY_PLOT,
    KEY_ONCE,
    KEY_OWNER,
    KEY_FOR,
    KEY_WAIT,
    KEY_LOGS,
    KEY_LABEL,
};

struct flag_row {
    unsigned verbs;
    struct argp_option option;
};

static const struct flag_row flag_table[] = {
    {F_COMMON,
     {"output", 'o', "FORMAT", 0, "table (default, cut to the terminal), wide, json, jsonl or name",
      0}},
    {F_COMMON,
     {"address", KEY_ADDRESS, "HOST:PORT", 0, "where the coordinator listens", TD_GROUP_COMMON}},
    {F_COMMON,
     {"token-file", KEY_TOKEN_FILE, "FILE", 0, "file that holds the token", TD_GROUP_COMMON}},
    {F_COMMON,
     {"ca", KEY_CA, "FILE", 0,
      "the CA of a coordinator that is not on loopback (default: tls/ca.pem of the state "
      "directory)",
      TD_GROUP_COMMON}},
    {F_COMMON,
     {"cert", KEY_CERT, "FILE", 0, "a certificate to show instead of a token", TD_GROUP_COMMON}},
    {F_COMMON, {"key", KEY_KEY, "FILE", 0, "the key of that certificate", TD_GROUP_COMMON}},
    {F_COMMON,
     {"state-dir", KEY_STATE_DIR, "DIR", 0, "the daemon's state directory", TD_GROUP_COMMON}},
    {F_COMMON,
     {"timeout", KEY_TIMEOUT, "SECONDS", 0, "give up after so long (exit 6); of run: its planning",
      TD_GROUP_COMMON}},
    {F_SET, {"set", KEY_SET, "KEY=VALUE", 0, "override a key of the spec: trainer.devices=4", 0}},
    {F_TRACE,
     {"trace", KEY_TRACE, "DIR", 0,
      "each rank writes there, on its node, when it did what: trainer.trace_dir", 0}},
    {F_TRACE,
     {"profile", KEY_PROFILE, 0, 0,
      "at the end a table of kernels and their time, in a file that a note names: trainer.profile",
      0}},
    {F_FOLLOW, {"follow", 'f', 0, 0, "stay until the job has ended", 0}},
    {F_LOGS,
     {"logs", KEY_LOGS, "RANK", OPTION_ARG_OPTIONAL,
      "with --follow: what rank 0 prints, too; --logs=all: all ranks", 0}},
    {F_RECONNECT,
     {"reconnect", KEY_RECONNECT, "SPAN", 0,
      "how long to wait for a daemon that goes away meanwhile (default: 10m)", 0}},
    {F_DRY_RUN,
     {"dry-run", KEY_DRY_RUN, 0, 0,
      "check and plan the job, print its spec with every default (YAML, or -o json)", 0}},
    {F_REQUEST_ID, {"request-id", KEY_REQUEST_ID, "UUID", 0, "repeat a submission safely", 0}},
    {F_RANK, {"rank", KEY_RANK, "N", 0, "of one rank only", 0}},
    {F_ATTEMPT, {"attempt", KEY_ATTEMPT, "N", 0, "of that attempt (default: the newest)", 0}},
    {F_STREAM, {"out-only", KEY_OUT_ONLY, 0, 0, "stdout only", 0}},
    {F_STREAM, {"err-only", KEY_ERR_ONLY, 0, 0, "stderr only", 0}},
    {F_STREAM, {"offset", KEY_OFFSET, "BYTES", 0, "start there (with --rank and one stream)", 0}},
    {F_FORCE, {"force", KEY_FORCE, 0, 0, "replace files that are there", 0}},
    {F_ONCE, {"once", KEY_ONCE, 0, 0, "print one page and end, as where there is no terminal", 0}},
    {F_PLOT, {"plot", KEY_PLOT, 0, 0, "curves, as wide as the terminal", 0}},
    {F_STREAM,
     {"tail", KEY_TAIL, "N", 0, "only the last N lines of each rank's stdout and stderr", 0}},
    {F_STEPS, {"from", KEY_FROM, "STEP", 0, "first step", 0}},
    {F_STEPS, {"to", KEY_TO, "STEP", 0, "last step", 0}},
    {F_STEPS,
     {"points", KEY_POINTS, "N", 0,
      "a picture: N points of each series, each the mean, least and largest of a range of steps",
      0}},
    {F_FILE, {"output-path", 'O', "PATH", 0, "where to write (-o FILE does the same)", 0}},
    {F_STATE,
     {"limit", KEY_LIMIT, "N", 0,
      "the newest N jobs; 0: all (default, but for a table on a terminal: 100)", 0}},
    {F_STATE,
     {"state", KEY_STATE, "STATE", 0,
      "only jobs in these states: running, failed, queued,paused ...", 0}},
    {F_STATE, {"owner", KEY_OWNER, "NAME", 0, "only jobs of that owner", 0}},
    {F_STATE, {"name", KEY_NAME, "NAME", 0, "only jobs of that name", 0}},
    {F_STATE | F_ALL,
     {"label", KEY_LABEL, "KEY=VALUE", 0,
      "only jobs with that label, or with any of that KEY; several times: with all of them", 0}},
    {F_FOR,
     {"for", KEY_FOR, "STATE", 0,
      "until it is in one of these states: paused, running,succeeded ... (default: until it has "
      "ended)",
      0}},
    {F_DUMP,
     {"dump-graph", KEY_DUMP_GRAPH, "PASS", 0,
      "print the training graph as that pass leaves it: record, autodiff, ..., autotune", 0}},
    {F_RESUME,
     {"resume", KEY_RESUME, 0, 0,
      "go on from the newest checkpoint: of the folder that is there, or of the job", 0}},
    {F_WAIT, {"wait", KEY_WAIT, 0, 0, "stay until it is done, or will not be", 0}},
    {F_ALL,
     {"all", KEY_ALL, 0, 0, "all jobs of a name, where several have it; with --label: all of those",
      0}},
    {F_IN_THE_WAY,
     {"force", KEY_FORCE, 0, 0,
      "cancel what is in the way and wait for its end, 60 s or --timeout: the job, and those that "
      "begin with a checkpoint of it",
      0}},
    {F_KEEP,
     {"keep-checkpoints", KEY_KEEP_CHECKPOINTS, 0, 0,
      "leave the files of its checkpoints, and its program's directory", 0}},
    {F_TOKEN,
     {"role", KEY_ROLE, "ROLE", 0, "viewer, submitter, operator, admin or node (needed)", 0}},
    {F_NAME,
     {"name", KEY_NAME, "NAME", 0,
      "whose it is; tokens of one name are one person (default: its id). Of node token: only for "
      "a node of that name",
      0}},
    {F_TOKEN,
     {"expires", KEY_EXPIRES, "SPAN", 0,
      "30d, 12h, 90m; default: never, or a year for a certificate", 0}},
    {F_TOKEN,
     {"csr", KEY_CSR, "FILE", 0, "give a certificate for this request, instead of a token", 0}},
    {F_REASON,
     {"reason", KEY_REASON, "TEXT", 0, "why; shown with the job or the node, 200 bytes", 0}},
};

size_t td_verb_options(const struct td_verb *v, struct argp_option *out) {
    _Static_assert(TD_COUNTOF(flag_table) <= TD_VERB_OPTIONS_MAX, "room for each");
    size_t n = 0;
    for (size_t i = 0; i < TD_COUNTOF(flag_table); i++) {
        if (flag_table[i].verbs & (v->flags | F_COMMON)) out[n++] = flag_table[i].option;
    }
    return n;
}

struct parse {
    const struct td_verb *verb;
    struct td_flags *flags; // the caller's from the start: some point into themselves
};

// A verb that writes a file takes its path with -o, too.
static void parse_output(struct argp_state *state, const struct td_verb *verb, struct td_flags *f,
                         const char *text) {
    static const char *const names[] = {"table", "json", "jsonl", "name"};
    f->wide = strcmp(text, "wide") == 0;
    if (f->wide) {
        f->output = TD_OUTPUT_TABLE;
        return;
    }
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        f->output = (enum td_output)i;
        return;
    }
    if ((verb->flags & F_CSV) && strcmp(text, "csv") == 0) {
        f->output = TD_OUTPUT_CSV;
        return;
    }
    if (!(verb->flags & F_FILE)) {
        argp_error(state, "-o takes table, wide, json, jsonl or name, not '%s'", text);
    }
    f->out_path = text;
}

static void parse_override(struct argp_state *state, struct td_flags *f, const char *text) {
    if (!strchr(text, '=') || text[0] == '=') {
        argp_error(state, "--set takes KEY=VALUE, not '%s'", text);
    }
    if (f->n_sets == TD_MAX_SETS) argp_error(state, "at most %d times --set", TD_MAX_SETS);
    f->sets[f->n_sets++] = text;
}

static void parse_label(struct argp_state *state, struct td_flags *f, const char *text) {
    td_status wrong = td_label_check_wish("--label", text);
    if (wrong) argp_error(state, "%s", td_status_message(wrong));
    td_status_free(wrong);
    if (f->n_labels == TD_LABELS_MAX) argp_error(state, "at most %d times --label", TD_LABELS_MAX);
    f->labels[f->n_labels++] = text;
}

// A directory of here, as an override.
static void parse_trace(struct argp_state *state, struct td_flags *f, const char *dir) {
    char here[TD_FS_PATH_BYTES] = "";
    if (dir[0] != '/' && !getcwd(here, sizeof here)) {
        argp_error(state, "--trace %s: this directory has no path: %s", dir, strerror(errno));
    }
    const int n = snprintf(f->trace_set, sizeof f->trace_set, "trainer.trace_dir=%s%s%s", here,
                           here[0] ? "/" : "", dir);
    if (n < 0 || (size_t)n >= sizeof f->trace_set) {
        argp_error(state, "--trace: the path is too long");
    }
    parse_override(state, f, f->trace_set);
}

// Flags that every verb takes.
static error_t parse_common_flag(int key, char *arg, struct argp_state *state, struct parse *p) {
    struct td_flags *f = p->flags;
    switch (key) {
    case 'o':
        parse_output(state, p->verb, f, arg);
        return 0;
    case KEY_ADDRESS:
        f->address = arg;
        return 0;
    case KEY_TOKEN_FILE:
        f->token_file = arg;
        return 0;
    case KEY_CA:
        f->ca = arg;
        return 0;
    case KEY_CERT:
        f->certificate = arg;
        return 0;
    case KEY_KEY:
        f->key = arg;
        return 0;
    case KEY_STATE_DIR:
        f->state_dir = arg;
        return 0;
    case KEY_TIMEOUT:
        f->timeout_ns = td_flag_seconds(state, arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Flags of some verbs that are there or not.
static error_t parse_switch(int key, struct td_flags *f) {
    switch (key) {
    case 'f':
        f->follow = true;
        return 0;
    case KEY_DRY_RUN:
        f->dry_run = true;
        return 0;
    case KEY_OUT_ONLY:
        f->out_only = true;
        return 0;
    case KEY_ERR_ONLY:
        f->err_only = true;
        return 0;
    case KEY_RESUME:
        f->resume = true;
        return 0;
    case KEY_WAIT:
        f->wait = true;
        return 0;
    case KEY_ONCE:
        f->once = true;
        return 0;
    case KEY_FORCE:
        f->force = true;
        return 0;
    case KEY_PLOT:
        f->plot = true;
        return 0;
    case KEY_ALL:
        f->all = true;
        return 0;
    case KEY_KEEP_CHECKPOINTS:
        f->keep_checkpoints = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Flags of token and context.
static error_t parse_access_flag(int key, char *arg, struct td_flags *f) {
    switch (key) {
    case KEY_ROLE:
        f->role = arg;
        return 0;
    case KEY_NAME:
        f->name = arg;
        return 0;
    case KEY_EXPIRES:
        f->expires = arg;
        return 0;
    case KEY_CSR:
        f->csr = arg;
        return 0;
    default:
        return parse_switch(key, f);
    }
}

static error_t parse_number(int key, char *arg, struct argp_state *state, struct td_flags *f) {
    switch (key) {
    case KEY_RANK:
        f->rank = (int)td_flag_number(state, "rank", arg, 1 << 20);
        return 0;
    case KEY_ATTEMPT:
        f->attempt = (uint32_t)td_flag_number(state, "attempt", arg, 1 << 20);
        return 0;
    case KEY_OFFSET:
        f->offset = td_flag_number(state, "offset", arg, INT64_MAX);
        return 0;
    case KEY_FROM:
        f->from_step = (uint32_t)td_flag_number(state, "from", arg, UINT32_MAX);
        return 0;
    case KEY_TO:
        f->to_step = (uint32_t)td_flag_number(state, "to", arg, UINT32_MAX);
        return 0;
    case KEY_TAIL:
        f->tail_lines = (int64_t)td_flag_number(state, "tail", arg, TD_TAIL_LINES_MAX);
        return 0;
    case KEY_LOGS:
        f->logs_of = !arg                      ? 0
                     : strcmp(arg, "all") == 0 ? TD_FOLLOW_LOGS_ALL
                                               : (int)td_flag_number(state, "logs", arg, 1 << 16);
        return 0;
    case KEY_POINTS:
        f->points = (uint32_t)td_flag_number(state, "points", arg, UINT32_MAX);
        if (!f->points) argp_error(state, "--points takes a number from 1 on");
        return 0;
    case KEY_LIMIT:
        f->limit = (int64_t)td_flag_number(state, "limit", arg, INT32_MAX);
        return 0;
    default:
        return parse_access_flag(key, arg, f);
    }
}

// Flags of some verbs: argp was given only those of this verb.
static error_t parse_verb_flag(int key, char *arg, struct argp_state *state, struct td_flags *f) {
    switch (key) {
    case 'O':
        f->out_path = arg;
        return 0;
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case KEY_SET:
        parse_override(state, f, arg);
        return 0;
    case KEY_PROFILE:
        parse_override(state, f, "trainer.profile=true");
        return 0;
    case KEY_TRACE:
        parse_trace(state, f, arg);
        return 0;
    case KEY_RECONNECT:
        f->reconnect_ns = td_flag_span_ns(state, "reconnect", arg);
        return 0;
    case KEY_STATE:
    case KEY_FOR:
        f->state = arg;
        return 0;
    case KEY_OWNER:
        f->owner = arg;
        return 0;
    case KEY_LABEL:
        parse_label(state, f, arg);
        return 0;
    case KEY_REQUEST_ID:
        f->request_id = arg;
        return 0;
    case KEY_DUMP_GRAPH:
        f->dump_graph = arg;
        return 0;
    case KEY_REASON:
        f->reason = arg;
        return 0;
    default:
        return parse_number(key, arg, state, f);
    }
}

static void check_logs(struct argp_state *state, const struct td_flags *f) {
    if (f->logs_of == TD_FOLLOW_LOGS_NONE) return;
    if (!f->follow) {
        argp_error(state, "--logs needs --follow; `trainctl logs` has what was printed");
    }
    if (f->output != TD_OUTPUT_TABLE) argp_error(state, "--logs prints text, which -o is not");
}

// Labels name jobs together with --all alone, so that who means one job does not get many.
static void check_labels(struct argp_state *state, const struct td_verb *verb,
                         const struct td_flags *f) {
    const bool names_all = verb->flags & F_ALL && f->n_labels;
    if (names_all && !f->all) argp_error(state, "--label needs --all: it may mean several jobs");
    if (f->n_args < verb->min_args && !names_all) argp_error(state, "%s is missing", verb->args);
}

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    struct parse *p = state->input;
    struct td_flags *f = p->flags;
    if (key == ARGP_KEY_ARG) {
        if (f->n_args >= p->verb->max_args) argp_error(state, "'%s' is one argument too many", arg);
        f->args[f->n_args++] = arg;
        return 0;
    }
    if (key == ARGP_KEY_END) {
        check_labels(state, p->verb, f);
        check_logs(state, f);
        return 0;
    }
    error_t known = parse_common_flag(key, arg, state, p);
    return known == ARGP_ERR_UNKNOWN ? parse_verb_flag(key, arg, state, f) : known;
}

// Flags that every verb has are in `trainctl --help`; a verb shows those that it speaks of itself.
static void hide_common(const struct td_verb *v, struct argp_option *options, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const bool is_common = options[i].group == TD_GROUP_COMMON;
        if (is_common && !td_help_names(v, options[i].name)) options[i].flags |= OPTION_HIDDEN;
        options[i].group = 0; // all in one list
    }
}

void td_flags_parse(const struct td_verb *verb, int argc, char **argv, struct td_flags *out_flags) {
    struct argp_option options[TD_VERB_OPTIONS_MAX + 2];
    size_t n = td_verb_options(verb, options);
    hide_common(verb, options, n);
    options[n++] = (struct argp_option){NULL, 'h', 0, OPTION_HIDDEN, NULL, 0};
    options[n] = (struct argp_option){0};
    const struct argp argp = {options, parse_argument, verb->args, td_help_of(verb),
                              NULL,    NULL,           NULL};
    static char name[64];
    snprintf(name, sizeof name, "trainctl %s", verb->name);
    argv[0] = name;
    struct parse p = {verb, out_flags};
    *out_flags = (struct td_flags){.rank = -1,
                                   .logs_of = TD_FOLLOW_LOGS_NONE,
                                   .tail_lines = -1,
                                   .limit = -1,
                                   .reconnect_ns = TD_RECONNECT_NS};
    argp_err_exit_status = TD_CTL_USAGE;
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); // two lines that say little
    argp_parse(&argp, argc, argv, 0, NULL, &p);
}
