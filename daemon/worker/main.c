// traind-worker: one rank of a job. It knows no network and no database. What it receives comes
// from a plan file, its arguments and inherited descriptors (lib/attempt/rank_page.h); from the
// environment only the CPU level of a run by hand (fabric/config.h). Here is only the command line:
// verbs and options become a struct td_rank_args, and a verb's own file does the work. Bad usage
// is an exit code of the worker's own list, because its caller is a program more often than a
// person.

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/reports/reports.h"
#include "daemon/worker/worker.h"
#include "fabric/config.h"
#include "lib/base/files/path_rules.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/version/version.h"

static void print_version(FILE *out, struct argp_state *state) {
    (void)state;
    fprintf(out, "traind-worker %s\n", td_version);
}

void (*argp_program_version_hook)(FILE *, struct argp_state *) = print_version;

#define VERBS "run, plan, compare, rates, probe, devices, reports or version"

enum {
    OPT_PLAN = 1,
    OPT_RANK,
    OPT_WORLD,
    OPT_PAGE,
    OPT_EVENTS,
    OPT_GROUP,
    OPT_STORE,
    OPT_DEVICE,
    OPT_DUMP,
    OPT_JSON,
    OPT_CHOICES,
    OPT_CHECKPOINTS,
    OPT_BUSY,
    OPT_ACCELERATOR,
    OPT_THREADS,
    OPT_PROFILE,
    OPT_CPU_LEVEL,
    OPT_PLUGIN_DIRS,
    OPT_PATH_RULES,
    OPT_PLUGINS,
    OPT_REPORTS,
    OPT_SETTINGS,
    OPT_INTERVAL
};

static const struct argp_option options[] = {
    {"plan", OPT_PLAN, "FILE", 0,
     "what to train (JSON); compare: {\"plan\": that, \"read\": what its plan says of files}", 0},
    {"rank", OPT_RANK, "R", 0, "which rank this is (0)", 0},
    {"world-size", OPT_WORLD, "W", 0, "how many ranks there are (1)", 0},
    {"page-fd", OPT_PAGE, "N", 0, "the launcher's rank page", 1},
    {"events-fd", OPT_EVENTS, "N", 0, "the launcher's event socket", 1},
    {"group-fd", OPT_GROUP, "N", 0, "shared mapping of the ranks", 1},
    {"store-fd", OPT_STORE, "N", 0, "the launcher's rendezvous store", 1},
    {"device", OPT_DEVICE, "UUID", 0,
     "run: the accelerator's device of this rank (that of its number)", 0},
    {"cpu-level", OPT_CPU_LEVEL, "LEVEL", 0,
     "no newer instructions than generic, avx2, avx512, avx512_bf16 or amx (TRAIND_CPU_ISA, else "
     "the machine's)",
     0},
    {"plugin-dirs", OPT_PLUGIN_DIRS, "DIRS", 0,
     "run, plan: directories, ':' between them, that the plan's `plugins` may load from; any: all "
     "(none)",
     0},
    {"path-rules", OPT_PATH_RULES, "JSON", 0,
     "run, plan, compare: what the plan's paths may name, as a node says (anything)", 0},
    {"plugins", OPT_PLUGINS, 0, 0, "probe: what a job spec can name, instead of accelerators alone",
     2},
    {"profile", OPT_PROFILE, 0, 0, "run: at the end print the time of each kind of kernel", 1},
    {"dump-graph", OPT_DUMP, "PASS", 0, "plan: print the main program as that pass leaves it", 2},
    {"choices-dir", OPT_CHOICES, "DIR", 0,
     "plan, rates: where this machine keeps what was measured (run.cache_dir)", 2},
    {"checkpoints-dir", OPT_CHECKPOINTS, "DIR", 0,
     "plan: where checkpoints go if the plan names no place (none are written)", 2},
    {"busy", OPT_BUSY, 0, 0, "plan: ranks run on this machine, so measure nothing", 2},
    {"accelerator", OPT_ACCELERATOR, "NAME", 0, "rates: of which accelerator (cpu)", 2},
    {"threads", OPT_THREADS, "N", 0, "rates: of how many threads (1)", 2},
    {"reports-fd", OPT_REPORTS, "N", 0, "reports: the launcher's socket", 2},
    {"settings", OPT_SETTINGS, "JSON", 0, "reports: what the launcher asks for", 2},
    {"interval-ms", OPT_INTERVAL, "N", 0, "devices: how often GPUs are looked at (10000)", 2},
    {"json", OPT_JSON, 0, 0, "with --dump-graph: as member `graph` of the sizes", 2},
    {0},
};

struct command {
    const char *verb;
    const char *path_rules; // NULL: there are none
    const char *settings;   // reports: NULL: not given
    int32_t reports_fd;     // -1: not given
    int32_t interval_ms;    // of devices
    struct td_rank_args args;
};

static void parse_int(struct argp_state *state, const char *name, const char *text, long max,
                      int32_t *out) {
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < 0 || v > max) {
        argp_error(state, "--%s: expected an integer from 0 to %ld, found '%s'", name, max, text);
    }
    *out = (int32_t)v;
}

// The options that take a number; false: it is another one.
static bool parse_number(int key, const char *arg, struct argp_state *state, struct command *c) {
    struct td_rank_args *args = &c->args;
    switch (key) {
    case OPT_REPORTS:
        parse_int(state, "reports-fd", arg, 1 << 20, &c->reports_fd);
        return true;
    case OPT_RANK:
        parse_int(state, "rank", arg, 1 << 20, &args->rank);
        return true;
    case OPT_WORLD:
        parse_int(state, "world-size", arg, 1 << 20, &args->world_size);
        return true;
    case OPT_PAGE:
        parse_int(state, "page-fd", arg, 1 << 20, &args->page_fd);
        return true;
    case OPT_EVENTS:
        parse_int(state, "events-fd", arg, 1 << 20, &args->events_fd);
        return true;
    case OPT_GROUP:
        parse_int(state, "group-fd", arg, 1 << 20, &args->group_fd);
        return true;
    case OPT_STORE:
        parse_int(state, "store-fd", arg, 1 << 20, &args->store_fd);
        return true;
    case OPT_THREADS:
        parse_int(state, "threads", arg, 4096, &args->n_threads);
        return true;
    case OPT_INTERVAL:
        parse_int(state, "interval-ms", arg, 3600000, &c->interval_ms);
        return true;
    default:
        return false;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct command *c = state->input;
    if (parse_number(key, arg, state, c)) return 0;
    switch (key) {
    case OPT_SETTINGS:
        c->settings = arg;
        return 0;
    case OPT_PLAN:
        c->args.plan_file = arg;
        return 0;
    case OPT_DUMP:
        c->args.dump_graph = arg;
        return 0;
    case OPT_CHOICES:
        c->args.choices_dir = arg;
        return 0;
    case OPT_CHECKPOINTS:
        c->args.checkpoints_dir = arg;
        return 0;
    case OPT_BUSY:
        c->args.busy = true;
        return 0;
    case OPT_ACCELERATOR:
        c->args.accelerator = arg;
        return 0;
    case OPT_PROFILE:
        c->args.profile = true;
        return 0;
    case OPT_CPU_LEVEL:
        c->args.cpu_level = arg;
        c->args.cpu_level_from = "--cpu-level";
        return 0;
    case OPT_DEVICE:
        c->args.device = arg;
        return 0;
    case OPT_PLUGINS:
        c->args.plugins = true;
        return 0;
    case OPT_PLUGIN_DIRS:
        c->args.plugin_dirs = arg;
        return 0;
    case OPT_PATH_RULES:
        c->path_rules = arg;
        return 0;
    case OPT_JSON:
        c->args.json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (c->verb) argp_error(state, "one verb only, found '%s' too", arg);
        c->verb = arg;
        return 0;
    case ARGP_KEY_END:
        if (!c->verb) {
            argp_error(state, "say what to do: " VERBS);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

TD_HOLD_STDIO_FIRST;

static bool take_path_rules(const struct command *c) {
    TD_AUTO_STATUS td_status s = c->path_rules ? td_path_rules_take(c->path_rules) : TD_OK;
    if (s) fprintf(stderr, "traind-worker: --path-rules: %s\n", td_status_message(s));
    return !s;
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        options,
        parse,
        "run|plan|compare|rates|probe|devices|reports|version",
        "Trains one rank of a job from a plan. Without a launcher it prints metrics and events as "
        "JSON lines, and stops with a checkpoint on Ctrl-C.",
        0,
        0,
        0};
    struct command c = {.interval_ms = 10000,
                        .reports_fd = -1,
                        .args = {.page_fd = -1,
                                 .events_fd = -1,
                                 .group_fd = -1,
                                 .store_fd = -1,
                                 .plugin_dirs = "",
                                 .cpu_level = td_fabric_cpu_level(),
                                 .cpu_level_from = TD_CPU_LEVEL_ENV}};
    td_status unheld = td_proc_hold_stdio();
    if (unheld) {
        td_status_log(TD_LOG_ERROR, unheld, "traind-worker ends");
        return TD_EXIT_BUG;
    }
    argp_err_exit_status = TD_EXIT_BAD_SPEC;
    argp_parse(&argp, argc, argv, 0, NULL, &c);
    if (strcmp(c.verb, "version") == 0) {
        print_version(stdout, NULL);
        return TD_EXIT_DONE;
    }
    const bool runs = strcmp(c.verb, "run") == 0;
    if (!runs) signal(SIGUSR1, SIG_IGN); // "save", to all processes of a job of Slurm's
    if (strcmp(c.verb, "probe") == 0) return td_worker_probe(&c.args);
    if (strcmp(c.verb, "rates") == 0) return td_worker_rates(&c.args);
    if (strcmp(c.verb, "devices") == 0) return td_worker_devices(c.interval_ms);
    if (strcmp(c.verb, "reports") == 0) {
        if (c.reports_fd >= 0 && c.settings) return td_worker_reports(c.reports_fd, c.settings);
        fprintf(stderr, "traind-worker: reports needs --reports-fd N and --settings JSON\n");
        return TD_EXIT_BAD_SPEC;
    }
    const bool compares = strcmp(c.verb, "compare") == 0;
    if (!runs && !compares && strcmp(c.verb, "plan") != 0) {
        fprintf(stderr, "traind-worker: unknown verb '%s': " VERBS "\n", c.verb);
        return TD_EXIT_BAD_SPEC;
    }
    if (!c.args.plan_file) {
        fprintf(stderr, "traind-worker: %s needs --plan FILE\n", c.verb);
        return TD_EXIT_BAD_SPEC;
    }
    if (!take_path_rules(&c)) return TD_EXIT_BAD_SPEC;
    if (compares) return td_worker_compare(&c.args);
    c.args.whole_job = !runs;
    return runs ? td_worker_run(&c.args) : td_worker_plan(&c.args);
}
