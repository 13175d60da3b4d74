// Losses of numbers against numbers: mse and bce, each with its gradient in the same pass.
//
// Elements go in chunks that fit the first cache whatever type the tensors have. Each chunk's
// losses are summed in fp32 and the chunks' sums in double, in their order, so the mean does not
// depend on the threads. The binary loss is x t away from softplus(x), whose small part log1p(e), e
// = exp(-|x|), is a series in e / (2 + e). A logarithm of 1 + e would round e away.

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"

enum { CHUNK = 512, GRAIN = 16 };

struct loss {
    const void *x, *t;
    void *d;
    float *sum; // of each chunk
    enum td_dtype type;
    int64_t n;
    float share; // of an element in the mean
    float (*loss)(const float *x, const float *t, int64_t n, float share, float *d);
};

// log(1 + e) for e in [0, 1]
static inline float log1p_unit(float e) {
    float s = e / (2 + e), z = s * s;
    float p = 1.0f / 15;
    p = p * z + 1.0f / 13;
    p = p * z + 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    return 2 * (p * z * s + s);
}

static float mse_chunk(const float *x, const float *t, int64_t n, float share, float *d) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = x[i] - t[i];
        sum += e * e;
        d[i] = 2 * e * share;
    }
    return sum;
}

static float bce_chunk(const float *x, const float *t, int64_t n, float share, float *d) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float small = vm_exp(-fabsf(x[i])), above = x[i] > 0 ? x[i] : 0;
        sum += above - x[i] * t[i] + log1p_unit(small);
        d[i] = ((x[i] > 0 ? 1 : small) / (1 + small) - t[i]) * share;
    }
    return sum;
}

static void chunks_range(const void *arg, int64_t begin, int64_t end) {
    const struct loss *a = arg;
    float buffer[3][CHUNK];
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * CHUNK, n = TD_MIN(a->n - at, (int64_t)CHUNK);
        float *d = td_cpu_result(a->type, a->d, at, buffer[2]);
        a->sum[c] = a->loss(td_cpu_row(a->type, a->x, at, n, buffer[0]),
                            td_cpu_row(a->type, a->t, at, n, buffer[1]), n, a->share, d);
        td_cpu_put(a->type, d, n, a->d, at);
    }
}

static int64_t chunks_of(int64_t n) {
    return (n + CHUNK - 1) / CHUNK;
}

static td_status run_loss(const struct td_kernel *k, const struct td_run *r) {
    int64_t n = td_shape_elems(&k->shape[0]), n_chunks = chunks_of(n);
    struct loss a = {
        .x = td_operand_at(&k->in[0], r),
        .t = td_operand_at(&k->in[1], r),
        .d = td_operand_at(&k->out[1], r),
        .sum = r->scratch,
        .type = k->in_dtype[0],
        .n = n,
        .share = n ? (float)(1 / (double)n) : 0,
        .loss = td_kernel_is(k, "mse") ? mse_chunk : bce_chunk,
    };
    double sum = 0;
    td_parallel(k->n_threads, n_chunks, GRAIN, chunks_range, &a);
    for (int64_t c = 0; c < n_chunks; c++) {
        sum += (double)a.sum[c];
    }
    *(float *)td_operand_at(&k->out[0], r) = n ? (float)(sum / (double)n) : 0;
    return TD_OK;
}

td_status td_kernel_mse_bce(struct td_kernel *k) {
    if (!td_kernel_is(k, "mse") && !td_kernel_is(k, "bce")) return TD_OK;
    if (!td_cpu_is_narrow(k->in_dtype[0])) return TD_OK;
    k->run = run_loss;
    k->scratch_bytes = (size_t)chunks_of(td_shape_elems(&k->shape[0])) * sizeof(float);
    return TD_OK;
}
