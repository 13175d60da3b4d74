// What these threads can do: matrix products a second in fp32 and bf16, and bytes a second through
// memory. Utilisation is reported against the best. The planner's times come from the usual,
// because what a neighbour of a virtual machine takes from both, or a lower clock, the job will
// meet as well.
//
// Products are measured as a training step meets them at its best: large, weights packed, so many
// rows a thread that any team takes the same time. All of it takes some 20 ms. They run on our own
// kernel where gemm.c lets it race, which there is the faster one of large products, or as fast;
// elsewhere on oneDNN. Rejected: both and the better, because what loses takes half of the time,
// and oneDNN's gemm as long again to generate its kernels. Memory is measured by passes that update
// in place as much as the caller works with, as an optimizer does. What is in a cache and what is
// not differ by more than a factor of two, and by another where neighbours use the memory. Products
// come between two passes, as they do in a step. One pass after the other found 13 MB four times as
// fast as an optimizer does, which comes once a step. And a disturbance of some milliseconds spoils
// a slice of each instead of all of one. Left out when nobody asks.
//
// Nothing is kept here: the caller keeps the best of several moments, for one boot
// (engine/train/plan/rates.h).

#include "accelerators/cpu/peak.h"

#include <string.h>
#include <sys/mman.h>

#include "accelerators/cpu/accelerator.h"
#include "accelerators/cpu/gemm.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/matmul/matmul.h"
#include "accelerators/cpu/onednn/peak_product.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/clock.h"

enum { ROWS_PER_THREAD = 256, WIDTH = 512, SLICES = 8, SAMPLES_MAX = 256 };
#define SLICE_NS (TD_NS_PER_MS * 3 / 4)
static const size_t MEMORY_LEAST = 4u << 20, MEMORY_MOST = 64u << 20;

// How long the same took, again and again.
struct samples {
    int64_t ns[SAMPLES_MAX];
    int n;
};

// Past the bound: nothing, there are enough.
static void add_sample(struct samples *s, int64_t start_ns, int64_t end_ns) {
    if (s->n < SAMPLES_MAX) s->ns[s->n++] = TD_MAX(end_ns - start_ns, 1);
}

// Work a second, at best and on average over those that kept their cores: one that lost a core to
// another process takes a multiple. No samples: 0.
static void set_rates(const struct samples *s, double work, double *out_best, double *out_usual) {
    int64_t best_ns = INT64_MAX, sum_ns = 0, n = 0;
    for (int i = 0; i < s->n; i++) {
        best_ns = TD_MIN(best_ns, s->ns[i]);
    }
    for (int i = 0; i < s->n; i++) {
        if (s->ns[i] > 2 * best_ns) continue;
        sum_ns += s->ns[i];
        n++;
    }
    *out_best = n ? work / (double)best_ns * 1e9 : 0;
    *out_usual = n ? work * (double)n / (double)sum_ns * 1e9 : 0;
}

// By our own kernel, or by oneDNN.
struct product {
    bool failed;
    int64_t rows;
    struct samples time;
    struct td_dnnl_peak_product *dnnl; // NULL: our own
    struct td_matmul own;
    void *data[3]; // x, weights, y of our own
    void *scratch;
};

static void product_finish(struct product *p) {
    td_dnnl_peak_product_destroy(p->dnnl);
    for (size_t i = 0; i < TD_COUNTOF(p->data); i++) {
        free(p->data[i]);
    }
    free(p->scratch);
}

// Zeros everywhere: the cores' units take as long for them as for any number.
static void *zeros(size_t bytes) {
    bytes = td_align_up(bytes, 64);
    void *p = aligned_alloc(64, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

// False: out of memory.
static bool make_own(struct product *p, enum td_dtype type, int32_t n_threads) {
    const struct td_kernel_table *k = td_kernels();
    p->own = (struct td_matmul){
        .m = p->rows,
        .n = WIDTH,
        .k = WIDTH,
        .trans_b = true,
        .packed_b = true,
        .a_type = type,
        .b_type = type,
        .b_as = type,
        .bias_type = type,
        .y_type = TD_F32,
        .n_threads = n_threads,
    };
    struct td_pack_shape panels = k->matmul_panels(WIDTH, WIDTH, true, type, type);
    p->data[0] = zeros((size_t)p->rows * WIDTH * td_dtype_bytes(type));
    p->data[1] = zeros(k->matmul_panel_bytes(&panels));
    p->data[2] = zeros((size_t)p->rows * WIDTH * sizeof(float));
    p->scratch = zeros(k->matmul_scratch_bytes(&p->own));
    return p->data[0] && p->data[1] && p->data[2] && p->scratch;
}

static void product_init(struct product *p, enum td_dtype type, int32_t n_threads) {
    *p = (struct product){.rows = (int64_t)ROWS_PER_THREAD * n_threads};
    p->failed = td_gemm_own_races(type)
                    ? !make_own(p, type, n_threads)
                    : !td_dnnl_peak_product_create(type, p->rows, WIDTH, &p->dnnl);
}

static bool run_product(struct product *p) {
    if (p->dnnl) return td_dnnl_peak_product_run(p->dnnl);
    td_kernels()->matmul_run(&p->own, p->data[0], p->data[1], NULL, p->data[2], p->scratch);
    return true;
}

// Products for a slice of time, each a sample.
static void product_slice(struct product *p) {
    int64_t now_ns = td_mono_now().ns, end_ns = now_ns + SLICE_NS;
    while (!p->failed && now_ns < end_ns) {
        int64_t start = now_ns;
        p->failed = !run_product(p);
        now_ns = td_mono_now().ns;
        add_sample(&p->time, start, now_ns);
    }
}

static double flops_of(const struct product *p) {
    return 2.0 * (double)(p->rows * WIDTH * WIDTH);
}

// ---- memory -------------------------------------------------------------------------------------
struct memory {
    float *data;
    size_t bytes;
    struct samples time;
};

static void update_range(const void *arg, int64_t begin, int64_t end) {
    td_kernels()->update_in_place(*(float *const *)arg, begin, end);
}

static void memory_pass(struct memory *m, int32_t n_threads) {
    int64_t start = td_mono_now().ns;
    td_parallel(n_threads, (int64_t)(m->bytes / sizeof *m->data), 1, update_range, &m->data);
    add_sample(&m->time, start, td_mono_now().ns);
}

static td_status memory_init(struct memory *m, size_t bytes, int32_t n_threads) {
    bytes = TD_MAX(MEMORY_LEAST, TD_MIN(bytes, MEMORY_MOST)) / sizeof(float) * sizeof(float);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map %zu bytes to measure memory", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    *m = (struct memory){.data = p, .bytes = bytes};
    memory_pass(m, n_threads); // faults pages in
    m->time.n = 0;
    return TD_OK;
}

static void memory_finish(struct memory *m) {
    if (m->data) munmap(m->data, m->bytes);
}

td_status td_cpu_measure_peak(struct td_accelerator *a, size_t memory_bytes,
                              struct td_accel_rates *out_best, struct td_accel_rates *out_usual) {
    struct product f32, bf16;
    struct memory m = {0};
    if (memory_bytes) TD_TRY(memory_init(&m, memory_bytes, a->n_threads));
    product_init(&f32, TD_F32, a->n_threads);
    product_init(&bf16, TD_BF16, a->n_threads);
    for (int i = 0; i < SLICES; i++) {
        product_slice(&f32);
        product_slice(&bf16);
        if (memory_bytes) memory_pass(&m, a->n_threads);
    }
    // Bytes are counted where they are read and where they are written.
    set_rates(&f32.time, flops_of(&f32), &out_best->f32, &out_usual->f32);
    set_rates(&bf16.time, flops_of(&bf16), &out_best->bf16, &out_usual->bf16);
    set_rates(&m.time, 2.0 * (double)m.bytes, &out_best->bandwidth, &out_usual->bandwidth);
    product_finish(&f32);
    product_finish(&bf16);
    memory_finish(&m);
    return TD_OK;
}
