// What the calls of the hierarchy are made of: they begin together, go inside the node to the
// leader and back, and end the group where one fails (see hierarchy.h). Below hierarchy_move.c and
// hierarchy_reduce.c.

#include "collectives/gloo/hierarchy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- inside a node ------------------------------------------------------------------------------
// Ranks have other numbers there than in the job.
static td_status in_node(struct td_collective *c, td_status s) {
    if (!s) return TD_OK;
    return td_hierarchy_failed(c, td_status_context(s, "node %d, ranks counted from %d", c->node,
                                                    c->rank - c->local_rank));
}

td_status td_hierarchy_collect(struct td_collective *c, const void *in, size_t bytes, void *out) {
    if (c->local) return in_node(c, c->ops->gather(c->local, in, bytes, out, 0));
    if (bytes) memcpy(out, in, bytes);
    return TD_OK;
}

td_status td_hierarchy_deal(struct td_collective *c, const void *in, size_t bytes, void *out) {
    if (c->local) return in_node(c, c->ops->scatter(c->local, in, bytes, out, 0));
    if (bytes) memcpy(out, in, bytes);
    return TD_OK;
}

td_status td_hierarchy_spread(struct td_collective *c, void *data, size_t bytes) {
    return c->local ? in_node(c, c->ops->broadcast(c->local, data, bytes, 0)) : TD_OK;
}

size_t td_hierarchy_chunk(size_t parts, size_t elem_bytes) {
    return TD_HIERARCHY_SCRATCH_BYTES / parts / elem_bytes;
}

void td_hierarchy_abort(struct td_collective *c) {
    atomic_store(&c->is_over, true); // the thread that watches the connections looks at it
    if (c->local) c->ops->abort(c->local);
}

td_status td_hierarchy_failed(struct td_collective *c, td_status s) {
    if (s) td_hierarchy_abort(c);
    return s;
}

// ---- before a call ------------------------------------------------------------------------------
static td_status check_places(const struct td_collective *c) {
    int32_t first = 0;
    for (int32_t p = 0; p < c->n_nodes; p++) {
        const struct td_mesh_place *at = &c->places[p];
        if (at->first_rank != first || at->n_ranks < 1 || at->n_ranks > c->world - first) {
            return td_fail(TD_FAILED_PRECONDITION,
                           "node %d has %d ranks from rank %d on, in a world of %d where node %d "
                           "begins at rank %d; every node needs the ranks after those of the node "
                           "before",
                           p, at->n_ranks, at->first_rank, c->world, p, first);
        }
        first += at->n_ranks;
    }
    if (first == c->world) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "%d nodes have %d ranks, the world has %d", c->n_nodes,
                   first, c->world);
}

static td_status connect_nodes(struct td_collective *c) {
    if (td_hierarchy_leads(c)) {
        td_status s = td_between_connect(c->between, c->places);
        if (!s) s = check_places(c);
        TD_TRY(td_hierarchy_failed(c, s));
    }
    TD_TRY(td_hierarchy_spread(c, c->places, (size_t)c->n_nodes * sizeof *c->places));
    c->is_connected = true;
    return TD_OK;
}

static td_status fail_over(const struct td_collective *c) {
    td_status s = td_fail(TD_ABORTED, "rank %d left the group, the attempt is over", c->rank);
    return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_ABORTED"),
                                TD_CLASS_COLLECTIVE);
}

td_status td_hierarchy_enter(struct td_collective *c, const struct td_between_call *call) {
    td_works_settle(c->works);
    if (atomic_load(&c->is_over)) return fail_over(c);
    if (!c->is_connected) TD_TRY(connect_nodes(c));
    // By the call in shared memory. There a mean is a sum, so it would pass for one.
    const bool is_compared = (call->kind == TD_BETWEEN_ALL_REDUCE && call->op != TD_REDUCE_MEAN) ||
                             call->kind == TD_BETWEEN_BUCKET || call->kind == TD_BETWEEN_BARRIER;
    if (!c->local || is_compared) return TD_OK;
    char tag[64];
    snprintf(tag, sizeof tag, "%d:%" PRId64 ":%u:%d:%d", call->kind, call->n, call->detail,
             call->dtype, call->op);
    return in_node(c, c->ops->barrier(c->local, tag));
}
