// Precision `bf16_products`: weights, gradients and all values are fp32, and only the operands of
// matrix products are rounded to bf16. The sums of a product stay fp32.
//
//   cc -shared -fPIC -o precision-bf16_products.so bf16_products.c $(pkg-config --cflags --libs
//   traind)
//
// A precision has no loop: it rewrites each recorded program, after the gradients were derived and
// before the strategy and the optimizer come (traind/rewrite.h). Products of the backward pass are
// nodes like the others. Nothing is kept between steps, so there is no state.

#include "traind/build.h"
#include "traind/plugin.h"
#include "traind/precision.h"
#include "traind/rewrite.h"

static td_status products_open(const struct td_precision_config *config,
                               struct td_precision **out_precision) {
    (void)config;          // it has no knobs
    *out_precision = NULL; // nothing to keep
    return TD_OK;
}

static void products_close(struct td_precision *p) {
    (void)p;
}

// The facts are filled in place: struct_bytes is there already, and what is not named here is 0.
static td_status products_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    (void)p;
    out_facts->param = TD_F32;
    out_facts->compute = TD_BF16;
    out_facts->moments = TD_F32;
    return TD_OK;
}

// Two casts come before node *n, which moves on by two. With attrs.wide a product of 16-bit
// operands gives fp32, so that nothing after it has to change.
static td_status lower(struct td_graph *g, td_node *n) {
    struct td_node_info node = *td_graph_node(g, *n);
    td_value in[2] = {node.inputs[0], node.inputs[1]};
    for (int i = 0; i < 2; i++) {
        TD_TRY(td_rewrite_insert_at(g, *n));
        TD_TRY(td_build_cast(g, in[i], TD_BF16, 0, &in[i]));
        ++*n;
    }
    node.attrs.wide = true;
    return td_rewrite_node(g, *n, in, &node.attrs);
}

static bool is_f32_product(const struct td_graph *g, td_node n) {
    const struct td_node_info *node = td_graph_node(g, n);
    return node->op == TD_OP_MATMUL && node->n_inputs == 2 &&
           td_graph_value(g, node->inputs[0])->dtype == TD_F32;
}

static td_status products_rewrite(struct td_precision *p, struct td_graph *g,
                                  const struct td_program_key *key) {
    (void)p;
    (void)key;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        if (is_f32_product(g, n)) TD_TRY(lower(g, &n));
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}

static const struct td_precision_ops ops = {
    .struct_bytes = sizeof ops,
    .open = products_open,
    .close = products_close,
    .facts = products_facts,
    .rewrite = products_rewrite,
};

TD_PLUGIN(PRECISION, "bf16_products", "fp32 everywhere but in the operands of products", &ops)
