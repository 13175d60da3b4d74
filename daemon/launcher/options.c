// Options of the launcher: a table of names, each with its range, read by getopt_long.
//
// The caller is a node daemon (or a test), not a person: errors name the option and the value and
// go out on the ack descriptor. Rejected: argp, whose help and exits are of no use here.

#include "daemon/launcher/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "lib/attempt/devices.h"
#include "lib/attempt/segments.h"
#include "lib/base/cpu_level.h"

enum option_id {
    OPT_DIR = 1,
    OPT_PLAN,
    OPT_JOB,
    OPT_ATTEMPT,
    OPT_EPOCH,
    OPT_WORLD,
    OPT_FIRST_RANK,
    OPT_RANKS,
    OPT_CORES,
    OPT_THREADS,
    OPT_CPU_LEVEL,
    OPT_DEVICES,
    OPT_GPUS,
    OPT_SHARED_CORES,
    OPT_SHARED_BYTES,
    OPT_MEMORY_LIMIT,
    OPT_WORKER,
    OPT_SOCKET,
    OPT_PLUGIN_DIRS,
    OPT_PATH_RULES,
    OPT_ORPHAN_TIMEOUT,
    OPT_SILENT_AFTER,
    OPT_STUCK_TIMEOUT,
    OPT_GPU_IDLE,
    OPT_UMASK,
    OPT_KIND,
    OPT_PORTS,
    OPT_ACK_FD,
    OPT_COUNT,
};

static const struct option long_options[] = {
    {"dir", required_argument, NULL, OPT_DIR},
    {"plan", required_argument, NULL, OPT_PLAN},
    {"job", required_argument, NULL, OPT_JOB},
    {"attempt", required_argument, NULL, OPT_ATTEMPT},
    {"epoch", required_argument, NULL, OPT_EPOCH},
    {"world", required_argument, NULL, OPT_WORLD},
    {"first-rank", required_argument, NULL, OPT_FIRST_RANK},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"cores", required_argument, NULL, OPT_CORES},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"cpu-level", required_argument, NULL, OPT_CPU_LEVEL},
    {"devices", required_argument, NULL, OPT_DEVICES},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"shared-cores", no_argument, NULL, OPT_SHARED_CORES},
    {"shared-bytes", required_argument, NULL, OPT_SHARED_BYTES},
    {"memory-limit", required_argument, NULL, OPT_MEMORY_LIMIT},
    {"worker", required_argument, NULL, OPT_WORKER},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"plugin-dirs", required_argument, NULL, OPT_PLUGIN_DIRS},
    {"path-rules", required_argument, NULL, OPT_PATH_RULES},
    {"orphan-timeout", required_argument, NULL, OPT_ORPHAN_TIMEOUT},
    {"silent-after-ms", required_argument, NULL, OPT_SILENT_AFTER},
    {"stuck-timeout", required_argument, NULL, OPT_STUCK_TIMEOUT},
    {"gpu-idle-ms", required_argument, NULL, OPT_GPU_IDLE},
    {"umask", required_argument, NULL, OPT_UMASK},
    {"kind", required_argument, NULL, OPT_KIND},
    {"ports", required_argument, NULL, OPT_PORTS},
    {"ack-fd", required_argument, NULL, OPT_ACK_FD},
    {NULL, 0, NULL, 0},
};
_Static_assert(TD_COUNTOF(long_options) == OPT_COUNT, "one row per option");

static td_status number(const char *name, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out_value) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || v < min || v > max) {
        return td_fail(TD_INVALID_ARGUMENT, "--%s '%s' is not a number from %llu to %llu", name,
                       text, (unsigned long long)min, (unsigned long long)max);
    }
    *out_value = v;
    return TD_OK;
}

static td_status set_number(struct td_launch_options *o, int id, const char *text) {
    const char *name = long_options[id - 1].name;
    const uint64_t any = UINT64_MAX >> 1;
    uint64_t v = 0;
    switch (id) {
    case OPT_ATTEMPT:
        TD_TRY(number(name, text, 1, INT32_MAX, &v));
        o->attempt = (uint32_t)v;
        return TD_OK;
    case OPT_EPOCH:
        return number(name, text, 0, any, &o->epoch);
    case OPT_WORLD:
        TD_TRY(number(name, text, 1, 1 << 20, &v));
        o->world_size = (int32_t)v;
        return TD_OK;
    case OPT_FIRST_RANK:
        TD_TRY(number(name, text, 0, 1 << 20, &v));
        o->first_rank = (int32_t)v;
        return TD_OK;
    case OPT_RANKS:
        TD_TRY(number(name, text, 1, TD_LAUNCH_RANKS_MAX, &v));
        o->n_ranks = (int32_t)v;
        return TD_OK;
    case OPT_THREADS:
        TD_TRY(number(name, text, 1, 4096, &v));
        o->threads = (int32_t)v;
        return TD_OK;
    case OPT_SHARED_BYTES:
        return number(name, text, 0, any, &o->shared_bytes);
    case OPT_MEMORY_LIMIT:
        return number(name, text, 0, any, &o->memory_limit_bytes);
    case OPT_ORPHAN_TIMEOUT:
        TD_TRY(number(name, text, 1, 365 * 86400, &v));
        o->orphan_timeout_ns = (int64_t)v * TD_NS_PER_S;
        return TD_OK;
    case OPT_SILENT_AFTER:
        TD_TRY(number(name, text, 1, 365 * 86400 * INT64_C(1000), &v));
        o->silent_after_ns = (int64_t)v * TD_NS_PER_MS;
        return TD_OK;
    case OPT_STUCK_TIMEOUT:
        TD_TRY(number(name, text, 0, INT32_MAX, &v));
        o->stuck_timeout_ns = (int64_t)v * TD_NS_PER_S;
        return TD_OK;
    case OPT_GPU_IDLE:
        TD_TRY(number(name, text, 0, 365 * 86400 * INT64_C(1000), &v));
        o->gpu_idle_ns = (int64_t)v * TD_NS_PER_MS;
        return TD_OK;
    case OPT_UMASK:
        TD_TRY(number(name, text, 0, 0777, &v));
        o->umask = (int)v;
        return TD_OK;
    case OPT_ACK_FD:
        TD_TRY(number(name, text, 3, 255, &v));
        o->ack_fd = (int)v;
        return TD_OK;
    default:
        return td_fail(TD_INTERNAL, "--%s is no number", name);
    }
}

static td_status set(struct td_launch_options *o, int id, const char *text) {
    switch (id) {
    case OPT_DIR:
        o->dir = text;
        return TD_OK;
    case OPT_PLAN:
        o->plan = text;
        return TD_OK;
    case OPT_JOB:
        o->job = text;
        return TD_OK;
    case OPT_CORES:
        o->cores = text;
        return TD_OK;
    case OPT_CPU_LEVEL:
        o->cpu_level = text;
        return TD_OK;
    case OPT_DEVICES:
        o->devices = text;
        return TD_OK;
    case OPT_GPUS:
        o->gpus = text;
        return TD_OK;
    case OPT_SHARED_CORES:
        o->shared_cores = true;
        return TD_OK;
    case OPT_KIND:
        o->kind = td_job_kind_parse(text);
        if (strcmp(td_job_kind_name(o->kind), text) == 0) return TD_OK;
        return td_fail(TD_INVALID_ARGUMENT, "--kind '%s' is no kind of job", text);
    case OPT_PORTS:
        return td_ports_parse("--ports", text, &o->ports);
    case OPT_WORKER:
        o->worker = text;
        return TD_OK;
    case OPT_SOCKET:
        o->socket = text;
        return TD_OK;
    case OPT_PLUGIN_DIRS:
        o->plugin_dirs = text;
        return TD_OK;
    case OPT_PATH_RULES:
        o->path_rules = text;
        return TD_OK;
    default:
        return set_number(o, id, text);
    }
}

static td_status check_devices(const struct td_launch_options *o) {
    char uuid[TD_DEVICE_UUID];
    uint32_t n = td_device_list_count(o->devices);
    bool fits = n == 0 || n == (uint32_t)o->n_ranks;
    for (uint32_t i = 0; fits && i < n; i++) {
        fits = td_device_list_at(o->devices, i, uuid);
    }
    n = td_device_list_count(o->gpus);
    if (n % (uint32_t)o->n_ranks != 0) {
        return td_fail(TD_INVALID_ARGUMENT, "--gpus names %u GPUs for %d ranks", n, o->n_ranks);
    }
    if (fits) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "--devices '%s' does not name one device for each of %d ranks", o->devices,
                   o->n_ranks);
}

static td_status check(const struct td_launch_options *o) {
    enum td_cpu_level level;
    TD_TRY(td_cpu_level_read("--cpu-level", o->cpu_level, td_cpu_level_of_machine(NULL), &level));
    if (!o->dir || !o->plan || !o->job || !o->attempt || !o->world_size || !o->n_ranks ||
        !o->worker || !o->socket) {
        return td_fail(TD_INVALID_ARGUMENT, "needed: --dir --plan --job --attempt --world --ranks "
                                            "--worker --socket");
    }
    if (o->dir[0] != '/' || o->plan[0] != '/' || o->worker[0] != '/' || o->socket[0] != '/') {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--dir, --plan, --worker and --socket are absolute paths");
    }
    if (o->first_rank + o->n_ranks > o->world_size) {
        return td_fail(TD_INVALID_ARGUMENT, "ranks %d to %d are beyond a world of %d",
                       o->first_rank, o->first_rank + o->n_ranks - 1, o->world_size);
    }
    TD_TRY(check_devices(o));
    for (int i = 0; i < o->n_ranks; i++) {
        cpu_set_t ignored;
        TD_TRY(td_cores_parse(o->cores, i, &ignored));
    }
    return TD_OK;
}

td_status td_launch_options_parse(int argc, char **argv, struct td_launch_options *out_options) {
    struct td_launch_options o = {.cores = "",
                                  .cpu_level = "",
                                  .devices = "",
                                  .gpus = "",
                                  .plugin_dirs = "",
                                  .path_rules = "",
                                  .threads = 1,
                                  .orphan_timeout_ns = 3600 * TD_NS_PER_S,
                                  .silent_after_ns = 30 * TD_NS_PER_S,
                                  .stuck_timeout_ns = 900 * TD_NS_PER_S,
                                  .umask = -1,
                                  .ack_fd = -1};
    opterr = 0;
    optind = 1;
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (id == '?') {
            return td_fail(TD_INVALID_ARGUMENT, "'%s' is no option, or its value is missing",
                           argv[optind - 1]);
        }
        TD_TRY(set(&o, id, optarg));
        out_options->ack_fd = o.ack_fd; // so that errors in what follows are reported
    }
    if (optind < argc) return td_fail(TD_INVALID_ARGUMENT, "'%s' is no option", argv[optind]);
    TD_TRY(check(&o));
    *out_options = o;
    return TD_OK;
}

td_status td_cores_parse(const char *lists, int idx, cpu_set_t *out_set) {
    const char *p = lists;
    for (int i = 0; i < idx; i++) {
        p += strcspn(p, ":");
        if (*p == ':') p++;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    while (*p && *p != ':') {
        char *end;
        unsigned long from = strtoul(p, &end, 10), to = from;
        bool ok = end > p && p[0] != '-' && p[0] != '+';
        if (ok && *end == '-') {
            p = end + 1;
            to = strtoul(p, &end, 10);
            ok = end > p && p[0] != '-' && p[0] != '+';
        }
        if (!ok || to < from || to >= CPU_SETSIZE || (*end && *end != ',' && *end != ':')) {
            return td_fail(TD_INVALID_ARGUMENT, "'%s' is no list of cores such as 0-3,8", lists);
        }
        for (unsigned long core = from; core <= to; core++) {
            CPU_SET(core, &set);
        }
        p = *end == ',' ? end + 1 : end;
    }
    *out_set = set;
    return TD_OK;
}
