// The collective of one rank: every call is the identity.
//
// So a program has one shape for any world size: a gather of one is a copy, a mean over one rank
// divides by one. It keeps the contract of the others where one rank can: an aborted group fails
// with ABORTED, a world that is not 1 is refused. It has no place for gradients: those of one rank
// lie where the rank likes. Rejected: leaving the calls out of a program for world 1, which would
// make it another program than the one that is tested.

#include <stdatomic.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/works.h"
#include "lib/base/base.h"

struct td_collective {
    bool (*aborted)(void *arg);
    void *aborted_arg;
    _Atomic bool own_abort;
    struct td_collective *whole; // of a group: the collective that it was made from; else NULL
    struct td_collective *group; // the only one that there can be: of rank 0
    struct td_works *works;      // what was started; NULL: nothing ever was
};

static size_t local_shared_bytes(int32_t world_size, size_t gradient_bytes) {
    (void)world_size, (void)gradient_bytes;
    return 0;
}

static td_status local_join(const struct td_collective_config *config,
                            struct td_collective **out_c) {
    TD_TRY(td_collective_check_config(config));
    if (config->world_size != 1) {
        return td_fail(TD_INVALID_ARGUMENT, "the local collective is for one rank, not %d; use shm",
                       config->world_size);
    }
    struct td_collective *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->aborted = config->aborted;
    c->aborted_arg = config->aborted_arg;
    *out_c = c;
    return TD_OK;
}

static void local_leave(struct td_collective *c) {
    if (!c || c->whole) return; // a group goes by group_destroy, or with the whole
    if (c->group) td_works_destroy(c->group->works);
    free(c->group);
    td_works_destroy(c->works);
    free(c);
}

static td_status check_alive(struct td_collective *c) {
    if (c->whole) c = c->whole;
    if (!atomic_load(&c->own_abort) && !(c->aborted && c->aborted(c->aborted_arg))) return TD_OK;
    return td_status_with_class(td_fail(TD_ABORTED, "the attempt was aborted"),
                                TD_CLASS_COLLECTIVE);
}

static td_status local_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    (void)c;
    *out_data = NULL;
    *out_bytes = 0;
    return TD_OK;
}

static td_status local_all_reduce(struct td_collective *c, void *data, int64_t n,
                                  enum td_dtype dtype, enum td_reduce_op op) {
    TD_TRY(td_collective_check_reduce("all_reduce", data, n, dtype, op));
    return check_alive(c);
}

static td_status local_all_reduce_bucket(struct td_collective *c, const struct td_bucket *bucket) {
    char *data;
    TD_TRY(td_collective_check_bucket(bucket, &data));
    return check_alive(c);
}

static td_status local_all_gather(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    TD_TRY(td_collective_check_gather(in, bytes, out, 1));
    TD_TRY(check_alive(c));
    if (bytes) memmove(out, in, bytes);
    return TD_OK;
}

static td_status local_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    TD_TRY(td_collective_check_broadcast(data, bytes, src, 1));
    return check_alive(c);
}

static td_status local_barrier(struct td_collective *c, const char *tag) {
    (void)tag;
    return check_alive(c);
}

static td_status local_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                              enum td_reduce_op op, int32_t dst) {
    TD_TRY(td_collective_check_reduce("reduce", data, n, dtype, op));
    TD_TRY(td_collective_check_rank("reduce to", dst, 1));
    return check_alive(c);
}

static td_status copy(struct td_collective *c, const void *in, size_t bytes, void *out) {
    TD_TRY(check_alive(c));
    if (bytes) memmove(out, in, bytes);
    return TD_OK;
}

static td_status local_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                      enum td_dtype dtype, enum td_reduce_op op) {
    TD_TRY(td_collective_check_reduce_scatter(in, out, n, dtype, op, 1));
    return copy(c, in, (size_t)n * td_dtype_bytes(dtype), out);
}

static td_status local_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                              int32_t dst) {
    TD_TRY(td_collective_check_rank("gather to", dst, 1));
    TD_TRY(td_collective_check_parts("gather", in, 1, out, 1, bytes, 1));
    return copy(c, in, bytes, out);
}

static td_status local_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                               int32_t src) {
    TD_TRY(td_collective_check_rank("scatter from", src, 1));
    TD_TRY(td_collective_check_parts("scatter", in, 1, out, 1, bytes, 1));
    return copy(c, in, bytes, out);
}

static td_status local_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes,
                                         void *out, size_t out_bytes, size_t *counts) {
    TD_TRY(td_collective_check_uneven(in, bytes, out, out_bytes, counts));
    TD_TRY(check_alive(c));
    counts[0] = bytes;
    if (bytes > out_bytes) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "all_gather_uneven: rank 0 has room for %zu bytes, all parts have %zu; call "
                       "again with that much",
                       out_bytes, bytes);
    }
    if (bytes) memmove(out, in, bytes);
    return TD_OK;
}

static td_status local_all_to_all(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    TD_TRY(td_collective_check_parts("all_to_all", in, 1, out, 1, bytes, 1));
    return copy(c, in, bytes, out);
}

// There is nobody to send to.
static td_status refuse_pair(const char *call, int32_t partner) {
    TD_TRY(td_collective_check_rank(call, partner, 1));
    return td_fail(TD_INVALID_ARGUMENT, "%s rank %d: that is this rank itself", call, partner);
}

static td_status local_send(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                            uint32_t tag) {
    (void)c, (void)data, (void)bytes, (void)tag;
    return refuse_pair("send to", dst);
}

static td_status local_recv(struct td_collective *c, void *data, size_t bytes, int32_t src,
                            uint32_t tag) {
    (void)c, (void)data, (void)bytes, (void)tag;
    return refuse_pair("recv from", src);
}

static td_status local_group_create(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                                    struct td_collective **out_group) {
    if (c->whole) return td_collective_fail_nested_group();
    TD_TRY(td_collective_check_group(ranks, n_ranks, 1));
    TD_TRY(check_alive(c));
    if (c->group) return td_collective_fail_group_exists(n_ranks);
    c->group = td_calloc(1, sizeof *c->group);
    if (!c->group) return td_fail_oom();
    c->group->whole = c;
    *out_group = c->group;
    return TD_OK;
}

static td_status local_group_destroy(struct td_collective *c, struct td_collective *group) {
    if (!group) return TD_OK;
    if (c->group != group) return td_collective_fail_foreign_group();
    TD_TRY(check_alive(c));
    const int n_open = td_works_open(group->works);
    if (n_open) return td_collective_fail_open_handles(n_open);
    td_works_destroy(group->works);
    free(c->group);
    c->group = NULL;
    return TD_OK;
}

static void local_abort(struct td_collective *c) {
    if (c->whole) c = c->whole;
    atomic_store(&c->own_abort, true);
}

// ---- calls that are started: made at once
static td_status make(struct td_collective *c, const struct td_collective_start *k) {
    switch (k->call) {
    case TD_ASYNC_ALL_REDUCE:
    case TD_ASYNC_BROADCAST:
    case TD_ASYNC_BARRIER:
        return check_alive(c);
    case TD_ASYNC_REDUCE_SCATTER:
        return copy(c, k->in, (size_t)k->n * td_dtype_bytes(k->dtype), k->out);
    case TD_ASYNC_ALL_GATHER:
        return copy(c, k->in, k->bytes, k->out);
    case TD_ASYNC_COUNT:
        break;
    }
    return td_fail(TD_INTERNAL, "a call that was not checked: %d", (int)k->call);
}

static const struct td_works_ops works_ops = {make, local_abort, false};

static td_status local_start(struct td_collective *c, const struct td_collective_start *call,
                             struct td_collective_work **out_work) {
    TD_TRY(td_collective_check_start(call, 1));
    if (!c->works) TD_TRY(td_works_create(c, &works_ops, &c->works));
    return td_works_start(c->works, call, out_work);
}

static td_status local_wait(struct td_collective *c, struct td_collective_work *work,
                            int64_t timeout_ns) {
    bool is_late; // never
    return td_works_wait(c->works, work, timeout_ns, &is_late);
}

static td_status local_test(struct td_collective *c, struct td_collective_work *work,
                            bool *out_done) {
    return td_works_test(c->works, work, out_done);
}

static const struct td_collective_ops local_ops = {
    .struct_bytes = sizeof(struct td_collective_ops),
    .facts = td_collective_host_facts,
    .shared_bytes = local_shared_bytes,
    .join = local_join,
    .leave = local_leave,
    .gradients = local_gradients,
    .all_reduce = local_all_reduce,
    .all_reduce_bucket = local_all_reduce_bucket,
    .all_gather = local_all_gather,
    .broadcast = local_broadcast,
    .barrier = local_barrier,
    .abort = local_abort,
    .reduce = local_reduce,
    .reduce_scatter = local_reduce_scatter,
    .gather = local_gather,
    .scatter = local_scatter,
    .all_gather_uneven = local_all_gather_uneven,
    .all_to_all = local_all_to_all,
    .send = local_send,
    .recv = local_recv,
    .group_create = local_group_create,
    .group_destroy = local_group_destroy,
    .start = local_start,
    .wait = local_wait,
    .test = local_test,
};

const struct td_plugin_desc td_collective_local =
    TD_PLUGIN_DESC(COLLECTIVE, "local", "one rank: every call is the identity", &local_ops);
