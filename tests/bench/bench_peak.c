// What the threads of one rank can do at best, by the accelerator's own measurement: GEMM in fp32
// and bf16 (FLOP/s) and memory (bytes/s). Prints one JSON line. bench_fma says what the processor
// itself can do.
//     bench_peak [THREADS]
#include <stdio.h>

#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"
#include "lib/plugin/registry.h"
#include "tests/bench/loops.h"
#include "traind/accelerator.h"

static td_status measure(const char *plugins, int threads) {
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *desc;
    struct td_accelerator *a;
    struct td_accel_rates best, usual, memory;
    struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = threads};
    TD_TRY(bench_hold_level());
    TD_TRY(td_registry_create(plugins, &r));
    TD_TRY(td_registry_find(r, TD_PLUGIN_ACCELERATOR, "cpu", &desc));
    const struct td_accelerator_ops *ops = desc->ops;
    TD_TRY(ops->open(&config, &a));
    int64_t start = td_mono_now().ns;
    td_status s = ops->measure_peak(a, 0, &best, &usual);
    int64_t took_ns = td_mono_now().ns - start;
    if (!s) s = ops->measure_peak(a, SIZE_MAX, &memory, &usual);
    ops->close(a);
    if (s) return s;
    printf("{\"name\":\"peak\",\"threads\":%d,\"fp32_gflops\":%.1f,\"bf16_gflops\":%.1f,"
           "\"memory_gbytes_per_s\":%.1f,\"took_ms\":%.1f}\n",
           threads, best.f32 / 1e9, best.bf16 / 1e9, memory.bandwidth / 1e9, (double)took_ns / 1e6);
    return TD_OK;
}

int main(int argc, char **argv) {
    char dir[4096], plugins[4200];
    td_status failed = td_proc_self_dir(dir, sizeof dir);
    snprintf(plugins, sizeof plugins, "%s/../../lib/traind", dir);
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : td_proc_n_cpus();
    if (!failed) failed = measure(plugins, threads);
    if (failed) fprintf(stderr, "bench_peak: %s\n", td_status_message(failed));
    int code = failed ? 1 : 0;
    td_status_free(failed);
    return code;
}
