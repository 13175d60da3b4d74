// What every backend refuses, and what those of the host take (collectives.h). Pure functions.

#include "collectives/collectives.h"

#include <stdio.h>
#include <string.h>

#include "collectives/reduce.h"
#include "lib/base/base.h"

td_status td_collective_host_facts(struct td_collective_facts *out_facts) {
    struct td_collective_facts f = {.struct_bytes = sizeof f,
                                    .on_host = true,
                                    .calls = (1u << TD_CALL_COUNT) - 1,
                                    .max_groups = TD_GROUPS_MAX,
                                    .max_open = TD_OPEN_CALLS_MAX,
                                    .joins_again = true};
    memcpy(out_facts, &f, TD_MIN(sizeof f, (size_t)out_facts->struct_bytes));
    return TD_OK;
}

td_status td_collective_check_config(const struct td_collective_config *config) {
    if (config->struct_bytes < sizeof *config) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the configuration has %u bytes, this build needs %zu; build the program "
                       "against the headers of this traind",
                       config->struct_bytes, sizeof *config);
    }
    if (config->world_size < 1 || config->world_size > TD_COLLECTIVE_MAX_WORLD ||
        config->rank < 0 || config->rank >= config->world_size) {
        return td_fail(TD_INVALID_ARGUMENT, "rank %d of %d: a world has 1 to %d ranks",
                       config->rank, config->world_size, TD_COLLECTIVE_MAX_WORLD);
    }
    if (config->deadline.timeout_ns <= 0) {
        return td_fail(TD_INVALID_ARGUMENT, "the timeout of the calls must be positive");
    }
    return TD_OK;
}

const char *td_collective_within(const struct td_collective_deadline *d,
                                 char out[TD_COLLECTIVE_WITHIN]) {
    const char *setting = d->setting ? d->setting : "";
    snprintf(out, TD_COLLECTIVE_WITHIN, "within %.3f s%s%s%s",
             (double)d->timeout_ns / (double)TD_NS_PER_S, *setting ? " (" : "", setting,
             *setting ? ")" : "");
    return out;
}

static td_status check_memory(const void *data, size_t bytes, const char *call) {
    if (data || !bytes) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "%s: no memory for %zu bytes", call, bytes);
}

static const char *name_of(enum td_dtype dtype) {
    return (unsigned)dtype < TD_DTYPE_COUNT ? td_dtype_name(dtype) : "unknown dtype";
}

td_status td_collective_check_reduce(const char *call, const void *data, int64_t n,
                                     enum td_dtype dtype, enum td_reduce_op op) {
    if (!td_reduce_supports(dtype, op)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "%s: there is no %s of %s; bool takes max and min, the others also sum, "
                       "mean and product",
                       call, td_reduce_op_name(op), name_of(dtype));
    }
    size_t bytes;
    if (n < 0 || !td_size_mul((size_t)n, td_dtype_bytes(dtype), &bytes)) {
        return td_fail(TD_INVALID_ARGUMENT, "%s: %lld elements", call, (long long)n);
    }
    return check_memory(data, bytes, call);
}

// Elements and flags, one after the other, inside the buffer.
static bool has_room(const struct td_bucket *b) {
    size_t bytes;
    const size_t flags = TD_CONTROL_FLAGS * sizeof(float), at = b->control_offset;
    if (b->n < 0 || !td_size_mul((size_t)b->n, td_dtype_bytes(b->dtype), &bytes)) return false;
    if (b->has_control && (at < bytes || at % sizeof(float) || at > SIZE_MAX - flags)) return false;
    return b->offset <= b->buffer.bytes && td_bucket_bytes(b) <= b->buffer.bytes - b->offset;
}

td_status td_collective_check_bucket(const struct td_bucket *b, char **out_data) {
    if (b->struct_bytes < sizeof *b) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_reduce_bucket: the bucket has %u bytes, this build needs %zu",
                       b->struct_bytes, sizeof *b);
    }
    if (!td_reduce_supports(b->dtype, TD_REDUCE_MEAN)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_reduce_bucket: bucket %u: there is no mean of %s",
                       b->index, name_of(b->dtype));
    }
    if (!has_room(b)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_reduce_bucket: bucket %u, %lld %s from byte %zu%s, does not fit its "
                       "buffer of %zu bytes",
                       b->index, (long long)b->n, td_dtype_name(b->dtype), b->offset,
                       b->has_control ? " with flags" : "", b->buffer.bytes);
    }
    char *data = td_bucket_host(b);
    if (!data && td_bucket_bytes(b)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_reduce_bucket: bucket %u is not in host memory; this collective takes "
                       "no other",
                       b->index);
    }
    *out_data = data;
    return TD_OK;
}

td_status td_collective_check_gather(const void *in, size_t bytes, const void *out, int32_t world) {
    size_t all;
    if (!td_size_mul(bytes, (size_t)world, &all)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_gather: %zu bytes from each of %d ranks", bytes,
                       world);
    }
    TD_TRY(check_memory(in, bytes, "all_gather"));
    return check_memory(out, all, "all_gather");
}

td_status td_collective_check_rank(const char *call, int32_t rank, int32_t world) {
    if (rank >= 0 && rank < world) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "%s rank %d in a world of %d", call, rank, world);
}

td_status td_collective_check_broadcast(const void *data, size_t bytes, int32_t src,
                                        int32_t world) {
    TD_TRY(td_collective_check_rank("broadcast from", src, world));
    return check_memory(data, bytes, "broadcast");
}

td_status td_collective_check_reduce_scatter(const void *in, const void *out, int64_t n,
                                             enum td_dtype dtype, enum td_reduce_op op,
                                             int32_t world) {
    TD_TRY(td_collective_check_reduce("reduce_scatter", out, n, dtype, op));
    const size_t bytes = (size_t)n * td_dtype_bytes(dtype);
    return td_collective_check_parts("reduce_scatter", in, world, NULL, 0, bytes, world);
}

td_status td_collective_check_parts(const char *call, const void *in, int32_t ins, const void *out,
                                    int32_t outs, size_t bytes, int32_t world) {
    size_t all;
    if (!td_size_mul(bytes, (size_t)world, &all)) {
        return td_fail(TD_INVALID_ARGUMENT, "%s: %zu bytes for each of %d ranks", call, bytes,
                       world);
    }
    TD_TRY(check_memory(in, bytes * (size_t)ins, call));
    return check_memory(out, bytes * (size_t)outs, call);
}

td_status td_collective_check_uneven(const void *in, size_t bytes, const void *out,
                                     size_t out_bytes, const size_t *counts) {
    TD_TRY(check_memory(counts, sizeof *counts, "all_gather_uneven"));
    TD_TRY(check_memory(in, bytes, "all_gather_uneven"));
    return check_memory(out, out_bytes, "all_gather_uneven");
}

// ---- groups ------------------------------------------------------------------------------------
td_status td_collective_check_group(const int32_t *ranks, int32_t n_ranks, int32_t world) {
    if (!ranks || n_ranks < 1 || n_ranks > world) {
        return td_fail(TD_INVALID_ARGUMENT, "group_create: %d ranks of a world of %d%s", n_ranks,
                       world, ranks ? "" : ", and no list of them");
    }
    for (int32_t i = 0; i < n_ranks; i++) {
        TD_TRY(td_collective_check_rank("group_create with", ranks[i], world));
        if (!i || ranks[i] > ranks[i - 1]) continue;
        return td_fail(TD_INVALID_ARGUMENT,
                       "group_create: rank %d after rank %d; list ranks in ascending order, each "
                       "once",
                       ranks[i], ranks[i - 1]);
    }
    return TD_OK;
}

td_status td_collective_fail_group_exists(int32_t n_ranks) {
    return td_fail(TD_ALREADY_EXISTS,
                   "group_create: there is a group of these %d ranks; use it, or destroy it first",
                   n_ranks);
}

td_status td_collective_fail_too_many_groups(void) {
    return td_fail(
        TD_RESOURCE_EXHAUSTED,
        "group_create: there are %d groups, which is the most at once; destroy one first",
        TD_GROUPS_MAX);
}

td_status td_collective_fail_nested_group(void) {
    return td_fail(TD_UNIMPLEMENTED, "group_create: groups are made of the group of all ranks, not "
                                     "of a part of it");
}

td_status td_collective_fail_foreign_group(void) {
    return td_fail(
        TD_INVALID_ARGUMENT,
        "group_destroy: this is no group of this collective, or it was destroyed before");
}

// ---- calls that are started --------------------------------------------------------------------
td_status td_collective_check_start(const struct td_collective_start *k, int32_t world) {
    if (k->struct_bytes < sizeof *k) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "start: the call has %u bytes, this build needs %zu; set struct_bytes, and "
                       "build against the headers of this traind",
                       k->struct_bytes, sizeof *k);
    }
    switch (k->call) {
    case TD_ASYNC_ALL_REDUCE:
        return td_collective_check_reduce("all_reduce", k->out, k->n, k->dtype, k->op);
    case TD_ASYNC_REDUCE_SCATTER:
        return td_collective_check_reduce_scatter(k->in, k->out, k->n, k->dtype, k->op, world);
    case TD_ASYNC_ALL_GATHER:
        return td_collective_check_gather(k->in, k->bytes, k->out, world);
    case TD_ASYNC_BROADCAST:
        return td_collective_check_broadcast(k->out, k->bytes, k->src, world);
    case TD_ASYNC_BARRIER:
        if (k->tag) return TD_OK;
        return td_fail(TD_INVALID_ARGUMENT, "start: a barrier needs a tag");
    case TD_ASYNC_COUNT:
        break;
    }
    return td_fail(TD_INVALID_ARGUMENT,
                   "start: no call has number %d; these can be started: all_reduce, "
                   "reduce_scatter, all_gather, broadcast, barrier",
                   (int)k->call);
}

td_status td_collective_fail_open_handles(int n_open) {
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "group_destroy: %d calls of this group were started and not waited for; wait for "
                "each first",
                n_open),
        TD_CLASS_USER_CODE);
}

td_status td_collective_fail_too_many_handles(const struct td_collective_start *call) {
    return td_fail(
        TD_RESOURCE_EXHAUSTED,
        "start of %s: %d handles are open, which is the most at once; wait for one first",
        td_async_call_name(call->call), TD_OPEN_CALLS_MAX);
}

td_status td_collective_fail_foreign_handle(const char *call) {
    return td_fail(TD_INVALID_ARGUMENT,
                   "%s: this is no open handle of this group; each is waited for once, in the "
                   "group that started it",
                   call);
}
