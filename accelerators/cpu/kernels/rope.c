// Rotary positions: a head's pairs of numbers are turned by angles that grow with the token.
//
// Angles are the same for all samples and heads. So a unit of work is a block of tokens of one
// sample, and the samples of a block follow each other. A thread makes a block's sines and cosines
// once. The first token's are made by libm in fp64, each next one by one more turn: four products a
// pair, whose rounding over BLOCK turns is far below fp32's. Blocks begin at fixed tokens, so the
// bits are the same for any number of threads. Rejected: tables made at compile time (they would be
// memory of every program, as large as the longest row wants). Rejected, too: libm for every token
// (half the time of the whole). A token's row may overwrite its operand: a pair is read before it
// is written.

#include <math.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/machine/machine.h"
#include "traind/rope.h"

// PAD: tables begin at cache lines at every CPU level, whose vectors are a line at most.
enum { BLOCK = 64, PAD = TD_LINE_BYTES / sizeof(float) };

struct rope {
    enum td_dtype type;
    const void *x;
    void *y;
    int64_t batch, tokens, heads, half; // half: pairs of a head
    int64_t first;                      // token
    const struct td_attrs *attrs;       // how angles grow
    bool reverse, interleaved;
    char *buffer;
    size_t buffer_bytes; // of a thread
};

// A thread's buffers.
struct buffers {
    double *cos, *sin;           // (half): of the token, while the table is made
    double *step_cos, *step_sin; // (half): of one turn
    float *table;                // (BLOCK, 2, half): cosines and sines
    float *row;                  // of a token, where it is not f32
};

static size_t half_up(const struct rope *a) {
    return td_align_up((size_t)a->half, PAD);
}

static size_t buffer_bytes(const struct rope *a) {
    size_t width = td_align_up((size_t)(a->heads * a->half * 2), PAD);
    return 4 * half_up(a) * sizeof(double) + (2 * BLOCK * half_up(a) + width) * sizeof(float);
}

static struct buffers thread_buffers(const struct rope *a) {
    size_t half = half_up(a);
    double *turns = (double *)(a->buffer + (size_t)td_parallel_index() * a->buffer_bytes);
    float *table = (float *)(turns + 4 * half);
    return (struct buffers){.cos = turns,
                            .sin = turns + half,
                            .step_cos = turns + 2 * half,
                            .step_sin = turns + 3 * half,
                            .table = table,
                            .row = table + 2 * BLOCK * half};
}

// ---- angles -------------------------------------------------------------------------------------
static void advance_angles(const struct buffers *r, int64_t half, float *cosines, float *sines) {
    double *c = r->cos, *s = r->sin;
    const double *dc = r->step_cos, *ds = r->step_sin;
    for (int64_t i = 0; i < half; i++) {
        double x = c[i], y = s[i];
        cosines[i] = (float)x;
        sines[i] = (float)y;
        c[i] = x * dc[i] - y * ds[i];
        s[i] = y * dc[i] + x * ds[i];
    }
}

static void make_table(const struct rope *a, int64_t token, int64_t n, const struct buffers *r) {
    for (int64_t i = 0; i < a->half; i++) {
        double step = td_rope_turn(a->attrs, i, a->half);
        if (a->reverse) step = -step;
        r->step_cos[i] = cos(step);
        r->step_sin[i] = sin(step);
        r->cos[i] = cos((double)(a->first + token) * step);
        r->sin[i] = sin((double)(a->first + token) * step);
    }
    for (int64_t t = 0; t < n; t++) {
        float *cosines = r->table + 2 * t * a->half;
        advance_angles(r, a->half, cosines, cosines + a->half);
    }
}

// ---- rows ---------------------------------------------------------------------------------------
static void rotate_halves(const float *x, const float *c, const float *s, int64_t heads,
                          int64_t half, float *y) {
    for (int64_t h = 0; h < heads; h++, x += 2 * half, y += 2 * half) {
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float first = x[i], second = x[i + half];
            y[i] = first * c[i] - second * s[i];
            y[i + half] = second * c[i] + first * s[i];
        }
    }
}

static void rotate_pairs(const float *x, const float *c, const float *s, int64_t heads,
                         int64_t half, float *y) {
    for (int64_t h = 0; h < heads; h++, x += 2 * half, y += 2 * half) {
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float first = x[2 * i], second = x[2 * i + 1];
            y[2 * i] = first * c[i] - second * s[i];
            y[2 * i + 1] = second * c[i] + first * s[i];
        }
    }
}

static void rope_units(const void *arg, int64_t begin, int64_t end) {
    const struct rope *a = arg;
    const int64_t width = a->heads * a->half * 2;
    int64_t made = -1; // the block whose angles are in the table
    const struct buffers r = thread_buffers(a);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t block = unit / a->batch, token = block * BLOCK;
        int64_t n = TD_MIN(a->tokens - token, (int64_t)BLOCK);
        int64_t at = (unit % a->batch * a->tokens + token) * width;
        if (made != block) make_table(a, token, n, &r);
        made = block;
        for (int64_t t = 0; t < n; t++, at += width) {
            const float *c = r.table + 2 * t * a->half;
            const float *x = td_cpu_row(a->type, a->x, at, width, r.row);
            float *y = td_cpu_result(a->type, a->y, at, r.row);
            if (a->interleaved) {
                rotate_pairs(x, c, c + a->half, a->heads, a->half, y);
            } else {
                rotate_halves(x, c, c + a->half, a->heads, a->half, y);
            }
            td_cpu_put(a->type, y, width, a->y, at);
        }
    }
}

// ---- the node -----------------------------------------------------------------------------------
static struct rope sizes_of(const struct td_kernel *k) {
    const int64_t *dim = k->shape[0].dim;
    struct rope a = {.type = k->in_dtype[0],
                     .batch = dim[0],
                     .tokens = dim[1],
                     .heads = dim[2],
                     .half = dim[3] / 2,
                     .first = k->attrs.start[0],
                     .attrs = &k->attrs,
                     .reverse = k->attrs.reverse,
                     .interleaved = k->attrs.interleaved};
    a.buffer_bytes = buffer_bytes(&a);
    return a;
}

static td_status run_rope(const struct td_kernel *k, const struct td_run *r) {
    struct rope a = sizes_of(k);
    a.x = td_operand_at(&k->in[0], r);
    a.y = td_operand_at(&k->out[0], r);
    a.buffer = r->scratch;
    if (!k->elems) return TD_OK;
    int64_t blocks = (a.tokens + BLOCK - 1) / BLOCK;
    td_parallel_units(k->n_threads, blocks * a.batch, k->elems, rope_units, &a);
    return TD_OK;
}

td_status td_kernel_rope(struct td_kernel *k) {
    if (!td_kernel_is(k, "rope") || !td_kernel_narrow(k)) return TD_OK;
    k->run = run_rope;
    k->scratch_bytes = sizes_of(k).buffer_bytes * (size_t)k->n_threads;
    return TD_OK;
}
