// The collective of ranks on one node: gradients are born in a shared mapping.
//
//   [head and slots][stages: 2 halves for each rank][places of groups][gradient region of rank
//   0]...
//
// Gradients are reduced in their regions; everything else goes through the stages in chunks. Stages
// have alternating halves, by the parity of the meeting. Nobody can be two meetings ahead, so a
// call that reads what others put into their halves needs one meeting a chunk. Nothing that a call
// needs grows with its data.
//
// The launcher owns the mapping (a zeroed memfd per attempt) and maps it nowhere else. A rank gets
// it as one pointer and size, and the size of a region follows from both. So every rank computes
// the same layout and the head only has to confirm it. Waiting and failure: shm_team.h.
// The other parts: shm.h. Thread: one at a time; abort and set_deadline from any.

#include "collectives/shm.h"

#include <string.h>

#include "lib/base/machine/machine.h"

// ---- layout ------------------------------------------------------------------------------------
static size_t head_bytes(int32_t world) {
    return td_align_up(sizeof(struct td_shm_head) + (size_t)world * sizeof(struct td_shm_slot),
                       td_page_bytes());
}

static size_t stages_bytes(int32_t world) {
    return (size_t)world * 2 * TD_SHM_HALF_BYTES;
}

static size_t fixed_bytes(int32_t world) {
    return head_bytes(world) + stages_bytes(world) + TD_GROUPS_MAX * td_shm_place_bytes(world);
}

// 0 also for what cannot be: a world out of range, or more bytes than there are.
static size_t shm_shared_bytes(int32_t world_size, size_t gradient_bytes) {
    size_t regions, page = td_page_bytes();
    if (world_size < 1 || world_size > TD_COLLECTIVE_MAX_WORLD ||
        gradient_bytes > SIZE_MAX - page) {
        return 0;
    }
    if (!td_size_mul(td_align_up(gradient_bytes, page), (size_t)world_size, &regions)) return 0;
    size_t fixed = fixed_bytes(world_size);
    return regions > SIZE_MAX - fixed ? 0 : fixed + regions;
}

static td_status shm_join(const struct td_collective_config *config, struct td_collective **out_c) {
    TD_TRY(td_collective_check_config(config));
    int32_t world = config->world_size;
    if (!config->shared || (uintptr_t)config->shared % TD_LINE_BYTES ||
        config->shared_bytes < fixed_bytes(world)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the shm collective of %d ranks needs a shared mapping of at least %zu "
                       "bytes, aligned to %d; it got %zu at %p",
                       world, fixed_bytes(world), TD_LINE_BYTES, config->shared_bytes,
                       config->shared);
    }
    struct td_collective *c = td_calloc(1, sizeof *c + (size_t)world * sizeof c->parts[0]);
    if (!c) return td_fail_oom();
    size_t page = td_page_bytes();
    c->region_bytes = (config->shared_bytes - fixed_bytes(world)) / (size_t)world / page * page;
    c->stages = (char *)config->shared + head_bytes(world);
    c->half_bytes = TD_SHM_HALF_BYTES;
    c->places = c->stages + stages_bytes(world);
    c->place_bytes = td_shm_place_bytes(world);
    c->regions = (char *)config->shared + fixed_bytes(world);
    td_status s = td_shm_team_init(&c->team, config, c->region_bytes);
    if (s) {
        free(c);
        return s;
    }
    *out_c = c;
    return TD_OK;
}

static void shm_leave(struct td_collective *c) {
    if (!c || !c->places) return; // a group goes by group_destroy, or with the whole
    td_shm_leave_groups(c);
    td_works_destroy(c->works);
    td_shm_team_finish(&c->team);
    free(c);
}

static void shm_abort(struct td_collective *c) {
    td_shm_team_abort(&c->team);
}

static void shm_set_deadline(struct td_collective *c,
                             const struct td_collective_deadline *deadline) {
    td_shm_team_set_deadline(&c->team, deadline);
}

static td_status shm_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    *out_data = c->region_bytes ? c->regions + (size_t)c->team.rank * c->region_bytes : NULL;
    *out_bytes = c->region_bytes;
    return TD_OK;
}

// ---- calls that are started --------------------------------------------------------------------
static td_status make(struct td_collective *c, const struct td_collective_start *k) {
    switch (k->call) {
    case TD_ASYNC_ALL_REDUCE:
        return td_shm_all_reduce(c, k->out, k->n, k->dtype, k->op);
    case TD_ASYNC_REDUCE_SCATTER:
        return td_shm_reduce_scatter(c, k->in, k->out, k->n, k->dtype, k->op);
    case TD_ASYNC_ALL_GATHER:
        return td_shm_all_gather(c, k->in, k->bytes, k->out);
    case TD_ASYNC_BROADCAST:
        return td_shm_broadcast(c, k->out, k->bytes, k->src);
    case TD_ASYNC_BARRIER:
        return td_shm_barrier(c, k->tag);
    case TD_ASYNC_COUNT:
        break;
    }
    return td_fail(TD_INTERNAL, "a call that was not checked: %d", (int)k->call);
}

static const struct td_works_ops works_ops = {make, shm_abort, true};

static td_status shm_start(struct td_collective *c, const struct td_collective_start *call,
                           struct td_collective_work **out_work) {
    TD_TRY(td_collective_check_start(call, c->team.world));
    if (c->bucket.is_open) TD_TRY(td_shm_settle(c)); // this thread passes it, not that of the works
    if (!c->works) TD_TRY(td_works_create(c, &works_ops, &c->works));
    return td_works_start(c->works, call, out_work);
}

static td_status shm_wait(struct td_collective *c, struct td_collective_work *work,
                          int64_t timeout_ns) {
    bool is_late;
    td_status s = td_works_wait(c->works, work, timeout_ns, &is_late);
    if (!is_late || !s) return s;
    td_status_free(s);
    return td_shm_team_fail_late(&c->team, timeout_ns);
}

static td_status shm_test(struct td_collective *c, struct td_collective_work *work,
                          bool *out_done) {
    return td_works_test(c->works, work, out_done);
}

static const struct td_collective_ops shm_ops = {
    .struct_bytes = sizeof(struct td_collective_ops),
    .facts = td_collective_host_facts,
    .shared_bytes = shm_shared_bytes,
    .join = shm_join,
    .leave = shm_leave,
    .gradients = shm_gradients,
    .all_reduce = td_shm_all_reduce,
    .all_reduce_bucket = td_shm_all_reduce_bucket,
    .wait_buckets = td_shm_settle,
    .all_gather = td_shm_all_gather,
    .broadcast = td_shm_broadcast,
    .barrier = td_shm_barrier,
    .abort = shm_abort,
    .reduce = td_shm_reduce,
    .reduce_scatter = td_shm_reduce_scatter,
    .gather = td_shm_gather,
    .scatter = td_shm_scatter,
    .all_gather_uneven = td_shm_all_gather_uneven,
    .all_to_all = td_shm_all_to_all,
    .send = td_shm_send,
    .recv = td_shm_recv,
    .group_create = td_shm_group_create,
    .group_destroy = td_shm_group_destroy,
    .start = shm_start,
    .wait = shm_wait,
    .test = shm_test,
    .set_deadline = shm_set_deadline,
};

const struct td_plugin_desc td_collective_shm =
    TD_PLUGIN_DESC(COLLECTIVE, "shm", "ranks of one node, through shared memory", &shm_ops);
