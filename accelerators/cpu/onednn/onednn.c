// oneDNN's engine, stream, errors and packed weights; contract in onednn.h. One engine an
// accelerator. Packs live as long as it: programs of one job share them, and a later program finds
// those of an earlier one. Thread: the rank's training thread.

#include "accelerators/cpu/onednn/onednn.h"

#include <stdatomic.h>
#include <stdio.h>

#include "accelerators/cpu/kernels/kernels.h"

enum { MAX_PACKS = 4096 };

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

bool td_dnnl_has_bf16(void) {
    return (effective_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
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
td_status td_dnnl_create(struct td_room *room, struct td_tune *tune, struct td_dnnl **out_engine) {
    struct td_dnnl *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->room = room;
    e->tune = tune;
    e->era = 1; // a pack begins in era 0
    (void)effective_isa();
    dnnl_status_t s = dnnl_engine_create(&e->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_stream_create(&e->stream, e->engine, dnnl_stream_in_order);
    if (s != dnnl_success) {
        td_dnnl_destroy(e);
        return td_dnnl_fail(s, "create an engine");
    }
    *out_engine = e;
    return TD_OK;
}

static void pack_destroy(struct td_dnnl *e, struct td_pack *p) {
    if (!p) return;
    dnnl_primitive_destroy(p->reorder);
    dnnl_memory_destroy(p->plain);
    dnnl_memory_destroy(p->packed);
    if (p->data) td_room_give(e->room, p->data, td_md_bytes(p->layout));
    td_md_destroy(p->layout);
    free(p);
}

void td_dnnl_destroy(struct td_dnnl *e) {
    if (!e) return;
    for (struct td_pack *p = e->packs, *next; p; p = next) {
        next = p->next;
        pack_destroy(e, p);
    }
    dnnl_stream_destroy(e->stream);
    dnnl_engine_destroy(e->engine);
    free(e);
}

void td_dnnl_begin(struct td_dnnl *e, bool steady) {
    if (!steady) e->era++;
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

// ---- packs --------------------------------------------------------------------------------------
static td_status pack_build(struct td_dnnl *e, struct td_pack *p, const struct td_md *plain,
                            const struct td_md *layout) {
    DNNL_TRY(td_md_dup(layout, &p->layout), "keep a layout");
    p->data = td_room_take(e->room, td_md_bytes(layout));
    if (!p->data) return td_fail_oom();
    struct td_md_view from = td_md_look(plain), to = td_md_look(layout);
    p->rows = td_pack_shape_of(&from, &to);
    dnnl_primitive_desc_t pd = NULL;
    DNNL_TRY(td_md_memory(plain, e->engine, DNNL_MEMORY_NONE, &p->plain), "plain weights");
    void *data = e->room->pretends ? DNNL_MEMORY_NONE : p->data;
    DNNL_TRY(td_md_memory(layout, e->engine, data, &p->packed), "packed weights");
    DNNL_TRY(td_pd_reorder(e->engine, plain, layout, NULL, &pd), "describe a reorder");
    dnnl_status_t s = dnnl_primitive_create(&p->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(s, "create a reorder");
    return TD_OK;
}

td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param, const struct td_md *plain,
                           const struct td_md *layout, struct td_pack **out_pack) {
    int n = 0;
    for (struct td_pack *p = e->packs; p; p = p->next, n++) {
        if (param && p->param == param && td_md_equal(p->layout, layout)) {
            *out_pack = p;
            return TD_OK;
        }
    }
    if (n >= MAX_PACKS) return td_fail(TD_RESOURCE_EXHAUSTED, "more than %d packed weights", n);
    struct td_pack *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->param = param;
    td_status failed = pack_build(e, p, plain, layout);
    if (failed) {
        pack_destroy(e, p);
        return failed;
    }
    p->next = e->packs;
    e->packs = p;
    *out_pack = p;
    return TD_OK;
}

void td_dnnl_param_changes(struct td_dnnl *e, const void *param) {
    for (struct td_pack *p = e->packs; p; p = p->next) {
        if (p->param == param) p->era = 0;
    }
}

int td_dnnl_pack_update(struct td_dnnl *e, const void *param, struct td_pack_target *out_targets) {
    int n = 0;
    for (struct td_pack *p = e->packs; p && n < TD_PACKS_OF_UPDATE; p = p->next) {
        if (p->param != param || !p->was_read || !p->rows.cols) continue;
        p->was_read = false;
        p->era = e->era;
        out_targets[n++] = (struct td_pack_target){p->rows, p->data};
    }
    return n;
}

td_status td_dnnl_pack_read(struct td_dnnl *e, struct td_pack *p, const void *weights) {
    p->was_read = true;
    if (p->param && p->era == e->era) return TD_OK;
    p->era = e->era;
    if (p->rows.cols) {
        td_kernels()->pack_rows(&p->rows, weights, p->data);
        return TD_OK;
    }
    DNNL_TRY(dnnl_memory_set_data_handle(p->plain, (void *)(uintptr_t)weights), "weights");
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->plain}, {DNNL_ARG_TO, p->packed}};
    DNNL_TRY(dnnl_primitive_execute(p->reorder, e->stream, 2, args), "pack weights");
    return TD_OK;
}
