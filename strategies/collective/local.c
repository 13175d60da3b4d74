// The collective of one rank: every call is the identity.
//
// So a program has one shape for any world size: a gather of one is a copy, a mean over one rank
// divides by one. It keeps the contract of the others where one rank can: an aborted group fails
// with ABORTED, a world that is not 1 is refused. It has no place for gradients: those of one rank
// lie where the rank likes. Rejected: leaving the calls out of a program for world 1, which would
// make it another program than the one that is tested.

#include <stdatomic.h>
#include <string.h>

#include "lib/base/base.h"
#include "strategies/collective/collective.h"

struct td_collective {
    bool (*aborted)(void *arg);
    void *aborted_arg;
    _Atomic bool own_abort;
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
    free(c);
}

static td_status check_alive(struct td_collective *c) {
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

static void local_abort(struct td_collective *c) {
    atomic_store(&c->own_abort, true);
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
};

const struct td_plugin_desc td_collective_local =
    TD_PLUGIN_DESC(COLLECTIVE, "local", "one rank: every call is the identity", &local_ops);
