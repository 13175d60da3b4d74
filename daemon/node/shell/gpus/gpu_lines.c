// See the header.

#include "daemon/node/shell/gpus/gpu_lines.h"

#include <string.h>

#include "lib/attempt/devices.h"
#include "lib/base/json.h"

enum { BITS = 64, NAME_BYTES = 96, TEXT_BYTES = 1024 };

static td_status bad(const char *member, const char *wanted) {
    return td_fail(TD_INVALID_ARGUMENT, "line of GPUs: %s: expected %s", member, wanted);
}

// *out stays what it is where the member is absent. most: with its end.
static td_status read_text(const struct td_json *v, const char *key, size_t most, char **out) {
    const struct td_json *t = td_json_get(v, key);
    if (!t) return TD_OK;
    const char *text = t->kind == TD_JSON_STRING ? t->u.string.data : NULL;
    if (!text || strlen(text) != t->u.string.len || t->u.string.len >= most) {
        return bad(key, "a text that is not too long");
    }
    *out = td_unconst(text);
    return TD_OK;
}

static td_status read_int(const struct td_json *v, const char *key, int64_t most,
                          uint64_t *out_value) {
    const struct td_json *i = td_json_get(v, key);
    const int64_t value = td_json_int(i, 0);
    if (i && (i->kind != TD_JSON_INT || value < 0 || value > most)) {
        return bad(key, "a whole number in its range");
    }
    *out_value = (uint64_t)value;
    return TD_OK;
}

static td_status read_uuid(const struct td_json *v, const char *key, bool is_needed, char **out) {
    TD_TRY(read_text(v, key, TD_DEVICE_UUID, out));
    if (!(*out)[0] && !is_needed) return TD_OK;
    return td_device_uuid_ok(*out) ? TD_OK : bad(key, "the uuid of a device");
}

static td_status read_bits(struct td_arena *a, const struct td_json *v, const char *key,
                           size_t *out_n, uint32_t **out) {
    const struct td_json *list = td_json_get(v, key);
    size_t n = 0;
    if (!list) return TD_OK;
    if (list->kind != TD_JSON_ARRAY || list->n_children > BITS) return bad(key, "up to 64 numbers");
    uint32_t *bits = td_arena_array(a, list->n_children + 1, sizeof *bits);
    if (!bits) return td_fail_oom();
    for (const struct td_json *b = list->first; b; b = b->next) {
        const int64_t bit = td_json_int(b, -1);
        if (bit < 0 || bit >= BITS) return bad(key, "numbers from 0 to 63");
        bits[n++] = (uint32_t)bit;
    }
    *out = bits;
    *out_n = n;
    return TD_OK;
}

// ---- an inventory -------------------------------------------------------------------------------
static td_status read_device(struct td_arena *a, const struct td_json *v, Traind__V1__Gpu *g) {
    uint64_t index, bytes;
    TD_TRY(read_uuid(v, "uuid", true, &g->uuid));
    TD_TRY(read_uuid(v, "parent", false, &g->parent));
    TD_TRY(read_int(v, "index", TD_DEVICES_MAX - 1, &index));
    TD_TRY(read_int(v, "memory_bytes", INT64_MAX, &bytes));
    TD_TRY(read_text(v, "name", NAME_BYTES, &g->name));
    TD_TRY(read_text(v, "bus_id", NAME_BYTES, &g->bus_id));
    TD_TRY(read_text(v, "capability", NAME_BYTES, &g->compute_capability));
    TD_TRY(read_text(v, "health", TEXT_BYTES, &g->health));
    TD_TRY(read_bits(a, v, "numa_nodes", &g->n_numa_nodes, &g->numa_nodes));
    TD_TRY(read_bits(a, v, "peers", &g->n_peers, &g->peers));
    g->index = (uint32_t)index;
    g->memory_bytes = bytes;
    return TD_OK;
}

static td_status read_measured(struct td_arena *a, const struct td_json *v, Traind__V1__Gpu *g) {
    static const char *const names[] = {"used_bytes",    "utilization", "power_w",
                                        "temperature_c", "throttle",    "throttled"};
    g->measured = td_arena_array(a, TD_COUNTOF(names), sizeof *g->measured);
    if (!g->measured) return td_fail_oom();
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        const struct td_json *x = td_json_get(v, names[i]);
        if (!x) continue;
        if (x->kind != TD_JSON_INT && x->kind != TD_JSON_REAL) return bad(names[i], "a number");
        Traind__V1__Gpu__MeasuredEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return td_fail_oom();
        traind__v1__gpu__measured_entry__init(e);
        e->key = td_unconst(names[i]);
        e->value = td_json_real(x, 0);
        g->measured[g->n_measured++] = e;
    }
    return TD_OK;
}

static td_status read_processes(struct td_arena *a, const struct td_json *v, Traind__V1__Gpu *g) {
    const struct td_json *list = td_json_get(v, "processes");
    uint64_t more, pid, bytes;
    TD_TRY(read_int(v, "more_processes", UINT32_MAX, &more));
    g->more_processes = (uint32_t)more;
    if (!list) return TD_OK;
    if (list->kind != TD_JSON_ARRAY || list->n_children > TD_GPU_PROCESSES) {
        return bad("processes", "a list of 64 at most");
    }
    g->processes = td_arena_array(a, list->n_children + 1, sizeof *g->processes);
    for (const struct td_json *p = list->first; p; p = p->next) {
        Traind__V1__GpuProcess *m = td_arena_alloc(a, sizeof *m);
        if (!m || !g->processes) return td_fail_oom();
        traind__v1__gpu_process__init(m);
        TD_TRY(read_int(p, "pid", UINT32_MAX, &pid));
        TD_TRY(read_int(p, "bytes", INT64_MAX, &bytes));
        m->pid = (uint32_t)pid;
        m->memory_bytes = bytes;
        g->processes[g->n_processes++] = m;
    }
    return TD_OK;
}

static td_status read_sample(struct td_arena *a, const struct td_json *v, Traind__V1__Gpu *g) {
    TD_TRY(read_uuid(v, "uuid", true, &g->uuid));
    TD_TRY(read_measured(a, v, g));
    return read_processes(a, v, g);
}

static bool is_twice(const Traind__V1__GpuList *l, const char *uuid) {
    for (size_t i = 0; i < l->n_gpus; i++) {
        if (strcmp(l->gpus[i]->uuid, uuid) == 0) return true;
    }
    return false;
}

typedef td_status read_fn(struct td_arena *a, const struct td_json *v, Traind__V1__Gpu *g);

static td_status read_list(struct td_arena *a, const struct td_json *list, read_fn *read,
                           Traind__V1__GpuList *l) {
    if (!list || list->kind != TD_JSON_ARRAY || list->n_children > TD_DEVICES_MAX) {
        return bad("devices", "a list of 64 at most");
    }
    l->gpus = td_arena_array(a, list->n_children + 1, sizeof *l->gpus);
    for (const struct td_json *v = list->first; v; v = v->next) {
        Traind__V1__Gpu *g = td_arena_alloc(a, sizeof *g);
        if (!g || !l->gpus) return td_fail_oom();
        traind__v1__gpu__init(g);
        TD_TRY(read(a, v, g));
        if (is_twice(l, g->uuid)) return bad("uuid", "each device once");
        l->gpus[l->n_gpus++] = g;
    }
    return TD_OK;
}

static td_status read_inventory(struct td_arena *a, const struct td_json *v,
                                Traind__V1__GpuList *l) {
    TD_TRY(read_text(v, "driver", NAME_BYTES, &l->driver));
    TD_TRY(read_text(v, "notes", TEXT_BYTES + 1, &l->why));
    return read_list(a, td_json_get(v, "devices"), read_device, l);
}

// ---- any line -----------------------------------------------------------------------------------
static td_status read_xid(const struct td_json *v, struct td_gpu_line *line) {
    uint64_t xid;
    char *uuid = td_unconst("");
    TD_TRY(read_int(v, "xid", INT32_MAX, &xid));
    TD_TRY(read_uuid(v, "uuid", false, &uuid));
    line->xid = (uint32_t)xid;
    line->uuid = uuid;
    return TD_OK;
}

bool td_gpu_line_is_inventory(const char *text) {
    static const char begins[] = "{\"inventory\":";
    return strncmp(text, begins, strlen(begins)) == 0;
}

td_status td_gpu_line_read(struct td_arena *arena, const char *text, size_t len,
                           struct td_gpu_line *out_line) {
    struct td_json *v;
    struct td_gpu_line line = {.kind = TD_GPU_LINE_OTHER, .uuid = "", .why = ""};
    traind__v1__gpu_list__init(&line.list);
    TD_TRY_CTX(td_json_parse(arena, text, len, &v), "line of GPUs");
    if (v->kind != TD_JSON_OBJECT) return bad("it", "an object");
    if (td_json_get(v, "inventory")) {
        line.kind = TD_GPU_LINE_INVENTORY;
        TD_TRY(read_inventory(arena, td_json_get(v, "inventory"), &line.list));
    } else if (td_json_get(v, "samples")) {
        line.kind = TD_GPU_LINE_SAMPLES;
        TD_TRY(read_list(arena, td_json_get(v, "samples"), read_sample, &line.list));
    } else if (td_json_get(v, "xid")) {
        line.kind = TD_GPU_LINE_XID;
        TD_TRY(read_xid(v, &line));
    } else if (td_json_get(v, "none")) {
        char *why = td_unconst("");
        line.kind = TD_GPU_LINE_NONE;
        TD_TRY(read_text(v, "none", 8 * TEXT_BYTES, &why));
        line.why = why;
        line.final = td_json_bool(td_json_get(v, "final"), false);
    }
    *out_line = line;
    return TD_OK;
}
