// cpu: training on the cores of one machine, a plugin because it brings oneDNN and OpenMP along. In
// reading order:
//
//   cpu.c          the ops table: open, memory, copy, run
//   accelerator.h  what is open, and what a program becomes
//   kernel.h       one step of a program
//   compile.h      a program becomes a list of kernels with resolved operands
//   layout.h       in which order the bytes of images are
//   parts.h        kernels that run some images at a time, together
//   product.h      from a matmul node to what gemm.h is asked for
//   gemm.h         one matrix product (gemm_spec.h): oneDNN's or our own kernel
//   packs.h        weights packed for products
//   memory.h       memory besides arena and state, counted; pages.h: large memory, whole pages
//   dry_compile.h  what a program would take and choose, without taking
//   tune.h         which way of computing something is the fastest here, measured once
//   fallback.h     the reference's loops, for nodes that nothing else takes
//   parallel.h     the one OpenMP loop
//   spin.h         how long threads spin for each other
//   peak.h         what the threads can do at best, measured
//   estimate.h     how long a node will take at these rates
//   kernels/       loops: elementwise, reductions, norms, attention, losses, optimizers (kernels.h)
//   onednn/        products and convolutions by oneDNN (onednn.h)
//
// A program is compiled to kernels in node order. Arena and state addresses are fixed when it is
// compiled, input addresses come with each run. Work is split over the rank's threads in static
// ranges, so for a given number of threads the bits are always the same. A family of kernels looks
// at the whole node and takes it or leaves it. What all leave (an op, a type) runs on the
// reference's loops, which is correct, slow, and reported (kernel_at).
//
// There is one device, which is the cores that the rank was given. Memory is plain host memory, so
// buffers of other owners (the shared gradient mapping) are used as they are. Execution is
// synchronous: what run() was asked for has happened when it returns. Thread: the rank's training
// thread.

#include <stdio.h>
#include <string.h>

#include "accelerators/cpu/accelerator.h"
#include "accelerators/cpu/compile.h"
#include "accelerators/cpu/dry_compile.h"
#include "accelerators/cpu/estimate.h"
#include "accelerators/cpu/onednn/onednn.h"
#include "accelerators/cpu/packs.h"
#include "accelerators/cpu/pages.h"
#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/peak.h"
#include "accelerators/cpu/spin.h"
#include "accelerators/cpu/tune.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/machine.h"
#include "traind/plugin.h"

enum { COPY_GRAIN = 1 << 20, CONTROL_BYTES = TD_CONTROL_FLAGS * sizeof(float) };

static td_status cpu_probe(struct td_accel_facts *out_facts) {
    struct td_accel_facts f = {
        .struct_bytes = sizeof f,
        .n_devices = 1,
        .device_name = "cpu",
        .memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * td_page_bytes(),
        .detects_anomaly = true,
        .whole_logits_bytes = 32 << 20,
        .process_bytes = 24 << 20, // oneDNN has 10 MiB, and generates code
        .sums = (1u << TD_SUM_KINDS) - 1,
        .dtypes = 1u << TD_F32 | 1u << TD_F64 | 1u << TD_BF16 | 1u << TD_F16,
    };
    td_dnnl_describe(f.build, sizeof f.build);
    memcpy(out_facts, &f, TD_MIN(sizeof f, (size_t)out_facts->struct_bytes));
    return TD_OK;
}

static void cpu_close(struct td_accelerator *a) {
    if (!a) return;
    td_spin_destroy(a->spin);
    td_packs_destroy(a->packs);
    td_dnnl_destroy(a->dnnl);
    td_tune_destroy(a->tune);
    td_cpu_memory_finish(&a->memory);
    free(a);
}

// What the fastest way of computing depends on besides shapes.
static void describe_machine(int32_t n_threads, char *out, size_t out_bytes) {
    char build[64], model[96] = "some processor";
    TD_AUTO_BUF info;
    td_buf_init(&info, 1 << 20);
    td_dnnl_describe(build, sizeof build);
    td_status_free(td_fs_read("/proc/cpuinfo", 1 << 20, &info)); // where there is none: no model
    const char *line = info.len ? strstr(td_buf_cstr(&info), "model name") : NULL;
    if (line) (void)sscanf(line, "model name%*[ \t:]%95[^\n]", model);
    snprintf(out, out_bytes, "%s, %s, %d threads", model, build, n_threads);
}

static td_status cpu_open(const struct td_accel_config *config, struct td_accelerator **out_accel) {
    if (config->n_threads < 1 || config->n_threads > TD_CPU_MAX_THREADS) {
        return td_fail(TD_INVALID_ARGUMENT, "the cpu accelerator takes 1 to %d threads, not %d",
                       TD_CPU_MAX_THREADS, config->n_threads);
    }
    TD_TRY(td_parallel_open(config->n_threads));
    struct td_accelerator *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->n_threads = config->n_threads;
    a->detects_anomaly = config->detect_anomaly;
    a->profiles = config->profile;
    char machine[256];
    describe_machine(a->n_threads, machine, sizeof machine);
    const char *cache = config->deterministic ? NULL : config->cache_dir;
    td_status failed = td_tune_create(cache, machine, &a->tune);
    if (!failed && a->n_threads == 1) td_tune_time_thread(a->tune);
    if (!failed) failed = td_packs_create(&a->memory, &a->packs);
    if (!failed) failed = td_dnnl_create(&a->memory, a->tune, a->packs, &a->dnnl);
    if (!failed && a->n_threads > 1 && !config->plans) failed = td_spin_create(&a->spin);
    if (failed) {
        cpu_close(a);
        return failed;
    }
    *out_accel = a;
    return TD_OK;
}

static td_status cpu_mem_alloc(struct td_accelerator *a, size_t bytes,
                               struct td_buffer *out_buffer) {
    char *p = td_pages_map(bytes);
    if (!p) {
        return td_status_with_class(
            td_fail_errno(TD_RESOURCE_EXHAUSTED, "allocate %zu bytes on the cpu", bytes),
            TD_CLASS_OUT_OF_MEMORY);
    }
    td_pages_populate(p, bytes, a->n_threads);
    *out_buffer = (struct td_buffer){TD_SPACE_HOST, (uint64_t)(uintptr_t)p, bytes};
    return TD_OK;
}

static void cpu_mem_free(struct td_accelerator *a, struct td_buffer b) {
    (void)a;
    td_pages_unmap(td_buffer_host(b), b.bytes);
}

static td_status cpu_mem_import(struct td_accelerator *a, void *host, size_t bytes,
                                struct td_buffer *out_buffer) {
    (void)a;
    *out_buffer = (struct td_buffer){TD_SPACE_HOST, (uint64_t)(uintptr_t)host, bytes};
    return TD_OK;
}

struct copy {
    char *to;
    const char *from;
};

static void copy_range(const void *arg, int64_t begin, int64_t end) {
    const struct copy *c = arg;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

// One thread cannot move what memory can; a snapshot of the state holds up the training.
static td_status cpu_copy(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                          struct td_buffer src, size_t src_offset, size_t bytes) {
    if (dst_offset > dst.bytes || bytes > dst.bytes - dst_offset || src_offset > src.bytes ||
        bytes > src.bytes - src_offset) {
        return td_fail(TD_OUT_OF_RANGE,
                       "a copy of %zu bytes leaves its buffers (%zu and %zu bytes)", bytes,
                       dst.bytes, src.bytes);
    }
    struct copy c = {(char *)td_buffer_host(dst) + dst_offset,
                     (const char *)td_buffer_host(src) + src_offset};
    if (c.to < c.from + bytes && c.from < c.to + bytes) {
        memmove(c.to, c.from, bytes);
    } else {
        td_parallel(a->n_threads, (int64_t)bytes, COPY_GRAIN, copy_range, &c);
    }
    return TD_OK;
}

// The time of a kernel, which began at *io_ns.
static void count_time(const struct td_accelerator *a, struct td_kernel *k, int64_t *io_ns) {
    if (!a->profiles) return;
    const int64_t now = td_mono_now().ns;
    k->ns += now - *io_ns;
    *io_ns = now;
}

// As the reference names it; a sum over ranks fails for what others do.
static td_status name_node(const struct td_executable *e, const struct td_kernel *k, td_status s) {
    if (k->node == UINT32_MAX || (k->sum && !k->n_in)) return s;
    return td_status_context(s, "step '%s': node %u (%s)", e->program->key.step, k->node,
                             td_op_name(k->op));
}

// A kernel, with those that run part by part with it.
static td_status run_kernel(struct td_executable *e, struct td_kernel *k, struct td_run *r,
                            int64_t *io_ns) {
    const struct td_kernel *end = k + k->joined + 1;
    const int64_t images = k->joined ? k->out_shape.dim[0] : 1;
    for (r->image = 0; r->image < images; r->image += TD_MAX(k->part, (int64_t)1)) {
        for (struct td_kernel *j = k; j < end; j++) {
            if (j->param) td_packs_param_changes(e->accel->packs, j->param);
            if (j->writes_pieces) td_packs_begin(e->accel->packs, false); // none is good any more
            td_status s = j->run(j, r);
            if (s) return name_node(e, j, s);
            count_time(e->accel, j, io_ns);
        }
    }
    for (; k < end; k++) {
        k->runs++;
    }
    return TD_OK;
}

// Done when it returns.
static td_status cpu_run(struct td_executable *e, uint32_t segments, const struct td_buffer *inputs,
                         td_ticket *out_ticket) {
    e = TD_CAST(td_executable, e);
    TD_TRY(td_inputs_check_host(e->program->graph, inputs));
    struct td_run r = {
        .inputs = inputs, .packs = e->accel->packs, .scratch = e->accel->memory.scratch};
    int64_t begin = e->accel->profiles ? td_mono_now().ns : 0;
    td_scalars_round(e->scalars, e->rounded);
    td_packs_begin(e->accel->packs, segments & TD_RUN_STEADY);
    const bool carries = e->control && td_run_carries_control(e->program, segments);
    if (carries) memcpy(e->control_tail, e->control, CONTROL_BYTES);
    for (uint32_t i = 0; i < e->n_kernels; i += e->kernel[i].joined + 1) {
        struct td_kernel *k = &e->kernel[i];
        if (segments & 1u << k->segment) TD_TRY(run_kernel(e, k, &r, &begin));
    }
    if (carries) memcpy(e->control, e->control_tail, CONTROL_BYTES);
    if (e->accel->spin) td_spin_watch(e->accel->spin, td_mono_now().ns);
    *out_ticket = 0;
    return TD_OK;
}

static td_status cpu_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    (void)a, (void)ticket, (void)timeout_ns;
    return TD_OK;
}

static bool cpu_kernel_at(const struct td_executable *e, uint32_t i,
                          struct td_kernel_info *out_info) {
    if (i >= e->n_kernels) return false;
    const struct td_kernel *k = &e->kernel[i];
    const struct td_kernel_info info = {
        .struct_bytes = out_info->struct_bytes,
        .op = k->op,
        .dtype = k->n_in ? k->in_dtype[0] : k->out_dtype[0],
        .node = k->node,
        .slow = k->slow,
        .runs = k->runs,
        .ns = k->ns,
    };
    memcpy(out_info, &info, TD_MIN(sizeof info, (size_t)out_info->struct_bytes));
    return true;
}

static td_status cpu_choices(struct td_accelerator *a, const char **out_text) {
    return td_tune_text(a->tune, out_text);
}

static td_status cpu_adopt_choices(struct td_accelerator *a, const char *text) {
    return td_tune_adopt(a->tune, text);
}

static const struct td_accelerator_ops ops = {
    .struct_bytes = sizeof ops,
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .mem_alloc = cpu_mem_alloc,
    .mem_free = cpu_mem_free,
    .mem_import = cpu_mem_import,
    .copy = cpu_copy,
    .compile = td_cpu_compile,
    .run = cpu_run,
    .wait = cpu_wait,
    .release = td_cpu_release,
    .kernel_at = cpu_kernel_at,
    .measure_peak = td_cpu_measure_peak,
    .choices = cpu_choices,
    .program_bytes = td_cpu_program_bytes,
    .adopt_choices = cpu_adopt_choices,
    .list_choices = td_cpu_list_choices,
    .elides = td_cpu_elides,
    .slow_nodes = td_cpu_slow_nodes,
    .node_seconds = td_cpu_node_seconds,
};

TD_PLUGIN(ACCELERATOR, "cpu", "the machine's cores, by oneDNN and OpenMP", &ops)
