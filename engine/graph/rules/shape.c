// See the header.

#include "engine/graph/rules/shape.h"

#include <stdio.h>

#include "engine/graph/graph_text.h"

bool td_shape_broadcast(const struct td_shape *a, const struct td_shape *b, struct td_shape *out) {
    struct td_shape r = {.n_dims = TD_MAX(a->n_dims, b->n_dims)};
    for (int32_t i = 0; i < r.n_dims; i++) {
        int32_t ia = i - (r.n_dims - a->n_dims), ib = i - (r.n_dims - b->n_dims);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1) return false;
        r.dim[i] = da == 1 ? db : da;
    }
    *out = r;
    return true;
}

td_status td_op_reject(const struct td_op_call *c, const char *why) {
    char text[512];
    size_t at = 0;
    for (uint32_t i = 0; i < c->n_in && i < 5; i++) {
        char one[96];
        td_shape_text(arg(c, i)->dtype, shape_of(c, i), one, sizeof one);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", one);
    }
    text[at] = '\0';
    return td_fail(TD_INVALID_ARGUMENT, "%s(%s%s): %s", td_op_name(c->op), text,
                   c->n_in > 5 ? ", ..." : "", why);
}

double td_op_cost_output(const struct td_graph *g, const struct td_node_info *node) {
    return td_op_elems(g, node->into ? node->into : node->outputs[0]);
}

double td_op_cost_inputs(const struct td_graph *g, const struct td_node_info *node) {
    double sum = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        sum += td_op_elems(g, node->inputs[i]);
    }
    return node->op == TD_OP_SUM_SQUARES ? 2 * sum : sum;
}

double td_op_cost_free(const struct td_graph *g, const struct td_node_info *node) {
    (void)g, (void)node;
    return 0;
}
