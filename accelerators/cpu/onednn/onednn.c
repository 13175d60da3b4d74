// oneDNN's engine, stream, errors and weights in its layouts; contract in onednn.h. One engine an
// accelerator. Thread: the rank's training thread.

#include "accelerators/cpu/onednn/onednn.h"

#include <stdatomic.h>
#include <stdio.h>

#include "accelerators/cpu/kernels/kernels.h"

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

td_status td_dnnl_fail(dnnl_status_t s, const char *what) {
    static const char *const text[] = {"success",       "out of memory", "invalid arguments",
                                       "unimplemented", "iterator ends", "runtime error",
                                       "not required"};
    const char *name = (size_t)s < TD_COUNTOF(text) ? text[s] : "unknown";
    if (s == dnnl_out_of_memory) return td_fail_oom();
    return td_status_with_class(td_fail(s == dnnl_unimplemented ? TD_UNIMPLEMENTED : TD_INTERNAL,
                                        "oneDNN: %s: %s", what, name),
                                TD_CLASS_DEVICE);
}

// ---- engine -------------------------------------------------------------------------------------
td_status td_dnnl_create(struct td_room *room, struct td_tune *tune, struct td_packs *packs,
                         struct td_dnnl **out_engine) {
    struct td_dnnl *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->room = room;
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
    if (effective_isa() < most_isa[td_cpu_level()] && n > 0 && (size_t)n < out_bytes)
        snprintf(out + n, out_bytes - (size_t)n, ", isa 0x%x", effective_isa());
}

// ---- primitives ---
void td_dnnl_primitive_finish(struct td_dnnl_primitive *p) {
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->pd);
    *p = (struct td_dnnl_primitive){0};
}

td_status td_dnnl_primitive_run(struct td_dnnl_primitive *p, dnnl_stream_t stream, int n,
                                const dnnl_exec_arg_t *args, const char *what) {
    if (!p->primitive) DNNL_TRY(dnnl_primitive_create(&p->primitive, p->pd), what);
    DNNL_TRY(dnnl_primitive_execute(p->primitive, stream, n, args), what);
    return TD_OK;
}

// ---- weights in oneDNN's layouts ---
struct layout {
    struct td_md *md;
    dnnl_memory_t plain, packed;
    struct td_dnnl_primitive reorder;
    dnnl_stream_t stream;
};

static void layout_destroy(void *of) {
    struct layout *l = of;
    td_dnnl_primitive_finish(&l->reorder);
    dnnl_memory_destroy(l->plain);
    dnnl_memory_destroy(l->packed);
    td_md_destroy(l->md);
    free(l);
}

static td_status reorder(void *of, const void *weights) {
    struct layout *l = of;
    DNNL_TRY(dnnl_memory_set_data_handle(l->plain, (void *)(uintptr_t)weights), "weights");
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, l->plain}, {DNNL_ARG_TO, l->packed}};
    return td_dnnl_primitive_run(&l->reorder, l->stream, 2, args, "pack weights");
}

static td_status layout_build(struct td_dnnl *e, struct layout *l, const struct td_md *plain,
                              const struct td_md *md) {
    l->stream = e->stream;
    DNNL_TRY(td_md_dup(md, &l->md), "keep a layout");
    DNNL_TRY(td_md_memory(plain, e->engine, DNNL_MEMORY_NONE, &l->plain), "plain weights");
    DNNL_TRY(td_md_memory(md, e->engine, DNNL_MEMORY_NONE, &l->packed), "packed weights");
    DNNL_TRY(td_pd_reorder(e->engine, plain, md, NULL, &l->reorder.pd), "describe a reorder");
    return TD_OK;
}

static td_status pack_add(struct td_dnnl *e, const void *param, const struct td_md *plain,
                          const struct td_md *md, struct layout *l, struct td_pack **out_pack) {
    struct td_md_view from = td_md_look(plain), to = td_md_look(md);
    const struct td_pack like = {.param = param,
                                 .shape = td_pack_shape_of(&from, &to),
                                 .bytes = td_md_bytes(md),
                                 .of = l,
                                 .make = reorder,
                                 .destroy_of = layout_destroy};
    TD_TRY(layout_build(e, l, plain, md));
    return td_packs_add(e->packs, &like, out_pack);
}

td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param, const struct td_md *plain,
                           const struct td_md *md, struct td_pack **out_pack) {
    for (struct td_pack *p = NULL; param && (p = td_packs_next(e->packs, param, p));) {
        const struct layout *l = p->of;
        if (!l || !td_md_equal(l->md, md)) continue;
        *out_pack = p;
        return TD_OK;
    }
    struct layout *l = td_calloc(1, sizeof *l);
    struct td_pack *p;
    if (!l) return td_fail_oom();
    td_status failed = pack_add(e, param, plain, md, l, &p);
    if (failed) {
        layout_destroy(l);
        return failed;
    }
    *out_pack = p;
    if (e->room->pretends) return TD_OK;
    DNNL_TRY(dnnl_memory_set_data_handle(l->packed, p->data), "packed weights");
    return TD_OK;
}

dnnl_memory_t td_dnnl_pack_memory(const struct td_pack *p) {
    return ((const struct layout *)p->of)->packed;
}
