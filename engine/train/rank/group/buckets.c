// A bucket is listed once (bucket_list.h), so that no step looks for its tensors. Staged gradients
// have the same offset in host memory as in their region: the mapping of a group serves, and
// control flags keep their place after the last bucket. A group may reduce later than it was asked
// to; what it reduced goes back to the device when it was awaited.
//
// Ranks of a node reduce a bucket on the thread that runs the program: they share its memory, and
// each needs its core for either. Ranks of several nodes wait for a network, so a thread of its own
// reduces while the program goes on (comm_thread.h).

#include "engine/train/rank/group/buckets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/rank/group/bucket_list.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/replicas.h"
#include "traind/op.h"

// ---- where gradients are reduced ----------------------------------------------------------------

bool td_rank_sums_buckets(const struct td_rank *r) {
    return td_programs_have(r->programs, TD_MODE_TRAIN, TD_OP_ALL_REDUCE);
}

bool td_rank_group_takes_device(const struct td_rank *r) {
    const struct td_collective_facts *f = &r->group_facts;
    return f->on_device &&
           strncmp(f->device_memory, r->accel_facts.device_memory, sizeof f->device_memory) == 0;
}

td_status td_rank_check_group(const struct td_rank *r) {
    if (r->group_facts.needs_host) {
        return td_fail(TD_UNIMPLEMENTED,
                       "collective '%s' needs a group of the host beside it, which this version "
                       "does not join",
                       r->group_name);
    }
    if (r->group_facts.on_host || r->group_facts.on_device) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "collective '%s' reduces gradients neither in host memory nor on a device; its "
                "facts have to say on_host or on_device",
                r->group_name),
        TD_CLASS_USER_CODE);
}

static td_status stage(struct td_rank *r) {
    const size_t need = td_state_region_bytes(r->state, TD_ROLE_GRAD);
    void *shared = NULL;
    size_t bytes = 0;
    TD_TRY(r->group_ops->gradients(r->group, &shared, &bytes));
    if (bytes < need) {
        shared = r->own_staging = malloc(need);
        if (!shared) return td_fail_oom();
    }
    r->staging = td_buffer_of_host(shared, need);
    return TD_OK;
}

static td_status choose_memory(struct td_rank *r) {
    const struct td_collective_facts *f = &r->group_facts;
    r->reduces_on_host = true;
    if (!td_rank_sums_buckets(r)) return TD_OK; // in pieces, or not at all
    if (td_rank_address(r, TD_ROLE_GRAD)) {
        if (f->on_host || r->hook) return TD_OK;
        return td_bad_spec("collective '%s' reduces gradients on a device alone, but accelerator "
                           "'%s' keeps them in host memory; use another accelerator",
                           r->group_name, r->accel_name);
    }
    if (!td_rank_group_takes_device(r) || r->hook) { // a hook works on the host
        if (f->on_host || r->hook) return stage(r);
        return td_bad_spec("collective '%s' reduces gradients in memory of a '%.*s' device alone, "
                           "but accelerator '%s' has another; use another collective",
                           r->group_name, (int)sizeof f->device_memory, f->device_memory,
                           r->accel_name);
    }
    r->reduces_on_host = false;
    return TD_OK;
}

// ---- the list -----------------------------------------------------------------------------------

bool td_rank_reduces_beside(const struct td_rank *r) {
    return r->buckets && r->group_facts.joins_nodes && r->reduces_on_host &&
           !r->facts.waits_for_buckets;
}

static td_status reduce(struct td_rank *r, uint32_t index) {
    const struct td_bucket *b = &r->buckets[index].bucket;
    const struct td_mono start = td_mono_now();
    char name[24], args[32];
    TD_TRY(td_rank_reduce_gradients(r, b));
    if (!r->timeline) return TD_OK;
    snprintf(name, sizeof name, "bucket %u", (unsigned)index);
    snprintf(args, sizeof args, "\"bytes\":%zu", td_bucket_bytes(b));
    return td_timeline_add(r->timeline, name, r->comm ? "communication" : "queue", start, args);
}

// Here and now, whichever thread this is.
static td_status reduce_now(struct td_rank *r, uint32_t index) {
    td_status s = reduce(r, index);
    if (s) td_rank_bucket_failed(r);
    return s;
}

td_status td_rank_make_bucket(struct td_rank *r, const struct td_sum *sum) {
    TD_TRY(reduce_now(r, sum->index));
    return r->group_ops->wait_buckets ? r->group_ops->wait_buckets(r->group) : TD_OK;
}

td_status td_rank_lay_buckets(struct td_rank *r) {
    const uint32_t n = td_state_n_buckets(r->state);
    if (!r->strategy_ops->rewrite) return TD_OK; // no program has all_reduce nodes
    TD_TRY(choose_memory(r));
    struct td_bucket *list = td_arena_array(r->arena, n, sizeof *list);
    r->buckets = td_arena_array(r->arena, n, sizeof *r->buckets);
    if (!list || !r->buckets) return td_fail_oom();
    TD_TRY(td_rank_list_buckets(r, r->arena, list));
    for (uint32_t i = 0; i < n; i++) {
        r->buckets[i].bucket = list[i];
    }
    return TD_OK;
}

// ---- begin and end ------------------------------------------------------------------------------

static td_status copy_staged(struct td_rank *r, const struct td_bucket *b, bool to_host) {
    const struct td_buffer region = r->memory.region[TD_ROLE_GRAD];
    const struct td_buffer to = to_host ? r->staging : region, from = to_host ? region : r->staging;
    return r->accel_ops->copy(r->accel, to, b->offset, from, b->offset, td_bucket_bytes(b));
}

td_status td_rank_begin_bucket(struct td_rank *r, const struct td_sum *sum) {
    struct td_rank_bucket *b = &r->buckets[sum->index];
    b->bucket.stream = sum->stream;
    atomic_fetch_add_explicit(&r->io->page->collective_seq, 1, memory_order_relaxed);
    if (r->staging.bytes) TD_TRY(copy_staged(r, &b->bucket, true));
    b->is_staged = r->staging.bytes != 0;
    if (r->comm) return td_comm_thread_post(r->comm, sum, b->bucket.has_control);
    b->is_open = r->group_ops->wait_buckets != NULL;
    return reduce_now(r, sum->index);
}

// The group completes all that it has.
static td_status close_buckets(struct td_rank *r) {
    for (uint32_t i = 0; i < td_state_n_buckets(r->state); i++) {
        r->buckets[i].is_open = false;
    }
    return r->group_ops->wait_buckets(r->group);
}

td_status td_rank_end_bucket(struct td_rank *r, const struct td_sum *sum) {
    struct td_rank_bucket *b = &r->buckets[sum->index];
    const struct td_mono start = td_mono_now();
    char name[32];
    TD_TRY(td_comm_thread_wait(r->comm, sum));
    if (b->is_open) TD_TRY(close_buckets(r));
    if (r->timeline) {
        snprintf(name, sizeof name, "await bucket %u", (unsigned)sum->index);
        TD_TRY(td_timeline_add(r->timeline, name, "queue", start, NULL));
    }
    if (!b->is_staged) return TD_OK;
    b->is_staged = false;
    return copy_staged(r, &b->bucket, false);
}
