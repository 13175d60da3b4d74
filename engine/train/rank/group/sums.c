// Which kind goes where.

#include "engine/train/rank/group/sums.h"

#include <stdlib.h>

#include "engine/train/rank/group/buckets.h"
#include "engine/train/rank/group/group.h"

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

static td_status start_sum(void *arg, const struct td_sum *sum) {
    return sum->kind == TD_SUM_RANK_SUM ? sum_value(arg, sum) : td_rank_begin_bucket(arg, sum);
}

static td_status await_sum(void *arg, const struct td_sum *sum) {
    return sum->kind == TD_SUM_RANK_SUM ? TD_OK : td_rank_end_bucket(arg, sum);
}

void td_rank_bind_sums(struct td_rank *r, struct td_bindings *b) {
    const uint32_t buckets = 1u << TD_SUM_ALL_REDUCE;
    const bool may_record =
        r->group_facts.recordable && !r->strategy_ops->reduce_gradients && !r->hook;
    b->collective = start_sum;
    b->collective_wait = await_sum;
    b->collective_arg = r;
    b->sums_on_host = 1u << TD_SUM_RANK_SUM | (r->reduces_on_host ? buckets : 0);
    b->sums_recordable = !r->reduces_on_host && may_record ? buckets : 0;
}
