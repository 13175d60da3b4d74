// Joining, leaving, and the table of calls (see hierarchy.h).

#include "collectives/gloo/hierarchy.h"

#include <string.h>

#include "lib/base/clock.h"
#include "traind/plugin.h"

// ---- life ---------------------------------------------------------------------------------------
static td_status hierarchy_facts(struct td_collective_facts *out_facts) {
    const struct td_collective_facts f = {
        .struct_bytes = sizeof f,
        .on_host = true,
        .calls = ((1u << TD_CALL_COUNT) - 1) & ~(1u << TD_CALL_SEND_RECV) & ~(1u << TD_CALL_GROUPS),
        .max_open = TD_OPEN_CALLS_MAX,
        .joins_nodes = true,
        .joins_again = true,
    };
    memcpy(out_facts, &f, TD_MIN(sizeof f, (size_t)out_facts->struct_bytes));
    return TD_OK;
}

static const struct td_collective_ops *node_ops(void) {
    return td_collective_shm.ops;
}

static size_t hierarchy_shared_bytes(int32_t world_size, size_t gradient_bytes) {
    return world_size > 1 ? node_ops()->shared_bytes(world_size, gradient_bytes) : 0;
}

static void hierarchy_leave(struct td_collective *c) {
    if (!c) return;
    td_works_destroy(c->works);
    td_between_destroy(c->between);
    if (c->local) c->ops->leave(c->local);
    free(c->places);
    free(c->scratch[0]);
    free(c->scratch[1]);
    free(c->to);
    free(c->from);
    free(c->parts);
    free(c);
}

static td_status check_nodes(const struct td_collective_config *k) {
    if (k->n_nodes < 2) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the collective 'hierarchy' joins ranks of several nodes, this attempt has "
                       "one; leave trainer.collective out");
    }
    if (k->n_nodes > k->world_size || k->node_rank < 0 || k->node_rank >= k->n_nodes ||
        k->local_world_size < 1 || k->local_rank < 0 || k->local_rank >= k->local_world_size ||
        k->rank < k->local_rank) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "rank %d of %d as rank %d of %d on node %d of %d: this cannot be", k->rank,
                       k->world_size, k->local_rank, k->local_world_size, k->node_rank, k->n_nodes);
    }
    if (k->store) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION,
                   "ranks of %d nodes need a store in which nodes find each other; start them by "
                   "traind",
                   k->n_nodes);
}

// The ranks of this node, as a group of their own.
static td_status join_local(struct td_collective *c, const struct td_collective_config *config) {
    if (c->n_local == 1) return TD_OK;
    struct td_collective_config local = *config;
    local.rank = c->local_rank;
    local.world_size = c->n_local;
    local.inner = NULL;
    local.knobs = NULL;
    local.n_nodes = 1;
    return c->ops->join(&local, &c->local);
}

static bool is_over(void *arg) {
    struct td_collective *c = arg;
    return atomic_load(&c->is_over) || (c->aborted && c->aborted(c->aborted_arg));
}

static td_status join_nodes(struct td_collective *c, const struct td_collective_config *config) {
    if (!td_hierarchy_leads(c)) return TD_OK;
    c->config = (struct td_between_config){.mesh = {.store = config->store,
                                                    .address = config->interface_address,
                                                    .attempt = config->attempt,
                                                    .group = config->group,
                                                    .node = c->node,
                                                    .n_nodes = c->n_nodes,
                                                    .first_rank = c->rank,
                                                    .n_ranks = c->n_local,
                                                    .names = config->node_names,
                                                    .link_timeout_ns = config->link_timeout_ns,
                                                    .aborted = is_over,
                                                    .aborted_arg = c,
                                                    .note = config->note,
                                                    .note_arg = config->note_arg},
                                           .deadline = config->deadline};
    return td_between_create(&c->config, &c->between);
}

static td_status hierarchy_join(const struct td_collective_config *config,
                                struct td_collective **out_c) {
    TD_TRY(td_collective_check_config(config));
    TD_TRY(check_nodes(config));
    struct td_collective *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->ops = node_ops();
    c->aborted = config->aborted;
    c->aborted_arg = config->aborted_arg;
    c->rank = config->rank;
    c->world = config->world_size;
    c->node = config->node_rank;
    c->n_nodes = config->n_nodes;
    c->local_rank = config->local_rank;
    c->n_local = config->local_world_size;
    c->places = td_calloc((size_t)c->n_nodes, sizeof *c->places);
    c->scratch[0] = td_calloc(1, TD_HIERARCHY_SCRATCH_BYTES);
    c->scratch[1] = td_calloc(1, TD_HIERARCHY_SCRATCH_BYTES);
    c->to = td_calloc((size_t)c->n_nodes, sizeof *c->to);
    c->from = td_calloc((size_t)c->n_nodes, sizeof *c->from);
    c->parts = td_calloc((size_t)c->world, sizeof *c->parts);
    const bool is_whole =
        c->places && c->scratch[0] && c->scratch[1] && c->to && c->from && c->parts;
    td_status s = is_whole ? join_local(c, config) : td_fail_oom();
    if (!s) s = join_nodes(c, config);
    if (s) {
        hierarchy_leave(c);
        return s;
    }
    *out_c = c;
    return TD_OK;
}

static void hierarchy_set_deadline(struct td_collective *c,
                                   const struct td_collective_deadline *deadline) {
    if (c->local) c->ops->set_deadline(c->local, deadline);
    if (c->between) td_between_set_deadline(c->between, deadline);
}

static td_status hierarchy_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    if (c->local) return c->ops->gradients(c->local, out_data, out_bytes);
    *out_data = NULL;
    *out_bytes = 0;
    return TD_OK;
}

// ---- calls that are started ---------------------------------------------------------------------
static td_status make(struct td_collective *c, const struct td_collective_start *k) {
    switch (k->call) {
    case TD_ASYNC_ALL_REDUCE:
        return td_hierarchy_all_reduce(c, k->out, k->n, k->dtype, k->op);
    case TD_ASYNC_REDUCE_SCATTER:
        return td_hierarchy_reduce_scatter(c, k->in, k->out, k->n, k->dtype, k->op);
    case TD_ASYNC_ALL_GATHER:
        return td_hierarchy_all_gather(c, k->in, k->bytes, k->out);
    case TD_ASYNC_BROADCAST:
        return td_hierarchy_broadcast(c, k->out, k->bytes, k->src);
    case TD_ASYNC_BARRIER:
        return td_hierarchy_barrier(c, k->tag);
    case TD_ASYNC_COUNT:
        break;
    }
    return td_fail(TD_INTERNAL, "a call that was not checked: %d", (int)k->call);
}

static const struct td_works_ops works_ops = {make, td_hierarchy_abort, true};

static td_status hierarchy_start(struct td_collective *c, const struct td_collective_start *call,
                                 struct td_collective_work **out_work) {
    TD_TRY(td_collective_check_start(call, c->world));
    if (!c->works) TD_TRY(td_works_create(c, &works_ops, &c->works));
    return td_works_start(c->works, call, out_work);
}

static td_status hierarchy_wait(struct td_collective *c, struct td_collective_work *work,
                                int64_t timeout_ns) {
    bool is_late;
    td_status s = td_works_wait(c->works, work, timeout_ns, &is_late);
    if (!is_late || !s) return s;
    td_status_free(s);
    s = td_fail(TD_DEADLINE_EXCEEDED,
                "a call that was started was not done within %.3f s; see the logs of the other "
                "nodes, or wait longer",
                (double)timeout_ns / (double)TD_NS_PER_S);
    return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_TIMEOUT"),
                                TD_CLASS_COLLECTIVE);
}

static td_status hierarchy_test(struct td_collective *c, struct td_collective_work *work,
                                bool *out_done) {
    return td_works_test(c->works, work, out_done);
}

static const struct td_collective_ops hierarchy_ops = {
    .struct_bytes = sizeof(struct td_collective_ops),
    .facts = hierarchy_facts,
    .shared_bytes = hierarchy_shared_bytes,
    .join = hierarchy_join,
    .leave = hierarchy_leave,
    .gradients = hierarchy_gradients,
    .all_reduce = td_hierarchy_all_reduce,
    .all_reduce_bucket = td_hierarchy_all_reduce_bucket,
    .all_gather = td_hierarchy_all_gather,
    .broadcast = td_hierarchy_broadcast,
    .barrier = td_hierarchy_barrier,
    .abort = td_hierarchy_abort,
    .reduce = td_hierarchy_reduce,
    .reduce_scatter = td_hierarchy_reduce_scatter,
    .gather = td_hierarchy_gather,
    .scatter = td_hierarchy_scatter,
    .all_gather_uneven = td_hierarchy_all_gather_uneven,
    .all_to_all = td_hierarchy_all_to_all,
    .start = hierarchy_start,
    .wait = hierarchy_wait,
    .test = hierarchy_test,
    .set_deadline = hierarchy_set_deadline,
};

TD_PLUGIN(COLLECTIVE, "hierarchy", "ranks of several nodes: shared memory, and Gloo between nodes",
          &hierarchy_ops)
