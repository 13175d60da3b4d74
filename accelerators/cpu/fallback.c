// The reference's loops as a kernel of this accelerator. Whatever op and type no family takes is
// right from the first day, and a family may take the cases that matter and leave the odd ones.
//
// Operands are always in plain layouts here. The loops work in scratch, 8 bytes for each element of
// the node. A note of the rank says that such a node is slow. Rejected: a copy of the loops in this
// folder, which would be a second specification.

#include "accelerators/cpu/fallback.h"

#include "accelerators/reference/node.h"

struct fallback {
    const struct td_graph *graph;
    td_node node;
    void **in;
    struct ref_operand *operands;
};

static void destroy(void *own) {
    struct fallback *f = own;
    free(f->in);
    free(f->operands);
    free(f);
}

static td_status run_fallback(const struct td_kernel *k, const struct td_run *r) {
    const struct fallback *f = k->own;
    void *out[TD_MAX_OUT] = {0};
    for (uint32_t i = 0; i < k->n_in; i++) {
        f->in[i] = td_operand_at(&k->in[i], r);
    }
    for (uint32_t i = 0; i < k->n_out; i++) {
        out[i] = td_operand_at(&k->out[i], r);
    }
    struct td_ref_site site = {f->in, out, k->scalars, k->random, f->operands, r->scratch};
    return td_ref_node_run(f->graph, f->node, &site);
}

td_status td_fallback_take(struct td_kernel *k, const struct td_graph *g, td_node n) {
    size_t elems = 0, n_in = TD_MAX(k->n_in, 1);
    TD_TRY(td_ref_node_check(g, n, &elems));
    struct fallback *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    k->run = run_fallback;
    k->slow = true;
    k->own = f;
    k->destroy_own = destroy;
    f->graph = g;
    f->node = n;
    f->in = td_calloc(n_in, sizeof *f->in);
    f->operands = td_calloc(n_in, sizeof *f->operands);
    k->scratch_bytes = (elems + 1) * sizeof(double);
    return f->in && f->operands ? TD_OK : td_fail_oom();
}
