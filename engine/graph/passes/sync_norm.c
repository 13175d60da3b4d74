// Sync norm: batch normalization over the samples of all ranks.
//
// A batch_norm becomes what it computes, with a rank_sum where it sums over the batch. There are
// two such sums: of x and its samples, then of the squares of what is left without the mean. One
// would not do: a variance out of a sum and a sum of squares loses all digits where the mean is
// large. Autodiff comes later and differentiates the sums, too: the gradient of a rank_sum is a
// rank_sum. The running variance is without bias over the samples of all ranks. Batches of ranks
// may differ in size. The statistics are fp32 at least; fp64 where the precision is.
//
// Rejected: an op with a kernel of its own for each half. It would be faster, as these passes over
// x are most of a step (docs/measurements.md, "Sums within a backward pass"), and ten files more.

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "traind/build.h"

struct norm {
    struct td_graph *g;
    td_value x, gamma, beta, mean, var; // (N, C, ...); (C) each
    double eps, momentum;
    struct td_shape per; // (1, C, 1 ...): of a channel
};

static td_status sum_to(const struct norm *m, td_value x, td_value *out) {
    struct td_attrs a = {.shape = m->per};
    return td_graph_op(m->g, TD_OP_REDUCE_SUM, &x, 1, &a, out);
}

// Row i of the two in front: both are of shape `per`.
static td_status row(const struct norm *m, td_value two, int64_t i, td_value *out) {
    const int64_t start[TD_MAX_DIMS] = {i};
    return td_build_slice(m->g, two, start, &m->per, out);
}

// The samples of a channel and their mean, over all ranks.
static td_status find_mean(const struct norm *m, td_value *out_count, td_value *out_mean) {
    const struct td_value_info *x = td_gv(m->g, m->x);
    const double own = (double)(td_shape_elems(&x->shape) / m->per.dim[1]);
    td_value two[2], both, sum;
    TD_TRY(sum_to(m, m->x, &two[0]));
    TD_TRY(td_build_fill(m->g, td_gv(m->g, two[0])->dtype, &m->per, own, &two[1]));
    TD_TRY(td_build_concat(m->g, two, 2, 0, &both));
    TD_TRY(td_build_rank_sum(m->g, both, &both));
    TD_TRY(row(m, both, 0, &sum));
    TD_TRY(row(m, both, 1, out_count));
    return td_build_div(m->g, sum, *out_count, out_mean);
}

// state moves towards `to` (1, C, 1 ...) by momentum.
static td_status move(const struct norm *m, td_value state, td_value to) {
    const struct td_shape *shape = &td_gv(m->g, state)->shape;
    td_value by, step;
    TD_TRY(td_build_reshape(m->g, to, shape, &to));
    TD_TRY(td_build_fill(m->g, td_gv(m->g, state)->dtype, shape, m->momentum, &by));
    TD_TRY(td_build_sub(m->g, to, state, &step));
    TD_TRY(td_build_mul(m->g, step, by, &step));
    TD_TRY(td_build_add(m->g, state, step, &step));
    return td_build_store(m->g, state, step, false);
}

static td_status learn(const struct norm *m, td_value mean, td_value squares, td_value count) {
    td_value one, less, is_one, var;
    const enum td_dtype t = td_gv(m->g, count)->dtype;
    TD_TRY(td_build_fill(m->g, t, &m->per, 1, &one));
    TD_TRY(td_build_sub(m->g, count, one, &less));
    TD_TRY(td_build_compare(m->g, TD_CMP_GT, one, less, &is_one)); // squares are 0 then
    TD_TRY(td_build_select(m->g, is_one, one, less, &less));
    TD_TRY(td_build_div(m->g, squares, less, &var));
    TD_TRY(move(m, m->mean, mean));
    return move(m, m->var, var);
}

// What gamma and beta are applied to, and beta.
static td_status normalize(const struct norm *m, td_value *out_scaled, td_value *out_shift) {
    td_value count, mean, rest, squares, var, eps, scale;
    TD_TRY(find_mean(m, &count, &mean));
    TD_TRY(td_build_sub(m->g, m->x, mean, &rest));
    TD_TRY(td_build_mul(m->g, rest, rest, &squares));
    TD_TRY(sum_to(m, squares, &squares));
    TD_TRY(td_build_rank_sum(m->g, squares, &squares));
    TD_TRY(learn(m, mean, squares, count));
    TD_TRY(td_build_div(m->g, squares, count, &var));
    TD_TRY(td_build_fill(m->g, td_gv(m->g, var)->dtype, &m->per, m->eps, &eps));
    TD_TRY(td_build_add(m->g, var, eps, &var));
    TD_TRY(td_build_sqrt(m->g, var, &var));
    TD_TRY(td_build_reshape(m->g, m->gamma, &m->per, &scale));
    TD_TRY(td_build_div(m->g, scale, var, &scale));
    TD_TRY(td_build_mul(m->g, rest, scale, out_scaled));
    return td_build_reshape(m->g, m->beta, &m->per, out_shift);
}

static td_status expand(struct td_graph *g, td_node n) {
    const struct td_node_info *node = &g->nodes[n];
    const td_value y = node->outputs[0], *in = node->inputs;
    struct norm m = {.g = g,
                     .gamma = in[1],
                     .beta = in[2],
                     .mean = in[3],
                     .var = in[4],
                     .eps = node->attrs.eps,
                     .momentum = node->attrs.momentum,
                     .per = td_gv(g, in[0])->shape};
    for (int32_t d = 0; d < m.per.n_dims; d++) {
        if (d != 1) m.per.dim[d] = 1;
    }
    td_value two[2], x = in[0];
    TD_TRY(td_rewrite_insert_at(g, n));
    TD_TRY(td_build_cast(g, x, TD_F32, 1, &m.x)); // a precision leaves that, or makes it wider
    TD_TRY(normalize(&m, &two[0], &two[1]));
    n = td_gv(g, y)->node;
    g->nodes[n].op = TD_OP_ADD;
    g->nodes[n].attrs = (struct td_attrs){0};
    g->nodes[n].n_inputs = 2;
    TD_TRY(td_graph_set_operand(g, n, 0, two[0]));
    return td_graph_set_operand(g, n, 1, two[1]);
}

td_status td_pass_sync_norm(struct td_graph *g) {
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].op == TD_OP_BATCH_NORM) TD_TRY(expand(g, n));
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}
