// Which kind goes where.

#include "engine/train/rank/group/sums.h"

#include <stdlib.h>

#include "engine/train/rank/group/buckets.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/join.h"
#include "engine/train/rank/group/pieces.h"
#include "traind/op.h"

static td_status grow_staging(struct td_rank *r, size_t bytes) {
    if (bytes <= r->sum_staging_bytes) return TD_OK;
    void *grown = td_realloc(r->sum_staging, bytes);
    if (!grown) return td_fail_oom();
    r->sum_staging = grown;
    r->sum_staging_bytes = bytes;
    return TD_OK;
}

static td_status sum_value(struct td_rank *r, const struct td_sum *sum) {
    const struct td_sum_range *x = &sum->out[0];
    const size_t bytes = (size_t)x->n * td_dtype_bytes(sum->dtype);
    void *data = td_sum_range_host(x);
    if (r->facts.world_size == 1) return TD_OK;
    if (data) return td_rank_sum_tensor(r, data, x->n, sum->dtype);
    TD_TRY(grow_staging(r, bytes));
    const struct td_buffer here = td_buffer_of_host(r->sum_staging, bytes);
    TD_TRY(r->accel_ops->copy(r->accel, here, 0, x->buffer, x->offset, bytes));
    TD_TRY(td_rank_sum_tensor(r, r->sum_staging, x->n, sum->dtype));
    return r->accel_ops->copy(r->accel, x->buffer, x->offset, here, 0, bytes);
}

typedef td_status sum_fn(struct td_rank *r, const struct td_sum *sum);

static td_status nothing(struct td_rank *r, const struct td_sum *sum) {
    (void)r, (void)sum;
    return TD_OK;
}

// make: on the communication thread.
static const struct {
    sum_fn *begin, *make, *end;
} kinds[TD_SUM_KINDS] = {
    [TD_SUM_ALL_REDUCE] = {td_rank_begin_bucket, td_rank_make_bucket, td_rank_end_bucket},
    [TD_SUM_REDUCE_SCATTER] = {td_rank_begin_pieces, td_rank_make_pieces, td_rank_end_pieces},
    [TD_SUM_ALL_GATHER] = {td_rank_begin_pieces, td_rank_make_pieces, td_rank_end_pieces},
    [TD_SUM_RANK_SUM] = {sum_value, nothing, nothing},
};

static td_status start_sum(void *arg, const struct td_sum *sum) {
    return kinds[sum->kind].begin(arg, sum);
}

static td_status make_sum(void *arg, const struct td_sum *sum) {
    return kinds[sum->kind].make(arg, sum);
}

static td_status await_sum(void *arg, const struct td_sum *sum) {
    return kinds[sum->kind].end(arg, sum);
}

// That one run of a program begins, at most.
static uint32_t most_sums(const struct td_rank *r) {
    uint32_t most = 0;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_graph *g = td_programs_at(r->programs, i)->graph;
        uint32_t n_starts = 0;
        for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
            n_starts += td_op_is(td_graph_node(g, n)->op, TD_OP_IS_START);
        }
        most = TD_MAX(most, n_starts);
    }
    return most;
}

td_status td_rank_lay_sums(struct td_rank *r) {
    TD_TRY(td_rank_lay_buckets(r));
    TD_TRY(td_rank_lay_pieces(r));
    if (!td_rank_reduces_beside(r)) return TD_OK;
    TD_TRY(td_comm_thread_create(most_sums(r), make_sum, r, &r->comm));
    return td_rank_sums_apart(r) ? td_rank_join_second_group(r) : TD_OK;
}

// ---- what cannot be -----------------------------------------------------------------------------

static bool uses(const struct td_rank *r, td_op_id op) {
    for (int mode = TD_MODE_TRAIN; mode <= TD_MODE_PREDICT; mode++) {
        if (td_programs_have(r->programs, (enum td_mode)mode, op)) return true;
    }
    return false;
}

static td_status check_scatter(const struct td_rank *r) {
    if (!(r->group_facts.calls >> TD_CALL_REDUCE_SCATTER & 1)) {
        return td_bad_spec("collective '%s' has no reduce_scatter, which strategy '%s' needs; use "
                           "another of the two",
                           r->group_name, r->strategy_name);
    }
    if (r->hook) {
        return td_bad_spec("comm_hook '%s' sends buckets, but strategy '%s' reduces gradients in "
                           "pieces; leave one of the two out",
                           r->config->comm_hook.name, r->strategy_name);
    }
    if (!r->strategy_ops->reduce_gradients) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "strategy '%s' has a slot reduce_gradients, which is for buckets, and programs "
                "that reduce gradients in pieces; leave one of the two out",
                r->strategy_name),
        TD_CLASS_USER_CODE);
}

// A strategy that records starts by itself gives them numbers.
static td_status check_buckets(const struct td_rank *r, const struct td_graph *g) {
    const uint32_t n_buckets = td_state_n_buckets(r->state);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (!td_op_is(node->op, TD_OP_IS_START) || node->attrs.bucket < n_buckets) continue;
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT,
                    "strategy '%s' sums bucket %u in node %u (%s) of step '%s', and there are %u",
                    r->strategy_name, node->attrs.bucket, n, td_op_name(node->op), td_graph_step(g),
                    n_buckets),
            TD_CLASS_USER_CODE);
    }
    return TD_OK;
}

td_status td_rank_check_sums(struct td_rank *r) {
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        TD_TRY(check_buckets(r, td_programs_at(r->programs, i)->graph));
    }
    for (int k = 0; k < TD_SUM_KINDS; k++) {
        const td_op_id op = td_sum_kind_op((enum td_sum_kind)k);
        if ((r->accel_facts.sums >> k & 1) || !uses(r, op)) continue;
        return td_bad_spec("accelerator '%s' has no %s, which strategy '%s' or model '%s' needs; "
                           "use another accelerator",
                           r->accel_name, td_op_name(op), r->strategy_name, r->config->model.name);
    }
    return uses(r, TD_OP_REDUCE_SCATTER) ? check_scatter(r) : TD_OK;
}

void td_rank_bind_sums(struct td_rank *r, struct td_bindings *b) {
    const uint32_t buckets = 1u << TD_SUM_ALL_REDUCE, all = (1u << TD_SUM_KINDS) - 1;
    const bool may_record =
        r->group_facts.recordable && !r->strategy_ops->reduce_gradients && !r->hook;
    b->collective = start_sum;
    b->collective_wait = await_sum;
    b->collective_arg = r;
    b->sums_on_host = r->reduces_on_host ? all : all & ~buckets;
    b->sums_recordable = !r->reduces_on_host && may_record ? buckets : 0;
}
