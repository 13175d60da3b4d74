// oneDNN's engine and stream, and its CPU level; contract in onednn.h. One engine an accelerator.

#include "accelerators/cpu/onednn/onednn.h"

#include <stdatomic.h>
#include <stdio.h>

#include "accelerators/cpu/onednn/engine.h"
#include "accelerators/cpu/onednn/primitive.h"
#include "lib/base/cpu_level.h"

// Holds oneDNN to the CPU level of the process, which it takes only before its first question; so
// every question goes through here. Lower settings of its own (ONEDNN_MAX_CPU_ISA) stay.
static const dnnl_cpu_isa_t most_isa[TD_CPU_LEVEL_COUNT] = {
    [TD_CPU_GENERIC] = dnnl_cpu_isa_sse41,
    [TD_CPU_AVX2] = dnnl_cpu_isa_avx2,
    [TD_CPU_AVX512] = dnnl_cpu_isa_avx512_core,
    [TD_CPU_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
    [TD_CPU_AMX] = dnnl_cpu_isa_avx512_core_amx,
};

static unsigned effective_isa(void) {
    static atomic_bool asked;
    if (!atomic_exchange(&asked, true)) (void)dnnl_set_max_cpu_isa(most_isa[td_cpu_level()]);
    return (unsigned)dnnl_get_effective_cpu_isa();
}

bool td_dnnl_takes(enum td_dtype operands) {
    if (operands == TD_F32) return true;
    return operands == TD_BF16 &&
           (effective_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

td_status td_dnnl_create(struct td_cpu_memory *memory, struct td_tune *tune, struct td_packs *packs,
                         struct td_dnnl **out_engine) {
    struct td_dnnl *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->memory = memory;
    e->tune = tune;
    e->packs = packs;
    (void)effective_isa();
    // Else each process looks for a profiler's library along all paths. It only helps profilers.
    (void)dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
    dnnl_status_t s = dnnl_engine_create(&e->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_stream_create(&e->stream, e->engine, dnnl_stream_in_order);
    if (s != dnnl_success) {
        td_dnnl_destroy(e);
        return td_dnnl_fail(s, "create an engine");
    }
    *out_engine = e;
    return TD_OK;
}

void td_dnnl_destroy(struct td_dnnl *e) {
    if (!e) return;
    dnnl_stream_destroy(e->stream);
    dnnl_engine_destroy(e->engine);
    free(e);
}

// oneDNN's blocks of a product follow the sizes of the caches, and with them the order of its sums.
void td_dnnl_describe(char *out, size_t out_bytes) {
    const dnnl_version_t *v = dnnl_version();
    int n =
        snprintf(out, out_bytes, "oneDNN %d.%d.%d, %s, caches %ld/%ld/%ld KiB", v->major, v->minor,
                 v->patch, td_cpu_level_name(td_cpu_level()), sysconf(_SC_LEVEL1_DCACHE_SIZE) >> 10,
                 sysconf(_SC_LEVEL2_CACHE_SIZE) >> 10, sysconf(_SC_LEVEL3_CACHE_SIZE) >> 10);
    if (effective_isa() < most_isa[td_cpu_level()] && n > 0 && (size_t)n < out_bytes) {
        snprintf(out + n, out_bytes - (size_t)n, ", isa 0x%x", effective_isa());
    }
}
