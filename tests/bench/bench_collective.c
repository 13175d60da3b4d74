// Time of one call of the shared-memory collective, ranks as processes on one memfd: JSON lines.
//   bench_collective [world]
// Each call and size is made back to back until about 0.2 s have passed. The median of 7 such
// rounds is printed, with the bytes of one rank's part per second. Buckets are in the gradient
// region, as in training, and slices are as warm as their size allows; all else is memory of the
// rank's own. A part is what one rank gives (scatter: gets). Ranks 0 and 1 send and receive, the
// others wait.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "collectives/collectives.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"

enum { GROUP_FD = 3, ROUNDS = 7 };
static const size_t sizes[] = {256, 16 << 10, 256 << 10, 1 << 20, 25 << 20, 43200000};
#define MAX_BYTES ((size_t)43200000 + 4096)

static const struct td_collective_ops *shm(void) {
    return td_collective_shm.ops;
}

// What a rank calls with: parts in and out, one for each rank.
struct work {
    struct td_collective *g, *pair; // pair: a group of ranks 0 and 1; NULL: not in it
    int32_t rank, world;
    float *grads; // in the region
    char *in, *out;
    size_t bytes; // of a part
    size_t counts[64];
};

static int64_t floats(const struct work *w) {
    return (int64_t)(w->bytes / sizeof(float));
}

static td_status call_bucket(struct work *w) {
    const struct td_bucket bucket = {
        .struct_bytes = sizeof bucket,
        .n_buckets = 1,
        .dtype = TD_F32,
        .buffer = td_buffer_of_host(w->grads, w->bytes),
        .n = floats(w),
    };
    TD_TRY(shm()->all_reduce_bucket(w->g, &bucket));
    return shm()->wait_buckets(w->g);
}

static td_status call_all_reduce(struct work *w) {
    return shm()->all_reduce(w->g, w->out, floats(w), TD_F32, TD_REDUCE_MEAN);
}

static td_status call_reduce(struct work *w) {
    return shm()->reduce(w->g, w->out, floats(w), TD_F32, TD_REDUCE_MEAN, 0);
}

static td_status call_reduce_scatter(struct work *w) {
    return shm()->reduce_scatter(w->g, w->in, w->out, floats(w), TD_F32, TD_REDUCE_MEAN);
}

static td_status call_all_gather(struct work *w) {
    return shm()->all_gather(w->g, w->in, w->bytes, w->out);
}

static td_status call_uneven(struct work *w) {
    return shm()->all_gather_uneven(w->g, w->in, w->bytes, w->out, w->bytes * (size_t)w->world,
                                    w->counts);
}

static td_status call_broadcast(struct work *w) {
    return shm()->broadcast(w->g, w->out, w->bytes, 0);
}

static td_status call_gather(struct work *w) {
    return shm()->gather(w->g, w->in, w->bytes, w->out, 0);
}

static td_status call_scatter(struct work *w) {
    return shm()->scatter(w->g, w->in, w->bytes, w->out, 0);
}

static td_status call_all_to_all(struct work *w) {
    return shm()->all_to_all(w->g, w->in, w->bytes, w->out);
}

static td_status call_send(struct work *w) {
    if (w->rank == 0) return shm()->send(w->g, w->in, w->bytes, 1, 0);
    return w->rank == 1 ? shm()->recv(w->g, w->out, w->bytes, 0, 0) : TD_OK;
}

static td_status call_group(struct work *w) {
    return w->pair ? shm()->all_reduce(w->pair, w->out, floats(w), TD_F32, TD_REDUCE_MEAN) : TD_OK;
}

#define REST_BYTES ((size_t)1 << 20) // the largest part of all but buckets
static const struct call {
    const char *name;
    td_status (*make)(struct work *w);
    size_t most_bytes;
} calls[] = {
    {"all_reduce_bucket", call_bucket, MAX_BYTES},
    {"all_reduce", call_all_reduce, REST_BYTES},
    {"reduce", call_reduce, REST_BYTES},
    {"reduce_scatter", call_reduce_scatter, REST_BYTES},
    {"all_gather", call_all_gather, REST_BYTES},
    {"all_gather_uneven", call_uneven, REST_BYTES},
    {"broadcast", call_broadcast, REST_BYTES},
    {"gather", call_gather, REST_BYTES},
    {"scatter", call_scatter, REST_BYTES},
    {"all_to_all", call_all_to_all, REST_BYTES},
    {"send_recv", call_send, REST_BYTES},
    {"all_reduce_in_group", call_group, REST_BYTES},
};

static td_status time_one(struct work *w, const struct call *c, int64_t n_calls, int64_t *out_ns) {
    TD_TRY(shm()->barrier(w->g, "round"));
    int64_t start = td_mono_now().ns;
    for (int64_t i = 0; i < n_calls; i++) {
        TD_TRY(c->make(w));
    }
    *out_ns = td_mono_now().ns - start;
    return shm()->broadcast(w->g, out_ns, sizeof *out_ns, 0);
}

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static td_status time_call(struct work *w, const struct call *c) {
    int64_t ns[ROUNDS], n_calls = 1, took;
    for (;; n_calls *= 2) { // rank 0's clock decides for all: they call the same number of times
        TD_TRY(time_one(w, c, n_calls, &took));
        if (took > TD_NS_PER_S / 50) break;
    }
    n_calls = TD_MAX(n_calls * 200 * TD_NS_PER_MS / took / ROUNDS, 1);
    for (int r = 0; r < ROUNDS; r++) {
        TD_TRY(time_one(w, c, n_calls, &ns[r]));
    }
    qsort(ns, ROUNDS, sizeof ns[0], compare_i64);
    double us = (double)ns[ROUNDS / 2] / (double)n_calls / 1e3;
    if (w->rank) return TD_OK;
    printf("{\"bench\":\"collective\",\"backend\":\"shm\",\"call\":\"%s\",\"world\":%d,"
           "\"bytes\":%zu,\"us\":%.2f,\"us_min\":%.2f,\"gb_per_s\":%.2f}\n",
           c->name, w->world, w->bytes, us, (double)ns[0] / (double)n_calls / 1e3,
           (double)w->bytes / us / 1e3);
    fflush(stdout);
    return TD_OK;
}

static td_status bench(struct td_collective *g, int32_t rank, int32_t world) {
    struct work w = {.g = g, .rank = rank, .world = world};
    const int32_t two[] = {0, 1};
    size_t region_bytes;
    void *grads;
    TD_TRY(shm()->gradients(g, &grads, &region_bytes));
    memset(grads, 0, region_bytes);
    w.grads = grads;
    TD_AUTO_FREE char *in = td_calloc(REST_BYTES, (size_t)world);
    TD_AUTO_FREE char *out = td_calloc(REST_BYTES, (size_t)world);
    if (!in || !out) return td_fail_oom();
    memset(in, 1, REST_BYTES * (size_t)world); // pages of its own, not all the page of zeros
    memset(out, 1, REST_BYTES * (size_t)world);
    w.in = in;
    w.out = out;
    if (world > 1) TD_TRY(shm()->group_create(g, two, 2, &w.pair));
    for (size_t c = 0; c < TD_COUNTOF(calls); c++) {
        for (size_t s = 0; s < TD_COUNTOF(sizes) && sizes[s] <= calls[c].most_bytes; s++) {
            if (world == 1 && (calls[c].make == call_send || calls[c].make == call_group)) continue;
            w.bytes = sizes[s];
            TD_TRY(time_call(&w, &calls[c]));
        }
    }
    return shm()->group_destroy(g, w.pair);
}

static int rank_main(int32_t rank, int32_t world) {
    size_t bytes = shm()->shared_bytes(world, MAX_BYTES);
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, GROUP_FD, 0);
    if (shared == MAP_FAILED) return 1;
    struct td_collective *g = NULL;
    struct td_collective_config config = {.struct_bytes = sizeof config,
                                          .rank = rank,
                                          .world_size = world,
                                          .deadline.timeout_ns = 60 * TD_NS_PER_S,
                                          .shared = shared,
                                          .shared_bytes = bytes};
    td_status s = shm()->join(&config, &g);
    if (!s) s = bench(g, rank, world);
    if (s) fprintf(stderr, "rank %d: %s\n", rank, td_status_message(s));
    int code = s ? 1 : 0;
    td_status_free(s);
    shm()->leave(g);
    return code;
}

int main(int argc, char **argv) {
    if (argc == 4) {
        return rank_main((int32_t)strtol(argv[2], NULL, 10), (int32_t)strtol(argv[3], NULL, 10));
    }
    char self[4096], world_text[8];
    int32_t world = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 2;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int fd = memfd_create("group", MFD_CLOEXEC);
    if (world < 1 || world > 64 || n < 0 || fd < 0) return 2;
    if (ftruncate(fd, (off_t)shm()->shared_bytes(world, MAX_BYTES)) != 0) return 2;
    self[n] = '\0';
    snprintf(world_text, sizeof world_text, "%d", world);
    int failed = 0;
    for (int32_t r = 0; r < world; r++) {
        char index[16];
        snprintf(index, sizeof index, "%d", r);
        const char *const args[] = {self, "rank", index, world_text, NULL};
        const struct td_proc_fd fds[] = {{1, 1}, {2, 2}, {fd, GROUP_FD}};
        const struct td_proc_options o = {.path = self, .argv = args, .fds = fds, .n_fds = 3};
        struct td_proc proc;
        td_status s = td_proc_spawn(&o, &proc);
        failed |= s != TD_OK;
        if (s) fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
    }
    for (int status; wait(&status) > 0;) {
        failed |= status != 0;
    }
    return failed;
}
