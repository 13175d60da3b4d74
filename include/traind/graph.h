#ifndef TRAIND_GRAPH_H
#define TRAIND_GRAPH_H

// Graph: whatever is trained is recorded into one of these, once, then rewritten by passes
// (autodiff, precision, strategy, optimizer, simplify, fuse, memory plan) and compiled by an
// accelerator. This header is the builder, the read-only view, and the calls a rewrite uses.
//
// State (parameters, buffers, gradients, optimizer state) belongs to the rank, not to a graph. The
// state table names each tensor once, and the graphs of all steps share it by name. A graph is a
// list of nodes in execution order; each node has operands, one opcode, attributes and a segment.
// A value is an input of the step, a state tensor, a step scalar, or the output of a node. Nodes
// that write state (store, optimizers, all_reduce) are ordered with the readers by their position.
//
// Segments (forward | backward | finish | apply) may be run one by one, which is Fabric's calls, or
// back to back as one fused step: same bits on `reference` and `cpu`.
//
// Ownership: a graph owns its nodes, values and strings; what a call is given is copied or borrowed
// until it returns, unless its line says otherwise. Thread: one at a time.
// Errors: building fails with INVALID_ARGUMENT naming op and shapes, and with RESOURCE_EXHAUSTED
// when memory or a bound is exhausted. It never aborts on what a module asks for. An output is
// written only on success. What else an error leaves is said at each call; a graph or table after
// RESOURCE_EXHAUSTED is only good to destroy. Functions that return no status take indices that are
// there: another one is a bug of the caller and ends the process.
// Strings of the td_..._name functions live as long as the process; "unknown": outside the enum.

#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// A number of enum td_op (op.h), for who passes it on.
#ifdef __cplusplus
enum td_op : unsigned;
typedef enum td_op td_op_id;
#else
typedef unsigned td_op_id;
#endif

enum td_segment { TD_SEG_FORWARD, TD_SEG_BACKWARD, TD_SEG_FINISH, TD_SEG_APPLY, TD_SEG_COUNT };
enum { TD_SEGS_ALL = (1 << TD_SEG_COUNT) - 1 }; // bit i = segment i
const char *td_segment_name(enum td_segment s); // "forward"

enum td_mode { TD_MODE_TRAIN, TD_MODE_EVAL, TD_MODE_PREDICT };
const char *td_mode_name(enum td_mode m); // "train"

enum td_act { TD_ACT_NONE, TD_ACT_RELU };
enum td_compare { TD_CMP_EQ, TD_CMP_NE, TD_CMP_LT, TD_CMP_LE, TD_CMP_GT, TD_CMP_GE, TD_CMP_COUNT };
const char *td_compare_name(enum td_compare c); // "eq"

// ---- state --------------------------------------------------------------------------------------
enum td_role {
    TD_ROLE_PARAM,
    TD_ROLE_BUFFER,
    TD_ROLE_GRAD,
    TD_ROLE_OPTIM,
    TD_ROLE_RESULT, // what the last run of a predict step gave back; never saved
    TD_ROLE_COUNT,
};
const char *td_role_name(enum td_role r); // "param"

enum td_init_kind {
    TD_INIT_ZERO,
    TD_INIT_CONST,   // a
    TD_INIT_UNIFORM, // in [a, b), keyed by (seed, name, element)
    TD_INIT_NORMAL,  // mean a, deviation b, keyed likewise
};
struct td_init {
    enum td_init_kind kind;
    double a, b;
};

// What an optimizer asks about a parameter besides its name and shape. Unmarked: a plain weight.
enum td_param_mark {
    TD_PARAM_NO_DECAY = 1,   // no weight decay, unless the job asks for it by name: norms, biases
    TD_PARAM_NOT_HIDDEN = 2, // an embedding or a head: Muon leaves it to AdamW
};

// A tensor may be split among the ranks, flat, into a piece of equal length for each. What is past
// the tensor's end is zero and is never saved.
struct td_piece {
    int32_t group;        // whose ranks have the pieces; 0: the world, other ones are reserved
    int64_t first, count; // elements of the tensor that are a rank's; of the last ones maybe none
};
// Elements of each of so many pieces of a tensor of n: a multiple of 16, the same on all ranks.
static inline int64_t td_piece_length(int64_t n, int32_t n_pieces) {
    const int64_t c = (n + n_pieces - 1) / n_pieces;
    return (c + 15) / 16 * 16;
}
static inline struct td_piece td_piece_of(int64_t n, int32_t n_pieces, int32_t rank) {
    const int64_t c = td_piece_length(n, n_pieces);
    struct td_piece p = {0, rank * c < n ? rank * c : n, 0};
    p.count = n - p.first < c ? n - p.first : c;
    return p;
}

struct td_state_info {
    const char *name; // "fc1.weight"; gradients "fc1.weight:grad", optimizer "fc1.weight:exp_avg"
    enum td_role role;
    enum td_dtype dtype; // as stored: the module's, or what the precision made of it
    struct td_shape shape;
    struct td_init init;
    uint32_t param;        // GRAD and OPTIM: index of the parameter they belong to; else own index
    uint32_t bucket;       // GRAD: gradient bucket, in the order of the all-reduce
    unsigned marks;        // PARAM: enum td_param_mark
    size_t offset;         // bytes from the start of the role's region, 64-byte aligned
    size_t bytes;          // there: of all pieces that memory has, with what is past the end
    size_t whole_offset;   // where it would be if memory had all of each tensor, and no padding
    int32_t n_pieces;      // into which it is split (td_rewrite_split); 0: it is whole
    bool has_piece_alone;  // memory has this rank's piece; else all of them, in order
    struct td_piece piece; // this rank's; of what is not split all
};

// Bytes of all elements, without what is past the end: what a checkpoint has of the tensor.
static inline size_t td_state_whole_bytes(const struct td_state_info *t) {
    return (size_t)td_shape_elems(&t->shape) * td_dtype_bytes(t->dtype);
}
// Does memory lack elements, which other ranks have?
static inline bool td_state_is_apart(const struct td_state_info *t) {
    return t->has_piece_alone && t->n_pieces > 1;
}

// The tensors of a rank, in order of registration; at most 65,536. It owns their names and infos.
struct td_state_table;
// Makes an empty table, for the caller to destroy. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_state_table_create(struct td_state_table **out_table);
// Which rank of how many has the table; else it is 0 of 1. Before a tensor is split.
void td_state_set_rank(struct td_state_table *t, int32_t rank, int32_t world_size);
// Asked once for each tensor, before it is added: is it split among the ranks, with all pieces in
// memory (td_rewrite_split)? Info and name are borrowed until it returns. After an error nothing is
// added.
typedef td_status td_state_rule(void *arg, const struct td_state_info *tensor, bool *out_split);
// Of tensors that are added from now on; NULL: none is split when it is added.
void td_state_set_rule(struct td_state_table *t, td_state_rule *rule, void *arg);
// Accepts NULL. Graphs that were made with the table go before it.
void td_state_table_destroy(struct td_state_table *t);
// Adds a tensor or finds the one of that name. name: 1 to 255 bytes, copied; shape: each dimension
// at least 0, at most 64 TiB together; param: of GRAD and OPTIM, an index of role PARAM.
// Errors: FAILED_PRECONDITION when role, dtype or shape differ from those of the tensor that is
// there, or when a new one comes after td_state_layout; INVALID_ARGUMENT for any other argument;
// RESOURCE_EXHAUSTED. An error adds nothing.
TD_MUST_USE td_status td_state_add(struct td_state_table *t, const char *name, enum td_role role,
                                   enum td_dtype dtype, const struct td_shape *shape,
                                   struct td_init init, uint32_t param, uint32_t *out_index);
// How many tensors there are; their indices are 0 to count - 1.
uint32_t td_state_count(const struct td_state_table *t);
// The tensor of an index below the count. Borrowed until the table is destroyed; marks, dtype,
// bytes, bucket and offset may change while steps are recorded.
const struct td_state_info *td_state_at(const struct td_state_table *t, uint32_t index);
// The index of a name. Errors: NOT_FOUND.
TD_MUST_USE td_status td_state_find(const struct td_state_table *t, const char *name,
                                    uint32_t *out_index);
// Gives every tensor its offset: parameters in order of registration, gradients in bucket order
// with TD_CONTROL_FLAGS fp32 elements after the last bucket. Called once, after the programs of
// all steps were recorded; frozen afterwards.
// Errors: FAILED_PRECONDITION at a second call, which changes nothing; INVALID_ARGUMENT when the
// gradients of a bucket have two types, RESOURCE_EXHAUSTED when a role exceeds the address space.
// After these two the table is only good to destroy.
TD_MUST_USE td_status td_state_layout(struct td_state_table *t);
// Bytes of a role's region, padding included; GRAD with its control tail. After layout only.
size_t td_state_region_bytes(const struct td_state_table *t, enum td_role role);
// The same if memory had all of each tensor, by whole_offset. After layout only.
size_t td_state_whole_region_bytes(const struct td_state_table *t, enum td_role role);
// Does memory lack elements of a tensor of that role (td_state_is_apart)?
bool td_state_role_is_apart(const struct td_state_table *t, enum td_role role);
// Gradient buckets: as many as were assigned so far, and at least one after layout.
uint32_t td_state_n_buckets(const struct td_state_table *t);
// Bucket b is bytes [offset, offset + bytes) of the GRAD region, padding included, all of one type.
// Without gradients: 0 bytes. After layout only.
void td_state_bucket(const struct td_state_table *t, uint32_t bucket, size_t *out_offset,
                     size_t *out_bytes, enum td_dtype *out_dtype);
// Where the control tail, which follows the last bucket, begins: bytes from the start of the GRAD
// region. After layout only.
size_t td_state_control_offset(const struct td_state_table *t);

// Control flags that ride after the last gradient bucket (summed, never divided): all ranks read
// the sum at the same optimizer-step boundary, so they stop at the same step.
enum td_control_flag {
    TD_CONTROL_STOP,
    TD_CONTROL_CHECKPOINT,
    TD_CONTROL_TIMER,
    TD_CONTROL_NOW,        // with STOP: without saving
    TD_CONTROL_RANKS,      // 1 of each rank: the sum has to be the world size
    TD_CONTROL_DUE,        // a checkpoint, by rank 0's clock
    TD_CONTROL_FLAGS = 16, // the tail's length in elements: one cache line
};

// ---- values, attributes, nodes ------------------------------------------------------------------
typedef uint32_t td_value; // index into the graph's values + 1; 0 is "none"
typedef uint32_t td_node;  // index into the graph's nodes
enum { TD_MAX_OUT = 3 };   // outputs of a node

// Step scalars: one block of doubles that the host fills before a step and accelerators read. Where
// parameters are f64 they are exact. Else the host has rounded each to fp32, so that a step of 16
// or 32 bits is the same wherever it is computed. In a graph a scalar is a value of f32, or of f64
// under a precision that says so (td_rewrite_scalar).
enum td_scalar {
    TD_SCALAR_LR,         // learning rate of this optimizer step
    TD_SCALAR_STEP,       // optimizer steps completed, plus one
    TD_SCALAR_LOSS_SCALE, // 1 unless the precision scales
    TD_SCALAR_WINDOW,     // 1 / real length of the accumulation window, or a factor of its sums
    TD_SCALAR_RANK,       // global rank; the same at each step
    TD_SCALAR_DIVISOR,    // of gradients that are sums over a window, when it is over; else 1
    TD_SCALAR_COUNT = 16,
};
// What values of f32 read of the block, [TD_SCALAR_COUNT]: an accelerator makes it at each run.
static inline void td_scalars_round(const double *scalars, float *out) {
    for (int i = 0; i < TD_SCALAR_COUNT; i++) {
        out[i] = (float)scalars[i];
    }
}

enum td_value_kind { TD_VALUE_INPUT, TD_VALUE_STATE, TD_VALUE_SCALAR, TD_VALUE_NODE };

struct td_value_info {
    enum td_value_kind kind;
    enum td_dtype dtype;
    struct td_shape shape;
    const char *name; // inputs: "x", "y"; others may be NULL
    bool is_piece;    // STATE: this rank's piece of a tensor that is split, of td_piece_length
    uint32_t index;   // INPUT: slot; STATE: index in the state table; SCALAR: enum td_scalar
    td_node node;     // NODE: the one that makes it
    uint32_t output;  // NODE: which output of it
};

struct td_optim_attrs {
    double lr_scale; // of TD_SCALAR_LR; 0 stands for 1
    double beta1, beta2, eps, weight_decay, momentum, dampening;
    bool nesterov;
    bool stochastic;           // a 16-bit parameter is rounded stochastically, by attrs.stream
    double beta2_decay;        // adafactor: exponent of the step
    double eps2, threshold;    // adafactor: least scale; clip of rms
    bool factored;             // adafactor: the second moment is kept as row and column
    bool fixed_step, unscaled; // adafactor: lr is not capped; not relative to the parameter
    double update_scale;       // muon; 0 stands for 1
};
static inline double td_optim_lr(const struct td_optim_attrs *o, const double *scalars) {
    return scalars[TD_SCALAR_LR] * (o->lr_scale != 0 ? o->lr_scale : 1);
}

// Of convolutions and pools: (height, width). 0 stands for 1; groups likewise.
struct td_window_attrs {
    int32_t kernel[2]; // pools; a convolution's is its weight's
    int32_t stride[2], pad[2], dilation[2], groups;
};
static inline int32_t td_window_at_least_one(int32_t v) {
    return v ? v : 1;
}

// How rope's angles are stretched for rows longer than a model was trained on (traind/rope.h).
struct td_rope_scaling {
    double factor;    // 0: they are not
    int64_t original; // tokens that the model was trained on; 0: all angles alike (linear)
    double low, high; // below so many turns over them an angle is stretched, above it is not
};

// What an op needs to know besides its operands; ops.def says which op reads what. Zero is always
// the plain form, so that a caller names only what it wants.
struct td_attrs {
    bool trans_a, trans_b;
    bool accumulate;           // writes add to what is there
    bool gelu_tanh;            // the tanh form instead of erf
    bool wide;                 // the result is f32 where the operands have 16 bits; of
                               // sum_squares f64, because a square of f32 may overflow
    bool ignores;              // labels that are ignore_index do not count
    bool causal;               // a token sees itself and those before it
    bool interleaved, reverse; // rope: pairs (2i, 2i + 1) instead of halves; the other way round
    bool biased, seeded;       // linear_ce: a bias is there; so is a seed
    enum td_act act;
    td_op_id then; // of matmul: the activation's gradient after it, such as relu_grad; 0: none
    enum td_compare compare;
    enum td_dtype dtype;
    struct td_shape shape;
    int32_t axis;
    int32_t groups; // of self_attention: heads of keys, and of values
    int32_t perm[TD_MAX_DIMS];
    int64_t start[TD_MAX_DIMS];
    int32_t ignore_index;
    double label_smoothing;
    double eps;
    double momentum;
    double drop;                 // probability
    double base;                 // of rope's angles, 10000 if 0
    struct td_rope_scaling rope; // of them
    uint64_t stream;             // of random numbers: td_stream_of the op's name in the module
    double scale, scale_y;
    const double *values; // of constant: as many as it has elements; the graph keeps a copy
    double max_norm;
    uint32_t bucket;
    struct td_window_attrs window;
    struct td_optim_attrs optim;
};

// Which operands of linear_ce and linear_ce_grad are what, besides x, w and labels; 0: none.
struct td_head_operands {
    uint32_t dw, seed, bias, dbias, weights;
    uint32_t n; // of all
};
struct td_head_operands td_head_operands_of(td_op_id op, const struct td_attrs *a,
                                            uint32_t n_inputs);

struct td_node_info {
    td_op_id op;
    enum td_segment segment;
    const td_value *inputs;
    uint32_t n_inputs;
    td_value outputs[TD_MAX_OUT];
    uint32_t n_outputs;
    // A state gradient this node writes directly instead of an output of its own (after the fuse
    // pass); 0: none. n_outputs is 0 then, and the shape is that of `into`. reduce_sum's is still
    // attrs.shape, of as many elements. matmul, reduce_sum and conv2d_grad_w add to it with
    // attrs.accumulate.
    td_value into;
    // This node makes values of the forward segment once more, so that they need not be kept (pass
    // recompute). It is of the backward segment and writes no state. Who merges equal computations
    // has to leave it alone, or all that was saved is kept after all.
    bool recomputes;
    struct td_attrs attrs;
};

// ---- building -----------------------------------------------------------------------------------
struct td_graph;
// Makes an empty graph, for the caller to destroy, whose nodes go to segment forward until
// td_graph_set_segment. step: "train", copied. state: borrowed, and has to outlive the graph.
// Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_graph_create(const char *step, enum td_mode mode,
                                      struct td_state_table *state, struct td_graph **out_graph);
// Frees the graph with all that was borrowed of it; the state table stays. Accepts NULL.
void td_graph_destroy(struct td_graph *g);
// What the graph was made with: the name, borrowed until destroy; the mode; the caller's table.
const char *td_graph_step(const struct td_graph *g);
int32_t td_graph_world_size(const struct td_graph *g); // ranks that the program runs on, at least 1
enum td_mode td_graph_mode(const struct td_graph *g);
struct td_state_table *td_graph_state(const struct td_graph *g);

// An input of the step (slot = order of the calls); one value per batch field, shape (B, ...).
// Errors: INVALID_ARGUMENT without a name, for a dtype or shape that cannot be, or above 32 inputs.
// An error leaves the graph as it was.
TD_MUST_USE td_status td_graph_input(struct td_graph *g, const char *name, enum td_dtype dtype,
                                     const struct td_shape *shape, td_value *out_value);
// The parameter of that name, added to the state table on first use; the same value at each call.
// A buffer is added by td_state_add with role BUFFER and read by td_graph_state_value.
// Errors: those of td_state_add, so FAILED_PRECONDITION names a parameter that steps disagree
// about. An error leaves the graph as it was; the table may have the parameter.
TD_MUST_USE td_status td_graph_param(struct td_graph *g, const char *name, enum td_dtype dtype,
                                     const struct td_shape *shape, struct td_init init,
                                     td_value *out_value);
// Adds marks (enum td_param_mark) to a parameter; in every step that names it, or in the first.
// Errors: INVALID_ARGUMENT when the value is not a parameter; nothing changes then.
TD_MUST_USE td_status td_graph_mark(struct td_graph *g, td_value param, unsigned marks);
// The value of a tensor of the state table, the same at each call, of its shape. Its type is the
// one that steps name; after td_rewrite_state on any tensor of the graph, new ones are as stored.
// Errors: INVALID_ARGUMENT when the table has no such index; the graph is as it was.
TD_MUST_USE td_status td_graph_state_value(struct td_graph *g, uint32_t state_index,
                                           td_value *out_value);
// The value of this rank's piece of a tensor that is split, the same at each call: shape
// (td_piece_length), the same on all ranks. It is part of the value of the whole: who writes one of
// them changes the other. Errors: INVALID_ARGUMENT for a tensor that is whole, too.
TD_MUST_USE td_status td_graph_state_piece(struct td_graph *g, uint32_t state_index,
                                           td_value *out_value);
// Of a value of kind STATE: bytes from the start of the role's region, after layout only; and which
// element of the tensor its first is.
size_t td_graph_state_offset(const struct td_graph *g, td_value v);
int64_t td_graph_state_first(const struct td_graph *g, td_value v);
// The value of a step scalar, the same at each call: shape (), f32 unless td_rewrite_scalar changes
// it. Errors: INVALID_ARGUMENT for one below 0 or from TD_SCALAR_COUNT; the graph is as it was.
TD_MUST_USE td_status td_graph_scalar(struct td_graph *g, enum td_scalar s, td_value *out_value);
// Appends a node to the current segment, or adds it where td_rewrite_insert_at says; shapes are
// inferred and checked. Operands and attributes are copied; attrs NULL = zeroes. out_values has
// room for the op's outputs (at most TD_MAX_OUT) and may be NULL.
// Errors: INVALID_ARGUMENT when operands, attributes or shapes do not fit the op, or when a node of
// a later segment is there; RESOURCE_EXHAUSTED above 1,048,576 nodes. An error adds no node.
TD_MUST_USE td_status td_graph_op(struct td_graph *g, td_op_id op, const td_value *inputs,
                                  uint32_t n_inputs, const struct td_attrs *attrs,
                                  td_value *out_values);
// Nodes that are appended from now on belong to segment s. Segments are in the order of their enum:
// td_graph_op refuses to append to an earlier one.
void td_graph_set_segment(struct td_graph *g, enum td_segment s);
// A tensor that a step gives back, as f32, for whoever ran the step to read: a prediction, or what
// host code of a training step asks for (td_steps_result). It is stored in the state tensor
// "<name>:<leading dimension>" of role RESULT. name: at most 40 bytes, the rest is cut; v: at least
// one dimension, the first of which is the batch's.
// Errors: INVALID_ARGUMENT for another v, and those of td_state_add and td_graph_op. After one the
// graph is only good to destroy.
TD_MUST_USE td_status td_graph_result(struct td_graph *g, const char *name, td_value v);

// Named scalars a step reports. MEAN: a mean over the batch's samples; SUM: a sum over them. The
// worker turns both into (sum, count), which the coordinator merges over ranks. WEIGHT: what the
// batch counts in the output before it, instead of its samples; a MEAN over 0 is the sum. NORM: a
// sum of squares that is alike on all ranks and stands for its root; the optimizer pass makes one,
// "grad_norm". GATE: 1 if all gradients are finite, else 0, and then the step is not to be applied.
enum td_output_kind {
    TD_OUTPUT_MEAN,
    TD_OUTPUT_SUM,
    TD_OUTPUT_NORM,
    TD_OUTPUT_GATE,
    TD_OUTPUT_WEIGHT,
};
const char *td_output_kind_name(enum td_output_kind k); // "mean"
// Reports v, one element of a float type, as `name`, which is copied.
// Errors: INVALID_ARGUMENT for another v, for an empty name or one that is taken, or above 32
// outputs. An error leaves the graph as it was.
TD_MUST_USE td_status td_graph_output(struct td_graph *g, const char *name, td_value v,
                                      enum td_output_kind kind);
// What autodiff differentiates: at most one value of a graph, of a float type and shape ().
// Errors: INVALID_ARGUMENT for another value, or a second call; the graph is as it was.
TD_MUST_USE td_status td_graph_loss(struct td_graph *g, td_value v);

// ---- reading ------------------------------------------------------------------------------------
// Borrowed pointers die with the next change of the graph. Indices are from 0, and below their
// count; values from 1.
uint32_t td_graph_n_nodes(const struct td_graph *g);
const struct td_node_info *td_graph_node(const struct td_graph *g, td_node n);    // borrowed
uint32_t td_graph_n_values(const struct td_graph *g);                             // values are 1..n
const struct td_value_info *td_graph_value(const struct td_graph *g, td_value v); // borrowed
uint32_t td_graph_n_inputs(const struct td_graph *g);
td_value td_graph_input_at(const struct td_graph *g, uint32_t slot);
uint32_t td_graph_n_outputs(const struct td_graph *g);
// Output i, in the order of the calls of td_graph_output. Each out may be NULL; the name is
// borrowed until the graph is destroyed.
void td_graph_output_at(const struct td_graph *g, uint32_t i, const char **out_name,
                        td_value *out_value, enum td_output_kind *out_kind);
td_value td_graph_loss_value(const struct td_graph *g); // 0: none
double td_graph_flops(const struct td_graph *g);        // of one run of all segments
// Parameters of the state table that the loss does not reach: how many, and the index of each in
// the state table. Known once autodiff ran, 0 before.
uint32_t td_graph_n_unreached(const struct td_graph *g);
uint32_t td_graph_unreached_at(const struct td_graph *g, uint32_t i);

// For an accelerator that looks for anomalies (traind/accelerator.h).
enum { TD_MAX_WATCHED = 8 };
// Writes the values whose elements must be finite once the node has run, and returns how many.
uint32_t td_graph_watched(const struct td_graph *g, td_node node, td_value out[TD_MAX_WATCHED]);
// Checks v after `node` has written it. data: host memory, all elements of v in its own type,
// aligned for it. Errors: FAILED_PRECONDITION (class numeric) names op, node, tensor and element.
TD_MUST_USE td_status td_graph_check_finite(const struct td_graph *g, td_node node, td_value v,
                                            const void *data);

// ---- programs -----------------------------------------------------------------------------------
// What an accelerator compiles: a graph after all passes, plus the memory plan.
struct td_program_key {
    char step[32];
    enum td_mode mode;
    int64_t batch;   // samples per rank of this variant
    bool accumulate; // gradients: overwrite (first micro-batch of a window) or accumulate
    bool sync;       // with the all-reduce (last micro-batch), or without
    bool apply;      // with finish and apply segments
};

// Where a value is. The plan may put the output of a node over an operand that dies there, so the
// kernels of these ops must allow it:
//
//  - an elementwise op (add to select in ops.def, cast, scale): over an operand of the same bytes;
//  - softmax_ce: dlogits over its logits;
//  - add_layer_norm, add_rms_norm: norm and sum over x and r;
//  - layer_norm_grad, rms_norm_grad: dx over x, dy and more;
//  - rope: over x; reshape: over anything.
//
// Inputs, state and scalars are never in the arena. They are never aliased, but by a reshape of
// them, or by a cast that an accelerator elides.
struct td_placement {
    size_t offset;  // in the rank's arena, 64-byte aligned; SIZE_MAX: not in the arena
    td_value alias; // the value whose memory this one shares (not itself an alias), else 0
};

// Multiplications and additions of a node; 0 where it only moves bytes.
double td_op_flops(const struct td_graph *g, const struct td_node_info *node);
// True if the op writes operand i (a state tensor) in place.
bool td_op_writes(td_op_id op, const struct td_attrs *attrs, uint32_t i);

// Of an accelerator: true of the cast of a state tensor that it will not make, because all that
// read it read the tensor instead. Its place is the tensor's then.
typedef bool td_elides_fn(const struct td_graph *g, td_node n);

struct td_program {
    struct td_program_key key;
    const struct td_graph *graph;
    const struct td_placement *placement; // [n_values + 1], by td_value
    size_t arena_bytes;
};

#ifdef __cplusplus
}
#endif
#endif
