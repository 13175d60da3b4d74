// The checked door to a collective's backend (see collective.h).
//
// Joining keeps the ops pointer and the rank's place; every other function checks its arguments and
// makes one indirect call. A configuration and a reduction are checked by the backends themselves,
// with the functions here, because a rank's context and its strategy reach a backend through the
// plugin table. The gather of uneven parts is made of even ones here, so that a backend needs no
// second kind.

#include "strategies/collective/collective.h"

#include <string.h>

#include "strategies/collective/reduce.h"

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
    if (config->timeout_ns <= 0) {
        return td_fail(TD_INVALID_ARGUMENT, "the timeout of the calls must be positive");
    }
    return TD_OK;
}

td_status td_collective_join(const struct td_plugin_desc *backend,
                             const struct td_collective_config *config,
                             struct td_collective_group *out_group) {
    TD_CHECK(backend && backend->kind == TD_PLUGIN_COLLECTIVE && backend->ops);
    const struct td_collective_ops *ops = backend->ops;
    struct td_collective *c = NULL;
    TD_TRY_CTX(ops->join(config, &c), "join collective %s as rank %d of %d", backend->name,
               config->rank, config->world_size);
    *out_group = (struct td_collective_group){
        .ops = ops, .c = c, .rank = config->rank, .world_size = config->world_size};
    return TD_OK;
}

void td_collective_leave(struct td_collective_group *g) {
    if (!g || !g->ops) return;
    g->ops->leave(g->c);
    *g = (struct td_collective_group){0};
}

void td_collective_abort(struct td_collective_group *g) {
    if (g && g->ops) g->ops->abort(g->c);
}

static td_status check_joined(const struct td_collective_group *g, const char *call) {
    if (g && g->ops) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "%s: no group was joined", call);
}

static td_status check_memory(const void *data, size_t bytes, const char *call) {
    if (data || !bytes) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "%s: no memory for %zu bytes", call, bytes);
}

td_status td_collective_gradients(struct td_collective_group *g, void **out_data,
                                  size_t *out_bytes) {
    TD_TRY(check_joined(g, "gradients"));
    return g->ops->gradients(g->c, out_data, out_bytes);
}

td_status td_collective_check_reduce(const void *data, int64_t n, enum td_dtype dtype,
                                     enum td_reduce_op op) {
    if (!td_reduce_supports(dtype, op)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_reduce: there is no %s of %s; bool takes max and min, the others also "
                       "sum and mean",
                       td_reduce_op_name(op),
                       (unsigned)dtype < TD_DTYPE_COUNT ? td_dtype_name(dtype) : "unknown dtype");
    }
    size_t bytes;
    if (n < 0 || !td_size_mul((size_t)n, td_dtype_bytes(dtype), &bytes)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_reduce: %lld elements", (long long)n);
    }
    return check_memory(data, bytes, "all_reduce");
}

td_status td_collective_all_reduce(struct td_collective_group *g, void *data, int64_t n,
                                   enum td_dtype dtype, enum td_reduce_op op) {
    TD_TRY(check_joined(g, "all_reduce"));
    return g->ops->all_reduce(g->c, data, n, dtype, op);
}

td_status td_collective_all_reduce_bucket(struct td_collective_group *g, void *data, int64_t n,
                                          enum td_dtype dtype, int64_t n_tail) {
    TD_TRY(check_joined(g, "all_reduce_bucket"));
    const int64_t most = PTRDIFF_MAX / (int64_t)sizeof(double) / 2;
    if (n < 0 || n_tail < 0 || n > most || n_tail > most) {
        return td_fail(TD_INVALID_ARGUMENT, "all_reduce_bucket: %lld elements and a tail of %lld",
                       (long long)n, (long long)n_tail);
    }
    if (!td_reduce_supports(dtype, TD_REDUCE_MEAN)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_reduce_bucket: there is no mean of %s",
                       (unsigned)dtype < TD_DTYPE_COUNT ? td_dtype_name(dtype) : "unknown dtype");
    }
    if (n_tail && (size_t)n * td_dtype_bytes(dtype) % sizeof(float)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_reduce_bucket: a tail behind %lld elements of %s is not aligned",
                       (long long)n, td_dtype_name(dtype));
    }
    TD_TRY(check_memory(data, (size_t)(n + n_tail), "all_reduce_bucket"));
    return g->ops->all_reduce_bucket(g->c, data, n, dtype, n_tail);
}

td_status td_collective_all_gather(struct td_collective_group *g, const void *in, size_t bytes,
                                   void *out) {
    TD_TRY(check_joined(g, "all_gather"));
    size_t all;
    if (!td_size_mul(bytes, (size_t)g->world_size, &all)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_gather: %zu bytes from each of %d ranks", bytes,
                       g->world_size);
    }
    TD_TRY(check_memory(in, bytes, "all_gather"));
    TD_TRY(check_memory(out, bytes, "all_gather"));
    return g->ops->all_gather(g->c, in, bytes, out);
}

td_status td_collective_broadcast(struct td_collective_group *g, void *data, size_t bytes,
                                  int32_t src) {
    TD_TRY(check_joined(g, "broadcast"));
    if (src < 0 || src >= g->world_size) {
        return td_fail(TD_INVALID_ARGUMENT, "broadcast from rank %d in a world of %d", src,
                       g->world_size);
    }
    TD_TRY(check_memory(data, bytes, "broadcast"));
    return g->ops->broadcast(g->c, data, bytes, src);
}

td_status td_collective_barrier(struct td_collective_group *g, const char *tag) {
    TD_TRY(check_joined(g, "barrier"));
    return g->ops->barrier(g->c, tag ? tag : "");
}

// Two rounds: the sizes, then the parts padded to the longest one; the padding is dropped again.
td_status td_collective_all_gather_uneven(struct td_collective_group *g, const void *in,
                                          size_t bytes, struct td_buf *out, size_t *out_bytes) {
    TD_TRY(check_joined(g, "all_gather_uneven"));
    TD_TRY(check_memory(in, bytes, "all_gather_uneven"));
    size_t world = (size_t)g->world_size, longest = 0, all;
    TD_AUTO_FREE uint64_t *sizes = td_calloc(world, sizeof *sizes);
    if (!sizes) return td_fail_oom();
    uint64_t own = bytes;
    TD_TRY(td_collective_all_gather(g, &own, sizeof own, sizes));
    for (size_t p = 0; p < world; p++)
        longest = TD_MAX(longest, (size_t)sizes[p]);
    if (!td_size_mul(longest, world + 1, &all)) {
        return td_fail(TD_INVALID_ARGUMENT, "all_gather_uneven: a part of %zu bytes", longest);
    }
    TD_AUTO_FREE char *padded = td_calloc(all + 1, 1); // own part, then everyone's
    if (!padded) return td_fail_oom();
    if (bytes) memcpy(padded, in, bytes);
    TD_TRY(td_collective_all_gather(g, padded, longest, padded + longest));
    size_t before = out->len;
    for (size_t p = 0; p < world; p++) {
        td_status s = td_buf_append(out, padded + longest * (p + 1), (size_t)sizes[p]);
        if (s) {
            out->len = before;
            return td_status_context(s, "all_gather_uneven: part of rank %zu", p);
        }
    }
    for (size_t p = 0; p < world; p++)
        out_bytes[p] = (size_t)sizes[p];
    return TD_OK;
}
