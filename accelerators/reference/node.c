// A node's life on the reference: operands are widened to fp64 into scratch, the kernel computes
// there, and what it made is rounded once into place. See node.h.

#include "accelerators/reference/node.h"

#include <inttypes.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/kernels.h"
#include "lib/base/floats/half.h"
#include "traind/op.h"
#include "traind/random.h"

td_status td_ref_node_check(const struct td_graph *g, td_node n, size_t *out_scratch_elems) {
    const struct td_node_info *node = td_graph_node(g, n);
    bool known = td_ref_has_kernel(node->op);
    size_t elems = 0;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs + 1; i++) {
        td_value v = i < node->n_inputs                     ? node->inputs[i]
                     : i < node->n_inputs + node->n_outputs ? node->outputs[i - node->n_inputs]
                                                            : node->into;
        if (!v) continue;
        const bool made = i >= node->n_inputs || td_op_writes(node->op, &node->attrs, i);
        const size_t each = made && td_ref_sums_in_place(node->op) ? 2 : 1;
        elems += each * (size_t)td_shape_elems(&td_graph_value(g, v)->shape);
    }
    if (!known) {
        return td_fail(TD_UNIMPLEMENTED, "reference: node %" PRIu32 " (%s) has no kernel", n,
                       td_op_name(node->op));
    }
    *out_scratch_elems = elems;
    return TD_OK;
}

static struct ref_operand operand(const struct td_graph *g, td_value v, double **scratch) {
    const struct td_value_info *info = td_graph_value(g, v);
    struct ref_operand o = {.x = *scratch, .dtype = info->dtype, .shape = &info->shape};
    o.n = td_shape_elems(o.shape);
    *scratch += o.n;
    return o;
}

// One that the node makes, which may be a sum in its places.
static struct ref_operand result(const struct td_graph *g, const struct td_node_info *node,
                                 td_value v, double **scratch) {
    struct ref_operand o = operand(g, v, scratch);
    if (!td_ref_sums_in_place(node->op)) return o;
    o.rest = *scratch;
    *scratch += o.n;
    return o;
}

// A direct write: the result replaces the state tensor or, rounded first, is added to it.
static void write_into(const struct td_node_info *node, const struct ref_operand *y, char *to) {
    size_t step = td_dtype_bytes(y->dtype);
    for (int64_t i = 0; i < y->n; i++) {
        double old = 0;
        if (node->attrs.accumulate) td_ref_load(y->dtype, to + (size_t)i * step, 1, &old);
        double v = td_ref_round(y->dtype, y->x[i]) + old;
        td_ref_store(y->dtype, &v, 1, to + (size_t)i * step);
    }
}

// A parameter of bf16 whose update shall not be lost to rounding.
// first: the element of the parameter that its first is.
static void store_by_chance(const struct td_attrs *a, const struct ref_operand *p, int64_t first,
                            const uint32_t *random, uint16_t *to) {
    enum { AT_ONCE = 256 };
    uint16_t bits[AT_ONCE];
    for (int64_t at = 0; at < p->n; at += AT_ONCE) {
        int64_t n = TD_MIN((int64_t)AT_ONCE, p->n - at);
        td_random_bits16(random, a->stream, first + at, n, bits);
        for (int64_t i = 0; i < n; i++) {
            to[at + i] = td_bf16_of_f32_random((float)p->x[at + i], bits[i]);
        }
    }
}

td_status td_ref_node_run(const struct td_graph *g, td_node n, const struct td_ref_site *site) {
    const struct td_node_info *node = td_graph_node(g, n);
    double *scratch = site->scratch;
    struct ref_call c = {.node = node, .in = site->operands};
    c.scalars = site->scalars;
    c.random = site->random;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const bool made = td_op_writes(node->op, &node->attrs, i);
        c.in[i] = made ? result(g, node, node->inputs[i], &scratch)
                       : operand(g, node->inputs[i], &scratch);
        td_ref_load(c.in[i].dtype, site->in[i], c.in[i].n, c.in[i].x);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        c.out[i] = result(g, node, node->outputs[i], &scratch);
    }
    if (node->into) c.out[0] = result(g, node, node->into, &scratch);
    if (node->op == TD_OP_REDUCE_SUM) c.out[0].shape = &node->attrs.shape;
    TD_TRY(td_ref_kernel(&c));
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        td_ref_store(c.out[i].dtype, c.out[i].x, c.out[i].n, site->out[i]);
    }
    if (node->into) write_into(node, &c.out[0], site->out[0]);
    for (uint32_t i = 0; i < 32 && c.written >> i; i++) {
        if (!(c.written >> i & 1)) continue;
        if (i == 0 && node->attrs.optim.stochastic && c.in[0].dtype == TD_BF16) {
            store_by_chance(&node->attrs, &c.in[0], td_graph_state_first(g, node->inputs[0]),
                            site->random, site->in[0]);
            continue;
        }
        td_ref_store(c.in[i].dtype, c.in[i].x, c.in[i].n, site->in[i]);
    }
    return TD_OK;
}
