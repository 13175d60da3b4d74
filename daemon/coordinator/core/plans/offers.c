// A list is kept packed, as it came, with a count of the nodes that share it: a cluster of one
// installation has one. It is unpacked only for a client, into the answer's arena.

#include "daemon/coordinator/core/plans/offers.h"

#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/base/digest.h"

struct td_offer { // value of core->offers, by node id
    uint64_t digest;
    uint32_t n_nodes;
    size_t bytes;
    uint8_t packed[];
};

static void release(struct td_offer *o) {
    if (o && --o->n_nodes == 0) free(o);
}

static struct td_offer *find_equal(const struct td_core *core, const struct td_offer *made) {
    struct td_offer *o;
    for (size_t cursor = 0; (o = td_map_each(core->offers, &cursor));) {
        bool equal = o->digest == made->digest && o->bytes == made->bytes &&
                     memcmp(o->packed, made->packed, o->bytes) == 0;
        if (equal) return o;
    }
    return NULL;
}

void td_offers_set(struct td_core *core, const struct td_host *n, const Traind__V1__PluginList *m) {
    Traind__V1__PluginList rows = *m;
    rows.n_accelerators = 0; // devices differ between nodes of one installation (host_devices.h)
    m = &rows;
    size_t bytes = traind__v1__plugin_list__get_packed_size(m);
    struct td_offer *made = td_core_must(td_calloc(1, sizeof *made + bytes)), *equal;
    made->n_nodes = 1;
    made->bytes = traind__v1__plugin_list__pack(m, made->packed);
    made->digest = td_xxh3_64(made->packed, bytes);
    equal = find_equal(core, made);
    if (equal) {
        equal->n_nodes++;
        release(made);
        made = equal;
    }
    void *old = NULL;
    TD_CHECK(!td_map_put(core->offers, n->id, made, &old));
    release(old);
}

void td_offers_forget(struct td_core *core, const char *node) {
    release(td_map_remove(core->offers, node));
}

void td_offers_finish(struct td_core *core) {
    void *value;
    for (size_t cursor = 0; core->offers && (value = td_map_each(core->offers, &cursor));) {
        release(value);
    }
    td_map_destroy(core->offers);
}

// ---- for clients --------------------------------------------------------------------------------
enum { LIST_ARENA_BYTES = 64 << 20 }; // of one list, which came in a message of 4 MiB

struct row {
    Traind__V1__Plugin *plugin; // the arena's
    const uint8_t *packed;
    size_t bytes;
    uint32_t n_nodes;
};
struct rows {
    struct td_arena *arena;
    struct row *row;
    size_t n, cap;
};

static void *arena_alloc(void *arena, size_t bytes) {
    return td_arena_alloc(arena, bytes ? bytes : 1);
}
static void arena_free(void *arena, void *p) {
    (void)arena, (void)p; // goes with the arena
}

// p is in `own`, the arena of its list: of a row that is there already nothing is kept.
static bool add_row(struct rows *rows, struct td_arena *own, const Traind__V1__Plugin *p,
                    uint32_t n_nodes) {
    size_t bytes = traind__v1__plugin__get_packed_size(p);
    uint8_t *packed = td_arena_alloc(own, bytes + 1);
    if (!packed) return false;
    traind__v1__plugin__pack(p, packed);
    for (size_t i = 0; i < rows->n; i++) {
        struct row *r = &rows->row[i];
        if (r->bytes != bytes || memcmp(r->packed, packed, bytes) != 0) continue;
        r->n_nodes += n_nodes;
        return true;
    }
    if (rows->n == rows->cap) {
        size_t cap = TD_MAX(2 * rows->cap, (size_t)64);
        struct row *more = td_arena_array(rows->arena, cap, sizeof *more);
        if (!more) return false;
        if (rows->n) memcpy(more, rows->row, rows->n * sizeof *more);
        rows->row = more;
        rows->cap = cap;
    }
    ProtobufCAllocator allocator = {arena_alloc, arena_free, rows->arena};
    uint8_t *kept = td_arena_alloc(rows->arena, bytes + 1);
    if (!kept) return false;
    memcpy(kept, packed, bytes);
    Traind__V1__Plugin *plugin = traind__v1__plugin__unpack(&allocator, bytes, kept);
    if (plugin) rows->row[rows->n++] = (struct row){plugin, kept, bytes, n_nodes};
    return plugin;
}

static bool add_rows(struct rows *rows, const struct td_offer *o) {
    TD_AUTO(td_arena) *own = NULL;
    td_status s = td_arena_create(LIST_ARENA_BYTES, &own);
    td_status_free(s);
    if (s) return false;
    ProtobufCAllocator allocator = {arena_alloc, arena_free, own};
    const Traind__V1__PluginList *m =
        traind__v1__plugin_list__unpack(&allocator, o->bytes, o->packed);
    for (size_t i = 0; m && i < m->n_plugins; i++) {
        if (!add_row(rows, own, m->plugins[i], o->n_nodes)) return false;
    }
    return m != NULL;
}

static int by_kind_and_name(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    int kind = strcmp(x->plugin->kind, y->plugin->kind);
    int name = strcmp(x->plugin->name, y->plugin->name);
    if (kind) return kind;
    return name ? name : (y->n_nodes > x->n_nodes) - (y->n_nodes < x->n_nodes);
}

// Each list once, by the first node that has it. False: the arena is full.
static bool gather(struct rows *rows, const struct td_core *core) {
    void *value;
    size_t n_lists = 0;
    const struct td_offer **lists =
        td_arena_array(rows->arena, td_map_count(core->offers) + 1, sizeof *lists);
    for (size_t cursor = 0; lists && (value = td_map_each(core->offers, &cursor));) {
        size_t i = 0;
        while (i < n_lists && lists[i] != value) {
            i++;
        }
        if (i < n_lists) continue;
        lists[n_lists++] = value;
        if (!add_rows(rows, value)) return false;
    }
    return lists != NULL;
}

static Traind__V1__ListedPlugin *view_row(struct td_arena *a, const struct row *row) {
    Traind__V1__ListedPlugin *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__listed_plugin__init(m);
    m->nodes = row->n_nodes;
    m->plugin = row->plugin;
    return m;
}

Traind__V1__ListPluginsResponse *td_view_plugins(struct td_arena *a, const struct td_core *core) {
    struct rows rows = {.arena = a};
    Traind__V1__ListPluginsResponse *m = td_arena_alloc(a, sizeof *m);
    if (!m || !gather(&rows, core)) return NULL;
    traind__v1__list_plugins_response__init(m);
    m->nodes = (uint32_t)td_map_count(core->offers);
    m->plugins = td_arena_array(a, rows.n + 1, sizeof(*m->plugins));
    if (!m->plugins) return NULL;
    if (rows.n) qsort(rows.row, rows.n, sizeof *rows.row, by_kind_and_name);
    for (size_t i = 0; i < rows.n; i++) {
        if (!(m->plugins[m->n_plugins++] = view_row(a, &rows.row[i]))) return NULL;
    }
    return m;
}
