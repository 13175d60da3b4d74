// Anomalies: the first tensor that is not finite, named as people can find it.
//
// What a node has written is looked at right after it ran, so what it read was finite. Integers are
// not looked at, nor what a collective brought: the rank that made it says so itself. A program
// whose precision scales the loss may overflow on the way back, which is how it finds its scale.
// There only the forward segment, without the gradients that a head makes in it, and the update are
// watched. Pure functions.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/graph/graph.h"
#include "engine/graph/graph_text.h"
#include "engine/graph/rules/rules.h"
#include "lib/base/floats/floats.h"

enum { NAMES_BYTES = 200 };

static bool scales_loss(const struct td_graph *g) {
    for (td_value v = 1; v <= g->n_values; v++) {
        const struct td_value_info *info = td_gv(g, v);
        if (info->kind == TD_VALUE_SCALAR && info->index == TD_SCALAR_LOSS_SCALE) return true;
    }
    return false;
}

static void take(const struct td_graph *g, td_value v, td_value out[TD_MAX_WATCHED], uint32_t *n) {
    if (*n < TD_MAX_WATCHED && td_is_float(td_gv(g, v)->dtype)) out[(*n)++] = v;
}

uint32_t td_graph_watched(const struct td_graph *g, td_node node, td_value out[TD_MAX_WATCHED]) {
    const struct td_node_info *n = td_graph_node(g, node);
    uint32_t count = 0;
    bool on_the_way = n->segment == TD_SEG_BACKWARD || n->segment == TD_SEG_FINISH;
    bool scaled = (on_the_way || n->op == TD_OP_LINEAR_CE_GRAD) && scales_loss(g);
    if (td_op_is(n->op, TD_OP_IS_START) || (on_the_way && scaled)) return 0;
    if (scaled) {
        take(g, n->outputs[0], out, &count); // the loss; its gradients are on the way back
        return count;
    }
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        take(g, n->outputs[i], out, &count);
    }
    if (n->into) take(g, n->into, out, &count);
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        if (td_op_writes(n->op, &n->attrs, i)) take(g, n->inputs[i], out, &count);
    }
    return count;
}

// "%12" or what it is called: an input, a state tensor, an output of the step.
static void name_of(const struct td_graph *g, td_value v, char *out, size_t bytes) {
    const struct td_value_info *info = td_gv(g, v);
    const char *name = info->name;
    for (uint32_t i = 0; i < g->n_outputs && !name; i++) {
        if (g->outputs[i].value == v) name = g->outputs[i].name;
    }
    if (name) {
        snprintf(out, bytes, "'%s'", name);
    } else if (info->kind == TD_VALUE_NODE) {
        snprintf(out, bytes, "node %" PRIu32 " (%s)", info->node,
                 td_op_name(td_graph_node(g, info->node)->op));
    } else {
        snprintf(out, bytes, "a scalar of the step");
    }
}

static void names_read(const struct td_graph *g, const struct td_node_info *n, char *out) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n->n_inputs && len + 8 < NAMES_BYTES; i++) {
        char name[96];
        name_of(g, n->inputs[i], name, sizeof name);
        int more = snprintf(out + len, NAMES_BYTES - len, "%s%s", i ? ", " : "", name);
        len = TD_MIN(len + (size_t)more, (size_t)NAMES_BYTES);
    }
}

td_status td_graph_check_finite(const struct td_graph *g, td_node node, td_value v,
                                const void *data) {
    const struct td_value_info *info = td_gv(g, v);
    int64_t n = td_shape_elems(&info->shape);
    if (td_float_all_finite(info->dtype, data, n)) return TD_OK;
    for (int64_t i = 0; i < n; i++) {
        double x;
        const char *at = (const char *)data + (size_t)i * td_dtype_bytes(info->dtype);
        td_float_convert(info->dtype, at, 1, TD_F64, &x);
        if (isfinite(x)) continue;
        const struct td_node_info *made = td_graph_node(g, node);
        char what[96], read[NAMES_BYTES], shape[96];
        name_of(g, v, what, sizeof what);
        names_read(g, made, read);
        td_shape_text(info->dtype, &info->shape, shape, sizeof shape);
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "anomaly: %s, node %" PRIu32 " of the %s segment of '%s', wrote %f to element "
                    "%" PRId64 " of %s %s; all before was finite, and it read %s",
                    td_op_name(made->op), node, td_segment_name(made->segment), g->step, x, i, what,
                    shape, read),
            TD_CLASS_NUMERIC);
    }
    return TD_OK;
}
