#ifndef TRAIND_TESTS_UNIT_COLLECTIVES_NODES_RIG_H
#define TRAIND_TESTS_UNIT_COLLECTIVES_NODES_RIG_H

// Ranks as processes, which stand for nodes on loopback addresses: one mapping for each node, and a
// store in memory that all of them share. A rank function returns its status, which the test reads.

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "collectives/collectives.h"
#include "fabric/plugins.h"
#include "lib/base/clock.h"
#include "traind/store.h"

enum { NODES_MAX = 4, NODE_RANKS_MAX = 8, STORE_ENTRIES = 16, NODE_GRADIENTS = 4 << 20 };

struct store_entry {
    _Atomic bool is_set;
    char key[TD_STORE_KEY_MAX + 1];
    size_t bytes;
    char data[512];
};

struct outcome {
    enum td_code code;
    enum td_class cls;
    char message[512];
    int64_t ended_ns;
    int n_notes;
    char note[512]; // the last one
};

// What all processes share.
struct nodes_page {
    struct store_entry entries[STORE_ENTRIES];
    _Atomic int n_entries;
    _Atomic int stage; // the test's
    _Atomic int64_t killed_ns;
    struct outcome outcome[NODE_RANKS_MAX];
};

struct nodes {
    struct td_store store; // first: the store is this struct
    const struct td_collective_ops *ops;
    struct nodes_page *page;
    int32_t n_nodes, world;
    int32_t count[NODES_MAX]; // ranks of each
    void *shared[NODES_MAX];
    size_t shared_bytes[NODES_MAX];
    void *second[NODES_MAX]; // mapping of a second group
    size_t second_bytes[NODES_MAX];
    int64_t timeout_ns, link_timeout_ns;
    const char *const *names;
    pid_t pid[NODE_RANKS_MAX];
};

struct node_rank {
    struct nodes *nodes;
    int32_t rank, world, node, local_rank;
    const struct td_collective_ops *ops;
    const struct td_collective_config *config; // by which it joined
    struct td_collective *c;
};
typedef td_status node_rank_fn(struct node_rank *r, void *arg);

#define NODE_CHECK(x)                                                                              \
    do {                                                                                           \
        if (!(x)) return td_fail(TD_INTERNAL, "rank %d: line %d: %s", r->rank, __LINE__, #x);      \
    } while (0)

// ---- the store ----------------------------------------------------------------------------------
static inline td_status rig_set(struct td_store *s, const char *key, const void *data,
                                size_t bytes) {
    struct nodes_page *page = ((struct nodes *)s)->page;
    const int i = atomic_fetch_add(&page->n_entries, 1);
    if (i >= STORE_ENTRIES || bytes > sizeof page->entries[i].data) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "the store of the test is full");
    }
    struct store_entry *e = &page->entries[i];
    snprintf(e->key, sizeof e->key, "%s", key);
    memcpy(e->data, data, bytes);
    e->bytes = bytes;
    atomic_store(&e->is_set, true);
    return TD_OK;
}

static inline td_status rig_get(struct td_store *s, const char *key, int64_t timeout_ns,
                                void *out_data, size_t cap_bytes, size_t *out_bytes) {
    struct nodes_page *page = ((struct nodes *)s)->page;
    const int64_t deadline = td_mono_now().ns + timeout_ns;
    for (;;) {
        for (int i = 0; i < STORE_ENTRIES; i++) {
            struct store_entry *e = &page->entries[i];
            if (!atomic_load(&e->is_set) || strcmp(e->key, key) != 0) continue;
            if (e->bytes > cap_bytes) return td_fail(TD_RESOURCE_EXHAUSTED, "%zu bytes", e->bytes);
            memcpy(out_data, e->data, e->bytes);
            *out_bytes = e->bytes;
            return TD_OK;
        }
        if (td_mono_now().ns >= deadline) return td_fail(TD_DEADLINE_EXCEEDED, "no '%s'", key);
        (void)poll(NULL, 0, 1);
    }
}

// ---- nodes --------------------------------------------------------------------------------------
static inline const struct td_collective_ops *hierarchy_ops(void) {
    static struct td_registry *registry; // of the process
    const struct td_plugin_desc *desc;
    char dir[4096];
    td_status s = registry ? TD_OK : td_plugin_dir(dir, sizeof dir);
    if (!s && !registry) s = td_registry_create(dir, &registry);
    if (!s) s = td_registry_find(registry, TD_PLUGIN_COLLECTIVE, "hierarchy", &desc);
    if (!s) return desc->ops;
    print_message("# %s\n", td_status_message(s));
    td_status_free(s);
    return NULL;
}

static inline void test_is_skipped_without_libgloo(void **state) {
    (void)state;
    print_message("# skip: no libgloo, so ranks are on one node\n");
    skip();
}

// NULL for none.
static inline void *map_shared(size_t bytes) {
    if (!bytes) return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static inline void nodes_init(struct nodes *n, int32_t n_nodes, const int32_t *counts) {
    *n = (struct nodes){.store = {rig_set, rig_get},
                        .ops = hierarchy_ops(),
                        .n_nodes = n_nodes,
                        .timeout_ns = 20 * TD_NS_PER_S};
    assert_non_null(n->ops);
    n->page = map_shared(sizeof *n->page);
    for (int32_t p = 0; p < n_nodes; p++) {
        n->count[p] = counts[p];
        n->world += counts[p];
        n->shared_bytes[p] = n->ops->shared_bytes(counts[p], NODE_GRADIENTS);
        n->second_bytes[p] = n->ops->shared_bytes(counts[p], 0);
        n->shared[p] = map_shared(n->shared_bytes[p]);
        n->second[p] = map_shared(n->second_bytes[p]);
    }
}

static inline void nodes_finish(struct nodes *n) {
    for (int32_t p = 0; p < n->n_nodes; p++) {
        if (n->shared[p]) munmap(n->shared[p], n->shared_bytes[p]);
        if (n->second[p]) munmap(n->second[p], n->second_bytes[p]);
    }
    munmap(n->page, sizeof *n->page);
}

static inline int32_t first_rank_of(const struct nodes *n, int32_t node) {
    int32_t first = 0;
    for (int32_t p = 0; p < node; p++) {
        first += n->count[p];
    }
    return first;
}

static inline void take_note(void *arg, const char *text) {
    struct node_rank *r = arg;
    struct outcome *o = &r->nodes->page->outcome[r->rank];
    o->n_notes++;
    snprintf(o->note, sizeof o->note, "%s", text);
}

static inline void rank_body(struct node_rank *r, node_rank_fn *fn, void *arg) {
    struct nodes *n = r->nodes;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.%d", 1 + r->node);
    const struct td_collective_config config = {
        .struct_bytes = sizeof config,
        .rank = r->rank,
        .world_size = n->world,
        .deadline = {n->timeout_ns, "the first knob"},
        .shared = n->shared[r->node],
        .shared_bytes = n->shared_bytes[r->node],
        .attempt = 1,
        .node_rank = r->node,
        .n_nodes = n->n_nodes,
        .local_rank = r->local_rank,
        .local_world_size = n->count[r->node],
        .interface_address = address,
        .store = &n->store,
        .node_names = n->names,
        .link_timeout_ns = n->link_timeout_ns,
        .note = take_note,
        .note_arg = r,
    };
    r->config = &config;
    td_status s = r->ops->join(&config, &r->c);
    if (!s) s = fn(r, arg);
    struct outcome *o = &n->page->outcome[r->rank];
    o->ended_ns = td_mono_now().ns;
    o->code = td_status_code(s);
    o->cls = td_status_class(s);
    snprintf(o->message, sizeof o->message, "%s", td_status_message(s));
    td_status_free(s);
    r->ops->leave(r->c);
}

// Starts all ranks but those of node `absent` (-1: all), and waits for them.
static inline void nodes_run_but(struct nodes *n, node_rank_fn *fn, void *arg, int32_t absent) {
    memset(n->page->entries, 0, sizeof n->page->entries); // a store of an attempt of its own
    atomic_store(&n->page->n_entries, 0);
    for (int32_t p = 0; p < n->n_nodes; p++) {
        if (n->shared[p]) memset(n->shared[p], 0, n->shared_bytes[p]);
        if (n->second[p]) memset(n->second[p], 0, n->second_bytes[p]);
        for (int32_t l = 0; l < n->count[p]; l++) {
            struct node_rank r = {.nodes = n,
                                  .rank = first_rank_of(n, p) + l,
                                  .world = n->world,
                                  .node = p,
                                  .local_rank = l,
                                  .ops = n->ops};
            n->page->outcome[r.rank] = (struct outcome){.code = TD_UNKNOWN};
            n->pid[r.rank] = -1;
            if (p == absent) continue;
            n->pid[r.rank] = fork();
            assert_true(n->pid[r.rank] >= 0);
            if (n->pid[r.rank]) continue;
            rank_body(&r, fn, arg);
            _exit(0);
        }
    }
    for (int32_t r = 0; r < n->world; r++) {
        if (n->pid[r] > 0) assert_int_equal(waitpid(n->pid[r], NULL, 0), n->pid[r]);
    }
}

static inline void nodes_run(struct nodes *n, node_rank_fn *fn, void *arg) {
    nodes_run_but(n, fn, arg, -1);
    for (int32_t r = 0; r < n->world; r++) {
        const struct outcome *o = &n->page->outcome[r];
        if (o->code) fail_msg("rank %d of %d: %s", r, n->world, o->message);
    }
}

// The ranks that are not of node `absent` ended with this, and the text names what.
static inline void nodes_expect(const struct nodes *n, int32_t absent, enum td_code code,
                                enum td_class cls, const char *names) {
    int32_t n_named = 0;
    for (int32_t p = 0; p < n->n_nodes; p++) {
        for (int32_t l = 0; l < n->count[p] && p != absent; l++) {
            const int32_t rank = first_rank_of(n, p) + l;
            const struct outcome *o = &n->page->outcome[rank];
            const bool leads = l == 0;
            if ((leads && (o->code != code || o->cls != cls)) || !o->code) {
                fail_msg("rank %d ended with %s, class %s: %s", rank, td_code_name(o->code),
                         td_class_name(o->cls), o->message);
            }
            n_named += strstr(o->message, names) != NULL;
        }
    }
    if (!n_named) fail_msg("nobody names %s: %s", names, n->page->outcome[0].message);
}

static inline void nodes_wait_stage(struct nodes *n, int stage) {
    while (atomic_load(&n->page->stage) < stage) {
        (void)poll(NULL, 0, 1);
    }
}

#endif
