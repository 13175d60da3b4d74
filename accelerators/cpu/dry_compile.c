// Programs are compiled to see what comes of it: how many bytes they take, which kernels they
// choose between, which are plain loops. Graphs are asked, before they are compiled, which nodes
// will not be run. The compilation is the real one, in a twin of the accelerator whose memory is
// dry. The twin's packed weights and choices go away with it. Rejected: a model of what the kernels
// will want, which would be wrong the first time that a kernel changes.

#include "accelerators/cpu/dry_compile.h"

#include "accelerators/cpu/accelerator.h"
#include "accelerators/cpu/compile.h"
#include "accelerators/cpu/onednn/onednn.h"
#include "accelerators/cpu/packs.h"
#include "accelerators/cpu/product.h"
#include "accelerators/cpu/tune.h"

static td_status open_twin(const struct td_accelerator *a, struct td_accelerator *twin) {
    twin->n_threads = a->n_threads;
    twin->memory.is_dry = true;
    TD_TRY(td_packs_create(&twin->memory, &twin->packs));
    return td_dnnl_create(&twin->memory, twin->tune, twin->packs, &twin->dnnl);
}

static void close_twin(struct td_accelerator *twin) {
    td_packs_destroy(twin->packs);
    td_dnnl_destroy(twin->dnnl);
    td_tune_destroy(twin->tune);
    td_cpu_memory_finish(&twin->memory);
}

// Regions that nobody touches, far apart, so that each parameter has an address of its own.
static void dry_bindings(struct td_bindings *b) {
    *b = (struct td_bindings){.struct_bytes = sizeof *b};
    for (int i = 0; i <= TD_ROLE_COUNT; i++) {
        struct td_buffer far = {TD_SPACE_HOST, ((uint64_t)i + 1) << 44, (size_t)1 << 44};
        *(i < TD_ROLE_COUNT ? &b->region[i] : &b->arena) = far;
    }
}

// Nothing is run, so what a step reports is only an address here.
enum { MOST_OUTPUTS = 64 };

static td_status compile_all(struct td_accelerator *twin, const struct td_program *const *programs,
                             size_t n, struct td_executable **exe) {
    struct td_bindings b;
    static double scalars[TD_SCALAR_COUNT];
    static uint32_t random[TD_RANDOM_WORDS];
    static double outputs[MOST_OUTPUTS];
    dry_bindings(&b);
    b.scalars = scalars;
    b.random = random;
    b.outputs = outputs;
    for (size_t i = 0; i < n; i++) {
        TD_TRY(td_cpu_compile(twin, programs[i], &b, &exe[i]));
    }
    return TD_OK;
}

// What is read off programs that are compiled in a twin; each may be NULL.
struct reading {
    size_t *bytes;
    td_slow_node_fn *slow;
    void *arg;
};

static void read_kernels(const struct td_executable *e, size_t program, const struct reading *to) {
    for (uint32_t i = 0; i < e->n_kernels; i++) {
        const struct td_kernel *k = &e->kernel[i];
        if (k->slow) to->slow(to->arg, program, k->node);
    }
}

static td_status read_programs(struct td_accelerator *a, const struct td_program *const *programs,
                               size_t n, const struct reading *to) {
    TD_AUTO_FREE struct td_executable **exe = td_calloc(n, sizeof(struct td_executable *));
    struct td_accelerator twin = {0};
    if (!exe) return td_fail_oom();
    td_status s = td_tune_create(NULL, "", &twin.tune);
    if (!s) s = open_twin(a, &twin);
    if (!s) s = compile_all(&twin, programs, n, exe);
    if (!s && to->bytes) *to->bytes = twin.memory.held_bytes;
    for (size_t i = 0; i < n; i++) {
        if (!s && to->slow) read_kernels(exe[i], i, to);
        td_cpu_release(exe[i]);
    }
    close_twin(&twin);
    return s;
}

td_status td_cpu_program_bytes(struct td_accelerator *a, const struct td_program *const *programs,
                               size_t n, size_t *out_bytes) {
    if (n == 0) {
        *out_bytes = a->memory.held_bytes;
        return TD_OK;
    }
    return read_programs(a, programs, n, &(struct reading){.bytes = out_bytes});
}

td_status td_cpu_slow_nodes(struct td_accelerator *a, const struct td_program *const *programs,
                            size_t n, td_slow_node_fn *fn, void *arg) {
    return n ? read_programs(a, programs, n, &(struct reading){.slow = fn, .arg = arg}) : TD_OK;
}

// ---- choices ------------------------------------------------------------------------------------
struct listener {
    const struct td_accelerator *twin;
    td_choice_fn *fn;
    void *arg;
};

static td_status report(void *arg, const struct td_choice_info *choice) {
    const struct listener *l = arg;
    struct td_choice_info c = *choice;
    c.node = l->twin->compiles;
    return l->fn(l->arg, &c);
}

td_status td_cpu_list_choices(struct td_accelerator *a, const struct td_program *p,
                              td_choice_fn *fn, void *arg) {
    struct td_accelerator twin = {0};
    struct td_executable *exe = NULL;
    struct listener l = {&twin, fn, arg};
    td_status s = td_tune_preview(a->tune, report, &l, &twin.tune);
    if (!s) s = open_twin(a, &twin);
    if (!s) s = compile_all(&twin, &p, 1, &exe);
    td_cpu_release(exe);
    close_twin(&twin);
    return s;
}

// ---- skipped nodes ------------------------------------------------------------------------------
bool td_cpu_elides(const struct td_graph *g, td_node n) {
    const struct td_program p = {.graph = g};
    struct td_bindings b;
    dry_bindings(&b);
    return td_product_absorbs(&(struct td_product_site){&p, &b, NULL}, n);
}
