// See the header.

#include "client/nodes/gpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "lib/attempt/xids.h"
#include "lib/base/clip.h"

enum { WORDS = 160, WHY_BYTES = 640, XID_BYTES = 256 };

// ---- which are excluded -------------------------------------------------------------------------
static const Traind__V1__GpuExclusion *find_exclusion(const Traind__V1__GpuList *l,
                                                      const char *uuid) {
    for (size_t i = 0; uuid[0] && i < l->n_exclusions; i++) {
        if (strcmp(l->exclusions[i]->uuid, uuid) == 0) return l->exclusions[i];
    }
    return NULL;
}

const Traind__V1__GpuExclusion *td_gpus_exclusion(const Traind__V1__GpuList *l,
                                                  const Traind__V1__Gpu *g) {
    const Traind__V1__GpuExclusion *own = find_exclusion(l, g->uuid);
    return own ? own : find_exclusion(l, g->parent);
}

const char *td_gpus_whole_uuid(const Traind__V1__GpuList *l, const char *said) {
    for (size_t i = 0; l && i < l->n_gpus; i++) {
        if (strncmp(l->gpus[i]->uuid, said, strlen(said)) == 0) return l->gpus[i]->uuid;
    }
    for (size_t i = 0; l && i < l->n_exclusions; i++) {
        if (strncmp(l->exclusions[i]->uuid, said, strlen(said)) == 0) return l->exclusions[i]->uuid;
    }
    return said;
}

// "excluded since T: XID 79 (...)", "excluded by alice since T: a fan is loud".
static const char *say_excluded(const Traind__V1__GpuExclusion *x, char out[WHY_BYTES]) {
    (void)td_clip(out, WHY_BYTES, "excluded%s%s since %s: %s", x->by[0] ? " by " : "", x->by,
                  x->time, x->reason);
    return out;
}

static const char *say_health(const Traind__V1__GpuList *l, const Traind__V1__Gpu *g,
                              char out[2 * WHY_BYTES]) {
    char why[WHY_BYTES];
    const Traind__V1__GpuExclusion *x = td_gpus_exclusion(l, g);
    if (!x) return g->health[0] ? g->health : "ok";
    (void)td_clip(out, 2 * WHY_BYTES, "%s%s%s", say_excluded(x, why), g->health[0] ? "; " : "",
                  g->health);
    return out;
}

static bool is_listed(const Traind__V1__GpuList *l, const char *uuid) {
    for (size_t i = 0; i < l->n_gpus; i++) {
        if (strcmp(l->gpus[i]->uuid, uuid) == 0 || strcmp(l->gpus[i]->parent, uuid) == 0) {
            return true;
        }
    }
    return false;
}

// ---- a cell -------------------------------------------------------------------------------------
const char *td_gpus_cell(struct td_arena *arena, const Traind__V1__GpuList *l) {
    const char *text = "";
    size_t n_ill = 0, n_given = 0, n_excluded = 0;
    for (size_t i = 0; text && l && i < l->n_gpus; i++) {
        size_t n = 0, first = i;
        for (size_t k = l->n_gpus; k-- > 0;) {
            if (strcmp(l->gpus[k]->name, l->gpus[i]->name) != 0) continue;
            n++;
            first = k;
        }
        const bool is_excluded = td_gpus_exclusion(l, l->gpus[i]);
        n_excluded += is_excluded;
        n_ill += !is_excluded && l->gpus[i]->health[0];
        n_given += l->gpus[i]->job[0] != '\0';
        if (first < i) continue;
        text = td_arena_printf(arena, "%s%s%zu %s", text, *text ? ", " : "", n,
                               l->gpus[i]->name[0] ? l->gpus[i]->name : "of unknown model");
    }
    if (text && n_given) text = td_arena_printf(arena, "%s (%zu in use)", text, n_given);
    if (text && n_ill) text = td_arena_printf(arena, "%s (%zu not well)", text, n_ill);
    if (text && n_excluded) text = td_arena_printf(arena, "%s (%zu excluded)", text, n_excluded);
    if (text && l && l->stale) text = td_arena_printf(arena, "%s (last list)", text);
    return text && !*text ? "-" : text;
}

// ---- a value ------------------------------------------------------------------------------------
// False: the driver does not say it.
static bool find_measured(const Traind__V1__Gpu *g, const char *name, double *out_value) {
    for (size_t i = 0; i < g->n_measured; i++) {
        if (strcmp(g->measured[i]->key, name) != 0) continue;
        *out_value = g->measured[i]->value;
        return true;
    }
    return false;
}

static const char *say_numbers(const uint32_t *number, size_t n, char out[WORDS]) {
    struct td_clip_list list;
    td_clip_list_init(&list, out, WORDS, ", ");
    for (size_t i = 0; i < n; i++) {
        td_clip_list_add(&list, "%" PRIu32, number[i]);
    }
    return n ? out : "-";
}

// As bytes that a driver counts: never negative, and no more than there are.
static const char *say_used(const Traind__V1__Gpu *g, char out[32]) {
    double used;
    if (!find_measured(g, "used_bytes", &used) || !(used >= 0 && used < 1e18)) return "-";
    return td_format_bytes((uint64_t)used, out);
}

static const char *or_none(const char *text) {
    return text[0] ? text : "-";
}

// ---- node list -o wide --------------------------------------------------------------------------
static td_status add_row(struct td_table *t, const Traind__V1__Node *n, const Traind__V1__Gpu *g) {
    char memory[32], used[32], near_nodes[WORDS], peers[WORDS], health[2 * WHY_BYTES];
    TD_TRY(td_table_add(t, "%s", n->name));
    TD_TRY(td_table_add(t, "%" PRIu32, g->index));
    TD_TRY(td_table_add(t, "%s", g->uuid));
    TD_TRY(td_table_add(t, "%s", or_none(g->name)));
    TD_TRY(td_table_add(t, "%s", g->memory_bytes ? td_format_bytes(g->memory_bytes, memory) : "-"));
    TD_TRY(td_table_add(t, "%s", say_used(g, used)));
    TD_TRY(td_table_add(t, "%s", or_none(g->compute_capability)));
    TD_TRY(td_table_add(t, "%s", or_none(g->bus_id)));
    TD_TRY(td_table_add(t, "%s", say_numbers(g->numa_nodes, g->n_numa_nodes, near_nodes)));
    TD_TRY(td_table_add(t, "%s", say_numbers(g->peers, g->n_peers, peers)));
    TD_TRY(td_table_add(t, "%s", or_none(g->job)));
    return td_table_add(t, "%s", say_health(n->gpus, g, health));
}

td_status td_gpus_table(struct td_arena *arena, Traind__V1__Node *const *nodes, size_t n_nodes) {
    static const struct td_column columns[] = {
        {"NODE", 0},    {"GPU", 0}, {"UUID", 0}, {"MODEL", 0},  {"MEMORY", 0}, {"USED", 0},
        {"COMPUTE", 0}, {"BUS", 0}, {"NUMA", 0}, {"NVLINK", 0}, {"JOB", 0},    {"HEALTH", 0}};
    struct td_table t;
    char why[WHY_BYTES];
    size_t n_rows = 0;
    td_table_init(&t, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < n_nodes; i++) {
        const Traind__V1__GpuList *l = nodes[i]->gpus;
        for (size_t k = 0; l && k < l->n_gpus; k++) {
            TD_TRY(add_row(&t, nodes[i], l->gpus[k]));
            n_rows++;
        }
    }
    if (n_rows) {
        td_print(stdout, "\n");
        TD_TRY(td_table_print(&t, true));
    }
    for (size_t i = 0; i < n_nodes; i++) {
        const Traind__V1__GpuList *l = nodes[i]->gpus;
        if (l && l->why[0]) td_print(stdout, "GPUs of %s: %s\n", nodes[i]->name, l->why);
        for (size_t k = 0; l && k < l->n_exclusions; k++) {
            const Traind__V1__GpuExclusion *x = l->exclusions[k];
            if (is_listed(l, x->uuid)) continue;
            td_print(stdout, "GPU %s of %s, which is not listed now, is %s\n", x->uuid,
                     nodes[i]->name, say_excluded(x, why));
        }
    }
    return TD_OK;
}

// ---- node show ----------------------------------------------------------------------------------
// "gpu 0 memory    80.0 GiB"; of an instance "gpu 0/1".
struct gpu_label {
    char text[32];
};

static void fact(const struct gpu_label *of, const char *what, const char *value) {
    char key[64];
    if (!value[0] || strcmp(value, "-") == 0) return;
    snprintf(key, sizeof key, "%s%s%s", of->text, what[0] ? " " : "", what);
    td_print(stdout, "%-18s %s\n", key, value);
}

static void measured_fact(const struct gpu_label *of, const Traind__V1__Gpu *g, const char *name,
                          const char *what, const char *unit) {
    double value;
    char text[64];
    if (!find_measured(g, name, &value)) return;
    snprintf(text, sizeof text, "%.0f %s", value, unit);
    fact(of, what, text);
}

static void process_facts(const struct gpu_label *of, const Traind__V1__Gpu *g) {
    char text[64], bytes[32];
    for (size_t i = 0; i < g->n_processes; i++) {
        const Traind__V1__GpuProcess *p = g->processes[i];
        snprintf(text, sizeof text, "pid %" PRIu32 "%s%s", p->pid, p->memory_bytes ? ", " : "",
                 p->memory_bytes ? td_format_bytes(p->memory_bytes, bytes) : "");
        fact(of, "process", text);
    }
    snprintf(text, sizeof text, "and %" PRIu32 " more", g->more_processes);
    if (g->more_processes) fact(of, "process", text);
}

static void error_facts(const struct gpu_label *of, const Traind__V1__GpuList *l,
                        const Traind__V1__Gpu *g) {
    char text[XID_BYTES];
    const char *uuid = g->parent[0] ? g->parent : g->uuid;
    for (size_t i = 0; i < l->n_errors; i++) {
        const Traind__V1__GpuError *e = l->errors[i];
        if (strcmp(e->uuid, uuid) != 0) continue;
        (void)td_clip(text, sizeof text, "XID %" PRIu32 " at %s: %s", e->xid, e->time,
                      td_xid_get(e->xid).meaning);
        fact(of, "error", text);
    }
}

static void gpu_facts(const struct gpu_label *of, const Traind__V1__GpuList *l,
                      const Traind__V1__Gpu *g) {
    char text[WORDS], memory[32], health[2 * WHY_BYTES];
    fact(of, "", g->uuid);
    fact(of, "part of", g->parent);
    fact(of, "model", g->name);
    fact(of, "memory", g->memory_bytes ? td_format_bytes(g->memory_bytes, memory) : "-");
    fact(of, "job", g->job);
    fact(of, "used", say_used(g, memory));
    fact(of, "compute", g->compute_capability);
    fact(of, "bus", g->bus_id);
    fact(of, "NUMA node", say_numbers(g->numa_nodes, g->n_numa_nodes, text));
    fact(of, "NVLink to", say_numbers(g->peers, g->n_peers, text));
    measured_fact(of, g, "utilization", "busy", "%");
    measured_fact(of, g, "power_w", "power", "W");
    measured_fact(of, g, "temperature_c", "temperature", "C");
    process_facts(of, g);
    error_facts(of, l, g);
    fact(of, "health", say_health(l, g, health));
}

void td_gpus_facts(const Traind__V1__GpuList *l) {
    const struct gpu_label all = {"gpus"};
    char count[32];
    size_t n_th = 0; // instance of its GPU
    if (!l) return;  // of an older coordinator
    snprintf(count, sizeof count, "%zu%s", l->n_gpus, l->stale ? ", by the last list" : "");
    fact(&all, "", count);
    fact(&all, "why", l->why);
    fact(&all, "driver", l->driver);
    for (size_t i = 0; i < l->n_gpus; i++) {
        const Traind__V1__Gpu *g = l->gpus[i];
        struct gpu_label label;
        n_th = i && g->parent[0] && strcmp(g->parent, l->gpus[i - 1]->parent) == 0 ? n_th + 1 : 0;
        snprintf(label.text, sizeof label.text, "gpu %" PRIu32, g->index);
        if (g->parent[0]) {
            snprintf(label.text, sizeof label.text, "gpu %" PRIu32 "/%zu", g->index, n_th);
        }
        gpu_facts(&label, l, g);
    }
    for (size_t i = 0; i < l->n_exclusions; i++) {
        const struct gpu_label other = {"gpu not listed"};
        char why[WHY_BYTES];
        if (is_listed(l, l->exclusions[i]->uuid)) continue;
        fact(&other, "", l->exclusions[i]->uuid);
        fact(&other, "health", say_excluded(l->exclusions[i], why));
    }
}
