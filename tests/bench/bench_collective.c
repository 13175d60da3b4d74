// Time of one call of the shared-memory collective, ranks as processes on one memfd: JSON lines.
//   bench_collective [world]
// Each size is called back to back until about 0.2 s have passed; the median of 7 such rounds is
// printed, with the bytes of one rank's buffer per second. The buffer is in the gradient region,
// as it does in training, and its slices are as warm as its size allows.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lib/base/clock.h"
#include "lib/base/proc.h"
#include "strategies/collective/collective.h"

enum { GROUP_FD = 3, ROUNDS = 7 };
static const size_t sizes[] = {256, 16 << 10, 256 << 10, 1 << 20, 25 << 20, 43200000};
#define MAX_BYTES ((size_t)43200000 + 4096)

static const struct td_collective_ops *shm(void) {
    return td_collective_shm.ops;
}

static td_status time_one(struct td_collective *g, float *data, size_t bytes, int64_t calls,
                          int64_t *out_ns) {
    const struct td_bucket bucket = {
        .struct_bytes = sizeof bucket,
        .n_buckets = 1,
        .dtype = TD_F32,
        .buffer = td_buffer_of_host(data, bytes),
        .n = (int64_t)(bytes / sizeof *data),
    };
    TD_TRY(shm()->barrier(g, "round"));
    int64_t start = td_mono_now().ns;
    for (int64_t i = 0; i < calls; i++) {
        TD_TRY(shm()->all_reduce_bucket(g, &bucket));
    }
    *out_ns = td_mono_now().ns - start;
    return shm()->broadcast(g, out_ns, sizeof *out_ns, 0);
}

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static td_status bench(struct td_collective *g, int32_t rank, int32_t world) {
    void *data;
    size_t region_bytes;
    TD_TRY(shm()->gradients(g, &data, &region_bytes));
    memset(data, 0, region_bytes);
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        int64_t ns[ROUNDS], calls = 1, took;
        for (;; calls *= 2) { // rank 0's clock decides for all: they call the same number of times
            TD_TRY(time_one(g, data, sizes[s], calls, &took));
            if (took > TD_NS_PER_S / 50) break;
        }
        calls = TD_MAX(calls * 200 * TD_NS_PER_MS / took / ROUNDS, 1);
        for (int r = 0; r < ROUNDS; r++) {
            TD_TRY(time_one(g, data, sizes[s], calls, &ns[r]));
        }
        qsort(ns, ROUNDS, sizeof ns[0], compare_i64);
        double us = (double)ns[ROUNDS / 2] / (double)calls / 1e3;
        if (rank) continue;
        printf("{\"bench\":\"collective\",\"backend\":\"shm\",\"call\":\"all_reduce_bucket\","
               "\"world\":%d,\"bytes\":%zu,\"us\":%.2f,\"us_min\":%.2f,\"gb_per_s\":%.2f}\n",
               world, sizes[s], us, (double)ns[0] / (double)calls / 1e3,
               (double)sizes[s] / us / 1e3);
        fflush(stdout);
    }
    return TD_OK;
}

static int rank_main(int32_t rank, int32_t world) {
    size_t bytes = shm()->shared_bytes(world, MAX_BYTES);
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, GROUP_FD, 0);
    if (shared == MAP_FAILED) return 1;
    struct td_collective *g = NULL;
    struct td_collective_config config = {.struct_bytes = sizeof config,
                                          .rank = rank,
                                          .world_size = world,
                                          .timeout_ns = 60 * TD_NS_PER_S,
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
