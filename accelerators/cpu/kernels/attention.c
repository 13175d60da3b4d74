// Attention, forward and backward, without a matrix of all scores. A unit of work is a group (one
// head of keys and values with the queries that read it), and units are split over the threads in
// static ranges. A thread copies its group's keys and values into dense rows once. Then it takes
// the queries QUERIES at a time: scores, softmax and the products around them stay in its cache.
// Blocks beyond the diagonal of a causal attention are never computed.
//
// Backward makes the scores again from the saved log-sum-exp L, as the reference does:
//   p = exp(s - L), dv += p do, ds = p (do.v - do.o),
//   dq = ds k, dk += ds q, the last two times the scale.
// dk and dv are sums over the group's queries, which are all this unit's: no atomics, and the same
// bits for any number of threads. fp32 arithmetic; narrow types are rounded once. Where weights are
// dropped, each query's mask is made from its key, forward and again backward.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/matmul/tile.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"
#include "traind/random.h"

enum { QUERIES = 32, WIDE = TD_TILE_N, AHEAD = 8 };

// Where a tensor's heads are: head h of token t of sample b is at b * sample + t * token + h *
// depth.
struct heads {
    char *base;
    int64_t sample, token; // elements
};

struct attention {
    enum td_dtype type;
    bool causal;
    float scale;
    int64_t batch, tokens, keys, n_heads, groups, depth;
    int64_t depth_up, keys_up; // padded to whole vectors
    int64_t row;               // of scores: keys_up, but no multiple of a kilobyte
    struct heads q, k, v, o, d_o, dq, dk, dv;
    float *lse; // (B,H,T)
    double drop;
    uint64_t stream;
    const uint32_t *random;
    float *buffer;
    size_t buffer_floats; // of one thread
};

// A thread's buffers; the first three are a group's, the others a block's of queries.
struct buffers {
    float *kt;      // keys transposed, in panels
    float *vt;      // values likewise (backward)
    float *k, *v;   // (keys, D): k in backward, v in forward
    float *dk, *dv; // (keys, D)
    float *q, *d_o; // (QUERIES, D)
    float *o;       // (QUERIES, D): result, or dq
    float *s, *dp;  // (QUERIES, keys)
    float *row;     // of one token, or of 16
    uint8_t *keep;  // mask of a query's keys
};

static float *cut(float **at, int64_t floats) {
    float *p = *at;
    *at += td_align_up((size_t)floats, WIDE);
    return p;
}

// Room of a thread whose floats begin at `at`; what backward alone needs is not there in forward.
// Returns where it ends.
static float *lay_out(const struct attention *a, bool backward, float *at, struct buffers *out) {
    int64_t keys = a->keys_up, depth = a->depth_up;
    int64_t panels = (int64_t)td_align_up((size_t)keys, TD_TILE_PANEL);
    struct buffers r = {.kt = cut(&at, a->depth * panels)};
    if (backward) {
        r.vt = cut(&at, a->depth * panels);
        r.k = cut(&at, keys * depth);
        r.dk = cut(&at, keys * depth);
        r.dv = cut(&at, keys * depth);
        r.d_o = cut(&at, QUERIES * depth);
        r.dp = cut(&at, QUERIES * a->row);
    } else {
        r.v = cut(&at, keys * depth);
    }
    r.q = cut(&at, QUERIES * depth);
    r.o = cut(&at, QUERIES * depth);
    r.s = cut(&at, QUERIES * a->row);
    r.row = cut(&at, WIDE * depth);
    r.keep = (uint8_t *)cut(&at, keys / (int64_t)sizeof(float));
    *out = r;
    return at;
}

// ---- copies in and out --------------------------------------------------------------------------
static int64_t place(const struct heads *h, int64_t b, int64_t t, int64_t head, int64_t depth) {
    return b * h->sample + t * h->token + head * depth;
}

// Tokens are a whole product's row apart: no prefetcher of the hardware follows that.
static void fetch(const void *row, int64_t elems) {
    for (int64_t i = 0; i < elems; i += WIDE) {
        __builtin_prefetch((const float *)row + i);
    }
}

// Rows t0 .. t0 + n of a head as dense fp32 rows, zero up to depth_up and up to n_up rows.
static void load(const struct attention *a, const struct heads *h, int64_t b, int64_t head,
                 int64_t t0, int64_t n, int64_t n_up, float *y) {
    for (int64_t i = 0; i < n_up; i++, y += a->depth_up) {
        int64_t have = i < n ? a->depth : 0;
        int64_t at = place(h, b, t0 + i, head, a->depth);
        if (have) fetch(td_cpu_at(a->type, h->base, at + AHEAD * h->token), have);
        if (have) td_cpu_widen(a->type, td_cpu_at(a->type, h->base, at), have, y);
        if (have < a->depth_up) memset(y + have, 0, (size_t)(a->depth_up - have) * sizeof *y);
    }
}

// All keys of a head, transposed, in panels of (D, 64) as td_tile reads them; zero beyond the last
// key.
static void load_transposed(const struct attention *a, const struct heads *h, int64_t b,
                            int64_t head, float *row, float *y) {
    for (int64_t t = 0; t < a->keys; t += WIDE) {
        int64_t n = TD_MIN(a->keys - t, (int64_t)WIDE);
        load(a, h, b, head, t, n, WIDE, row);
        float *panel = y + t / TD_TILE_PANEL * TD_TILE_PANEL * a->depth + t % TD_TILE_PANEL;
        td_tile_transpose(row, a->depth_up, WIDE, a->depth, panel, TD_TILE_PANEL);
    }
}

static void store(const struct attention *a, const struct heads *h, int64_t b, int64_t head,
                  int64_t t0, int64_t n, const float *x) {
    size_t step = td_dtype_bytes(a->type);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(h, b, t0 + i, head, a->depth);
        td_cpu_narrow(a->type, x + i * a->depth_up, a->depth, h->base + (size_t)at * step);
    }
}

// ---- a block of queries -------------------------------------------------------------------------
struct block {
    int64_t b, head, t0, n;
    int64_t keys;    // that any of its queries sees
    int64_t keys_up; // in whole vectors
};

static struct block block_at(const struct attention *a, int64_t b, int64_t head, int64_t t0) {
    struct block x = {
        .b = b, .head = head, .t0 = t0, .n = TD_MIN(a->tokens - t0, (int64_t)QUERIES)};
    x.keys = a->causal ? TD_MIN(a->keys, t0 + x.n) : a->keys;
    x.keys_up = (int64_t)td_align_up((size_t)x.keys, WIDE);
    return x;
}

// Keys that query i of the block sees.
static int64_t seen(const struct attention *a, const struct block *x, int64_t i) {
    return a->causal ? TD_MIN(a->keys, x->t0 + i + 1) : a->keys;
}

static int64_t rows_up(const struct block *x) {
    return (int64_t)td_align_up((size_t)x->n, TD_TILE_M);
}

// y (QUERIES, keys) = x (QUERIES, D) by keys or values, transposed.
static void times_transposed(const struct attention *a, const struct block *x, const float *rows,
                             const float *kt, float *y) {
    td_tile_product(&(struct td_tile){.m = rows_up(x),
                                      .n = x->keys_up,
                                      .k = a->depth,
                                      .a = rows,
                                      .a_row = a->depth_up,
                                      .a_col = 1,
                                      .b = kt,
                                      .b_row = TD_TILE_PANEL,
                                      .b_panel = TD_TILE_PANEL * a->depth,
                                      .c = y,
                                      .c_row = a->row});
}

// y (QUERIES, D) = p (QUERIES, keys) by keys or values.
static void times_values(const struct attention *a, const struct block *x, const float *p,
                         const float *v, float *y) {
    td_tile_product(&(struct td_tile){.m = rows_up(x),
                                      .n = a->depth_up,
                                      .k = x->keys,
                                      .a = p,
                                      .a_row = a->row,
                                      .a_col = 1,
                                      .b = v,
                                      .b_row = a->depth_up,
                                      .b_panel = TD_TILE_PANEL,
                                      .c = y,
                                      .c_row = a->depth_up});
}

// y (keys, D) += p' by rows (QUERIES, D).
static void add_transposed_times(const struct attention *a, const struct block *x, const float *p,
                                 const float *rows, float *y) {
    td_tile_product(&(struct td_tile){.m = x->keys_up,
                                      .n = a->depth_up,
                                      .k = x->n,
                                      .a = p,
                                      .a_row = 1,
                                      .a_col = a->row,
                                      .b = rows,
                                      .b_row = a->depth_up,
                                      .b_panel = TD_TILE_PANEL,
                                      .c = y,
                                      .c_row = a->depth_up,
                                      .add = true});
}

// ---- forward ------------------------------------------------------------------------------------
// s becomes exp(scale s - top) over n keys, zero up to n_up. Gives the sum and the log-sum-exp.
static void exp_row(float *s, int64_t n, int64_t n_up, float scale, float *out_sum,
                    float *out_lse) {
    float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        top = s[i] > top ? s[i] : top;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = vm_exp((s[i] - top) * scale);
        s[i] = e;
        sum += e;
    }
    for (int64_t i = n; i < n_up; i++) {
        s[i] = 0;
    }
    *out_sum = sum;
    *out_lse = top * scale + logf(sum);
}

// Query i's mask of the keys that it sees.
static void make_mask(const struct attention *a, const struct buffers *r, const struct block *x,
                      int64_t i) {
    int64_t keys = (int64_t)td_align_up((size_t)a->keys, 4);
    int64_t first = (x->head * a->tokens + x->t0 + i) * keys;
    td_random_keep_from(a->random, a->stream, a->drop, x->b, first, seen(a, x, i), r->keep);
}

static void mask_row(float *s, const uint8_t *keep, int64_t n, float by) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        s[i] = keep[i] ? s[i] * by : 0;
    }
}

// The mask that was made last.
static void apply_mask(const struct attention *a, const struct buffers *r, const struct block *x,
                       int64_t i, float *s) {
    mask_row(s, r->keep, seen(a, x, i), (float)(1 / (1 - a->drop)));
}

static void scale_row(float *x, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++) {
        x[i] *= by;
    }
}

static void forward_block(const struct attention *a, const struct buffers *r,
                          const struct block *x) {
    float sum[QUERIES];
    load(a, &a->q, x->b, x->head, x->t0, x->n, rows_up(x), r->q);
    times_transposed(a, x, r->q, r->kt, r->s);
    for (int64_t i = 0; i < x->n; i++) {
        float *lse = &a->lse[(x->b * a->n_heads + x->head) * a->tokens + x->t0 + i];
        exp_row(r->s + i * a->row, seen(a, x, i), x->keys_up, a->scale, &sum[i], lse);
        if (a->drop == 0) continue;
        make_mask(a, r, x, i);
        apply_mask(a, r, x, i, r->s + i * a->row);
    }
    times_values(a, x, r->s, r->v, r->o);
    for (int64_t i = 0; i < x->n; i++) {
        scale_row(r->o + i * a->depth_up, a->depth, 1 / sum[i]);
    }
    store(a, &a->o, x->b, x->head, x->t0, x->n, r->o);
}

static void forward_units(const void *arg, int64_t begin, int64_t end) {
    const struct attention *a = arg;
    struct buffers r;
    (void)lay_out(a, false, a->buffer + (size_t)td_parallel_index() * a->buffer_floats, &r);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / a->groups, group = unit % a->groups, each = a->n_heads / a->groups;
        load_transposed(a, &a->k, b, group, r.row, r.kt);
        load(a, &a->v, b, group, 0, a->keys, a->keys_up, r.v);
        for (int64_t head = group * each; head < (group + 1) * each; head++) {
            for (int64_t t0 = 0; t0 < a->tokens; t0 += QUERIES) {
                struct block x = block_at(a, b, head, t0);
                forward_block(a, &r, &x);
            }
        }
    }
}

// ---- backward -----------------------------------------------------------------------------------
// From scores s and dp = do v': s becomes p, dp becomes ds, both zero beyond n.
static void softmax_row_grad(float *s, float *dp, int64_t n, int64_t n_up, float scale, float lse,
                             float delta) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float p = vm_exp(s[i] * scale - lse);
        s[i] = p;
        dp[i] = p * (dp[i] - delta) * scale;
    }
    for (int64_t i = n; i < n_up; i++) {
        s[i] = 0;
        dp[i] = 0;
    }
}

static float dot(const float *a, const float *b, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void backward_block(const struct attention *a, const struct buffers *r,
                           const struct block *x) {
    load(a, &a->q, x->b, x->head, x->t0, x->n, rows_up(x), r->q);
    load(a, &a->d_o, x->b, x->head, x->t0, x->n, rows_up(x), r->d_o);
    load(a, &a->o, x->b, x->head, x->t0, x->n, rows_up(x), r->o);
    times_transposed(a, x, r->q, r->kt, r->s);
    times_transposed(a, x, r->d_o, r->vt, r->dp);
    const float *lse = &a->lse[(x->b * a->n_heads + x->head) * a->tokens + x->t0];
    for (int64_t i = 0; i < x->n; i++) {
        float delta = dot(r->o + i * a->depth_up, r->d_o + i * a->depth_up, a->depth);
        float *s = r->s + i * a->row, *dp = r->dp + i * a->row;
        if (a->drop != 0) {
            make_mask(a, r, x, i);
            apply_mask(a, r, x, i, dp);
        }
        softmax_row_grad(s, dp, seen(a, x, i), x->keys_up, a->scale, lse[i], delta);
        if (a->drop != 0) apply_mask(a, r, x, i, s);
    }
    add_transposed_times(a, x, r->s, r->d_o, r->dv);
    add_transposed_times(a, x, r->dp, r->q, r->dk);
    times_values(a, x, r->dp, r->k, r->o);
    store(a, &a->dq, x->b, x->head, x->t0, x->n, r->o);
}

static void backward_units(const void *arg, int64_t begin, int64_t end) {
    const struct attention *a = arg;
    struct buffers r;
    (void)lay_out(a, true, a->buffer + (size_t)td_parallel_index() * a->buffer_floats, &r);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / a->groups, group = unit % a->groups, each = a->n_heads / a->groups;
        size_t bytes = (size_t)(a->keys_up * a->depth_up) * sizeof(float);
        load_transposed(a, &a->k, b, group, r.row, r.kt);
        load_transposed(a, &a->v, b, group, r.row, r.vt);
        load(a, &a->k, b, group, 0, a->keys, a->keys_up, r.k);
        memset(r.dk, 0, bytes);
        memset(r.dv, 0, bytes);
        for (int64_t head = group * each; head < (group + 1) * each; head++) {
            for (int64_t t0 = 0; t0 < a->tokens; t0 += QUERIES) {
                struct block x = block_at(a, b, head, t0);
                backward_block(a, &r, &x);
            }
        }
        store(a, &a->dk, b, group, 0, a->keys, r.dk);
        store(a, &a->dv, b, group, 0, a->keys, r.dv);
    }
}

// ---- nodes --------------------------------------------------------------------------------------
static bool of_one_product(const struct td_kernel *k) {
    return td_kernel_is(k, "self_attention") || td_kernel_is(k, "self_attention_grad");
}

static bool is_backward(const struct td_kernel *k) {
    return td_kernel_is(k, "attention_grad") || td_kernel_is(k, "self_attention_grad");
}

// All that does not depend on where things are.
static struct attention sizes_of(const struct td_kernel *k) {
    bool one = of_one_product(k);
    const struct td_shape *q = &k->shape[0], *keys = &k->shape[one ? 0 : 1];
    struct attention a = {.type = k->in_dtype[0],
                          .causal = k->attrs.causal,
                          .drop = k->attrs.drop,
                          .stream = k->attrs.stream,
                          .random = k->random,
                          .batch = q->dim[0],
                          .tokens = q->dim[1],
                          .keys = keys->dim[1],
                          .n_heads = q->dim[2] - (one ? 2 * k->attrs.groups : 0),
                          .groups = one ? k->attrs.groups : keys->dim[2],
                          .depth = q->dim[3]};
    a.depth_up = (int64_t)td_align_up((size_t)a.depth, WIDE);
    a.keys_up = (int64_t)td_align_up((size_t)a.keys, WIDE);
    a.row = a.keys_up + (a.keys_up % 256 ? 0 : WIDE);
    a.scale = k->attrs.scale != 0 ? (float)k->attrs.scale : 1 / sqrtf((float)a.depth);
    struct buffers none;
    a.buffer_floats = (size_t)(lay_out(&a, is_backward(k), a.buffer, &none) - a.buffer);
    return a;
}

static struct heads heads_in(const struct attention *a, void *base, int64_t first_head,
                             int64_t n_heads, int64_t tokens) {
    int64_t token = n_heads * a->depth;
    return (struct heads){
        .base = (char *)base + first_head * a->depth * (int64_t)td_dtype_bytes(a->type),
        .sample = tokens * token,
        .token = token,
    };
}

// q, k, v (or their gradients): three tensors, or three parts of the first.
static void find_parts(const struct attention *a, bool one, void *const at[3], struct heads *q,
                       struct heads *k, struct heads *v) {
    int64_t all = a->n_heads + 2 * a->groups;
    *q = heads_in(a, at[0], 0, one ? all : a->n_heads, a->tokens);
    *k = heads_in(a, at[one ? 0 : 1], one ? a->n_heads : 0, one ? all : a->groups, a->keys);
    *v = heads_in(a, at[one ? 0 : 2], one ? a->n_heads + a->groups : 0, one ? all : a->groups,
                  a->keys);
}

// Two products of each query with each key.
static int64_t work_of(const struct attention *a) {
    return td_parallel_products(2 * a->batch * a->n_heads, a->tokens * a->keys, a->depth);
}

static td_status run_attention(const struct td_kernel *k, const struct td_run *r) {
    struct attention a = sizes_of(k);
    bool one = of_one_product(k);
    void *at[3] = {0};
    for (int i = 0; i < (one ? 1 : 3); i++) {
        at[i] = td_operand_at(&k->in[i], r);
    }
    find_parts(&a, one, at, &a.q, &a.k, &a.v);
    a.buffer = r->scratch;
    const struct td_operand *o = is_backward(k) ? &k->in[k->n_in - 3] : &k->out[0];
    a.o = heads_in(&a, td_operand_at(o, r), 0, a.n_heads, a.tokens);
    a.lse = td_operand_at(is_backward(k) ? &k->in[k->n_in - 2] : &k->out[1], r);
    if (!is_backward(k)) {
        td_parallel_units(k->n_threads, a.batch * a.groups, work_of(&a), forward_units, &a);
        return TD_OK;
    }
    for (uint32_t i = 0; i < k->n_out; i++) {
        at[i] = td_operand_at(&k->out[i], r);
    }
    find_parts(&a, one, at, &a.dq, &a.dk, &a.dv);
    a.d_o = heads_in(&a, td_operand_at(&k->in[k->n_in - 1], r), 0, a.n_heads, a.tokens);
    td_parallel_units(k->n_threads, a.batch * a.groups, work_of(&a), backward_units, &a);
    return TD_OK;
}

// One narrow type, but for the log-sum-exp, which is f32.
static bool types_fit(const struct td_kernel *k) {
    enum td_dtype t = k->in_dtype[0];
    bool fits = td_cpu_is_narrow(t);
    for (uint32_t i = 0; i < k->n_in; i++) {
        bool lse = is_backward(k) && i == k->n_in - 2;
        fits &= k->in_dtype[i] == (lse ? TD_F32 : t);
    }
    return fits;
}

td_status td_kernel_attention(struct td_kernel *k) {
    bool ours = is_backward(k) || of_one_product(k) || td_kernel_is(k, "attention");
    if (!ours || !types_fit(k)) return TD_OK;
    k->run = run_attention;
    k->scratch_bytes = sizes_of(k).buffer_floats * sizeof(float) * (size_t)k->n_threads;
    return TD_OK;
}
