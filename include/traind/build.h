#ifndef TRAIND_BUILD_H
#define TRAIND_BUILD_H

// Builders: one typed call for each op that a module may record, over td_graph_op of graph.h.
//
//   TD_TRY(td_build_conv2d(g, x, weight, bias, &options, &y));
//
// A call appends one node. Its line says what the result is, by shape; ops.def has the formulas.
// Operands that may be left out are 0; options may be NULL, which is the plain form, and zero in
// an option is always the plain value. Letters: B batch, T tokens, H heads, D width of a head, C
// channels or classes, N any number. `...` is any shape.
//
// The functions are compiled into the caller, so their options are no part of the plugin ABI.
// Thread: that of the graph. Ownership: nothing is kept but a copy of constants.
// Errors: INVALID_ARGUMENT names op and shapes; the output is written only on success, and a graph
// whose recording failed is only good to destroy.

#include <string.h>

#include "traind/graph.h"
#include "traind/op.h"
#include "traind/random.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline struct td_attrs td_build_no_attrs(void) {
    struct td_attrs a;
    memset(&a, 0, sizeof a);
    return a;
}

// One node whose first result is asked for; the others are autodiff's.
TD_MUST_USE static inline td_status td_build_node(struct td_graph *g, enum td_op op,
                                                  const td_value *in, uint32_t n_in,
                                                  const struct td_attrs *attrs, td_value *out) {
    td_value results[TD_MAX_OUT] = {0, 0, 0};
    TD_TRY(td_graph_op(g, op, in, n_in, attrs, results));
    *out = results[0];
    return TD_OK;
}

// ---- elementwise --------------------------------------------------------------------------------
// x (...) -> y (...), element by element.
#define TD_BUILD_UNARY(name, OP)                                                                   \
    TD_MUST_USE static inline td_status td_build_##name(struct td_graph *g, td_value x,            \
                                                        td_value *out_y) {                         \
        return td_build_node(g, TD_OP_##OP, &x, 1, NULL, out_y);                                   \
    }
TD_BUILD_UNARY(relu, RELU)       // max(x, 0)
TD_BUILD_UNARY(silu, SILU)       // x sigmoid(x)
TD_BUILD_UNARY(sigmoid, SIGMOID) // 1 / (1 + exp(-x))
TD_BUILD_UNARY(tanh, TANH)
TD_BUILD_UNARY(exp, EXP)
TD_BUILD_UNARY(log, LOG)
TD_BUILD_UNARY(sqrt, SQRT)
// Over the last axis, x (..., C) -> y (..., C).
TD_BUILD_UNARY(softmax, SOFTMAX)
TD_BUILD_UNARY(log_softmax, LOG_SOFTMAX)
// x (...) -> scalar; of nothing: 0.
TD_BUILD_UNARY(mean, MEAN)
#undef TD_BUILD_UNARY

// a, b -> y of the shape that NumPy's broadcasting gives.
#define TD_BUILD_BINARY(name, OP)                                                                  \
    TD_MUST_USE static inline td_status td_build_##name(struct td_graph *g, td_value a,            \
                                                        td_value b, td_value *out_y) {             \
        const td_value in[2] = {a, b};                                                             \
        return td_build_node(g, TD_OP_##OP, in, 2, NULL, out_y);                                   \
    }
TD_BUILD_BINARY(add, ADD)
TD_BUILD_BINARY(mul, MUL)
TD_BUILD_BINARY(sub, SUB)
TD_BUILD_BINARY(div, DIV)
// x (...), s scalar -> x times s.
TD_BUILD_BINARY(scale, SCALE)
// Losses, both scalars: of x and target alike, mean of squares of the difference; of logits and
// targets from 0 to 1, mean binary cross entropy.
TD_BUILD_BINARY(mse, MSE)
TD_BUILD_BINARY(bce, BCE)
#undef TD_BUILD_BINARY

// x (...) -> x where it is above 0, else slope x; slope: at least 0.
TD_MUST_USE static inline td_status td_build_leaky_relu(struct td_graph *g, td_value x,
                                                        double slope, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.scale = slope;
    return td_build_node(g, TD_OP_LEAKY_RELU, &x, 1, &a, out_y);
}

// x (...) -> x Phi(x); by_tanh: by GPT-2's formula.
TD_MUST_USE static inline td_status td_build_gelu(struct td_graph *g, td_value x, bool by_tanh,
                                                  td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.gelu_tanh = by_tanh;
    return td_build_node(g, TD_OP_GELU, &x, 1, &a, out_y);
}

// x (...) -> limited to [-limit, limit]. No gradient.
TD_MUST_USE static inline td_status td_build_clamp(struct td_graph *g, td_value x, double limit,
                                                   td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.scale = limit;
    return td_build_node(g, TD_OP_CLAMP, &x, 1, &a, out_y);
}

// a, b -> bool of the broadcast shape. No gradient.
TD_MUST_USE static inline td_status td_build_compare(struct td_graph *g, enum td_compare how,
                                                     td_value a, td_value b, td_value *out_y) {
    const td_value in[2] = {a, b};
    struct td_attrs attrs = td_build_no_attrs();
    attrs.compare = how;
    return td_build_node(g, TD_OP_COMPARE, in, 2, &attrs, out_y);
}

// condition bool, a, b -> a where it holds, else b, of the broadcast shape.
TD_MUST_USE static inline td_status td_build_select(struct td_graph *g, td_value condition,
                                                    td_value a, td_value b, td_value *out_y) {
    const td_value in[3] = {condition, a, b};
    return td_build_node(g, TD_OP_SELECT, in, 3, NULL, out_y);
}

// x (...) -> the same in another type, times `factor` (0: 1); pixels become numbers by 1.0 / 255.
TD_MUST_USE static inline td_status
td_build_cast(struct td_graph *g, td_value x, enum td_dtype dtype, double factor, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.dtype = dtype;
    a.scale = factor;
    return td_build_node(g, TD_OP_CAST, &x, 1, &a, out_y);
}

// ---- products -----------------------------------------------------------------------------------
struct td_matmul_options {
    bool trans_a, trans_b;
};
// a (..., K), b (K, N)[, bias (N)] -> (..., N). trans_b: b is (N, K), as torch.nn.Linear's weight;
// trans_a: a is (K, M).
TD_MUST_USE static inline td_status td_build_matmul(struct td_graph *g, td_value a, td_value b,
                                                    td_value bias,
                                                    const struct td_matmul_options *options,
                                                    td_value *out_y) {
    const td_value in[3] = {a, b, bias};
    struct td_attrs attrs = td_build_no_attrs();
    attrs.trans_a = options && options->trans_a;
    attrs.trans_b = options && options->trans_b;
    return td_build_node(g, TD_OP_MATMUL, in, bias ? 3 : 2, &attrs, out_y);
}

// Plain values in full, and the kernel of a convolution's weight: a graph is the same text whether
// its author wrote a 1 or left it out.
static inline void td_build_whole_window(struct td_window_attrs *w) {
    for (int i = 0; i < 2; i++) {
        w->stride[i] = td_window_at_least_one(w->stride[i]);
        w->dilation[i] = td_window_at_least_one(w->dilation[i]);
    }
    w->groups = td_window_at_least_one(w->groups);
}
static inline void td_build_weight_window(const struct td_graph *g, td_value weight,
                                          struct td_window_attrs *w) {
    td_build_whole_window(w);
    if (weight < 1 || weight > td_graph_n_values(g)) return; // which td_graph_op refuses
    const struct td_shape *shape = &td_graph_value(g, weight)->shape;
    for (int i = 0; i < 2 && shape->n_dims == 4; i++) {
        w->kernel[i] = (int32_t)shape->dim[2 + i];
    }
}

// (height, width); 0 stands for 1, but for pad.
struct td_conv2d_options {
    int32_t stride[2], pad[2], dilation[2], groups;
};
// x (B, C, H, W), w (O, C/groups, kh, kw)[, bias (O)] -> (B, O, H', W').
TD_MUST_USE static inline td_status td_build_conv2d(struct td_graph *g, td_value x, td_value w,
                                                    td_value bias,
                                                    const struct td_conv2d_options *options,
                                                    td_value *out_y) {
    const td_value in[3] = {x, w, bias};
    struct td_attrs a = td_build_no_attrs();
    if (options) {
        memcpy(a.window.stride, options->stride, sizeof a.window.stride);
        memcpy(a.window.pad, options->pad, sizeof a.window.pad);
        memcpy(a.window.dilation, options->dilation, sizeof a.window.dilation);
        a.window.groups = options->groups;
    }
    td_build_weight_window(g, w, &a.window);
    return td_build_node(g, TD_OP_CONV2D, in, bias ? 3 : 2, &a, out_y);
}

// (height, width); 0 stands for 1, but for pad. At most 256 elements, pad at most half of kernel.
struct td_pool_options {
    int32_t kernel[2], stride[2], pad[2];
};
static inline struct td_attrs td_build_pool_attrs(const struct td_pool_options *options) {
    struct td_attrs a = td_build_no_attrs();
    memcpy(a.window.kernel, options->kernel, sizeof a.window.kernel);
    memcpy(a.window.stride, options->stride, sizeof a.window.stride);
    memcpy(a.window.pad, options->pad, sizeof a.window.pad);
    td_build_whole_window(&a.window);
    return a;
}
// x (B, C, H, W) -> (B, C, H', W'), the greatest of each window. Options are required.
TD_MUST_USE static inline td_status td_build_max_pool(struct td_graph *g, td_value x,
                                                      const struct td_pool_options *options,
                                                      td_value *out_y) {
    const struct td_attrs a = td_build_pool_attrs(options);
    return td_build_node(g, TD_OP_MAX_POOL, &x, 1, &a, out_y);
}
// The same by the mean of each window, padding counted as zeroes.
TD_MUST_USE static inline td_status td_build_avg_pool(struct td_graph *g, td_value x,
                                                      const struct td_pool_options *options,
                                                      td_value *out_y) {
    const struct td_attrs a = td_build_pool_attrs(options);
    return td_build_node(g, TD_OP_AVG_POOL, &x, 1, &a, out_y);
}

// table (N, C), ids i32 (...) -> (..., C): row ids[...] of the table.
TD_MUST_USE static inline td_status td_build_embedding(struct td_graph *g, td_value table,
                                                       td_value ids, td_value *out_y) {
    const td_value in[2] = {table, ids};
    return td_build_node(g, TD_OP_EMBEDDING, in, 2, NULL, out_y);
}

// ---- attention ----------------------------------------------------------------------------------
struct td_attention_options {
    double scale;     // of the scores; 0: 1 / sqrt(D)
    bool causal;      // a token sees itself and those before it
    double drop;      // share of the weights that are zeroed, in train mode; needs a name
    const char *name; // of the layer ("h.0.attn"): keys its random numbers
};
static inline struct td_attrs td_build_attention_attrs(const struct td_graph *g,
                                                       const struct td_attention_options *options) {
    struct td_attrs a = td_build_no_attrs();
    if (!options) return a;
    a.scale = options->scale;
    a.causal = options->causal;
    if (td_graph_mode(g) != TD_MODE_TRAIN || options->drop == 0) return a;
    a.drop = options->drop;
    if (options->name) a.stream = td_stream_of(options->name);
    return a;
}
// Without a name two layers would drop the same weights.
TD_MUST_USE static inline td_status
td_build_check_attention(const struct td_attention_options *options) {
    if (!options || options->drop == 0 || options->name) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "attention with drop needs a name in its options: that of "
                                        "the layer, which keys its random numbers");
}
// q (B, T, H, D), k and v (B, S, G, D), H a multiple of G -> (B, T, H, D).
TD_MUST_USE static inline td_status td_build_attention(struct td_graph *g, td_value q, td_value k,
                                                       td_value v,
                                                       const struct td_attention_options *options,
                                                       td_value *out_y) {
    const td_value in[3] = {q, k, v};
    const struct td_attrs a = td_build_attention_attrs(g, options);
    TD_TRY(td_build_check_attention(options));
    return td_build_node(g, TD_OP_ATTENTION, in, 3, &a, out_y);
}
// qkv (B, T, H + 2 groups, D), queries, keys and values side by side -> (B, T, H, D).
TD_MUST_USE static inline td_status
td_build_self_attention(struct td_graph *g, td_value qkv, int32_t groups,
                        const struct td_attention_options *options, td_value *out_y) {
    struct td_attrs a = td_build_attention_attrs(g, options);
    TD_TRY(td_build_check_attention(options));
    a.groups = groups;
    return td_build_node(g, TD_OP_SELF_ATTENTION, &qkv, 1, &a, out_y);
}

struct td_rope_options {
    double base;                    // of the angles; 0: 10000
    bool interleaved;               // pairs (2i, 2i + 1) instead of halves
    int64_t first_token;            // of x's token 0
    struct td_rope_scaling scaling; // factor 0: none
};
// x (B, T, H, D), D even -> x, each pair rotated by its token.
TD_MUST_USE static inline td_status td_build_rope(struct td_graph *g, td_value x,
                                                  const struct td_rope_options *options,
                                                  td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    if (options) {
        a.base = options->base;
        a.interleaved = options->interleaved;
        a.start[0] = options->first_token;
        a.rope = options->scaling;
    }
    return td_build_node(g, TD_OP_ROPE, &x, 1, &a, out_y);
}

// ---- norms and dropout --------------------------------------------------------------------------
// x (..., C), gamma (C)[, beta (C)] -> (..., C), over the last axis.
TD_MUST_USE static inline td_status td_build_layer_norm(struct td_graph *g, td_value x,
                                                        td_value gamma, td_value beta, double eps,
                                                        td_value *out_y) {
    const td_value in[3] = {x, gamma, beta};
    struct td_attrs a = td_build_no_attrs();
    a.eps = eps;
    return td_build_node(g, TD_OP_LAYER_NORM, in, beta ? 3 : 2, &a, out_y);
}
// The same without a mean and beta.
TD_MUST_USE static inline td_status td_build_rms_norm(struct td_graph *g, td_value x,
                                                      td_value gamma, double eps, td_value *out_y) {
    const td_value in[2] = {x, gamma};
    struct td_attrs a = td_build_no_attrs();
    a.eps = eps;
    return td_build_node(g, TD_OP_RMS_NORM, in, 2, &a, out_y);
}

// x (...) -> its sum over all ranks, x itself where there is one. With a gradient: the sum over all
// ranks of dy. All ranks record the same, and so do their programs of each batch size that ranks
// may have at one batch; else the job is refused when it is planned. A rank without samples of an
// evaluation's batch adds what it computes from zeros.
TD_MUST_USE static inline td_status td_build_rank_sum(struct td_graph *g, td_value x,
                                                      td_value *out_y) {
    return td_build_node(g, TD_OP_RANK_SUM, &x, 1, NULL, out_y);
}

// Of one channel each: gamma and beta are parameters, mean and var buffers (C).
struct td_batch_norm_state {
    td_value gamma, beta, mean, var;
};
// x (B, C, ...) -> the same, by the batch's statistics; mean and var move towards them by momentum.
TD_MUST_USE static inline td_status td_build_batch_norm(struct td_graph *g, td_value x,
                                                        const struct td_batch_norm_state *s,
                                                        double eps, double momentum,
                                                        td_value *out_y) {
    const td_value in[5] = {x, s->gamma, s->beta, s->mean, s->var};
    struct td_attrs a = td_build_no_attrs();
    a.eps = eps;
    a.momentum = momentum;
    return td_build_node(g, TD_OP_BATCH_NORM, in, 5, &a, out_y);
}
// The same by mean and var, for modes that do not train. No gradient.
TD_MUST_USE static inline td_status td_build_batch_norm_eval(struct td_graph *g, td_value x,
                                                             const struct td_batch_norm_state *s,
                                                             double eps, td_value *out_y) {
    const td_value in[5] = {x, s->gamma, s->beta, s->mean, s->var};
    struct td_attrs a = td_build_no_attrs();
    a.eps = eps;
    return td_build_node(g, TD_OP_BATCH_NORM_EVAL, in, 5, &a, out_y);
}

// x (B, ...) -> zeroes with probability `drop`, the rest divided by 1 - drop; x itself where the
// graph is not of train mode. name: of the layer in the module, keys its random numbers.
TD_MUST_USE static inline td_status
td_build_dropout(struct td_graph *g, td_value x, const char *name, double drop, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.drop = drop;
    a.stream = td_stream_of(name);
    if (td_graph_mode(g) == TD_MODE_TRAIN && drop != 0) {
        return td_build_node(g, TD_OP_DROPOUT, &x, 1, &a, out_y);
    }
    *out_y = x;
    return TD_OK;
}

// ---- shapes -------------------------------------------------------------------------------------
// x (...) -> the same elements as `shape`.
TD_MUST_USE static inline td_status
td_build_reshape(struct td_graph *g, td_value x, const struct td_shape *shape, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.shape = *shape;
    return td_build_node(g, TD_OP_RESHAPE, &x, 1, &a, out_y);
}
// Axis i of the result is axis perm[i] of x, for each of its n_dims.
TD_MUST_USE static inline td_status td_build_transpose(struct td_graph *g, td_value x,
                                                       const int32_t *perm, int32_t n_dims,
                                                       td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    for (int32_t i = 0; i < n_dims && i < TD_MAX_DIMS; i++) {
        a.perm[i] = perm[i];
    }
    return td_build_node(g, TD_OP_TRANSPOSE, &x, 1, &a, out_y);
}
// x[0..n), alike but along axis -> side by side along it.
TD_MUST_USE static inline td_status td_build_concat(struct td_graph *g, const td_value *x,
                                                    uint32_t n, int32_t axis, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.axis = axis;
    return td_build_node(g, TD_OP_CONCAT, x, n, &a, out_y);
}
static inline struct td_attrs td_build_place_attrs(const int64_t *start,
                                                   const struct td_shape *shape) {
    struct td_attrs a = td_build_no_attrs();
    a.shape = *shape;
    for (int32_t i = 0; i < shape->n_dims && i < TD_MAX_DIMS; i++) {
        a.start[i] = start[i];
    }
    return a;
}
// The part of `shape` that begins at start (an element each dimension).
TD_MUST_USE static inline td_status td_build_slice(struct td_graph *g, td_value x,
                                                   const int64_t *start,
                                                   const struct td_shape *shape, td_value *out_y) {
    const struct td_attrs a = td_build_place_attrs(start, shape);
    return td_build_node(g, TD_OP_SLICE, &x, 1, &a, out_y);
}
// `shape` with x at start and `fill` everywhere else.
TD_MUST_USE static inline td_status td_build_pad(struct td_graph *g, td_value x,
                                                 const int64_t *start, const struct td_shape *shape,
                                                 double fill, td_value *out_y) {
    struct td_attrs a = td_build_place_attrs(start, shape);
    a.scale = fill;
    return td_build_node(g, TD_OP_PAD, &x, 1, &a, out_y);
}
// index i32, of x's shape but along axis -> of index's shape, the elements that it names there.
TD_MUST_USE static inline td_status td_build_gather(struct td_graph *g, td_value x, td_value index,
                                                    int32_t axis, td_value *out_y) {
    const td_value in[2] = {x, index};
    struct td_attrs a = td_build_no_attrs();
    a.axis = axis;
    return td_build_node(g, TD_OP_GATHER, in, 2, &a, out_y);
}

// ---- reductions ---------------------------------------------------------------------------------
// x -> shape, which broadcasts to x's: over leading dimensions, and over those that are 1 there.
#define TD_BUILD_REDUCE(name, OP)                                                                  \
    TD_MUST_USE static inline td_status td_build_##name(                                           \
        struct td_graph *g, td_value x, const struct td_shape *shape, td_value *out_y) {           \
        struct td_attrs a = td_build_no_attrs();                                                   \
        a.shape = *shape;                                                                          \
        return td_build_node(g, TD_OP_##OP, &x, 1, &a, out_y);                                     \
    }
TD_BUILD_REDUCE(reduce_sum, REDUCE_SUM)
TD_BUILD_REDUCE(reduce_mean, REDUCE_MEAN)
TD_BUILD_REDUCE(reduce_max, REDUCE_MAX)
#undef TD_BUILD_REDUCE

// x[0..n) (...) -> scalar: the sum of all squares, in the order of the operands.
TD_MUST_USE static inline td_status td_build_sum_squares(struct td_graph *g, const td_value *x,
                                                         uint32_t n, td_value *out_y) {
    return td_build_node(g, TD_OP_SUM_SQUARES, x, n, NULL, out_y);
}
// x[0..n) (...) -> scalar f32: 1 if every element is finite, else 0. No gradient.
TD_MUST_USE static inline td_status td_build_all_finite(struct td_graph *g, const td_value *x,
                                                        uint32_t n, td_value *out_y) {
    return td_build_node(g, TD_OP_ALL_FINITE, x, n, NULL, out_y);
}

// ---- losses and counts --------------------------------------------------------------------------
struct td_labels_options {
    bool ignores; // labels that are ignore_index do not count
    int32_t ignore_index;
    double smoothing; // of softmax_ce: share of the target that is spread over all classes
};
static inline struct td_attrs td_build_label_attrs(const struct td_labels_options *options) {
    struct td_attrs a = td_build_no_attrs();
    if (!options) return a;
    a.ignores = options->ignores;
    a.ignore_index = options->ignore_index;
    return a;
}
// logits (B, C), labels i32 (B)[, weights (C)] -> scalar: mean cross entropy, by the weights of the
// labels that count.
TD_MUST_USE static inline td_status td_build_softmax_ce(struct td_graph *g, td_value logits,
                                                        td_value labels, td_value weights,
                                                        const struct td_labels_options *options,
                                                        td_value *out_loss) {
    const td_value in[3] = {logits, labels, weights};
    struct td_attrs a = td_build_label_attrs(options);
    a.label_smoothing = options ? options->smoothing : 0;
    return td_build_node(g, TD_OP_SOFTMAX_CE, in, weights ? 3 : 2, &a, out_loss);
}
// logits (B, C), labels i32 (B) -> scalar f32: rows whose greatest logit is the label's. With float
// targets of the logits' shape: logits above 0 where the target is above 0.5, and nowhere else. No
// gradient.
TD_MUST_USE static inline td_status td_build_count_correct(struct td_graph *g, td_value logits,
                                                           td_value labels,
                                                           const struct td_labels_options *options,
                                                           td_value *out_n) {
    const td_value in[2] = {logits, labels};
    const struct td_attrs a = td_build_label_attrs(options);
    return td_build_node(g, TD_OP_COUNT_CORRECT, in, 2, &a, out_n);
}
// labels i32 (B)[, weights (C)] -> scalar: how many count, or their weights. No gradient.
TD_MUST_USE static inline td_status td_build_count_labels(struct td_graph *g, td_value labels,
                                                          td_value weights,
                                                          const struct td_labels_options *options,
                                                          td_value *out_n) {
    const td_value in[2] = {labels, weights};
    const struct td_attrs a = td_build_label_attrs(options);
    return td_build_node(g, TD_OP_COUNT_LABELS, in, weights ? 2 : 1, &a, out_n);
}

// ---- constants and state ------------------------------------------------------------------------
// -> `shape` of dtype, every element `value`.
TD_MUST_USE static inline td_status td_build_fill(struct td_graph *g, enum td_dtype dtype,
                                                  const struct td_shape *shape, double value,
                                                  td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.dtype = dtype;
    a.shape = *shape;
    a.scale = value;
    return td_build_node(g, TD_OP_FILL, NULL, 0, &a, out_y);
}
// -> `shape` of dtype, the elements values[0..its elements), which are copied.
TD_MUST_USE static inline td_status td_build_constant(struct td_graph *g, enum td_dtype dtype,
                                                      const struct td_shape *shape,
                                                      const double *values, td_value *out_y) {
    struct td_attrs a = td_build_no_attrs();
    a.dtype = dtype;
    a.shape = *shape;
    a.values = values;
    return td_build_node(g, TD_OP_CONSTANT, NULL, 0, &a, out_y);
}
// Writes x (...) into the buffer `state`, of x's shape and type; add: adds it. No result.
TD_MUST_USE static inline td_status td_build_store(struct td_graph *g, td_value state, td_value x,
                                                   bool add) {
    const td_value in[2] = {state, x};
    struct td_attrs a = td_build_no_attrs();
    a.accumulate = add;
    return td_graph_op(g, TD_OP_STORE, in, 2, &a, NULL);
}

#ifdef __cplusplus
}
#endif
#endif
