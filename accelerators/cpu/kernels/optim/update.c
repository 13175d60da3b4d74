// How an optimizer writes a parameter; contract in update.h.
//
// Where products read the parameter through packs, a pass goes strip by strip and packs each while
// it is in the cache (packs.h). The low-precision copy of a mixed precision is written here. Which
// packs these are is decided when the update runs: those that were read since they were made.

#include "accelerators/cpu/kernels/optim/update.h"

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/matmul/pack.h"
#include "accelerators/cpu/packs.h"
#include "lib/base/floats/half.h"
#include "traind/random.h"

enum { ROW = 512 };

struct strips {
    td_range_fn *fn;
    const void *arg, *param;
    int64_t unit;
    struct td_pack_target pack[TD_PACKS_OF_UPDATE];
    int n_packs;
};

static void strips_range(const void *arg, int64_t begin, int64_t end) {
    const struct strips *a = arg;
    const struct td_pack_shape *s = &a->pack[0].shape;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * TD_PACK_STRIP, past = TD_MIN(row + TD_PACK_STRIP, s->rows);
        a->fn(a->arg, row * s->cols / a->unit, past * s->cols / a->unit);
        for (int p = 0; p < a->n_packs; p++) {
            td_pack_strip(&a->pack[p].shape, a->param, i, a->pack[p].to);
        }
    }
}

void td_update_run(const struct td_kernel *k, const struct td_run *r, int64_t unit, int64_t grain,
                   td_range_fn *fn, const void *arg) {
    struct strips a = {.fn = fn, .arg = arg, .param = td_operand_at(&k->in[0], r), .unit = unit};
    if (!k->writes_pieces) a.n_packs = td_packs_update(r->packs, a.param, a.pack);
    if (a.n_packs) {
        int64_t n = (a.pack[0].shape.rows + TD_PACK_STRIP - 1) / TD_PACK_STRIP;
        td_parallel_units(k->n_threads, n, td_shape_elems(&k->shape[0]), strips_range, &a);
    } else {
        int64_t n = (td_shape_elems(&k->shape[0]) + unit - 1) / unit;
        td_parallel(k->n_threads, n, grain, fn, arg);
    }
}

void td_update_put(const struct td_kernel *k, const float *buffer, int64_t n, void *param,
                   int64_t at) {
    if (!k->attrs.optim.stochastic || k->in_dtype[0] != TD_BF16) {
        td_cpu_put(k->in_dtype[0], buffer, n, param, at);
        return;
    }
    uint16_t bits[ROW], *to = (uint16_t *)param + at;
    for (int64_t from = 0; from < n; from += ROW) {
        int64_t some = TD_MIN(n - from, (int64_t)ROW);
        td_random_bits16(k->random, k->attrs.stream, k->first + at + from, some, bits);
        for (int64_t i = 0; i < some; i++) {
            to[from + i] = td_bf16_of_f32_random(buffer[from + i], bits[i]);
        }
    }
}
