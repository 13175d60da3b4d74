// What the cores can do at best at the CPU level in use. It measures multiply-adds of fp32 on
// registers alone, and dot products of bf16 where the level has them (amx has tiles besides, which
// are not measured here). One JSON line each for one thread and for all; bench.py prints a job's
// share of the latter.
//     bench_fma [THREADS]
//
// All threads run at once for a tenth of a second, in slices of a tenth of a millisecond. The best
// slice of each counts, so what a neighbour takes does not.
#include <pthread.h>
#include <stdio.h>

#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"
#include "tests/bench/loops.h"

enum { SLICE_ROUNDS = 1 << 16, MAX_THREADS = 256 };
#define MEASURE_NS (100 * TD_NS_PER_MS)

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    bool dots;
    double flops_per_s; // of its best slice
    float sum;
};

static void *work(void *arg) {
    struct worker *w = arg;
    const struct td_bench_loops *l = td_bench_loops();
    double flops = SLICE_ROUNDS * (w->dots ? l->dot_flops : l->fma_flops);
    pthread_barrier_wait(w->start);
    int64_t now = td_mono_now().ns, end = now + MEASURE_NS;
    while (now < end) {
        int64_t start = now;
        w->sum += w->dots ? l->dot(SLICE_ROUNDS) : l->fma(SLICE_ROUNDS, 0.999f, 0.001f);
        now = td_mono_now().ns;
        w->flops_per_s = TD_MAX(w->flops_per_s, flops * 1e9 / (double)TD_MAX(now - start, 1));
    }
    return NULL;
}

static bool measure(int n_threads, bool dots) {
    static struct worker workers[MAX_THREADS];
    pthread_barrier_t start;
    double flops_per_s = 0;
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        workers[i] = (struct worker){.start = &start, .dots = dots};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return false;
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(workers[i].thread, NULL);
        flops_per_s += workers[i].flops_per_s;
    }
    pthread_barrier_destroy(&start);
    printf("{\"name\":\"fma_peak\",\"precision\":\"%s\",\"threads\":%d,\"level\":\"%s\","
           "\"gflops\":%.1f}\n",
           dots ? "bf16" : "fp32", n_threads, td_cpu_level_name(td_cpu_level()), flops_per_s / 1e9);
    return true;
}

int main(int argc, char **argv) {
    td_status failed = bench_hold_level();
    if (failed) {
        fprintf(stderr, "bench_fma: %s\n", td_status_message(failed));
        td_status_free(failed);
        return 1;
    }
    long asked = argc > 1 ? strtol(argv[1], NULL, 10) : td_proc_n_cpus();
    int threads = (int)TD_MAX(1, TD_MIN(asked, MAX_THREADS));
    bool dots = td_cpu_level() >= TD_CPU_AVX512_BF16 && td_bench_loops()->dot;
    bool ok = measure(1, false) && (!dots || measure(1, true));
    if (threads > 1) ok = ok && measure(threads, false) && (!dots || measure(threads, true));
    return ok ? 0 : 1;
}
