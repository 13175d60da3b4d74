// Slots of the strategy, or what stands for an absent one.

#include "engine/train/rank/group/group.h"

#include <inttypes.h>

#include "engine/train/rank/group/comm_hook.h"

// ---- exchanging data ----------------------------------------------------------------------------

void td_rank_expect(struct td_rank *r, enum td_rank_deadline deadline) {
    if (r->deadline == deadline) return;
    r->deadline = deadline;
    if (!r->group_ops->set_deadline) return;
    r->group_ops->set_deadline(r->group, &r->deadlines[deadline]);
    if (r->sums) r->group_ops->set_deadline(r->sums, &r->deadlines[deadline]);
}

// Buckets that were posted have the group until they were waited for (comm_thread.h).
static void expect_own_group(const struct td_rank *r) {
    (void)r;
    TD_DCHECK(td_comm_thread_is_idle(r->comm));
}

static td_status check_group(int32_t group) {
    if (group == TD_GROUP_WORLD) return TD_OK;
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "a call of group %" PRId32
                                        " of ranks; there is group %d, which is all of them",
                                        group, TD_GROUP_WORLD),
                                TD_CLASS_USER_CODE);
}

td_status td_rank_reduce(struct td_rank *r, int32_t group, void *data, int64_t n,
                         enum td_dtype dtype, enum td_reduce_op op) {
    const struct td_strategy_ops *o = r->strategy_ops;
    TD_TRY(check_group(group));
    expect_own_group(r);
    if (o->reduce) return o->reduce(r->strategy, group, data, n, dtype, op);
    return r->group_ops->all_reduce(r->group, data, n, dtype, op);
}

td_status td_rank_all_gather(struct td_rank *r, int32_t group, const void *in, size_t bytes,
                             void *out) {
    const struct td_strategy_ops *o = r->strategy_ops;
    TD_TRY(check_group(group));
    expect_own_group(r);
    if (o->all_gather) return o->all_gather(r->strategy, group, in, bytes, out);
    return r->group_ops->all_gather(r->group, in, bytes, out);
}

td_status td_rank_broadcast(struct td_rank *r, void *data, size_t bytes, int32_t src) {
    const struct td_strategy_ops *o = r->strategy_ops;
    expect_own_group(r);
    if (o->broadcast) return o->broadcast(r->strategy, data, bytes, src);
    return r->group_ops->broadcast(r->group, data, bytes, src);
}

td_status td_rank_barrier(struct td_rank *r, const char *tag) {
    const struct td_strategy_ops *o = r->strategy_ops;
    const enum td_rank_deadline was = r->deadline;
    expect_own_group(r);
    td_rank_expect(r, TD_RANK_SAVES);
    td_status s = o->barrier ? o->barrier(r->strategy, tag) : r->group_ops->barrier(r->group, tag);
    td_rank_expect(r, was);
    return s;
}

td_status td_rank_decide(struct td_rank *r, bool decision, bool all, bool *out_decision) {
    const struct td_strategy_ops *o = r->strategy_ops;
    expect_own_group(r);
    if (o->reduce_boolean_decision) {
        return o->reduce_boolean_decision(r->strategy, decision, all, out_decision);
    }
    int32_t votes = decision;
    TD_TRY(td_rank_reduce(r, TD_GROUP_WORLD, &votes, 1, TD_I32, TD_REDUCE_SUM));
    *out_decision = all ? votes == r->facts.world_size : votes > 0;
    return TD_OK;
}

td_status td_rank_reduce_gradients(struct td_rank *r, const struct td_bucket *bucket) {
    const struct td_strategy_ops *o = r->strategy_ops;
    if (r->hook) return td_rank_hook_reduce(r, bucket);
    if (!o->reduce_gradients) return r->group_ops->all_reduce_bucket(r->group, bucket);
    TD_TRY_CTX(o->reduce_gradients(r->strategy, bucket), "strategy '%s', bucket %" PRIu32,
               r->strategy_name, bucket->index);
    return TD_OK;
}

void td_rank_bucket_failed(struct td_rank *r) {
    atomic_store(&r->bucket_has_failed, true);
    if (r->sums) r->group_ops->abort(r->sums);
}

// Of a sum that failed beside buckets. Where it ended because one of these failed, that one's
// error, which is there in a moment: the thread begins nothing after it.
static td_status first_cause(struct td_rank *r, td_status s) {
    if (!atomic_load(&r->bucket_has_failed) || td_status_code(s) != TD_ABORTED) return s;
    td_status of_bucket = td_comm_thread_drain(r->comm);
    if (!of_bucket) return s;
    td_status_free(s);
    return of_bucket;
}

td_status td_rank_sum_tensor(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype) {
    atomic_fetch_add_explicit(&r->io->page->collective_seq, 1, memory_order_relaxed);
    if (!r->sums) { // the group is that thread's until then
        TD_TRY(td_comm_thread_drain(r->comm));
        return r->group_ops->all_reduce(r->group, data, n, dtype, TD_REDUCE_SUM);
    }
    td_status s = r->group_ops->all_reduce(r->sums, data, n, dtype, TD_REDUCE_SUM);
    return s ? first_cause(r, td_status_context(s, "sum over ranks within a program")) : TD_OK;
}

// ---- dividing the work --------------------------------------------------------------------------

td_status td_rank_shard(const struct td_rank *r, enum td_split split,
                        struct td_strategy_shard *out_shard) {
    const struct td_strategy_ops *o = r->strategy_ops;
    if (r->config->whole_data) {
        *out_shard = (struct td_strategy_shard){.n_replicas = 1};
        return TD_OK;
    }
    if (o->process_dataloader) return o->process_dataloader(r->strategy, split, out_shard);
    *out_shard = (struct td_strategy_shard){
        .n_replicas = r->facts.world_size,
        .rank = r->facts.global_rank,
    };
    return TD_OK;
}

static const enum td_role saved[] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};

static uint32_t all_on_rank_zero(const struct td_rank *r) {
    uint32_t roles = 0;
    for (size_t i = 0; i < TD_COUNTOF(saved) && r->facts.is_global_zero; i++) {
        roles |= 1u << saved[i];
    }
    return roles;
}

td_status td_rank_written_roles(const struct td_rank *r, uint32_t *out_roles) {
    struct td_checkpoint_call call = {.struct_bytes = sizeof call, .roles = all_on_rank_zero(r)};
    const struct td_strategy_ops *o = r->strategy_ops;
    if (o->save_checkpoint) TD_TRY(o->save_checkpoint(r->strategy, &call));
    *out_roles = call.roles;
    return TD_OK;
}

td_status td_rank_read_roles(const struct td_rank *r, uint32_t *out_roles) {
    struct td_checkpoint_call call = {.struct_bytes = sizeof call, .roles = all_on_rank_zero(r)};
    const struct td_strategy_ops *o = r->strategy_ops;
    if (o->load_checkpoint) TD_TRY(o->load_checkpoint(r->strategy, &call));
    *out_roles = call.roles;
    return TD_OK;
}

// ---- beginning and end --------------------------------------------------------------------------

td_status td_rank_optimizer_state(struct td_rank *r, uint32_t roles) {
    if (!r->strategy_ops->optimizer_state) return TD_OK;
    if (roles & 1u << TD_ROLE_PARAM) r->steady = false; // it may write them
    return r->strategy_ops->optimizer_state(r->strategy, roles, r->state, &r->memory);
}

td_status td_rank_finish(struct td_rank *r) {
    const struct td_strategy_ops *o = r->strategy_ops;
    td_rank_expect(r, TD_RANK_SAVES); // a last checkpoint
    if (o->teardown) return o->teardown(r->strategy);
    return r->facts.world_size == 1 ? TD_OK : td_rank_barrier(r, TD_BARRIER_END);
}

void td_rank_fail(struct td_rank *r, td_status why) {
    const bool has_peers = r->group && r->config->world_size > 1;
    if (!has_peers) {
        if (r->strategy && r->strategy_ops->on_exception) {
            r->strategy_ops->on_exception(r->strategy, td_status_code(why));
        }
        return;
    }
    int64_t step = atomic_load_explicit(&r->io->page->step, memory_order_relaxed);
    td_events_end(r->events, TD_OUTCOME_FAILED, why, step);
    if (r->strategy && r->strategy_ops->on_exception) {
        r->strategy_ops->on_exception(r->strategy, td_status_code(why));
    } else {
        r->group_ops->abort(r->group);
    }
    if (r->sums) r->group_ops->abort(r->sums);
}
