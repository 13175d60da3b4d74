#ifndef TRAIND_TESTS_UNIT_GRAPH_GRAPH_RIG_H
#define TRAIND_TESTS_UNIT_GRAPH_GRAPH_RIG_H

// A rank in miniature for tests of the graph: a state table, an accelerator, and memory for every
// role, there and on the host. Also programs compiled from a record function, and a way to run
// them; an MLP to record, of any float type; small random numbers that are the same everywhere.

#include <math.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/reference.h"
#include "engine/graph/compile.h"
#include "engine/graph/graph_text.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/state.h"
#include "engine/graph/verify.h"
#include "lib/base/buf.h"
#include "lib/base/rng.h"
#include "traind/accelerator.h"
#include "traind/rewrite.h"

#include "tests/unit/test.h"

enum { RIG_PROGRAMS = 16, RIG_INPUTS = 32 };
#define RIG_TIMEOUT_NS (60 * TD_NS_PER_S)

struct rig_program {
    struct td_compiled *compiled;
    struct td_buffer arena;
    char *host_arena;
    struct td_executable *exe;
    double outputs[8];
};

struct rig {
    const struct td_accelerator_ops *ops;
    struct td_accelerator *accel;
    struct td_state_table *state;
    struct td_buffer region[TD_ROLE_COUNT];
    char *host[TD_ROLE_COUNT]; // of the same content
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    float control[TD_CONTROL_FLAGS];
    struct rig_program program[RIG_PROGRAMS];
    int n_programs;
    td_status (*all_reduce)(void *arg, const struct td_sum *sum); // NULL: rig_all_reduce
    td_status (*await)(void *arg, const struct td_sum *sum);      // NULL: nothing to do
    uint32_t reduced[64]; // buckets in the order of the callbacks
    int n_reduced, n_awaited;
};

static inline struct td_shape rig_shape(int n_dims, int64_t a, int64_t b, int64_t c) {
    return (struct td_shape){.n_dims = n_dims, .dim = {a, b, c}};
}

// In [-1, 1), keyed by (name, element).
static inline double rig_random(const char *name, uint64_t i) {
    return 2 * (double)td_philox_uniform(td_philox_key_of(7, name), i) - 1;
}

static inline void rig_open_with(struct rig *r, const struct td_accelerator_ops *ops,
                                 const struct td_accel_config *config) {
    memset(r, 0, sizeof *r);
    r->ops = ops;
    assert_ok(ops->open(config, &r->accel));
    assert_ok(td_state_table_create(&r->state));
    r->scalars[TD_SCALAR_LR] = (double)0.01f;
    r->scalars[TD_SCALAR_STEP] = 1;
    r->scalars[TD_SCALAR_LOSS_SCALE] = 1;
    r->scalars[TD_SCALAR_WINDOW] = 1;
}

static inline void rig_open_on(struct rig *r, const struct td_accelerator_ops *ops, int n_threads) {
    const struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = n_threads};
    rig_open_with(r, ops, &config);
}

static inline void rig_open(struct rig *r) {
    rig_open_on(r, td_accelerator_reference.ops, 1);
}

static inline void rig_close(struct rig *r) {
    for (int i = 0; i < r->n_programs; i++) {
        r->ops->release(r->program[i].exe);
        td_compiled_destroy(r->program[i].compiled);
        if (r->program[i].arena.bytes) r->ops->mem_free(r->accel, r->program[i].arena);
        free(r->program[i].host_arena);
    }
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        if (r->region[i].bytes) r->ops->mem_free(r->accel, r->region[i]);
        free(r->host[i]);
    }
    r->ops->close(r->accel);
    td_state_table_destroy(r->state);
}

// Compiles a program; run rig_place once after the last.
static inline int rig_add(struct rig *r, const struct td_compile_options *o) {
    struct td_compile_options options = *o;
    options.state = r->state;
    if (!options.elides) options.elides = r->ops->elides;
    assert_true(r->n_programs < RIG_PROGRAMS);
    assert_ok(td_compile(&options, &r->program[r->n_programs].compiled));
    return r->n_programs++;
}

static inline td_status rig_all_reduce(void *arg, const struct td_sum *sum) {
    struct rig *r = arg;
    r->reduced[r->n_reduced++ % 64] = sum->index;
    if (sum->index + 1 < td_state_n_buckets(r->state)) return TD_OK;
    float flags[TD_CONTROL_FLAGS]; // as if a second rank had raised the same
    struct td_buffer host = td_buffer_of_host(flags, sizeof flags);
    const size_t at = td_state_control_offset(r->state);
    TD_TRY(r->ops->copy(r->accel, host, 0, r->region[TD_ROLE_GRAD], at, sizeof flags));
    for (int i = 0; i < TD_CONTROL_FLAGS; i++) {
        flags[i] *= 2;
    }
    return r->ops->copy(r->accel, r->region[TD_ROLE_GRAD], at, host, 0, sizeof flags);
}

static inline size_t rig_offset(const struct rig *r, uint32_t i) {
    return td_state_at(r->state, i)->offset;
}

static inline void *rig_state(struct rig *r, uint32_t i) {
    const struct td_state_info *s = td_state_at(r->state, i);
    return r->host[s->role] + s->offset;
}

static inline uint32_t rig_index(const struct rig *r, const char *name) {
    uint32_t i = 0;
    assert_ok(td_state_find(r->state, name, &i));
    return i;
}

static inline void *rig_named(struct rig *r, const char *name) {
    return rig_state(r, rig_index(r, name));
}

// Element i of a float tensor.
static inline double rig_get(enum td_dtype t, const void *p, int64_t i) {
    double v;
    td_ref_load(t, (const char *)p + (size_t)i * td_dtype_bytes(t), 1, &v);
    return v;
}
static inline void rig_set(enum td_dtype t, void *p, int64_t i, double v) {
    td_ref_store(t, &v, 1, (char *)p + (size_t)i * td_dtype_bytes(t));
}

// As if a second rank had the same.
static inline td_status rig_rank_sum(struct rig *r, const struct td_sum *sum) {
    const struct td_sum_range *x = &sum->out[0];
    const size_t bytes = (size_t)x->n * td_dtype_bytes(sum->dtype);
    char *data = calloc(1, bytes + 1);
    const struct td_buffer here = td_buffer_of_host(data, bytes);
    assert_non_null(data);
    assert_true(sum->on_host && sum->in == sum->out && sum->n_out == 1);
    td_status s = r->ops->copy(r->accel, here, 0, x->buffer, x->offset, bytes);
    for (int64_t i = 0; i < x->n; i++) {
        rig_set(sum->dtype, data, i, 2 * rig_get(sum->dtype, data, i));
    }
    if (!s) s = r->ops->copy(r->accel, x->buffer, x->offset, here, 0, bytes);
    free(data);
    return s;
}

static inline td_status rig_start_sum(void *arg, const struct td_sum *sum) {
    struct rig *r = arg;
    if (sum->kind == TD_SUM_RANK_SUM) return rig_rank_sum(r, sum);
    return r->all_reduce ? r->all_reduce(r, sum) : rig_all_reduce(r, sum);
}

static inline td_status rig_await_sum(void *arg, const struct td_sum *sum) {
    struct rig *r = arg;
    if (sum->kind == TD_SUM_RANK_SUM) return TD_OK;
    r->n_awaited++;
    return r->await ? r->await(r, sum) : TD_OK;
}

// Parameters and buffers get keyed random values, the rest zero.
static inline void rig_reset_state(struct rig *r) {
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        memset(r->host[i], 0, r->region[i].bytes);
    }
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        if (s->role != TD_ROLE_PARAM && s->role != TD_ROLE_BUFFER) continue;
        for (int64_t k = 0; k < td_shape_elems(&s->shape); k++) {
            rig_set(s->dtype, rig_state(r, i), k, rig_random(s->name, (uint64_t)k));
        }
    }
}

static inline void rig_place(struct rig *r) {
    assert_ok(td_state_layout(r->state));
    struct td_bindings b = {.struct_bytes = sizeof b,
                            .scalars = r->scalars,
                            .random = r->random,
                            .control = r->control,
                            .control_offset = td_state_control_offset(r->state),
                            .collective = rig_start_sum,
                            .collective_wait = rig_await_sum,
                            .collective_arg = r,
                            .sums_on_host = (1u << TD_SUM_KINDS) - 1};
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        size_t bytes = td_state_region_bytes(r->state, (enum td_role)i);
        if (bytes && r->ops->state_alloc) {
            assert_ok(r->ops->state_alloc(r->accel, r->state, (enum td_role)i, &r->region[i]));
        } else {
            assert_ok(r->ops->mem_alloc(r->accel, TD_MAX(bytes, 64), &r->region[i]));
        }
        b.region[i] = r->region[i];
        r->host[i] = calloc(1, r->region[i].bytes);
        assert_non_null(r->host[i]);
    }
    rig_reset_state(r);
    for (int i = 0; i < r->n_programs; i++) {
        struct rig_program *p = &r->program[i];
        size_t bytes = TD_MAX(p->compiled->program.arena_bytes, 64);
        assert_ok(r->ops->mem_alloc(r->accel, bytes, &p->arena));
        p->host_arena = calloc(1, bytes);
        assert_non_null(p->host_arena);
        b.arena = p->arena;
        b.outputs = p->outputs;
        assert_ok(r->ops->compile(r->accel, &p->compiled->program, &b, &p->exe));
    }
}

static inline void rig_copy(struct rig *r, struct td_buffer there, char *host, bool to_device) {
    struct td_buffer here = td_buffer_of_host(host, there.bytes);
    struct td_buffer to = to_device ? there : here, from = to_device ? here : there;
    assert_ok(r->ops->copy(r->accel, to, 0, from, 0, there.bytes));
}

// Tests read and write the host's content, which goes to the device before a run and comes back.
static inline void rig_copy_all(struct rig *r, struct rig_program *p, bool to_device) {
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        rig_copy(r, r->region[i], r->host[i], to_device);
    }
    rig_copy(r, p->arena, p->host_arena, to_device);
}

// Host memory of each input, of just the bytes that a program takes.
static inline void rig_inputs(const struct rig *r, int program, const void *const *inputs,
                              struct td_buffer out[RIG_INPUTS]) {
    const struct td_graph *g = r->program[program].compiled->graph;
    assert_true(td_graph_n_inputs(g) <= RIG_INPUTS);
    for (uint32_t i = 0; i < td_graph_n_inputs(g); i++) {
        const struct td_value_info *v = td_graph_value(g, td_graph_input_at(g, i));
        const size_t elems = (size_t)td_shape_elems(&v->shape);
        out[i] = td_buffer_of_host(inputs[i], elems * td_dtype_bytes(v->dtype));
    }
}

static inline td_status rig_begin(const struct rig *r, int program, uint32_t segments,
                                  const void *const *inputs, td_ticket *out_ticket) {
    struct td_buffer in[RIG_INPUTS];
    rig_inputs(r, program, inputs, in);
    return r->ops->run(r->program[program].exe, segments, in, out_ticket);
}

static inline void rig_run(struct rig *r, int program, uint32_t segments,
                           const void *const *inputs) {
    td_ticket ticket;
    struct rig_program *p = &r->program[program];
    rig_copy_all(r, p, true);
    assert_ok(rig_begin(r, program, segments, inputs, &ticket));
    assert_ok(r->ops->wait(r->accel, ticket, RIG_TIMEOUT_NS));
    rig_copy_all(r, p, false);
}

// Flags that a run is to carry, and what rig_all_reduce makes of them.
static inline void rig_raise(struct rig *r, int seed) {
    for (int i = 0; i < TD_CONTROL_FLAGS; i++) {
        r->control[i] = (float)(seed + i);
    }
}
static inline void rig_expect_agreed(const struct rig *r, int seed) {
    for (int i = 0; i < TD_CONTROL_FLAGS; i++) {
        assert_true(r->control[i] == (float)(2 * (seed + i)));
    }
}

static inline struct td_program_key rig_key(enum td_mode mode, int64_t batch, bool apply) {
    struct td_program_key k = {
        .step = "train", .mode = mode, .batch = batch, .sync = true, .apply = apply};
    return k;
}

// ---- an MLP -----------------------------------------------------------------------------------
struct rig_mlp {
    enum td_dtype dtype;
    int n_widths;
    int64_t width[6];
};

static inline td_status rig_record_linear(struct td_graph *g, const struct rig_mlp *m, int layer,
                                          td_value *h) {
    char name[32];
    td_value in[2] = {*h}, bias;
    struct td_init init = {0};
    struct td_shape w = rig_shape(2, m->width[layer], m->width[layer - 1], 0);
    struct td_shape b = rig_shape(1, m->width[layer], 0, 0);
    struct td_attrs t = {.trans_b = true};
    snprintf(name, sizeof name, "fc%d.weight", layer);
    TD_TRY(td_graph_param(g, name, m->dtype, &w, init, &in[1]));
    snprintf(name, sizeof name, "fc%d.bias", layer);
    TD_TRY(td_graph_param(g, name, m->dtype, &b, init, &bias));
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, in, 2, &t, h));
    in[0] = *h;
    in[1] = bias;
    TD_TRY(td_graph_op(g, TD_OP_ADD, in, 2, NULL, h));
    return layer + 1 < m->n_widths ? td_graph_op(g, TD_OP_RELU, h, 1, NULL, h) : TD_OK;
}

static inline td_status rig_record_mlp(void *arg, struct td_graph *g, int64_t batch) {
    const struct rig_mlp *m = arg;
    struct td_shape sx = rig_shape(2, batch, m->width[0], 0), sy = rig_shape(1, batch, 0, 0);
    td_value x, y, out[2], count;
    TD_TRY(td_graph_input(g, "x", m->dtype, &sx, &x));
    TD_TRY(td_graph_input(g, "y", TD_I32, &sy, &y));
    for (int i = 1; i < m->n_widths; i++) {
        TD_TRY(rig_record_linear(g, m, i, &x));
    }
    td_value in[2] = {x, y};
    TD_TRY(td_graph_op(g, TD_OP_SOFTMAX_CE, in, 2, NULL, out));
    TD_TRY(td_graph_op(g, TD_OP_COUNT_CORRECT, in, 2, NULL, &count));
    TD_TRY(td_graph_output(g, "loss", out[0], TD_OUTPUT_MEAN));
    TD_TRY(td_graph_output(g, "accuracy", count, TD_OUTPUT_SUM));
    return td_graph_loss(g, out[0]);
}

// A batch for it: samples [begin, begin + n) of one endless set.
static inline void rig_batch(const struct rig_mlp *m, int64_t begin, int64_t n, void *x,
                             int32_t *y) {
    for (int64_t i = 0; i < n * m->width[0]; i++) {
        rig_set(m->dtype, x, i, rig_random("x", (uint64_t)(begin * m->width[0] + i)));
    }
    for (int64_t i = 0; i < n; i++) {
        double u = (rig_random("y", (uint64_t)(begin + i)) + 1) / 2;
        y[i] = (int32_t)(u * (double)m->width[m->n_widths - 1]);
    }
}

#endif
