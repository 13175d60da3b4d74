// Settings of traind. Each row of params.def becomes a flag of argp, an environment variable, a
// line of --dump-config. Flags win over the environment, the environment over the default.
// Directories that have no default of their own and the CPU level are derived here, so that
// --dump-config shows what will be used. The only getenv of the daemon. Rejected: a configuration
// file; systemd, containers and scripts give flags or variables, and a file is one more place where
// a setting can hide.

#include "daemon/config.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/join.h"
#include "daemon/node/shell/gpus/gpu_cut.h"
#include "lib/attempt/events.h"
#include "lib/attempt/languages.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/base/files/state_dir.h"
#include "lib/base/machine/interface.h"
#include "lib/spec/language.h"
#include "lib/spec/spec.h"
#include "lib/version/version.h"

struct row {
    const char *flag, *env, *prose, *unit;
    size_t offset; // in struct td_config
    bool is_int;
    int64_t min, max, def;
    const char *text_def;
};

static const struct row rows[] = {
#define TD_PARAM_STR(field, ...) {.offset = offsetof(struct td_config, field), __VA_ARGS__},
#define TD_PARAM_INT(field, ...)                                                                   \
    {.offset = offsetof(struct td_config, field), .is_int = true, __VA_ARGS__},
#include "daemon/params.def"
#undef TD_PARAM_STR
#undef TD_PARAM_INT
};
enum {
    N_ROWS = TD_COUNTOF(rows),
    KEY_FIRST = 256,
    KEY_DUMP = KEY_FIRST + N_ROWS,
    KEY_DUMP_SPEC,
    KEY_DUMP_EVENTS,
    KEY_DUMP_LANGUAGES,
    KEY_SALVAGE,
    KEY_VERSION = 'V',
    KEY_HELP = 'h'
};

struct parse {
    struct td_config config;
    bool dump, dump_spec, dump_events, dump_languages, version;
    td_status failed;
};

static td_status set(struct td_config *c, const struct row *r, const char *text, const char *from) {
    char *at = (char *)c + r->offset;
    if (!r->is_int) {
        if (strlen(text) >= TD_CONFIG_TEXT) {
            return td_fail(TD_INVALID_ARGUMENT, "%s is longer than %d bytes", from,
                           TD_CONFIG_TEXT - 1);
        }
        snprintf(at, TD_CONFIG_TEXT, "%s", text);
        return TD_OK;
    }
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || v < r->min || v > r->max) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "%s takes a whole number from %" PRId64 " to %" PRId64 " (%s), not '%s'",
                       from, r->min, r->max, r->unit, text);
    }
    *(int64_t *)(void *)at = v;
    return TD_OK;
}

static td_status set_defaults(struct td_config *c) {
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *env = rows[i].env ? getenv(rows[i].env) : NULL;
        if (rows[i].is_int) {
            *(int64_t *)(void *)((char *)c + rows[i].offset) = rows[i].def;
        } else {
            TD_TRY(set(c, &rows[i], rows[i].text_def ? rows[i].text_def : "", rows[i].flag));
        }
        if (env && *env) TD_TRY(set(c, &rows[i], env, rows[i].env));
    }
    return TD_OK;
}

static const char *const roles[] = {"all", "coordinator", "node"};

static bool is_role(const char *text) {
    for (size_t i = 0; i < TD_COUNTOF(roles); i++) {
        if (strcmp(text, roles[i]) == 0) return true;
    }
    return false;
}

static error_t parse_flag(int key, char *arg, struct argp_state *state) {
    struct parse *p = state->input;
    if (key >= KEY_FIRST && key < KEY_FIRST + (int)N_ROWS) {
        const struct row *r = &rows[key - KEY_FIRST];
        char from[64];
        snprintf(from, sizeof from, "--%s", r->flag);
        if (!p->failed) p->failed = set(&p->config, r, arg, from);
        return 0;
    }
    switch (key) {
    case KEY_DUMP:
        p->dump = true;
        return 0;
    case KEY_DUMP_SPEC:
        p->dump_spec = true;
        return 0;
    case KEY_DUMP_EVENTS:
        p->dump_events = true;
        return 0;
    case KEY_DUMP_LANGUAGES:
        p->dump_languages = true;
        return 0;
    case KEY_SALVAGE:
        p->config.salvage = true;
        return 0;
    case KEY_VERSION:
        p->version = true;
        return 0;
    case KEY_HELP:
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0 && is_role(arg)) {
            snprintf(p->config.role, sizeof p->config.role, "%s", arg);
            return 0;
        }
        argp_error(state, "traind takes a role (all, coordinator or node) and flags, not '%s'",
                   arg);
    // argp_error does not return
    // fall through
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

td_status td_config_state_dir(const char *given, char out[TD_CONFIG_TEXT]) {
    char state_dir[TD_CONFIG_TEXT];
    TD_TRY(td_state_dir_default(given && *given ? given : getenv("TRAIND_STATE_DIR"),
                                getenv("XDG_STATE_HOME"), getenv("HOME"), geteuid() == 0, state_dir,
                                sizeof state_dir));
    return td_fs_absolute(state_dir, out, TD_CONFIG_TEXT);
}

static td_status check_dirs(const char *dirs, const char *flag) {
    for (const char *p = dirs; *p;) {
        int len = (int)strcspn(p, ":");
        if (*p != '/' || (p[len] && !p[len + 1])) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "%s takes absolute paths with ':' between them, not '%.*s'", flag, len,
                           p);
        }
        p += len + (p[len] == ':');
    }
    return TD_OK;
}

// A node joins, or has joined, or has a token and is given the coordinator's address.
static td_status find_coordinator(struct td_config *c) {
    char joined[TD_CONFIG_TEXT];
    TD_TRY(td_join_address(c->state_dir, joined, sizeof joined));
    if (joined[0] && c->join[0] && strcmp(joined, c->join) != 0) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "--join %s (TRAIND_JOIN): this node has joined %s; remove '%s/tls' to leave "
                       "that cluster",
                       c->join, joined, c->state_dir);
    }
    c->has_joined = joined[0] && (c->join[0] || !c->coordinator[0]);
    const char *where = c->join[0] ? c->join : c->has_joined ? joined : c->coordinator;
    if (!where[0]) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "role node needs --coordinator HOST:PORT (or TRAIND_ADDRESS), or --join "
                       "HOST:PORT with a join token");
    }
    if (where != c->coordinator) snprintf(c->coordinator, sizeof c->coordinator, "%s", where);
    return TD_OK;
}

static td_status check_busy(const char *text) {
    if (strcmp(text, "wait") == 0 || strcmp(text, "use") == 0) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "--busy-devices (TRAIND_BUSY_DEVICES) is wait or use, not '%.40s'", text);
}

static td_status derive(struct td_config *c) {
    size_t role = 0;
    while (role < TD_COUNTOF(roles) && strcmp(c->role, roles[role]) != 0) {
        role++;
    }
    if (role == TD_COUNTOF(roles)) {
        return td_fail(TD_INVALID_ARGUMENT, "--role takes all, coordinator or node, not '%s'",
                       c->role);
    }
    c->daemon_role = (enum td_daemon_role)role;
    char state_dir[TD_CONFIG_TEXT];
    TD_TRY(td_config_state_dir(c->state_dir, state_dir));
    snprintf(c->state_dir, sizeof c->state_dir, "%s", state_dir);
    if (c->daemon_role == TD_DAEMON_NODE) TD_TRY(find_coordinator(c));
    TD_TRY(td_cpu_level_read("--cpu-level (TRAIND_CPU_ISA)", c->cpu_level,
                             td_cpu_level_of_machine(NULL), &c->level));
    snprintf(c->cpu_level, sizeof c->cpu_level, "%s", td_cpu_level_name(c->level));
    TD_TRY(check_dirs(c->plugin_dirs, "--plugin-dirs (TRAIND_PLUGIN_DIRS)"));
    TD_TRY(check_dirs(c->read_roots, "--read-roots (TRAIND_READ_ROOTS)"));
    TD_TRY(check_dirs(c->write_roots, "--write-roots (TRAIND_WRITE_ROOTS)"));
    const char *address = c->daemon_role == TD_DAEMON_NODE ? c->coordinator : c->listen;
    TD_TRY(td_allow_parse(c->allow, td_allow_is_loopback(address), &c->allowed));
    if (c->plugin_dirs[0] && !(c->allowed & TD_ALLOW_PLUGINS)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--plugin-dirs is given, but --allow '%s' does not have plugins; add it to "
                       "--allow (TRAIND_ALLOW), or leave --plugin-dirs out",
                       c->allow);
    }
    TD_TRY(td_allow_ports(c->port_range, &c->ports));
    if (c->collective_interface[0]) {
        TD_TRY_CTX(td_interface_check(c->collective_interface),
                   "--collective-interface (TRAIND_COLLECTIVE_INTERFACE)");
    }
    TD_TRY_CTX(td_gpu_cut_check(c->gpus), "--gpus (TRAIND_GPUS)");
    TD_TRY(check_busy(c->busy_devices));
    c->visible_gpus = getenv("CUDA_VISIBLE_DEVICES");
    // Launchers and workers are given paths in both, and take only those that begin at the root.
    char runtime_dir[TD_FS_PATH_BYTES];
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    if (c->runtime_dir[0]) {
        TD_TRY(td_fs_path(runtime_dir, "%s", c->runtime_dir));
    } else if (xdg && *xdg) {
        TD_TRY(td_fs_path(runtime_dir, "%s/traind", xdg));
    } else if (geteuid() == 0) {
        TD_TRY(td_fs_path(runtime_dir, "/run/traind"));
    } else {
        TD_TRY(td_fs_path(runtime_dir, "/tmp/traind-%u", geteuid()));
    }
    TD_TRY(td_fs_absolute(runtime_dir, c->runtime_dir, sizeof c->runtime_dir));
    if (!c->token_file[0]) {
        int n = snprintf(c->token_file, sizeof c->token_file, "%s/token", c->state_dir);
        if (n >= (int)sizeof c->token_file) {
            return td_fail(TD_INVALID_ARGUMENT, "the state directory's path is too long");
        }
    }
    return TD_OK;
}

static td_status dump_page(td_status (*print)(struct td_buf *out)) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    TD_TRY(print(&text));
    printf("%s", td_buf_cstr(&text));
    return TD_OK;
}

// Two builds that print the same here understand each other.
static void dump_languages(void) {
    char plans[TD_DIGEST_HEX];
    td_spec_language(plans);
    printf("launchers %d.%d\nranks %d\nnodes %d\nplans %s\n", TD_LAUNCHER_MAJOR, TD_LAUNCHER_MINOR,
           TD_RANKS_LANGUAGE, TD_NODES_LANGUAGE, plans);
}

static void dump(const struct td_config *c) {
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *at = (const char *)c + rows[i].offset;
        if (rows[i].is_int) {
            printf("%-18s %-24" PRId64 " # %s (%s)\n", rows[i].flag,
                   *(const int64_t *)(const void *)at, rows[i].prose, rows[i].unit);
        } else {
            printf("%-18s %-24s # %s\n", rows[i].flag, *at ? at : "\"\"", rows[i].prose);
        }
    }
}

td_status td_config_read(int argc, char **argv, struct td_config *out_config) {
    struct argp_option options[N_ROWS + 8] = {0};
    for (size_t i = 0; i < N_ROWS; i++) {
        options[i] = (struct argp_option){
            rows[i].flag, KEY_FIRST + (int)i, rows[i].is_int ? "N" : "X", 0, rows[i].prose, 0};
    }
    options[N_ROWS] =
        (struct argp_option){"dump-config", KEY_DUMP, NULL, 0, "print every setting and end", 0};
    options[N_ROWS + 1] = (struct argp_option){
        "dump-spec", KEY_DUMP_SPEC, NULL, 0, "print the reference of the job spec and end", 0};
    options[N_ROWS + 2] =
        (struct argp_option){"version", KEY_VERSION, NULL, 0, "print the version and end", 0};
    options[N_ROWS + 3] = (struct argp_option){
        "salvage",
        KEY_SALVAGE,
        NULL,
        0,
        "coordinator: start with what is readable of a damaged state.db, list what is not",
        0};
    options[N_ROWS + 4] = (struct argp_option){
        "dump-events", KEY_DUMP_EVENTS, NULL, 0, "print the reference of events.log and end", 0};
    options[N_ROWS + 5] =
        (struct argp_option){"dump-languages",
                             KEY_DUMP_LANGUAGES,
                             NULL,
                             0,
                             "print the numbers of what this build says to others and end",
                             0};
    options[N_ROWS + 6] = (struct argp_option){NULL, KEY_HELP, NULL, OPTION_HIDDEN, NULL, 0};
    const struct argp argp = {
        options,
        parse_flag,
        "[ROLE]",
        "Trains what it is given: coordinator, node, or both. `traind init` makes the certificates "
        "that listening beyond this machine needs; see `traind init --help`.",
        NULL,
        NULL,
        NULL};
    struct parse p = {0};
    TD_TRY(set_defaults(&p.config));
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &p);
    TD_TRY(p.failed);
    if (p.version) {
        printf("traind %s\n", td_version);
    } else if (p.dump_spec) {
        TD_TRY(dump_page(td_spec_reference));
    } else if (p.dump_events) {
        TD_TRY(dump_page(td_events_page));
    } else if (p.dump_languages) {
        dump_languages();
    } else {
        TD_TRY(derive(&p.config));
        if (p.dump) dump(&p.config);
    }
    p.config.only_print = p.dump || p.dump_spec || p.dump_events || p.dump_languages || p.version;
    *out_config = p.config;
    return TD_OK;
}

const char *td_config_notify_socket(void) {
    return getenv("NOTIFY_SOCKET");
}

const char *td_config_journal_stream(void) {
    return getenv("JOURNAL_STREAM");
}
