// Time of all_reduce between two nodes of one rank, over the plugin collective-hierarchy.so, beside
// rivals/allreduce.py: JSON lines of node 0.
//   bench_hosts NODE ADDRESS FOLDER SECONDS
// Both are started with a folder that they share, which is their store. Each size is called for
// about SECONDS; every call begins after a barrier, with the same data.

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fabric/plugins.h"
#include "lib/base/clock.h"
#include "traind/collective.h"
#include "traind/store.h"

enum { WARM = 5, FEWEST = 10, MOST = 5000 };
static const int64_t sizes[] = {43376640, 1 << 20, 16 << 10};

// ---- the store ----------------------------------------------------------------------------------
struct folder_store {
    struct td_store store; // first: the store is this struct
    const char *folder;
    int32_t node;
};

static void path_of(const struct folder_store *f, const char *key, const char *ending, char *out,
                    size_t out_bytes) {
    const int n = snprintf(out, out_bytes, "%s/%s%s", f->folder, key, ending);
    TD_CHECK(n > 0 && (size_t)n < out_bytes);
    for (char *c = out + strlen(f->folder) + 1; *c; c++) {
        if (*c == '/') *c = '.';
    }
}

static td_status store_set(struct td_store *s, const char *key, const void *data, size_t bytes) {
    struct folder_store *f = (struct folder_store *)s;
    char part[4096], whole[4096];
    path_of(f, key, ".part", part, sizeof part);
    path_of(f, key, "", whole, sizeof whole);
    FILE *out = fopen(part, "we");
    if (!out) return td_fail_errno(TD_INTERNAL, "write %s", part);
    const bool is_written = fwrite(data, 1, bytes, out) == bytes;
    if (fclose(out) || !is_written || rename(part, whole)) {
        return td_fail_errno(TD_INTERNAL, "write %s", whole);
    }
    return TD_OK;
}

static td_status store_get(struct td_store *s, const char *key, int64_t timeout_ns, void *out_data,
                           size_t cap_bytes, size_t *out_bytes) {
    struct folder_store *f = (struct folder_store *)s;
    const int64_t deadline = td_mono_now().ns + timeout_ns;
    char path[4096];
    path_of(f, key, "", path, sizeof path);
    for (;;) {
        FILE *in = fopen(path, "re");
        if (in) {
            *out_bytes = fread(out_data, 1, cap_bytes, in);
            fclose(in);
            return TD_OK;
        }
        if (td_mono_now().ns >= deadline) return td_fail(TD_DEADLINE_EXCEEDED, "no '%s'", key);
        (void)poll(NULL, 0, 1);
    }
}

// ---- calls --------------------------------------------------------------------------------------
struct group {
    const struct td_collective_ops *ops;
    struct td_collective *c;
    float *data;
    int32_t node;
};

static td_status call_once(struct group *g, int64_t n, int64_t *out_ns) {
    for (int64_t i = 0; i < n; i++) {
        g->data[i] = 1.0f;
    }
    TD_TRY(g->ops->barrier(g->c, "call"));
    const int64_t start = td_mono_now().ns;
    TD_TRY(g->ops->all_reduce(g->c, g->data, n, TD_F32, TD_REDUCE_SUM));
    *out_ns = td_mono_now().ns - start;
    if (g->data[0] == 2.0f && g->data[n - 1] == 2.0f) return TD_OK;
    return td_fail(TD_INTERNAL, "1 + 1 is %g", (double)g->data[0]);
}

static td_status time_size(struct group *g, int64_t bytes, double seconds) {
    const int64_t n = bytes / (int64_t)sizeof(float);
    int64_t ns = 0;
    for (int i = 0; i < WARM; i++) {
        TD_TRY(call_once(g, n, &ns));
    }
    TD_TRY(g->ops->broadcast(g->c, &ns, sizeof ns, 0)); // node 0's clock decides for both
    int64_t times = (int64_t)(seconds * TD_NS_PER_S / (double)TD_MAX(ns, (int64_t)1));
    times = TD_MAX(TD_MIN(times, (int64_t)MOST), (int64_t)FEWEST);
    if (!g->node) printf("{\"name\":\"allreduce %lld bytes\",\"ms\":[", (long long)bytes);
    for (int64_t i = 0; i < times; i++) {
        TD_TRY(call_once(g, n, &ns));
        if (!g->node) printf("%s%.4f", i ? "," : "", (double)ns / 1e6);
    }
    if (!g->node) printf("]}\n");
    fflush(stdout);
    return TD_OK;
}

static td_status join(const char *address, struct folder_store *store, struct group *g) {
    static struct td_registry *registry; // of the process
    const struct td_plugin_desc *desc;
    char dir[4096];
    TD_TRY(td_plugin_dir(dir, sizeof dir));
    TD_TRY(td_registry_create(dir, &registry));
    TD_TRY(td_registry_find(registry, TD_PLUGIN_COLLECTIVE, "hierarchy", &desc));
    const struct td_collective_config config = {.struct_bytes = sizeof config,
                                                .rank = g->node,
                                                .world_size = 2,
                                                .deadline.timeout_ns = 60 * TD_NS_PER_S,
                                                .attempt = 1,
                                                .node_rank = g->node,
                                                .n_nodes = 2,
                                                .local_world_size = 1,
                                                .interface_address = address,
                                                .store = &store->store};
    g->ops = desc->ops;
    return g->ops->join(&config, &g->c);
}

static td_status bench(const char *address, struct folder_store *store, double seconds) {
    struct group g = {.node = store->node};
    TD_AUTO_FREE float *data = td_calloc(1, (size_t)sizes[0]);
    if (!data) return td_fail_oom();
    g.data = data;
    TD_TRY(join(address, store, &g));
    td_status s = TD_OK;
    for (size_t i = 0; !s && i < TD_COUNTOF(sizes); i++) {
        s = time_size(&g, sizes[i], seconds);
    }
    g.ops->leave(g.c);
    return s;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "bench_hosts NODE ADDRESS FOLDER SECONDS\n");
        return 2;
    }
    struct folder_store store = {
        {store_set, store_get}, argv[3], (int32_t)strtol(argv[1], NULL, 10)};
    td_status s = bench(argv[2], &store, strtod(argv[4], NULL));
    if (s) fprintf(stderr, "node %d: %s\n", store.node, td_status_message(s));
    const int code = s ? 1 : 0;
    td_status_free(s);
    return code;
}
