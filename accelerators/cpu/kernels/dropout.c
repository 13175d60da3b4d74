// Dropout: a sample's mask is made in bytes (traind/random.h says how), then applied. Backward is
// the same node on dy. Samples are split over the threads; a mask depends on nothing but its key,
// so the result is the same for any number of threads.

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"
#include "traind/random.h"

enum { CHUNK = 512 };

struct dropout {
    enum td_dtype type;
    const struct td_attrs *attrs;
    const uint32_t *random;
    const void *x;
    void *y;
    int64_t n;       // elements of a sample
    uint8_t *buffer; // n bytes a range
};

static void dropout_chunk(const float *x, const uint8_t *keep, int64_t n, float scale, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = keep[i] ? x[i] * scale : 0;
    }
}

static void dropout_samples(const void *arg, int64_t begin, int64_t end) {
    const struct dropout *d = arg;
    uint8_t *keep = d->buffer + td_parallel_index() * d->n;
    float buffer[CHUNK], scale = (float)(1 / (1 - d->attrs->drop));
    for (int64_t row = begin; row < end; row++) {
        td_random_keep(d->random, d->attrs->stream, d->attrs->drop, row, d->n, keep);
        for (int64_t i = 0; i < d->n; i += CHUNK) {
            int64_t n = TD_MIN(d->n - i, (int64_t)CHUNK), at = row * d->n + i;
            const float *x = td_cpu_row(d->type, d->x, at, n, buffer);
            float *y = td_cpu_result(d->type, d->y, at, buffer);
            dropout_chunk(x, keep + i, n, scale, y);
            td_cpu_put(d->type, y, n, d->y, at);
        }
    }
}

static td_status run_dropout(const struct td_kernel *k, const struct td_run *r) {
    int64_t rows = k->shape[0].dim[0];
    struct dropout d = {.type = k->in_dtype[0],
                        .attrs = &k->attrs,
                        .random = k->random,
                        .x = td_operand_at(&k->in[0], r),
                        .y = td_operand_at(&k->out[0], r),
                        .n = rows ? k->elems / rows : 0,
                        .buffer = r->scratch};
    td_parallel_units(k->n_threads, rows, k->elems, dropout_samples, &d);
    return TD_OK;
}

td_status td_kernel_dropout(struct td_kernel *k) {
    if (!td_kernel_is(k, "dropout") || !td_kernel_narrow(k)) return TD_OK;
    int64_t rows = k->shape[0].dim[0];
    k->run = run_dropout;
    k->scratch_bytes = (size_t)(rows ? k->elems / rows : 0) * (size_t)k->n_threads;
    return TD_OK;
}
