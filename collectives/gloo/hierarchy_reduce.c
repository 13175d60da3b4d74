// What the hierarchy computes (see hierarchy.h).
//
// The node's group adds up its ranks, in place; the leaders add up the nodes, in place; the
// leader's result goes to its ranks. Only sums of a node cross: a mean is divided once, at the end.
//
// 16-bit floats are rounded once, after the last sum. Where nodes have one rank each, what crosses
// is the elements themselves, and they are 16 bits. Else sums of nodes cross, as fp32: chunks are
// widened in the scratch, reduced there, and rounded.

#include <string.h>

#include "collectives/gloo/hierarchy.h"
#include "collectives/reduce.h"
#include "lib/base/floats/floats.h"

static bool is_integer(enum td_dtype dtype) {
    return dtype == TD_I32 || dtype == TD_I64 || dtype == TD_U8;
}

// The type in which sums cross. Some node has several ranks where there are more ranks than nodes.
static enum td_dtype crossing(const struct td_collective *c, const struct td_between_part *part) {
    const bool is_half = part->dtype == TD_BF16 || part->dtype == TD_F16;
    const bool adds = part->op != TD_REDUCE_MAX && part->op != TD_REDUCE_MIN;
    return is_half && adds && c->world > c->n_nodes ? TD_F32 : part->dtype;
}

static td_status add_up_node(struct td_collective *c, const struct td_between_part *part) {
    const enum td_reduce_op op = part->op == TD_REDUCE_MEAN ? TD_REDUCE_SUM : part->op;
    if (!c->local) return TD_OK;
    td_status s = c->ops->all_reduce(c->local, part->data, part->n, part->dtype, op);
    return td_hierarchy_failed(c, td_status_context(s, "node %d, ranks counted from %d", c->node,
                                                    c->rank - c->local_rank));
}

// The sum of a node may not fit the type that its elements have: all elements go everywhere.
static td_status mean_of_integers(struct td_collective *c, const struct td_between_call *call,
                                  const struct td_between_part *part) {
    const size_t elem = td_dtype_bytes(part->dtype);
    const int64_t most = (int64_t)td_hierarchy_chunk((size_t)c->world, elem);
    int64_t done = 0;
    do {
        const int64_t n = TD_MIN(part->n - done, most);
        const size_t bytes = (size_t)n * elem;
        char *data = n ? (char *)part->data + (size_t)done * elem : part->data;
        TD_TRY(td_hierarchy_gather_all(c, call, data, bytes, c->scratch[1]));
        for (int32_t r = 0; r < c->world; r++) {
            c->parts[r] = c->scratch[1] + (size_t)r * bytes;
        }
        const struct td_reduce_how how = {TD_REDUCE_MEAN, c->world, 0};
        if (n) td_reduce_as(c->parts, c->world, 0, n, part->dtype, how);
        if (n) memcpy(data, c->parts[0], bytes);
        done += n;
    } while (done < part->n);
    return TD_OK;
}

// The leader gets the result in `part`, of a 16-bit float whose sums cross as fp32.
static td_status reduce_wide(struct td_collective *c, const struct td_between_call *call,
                             const struct td_between_part *part) {
    float *const wide = (float *)(void *)c->scratch[1];
    const int64_t most = (int64_t)td_hierarchy_chunk(1, sizeof *wide);
    int64_t done = 0;
    do {
        const struct td_between_part chunk = {wide, TD_MIN(part->n - done, most), TD_F32, part->op,
                                              part->divisor};
        uint16_t *data = chunk.n ? (uint16_t *)part->data + done : NULL;
        if (data) td_float_convert(part->dtype, data, chunk.n, TD_F32, wide);
        TD_TRY(add_up_node(c, &chunk));
        if (td_hierarchy_leads(c)) {
            TD_TRY(td_hierarchy_failed(c, td_between_all_reduce(c->between, call, &chunk, 1)));
            if (data) td_float_convert(TD_F32, wide, chunk.n, part->dtype, data);
        }
        done += chunk.n;
    } while (done < part->n);
    return TD_OK;
}

static td_status reduce_parts(struct td_collective *c, const struct td_between_call *call,
                              const struct td_between_part *parts, int n_parts) {
    if (crossing(c, &parts[0]) != parts[0].dtype) {
        TD_TRY(reduce_wide(c, call, &parts[0]));
        parts++;
        if (!--n_parts) return TD_OK;
    }
    for (int i = 0; i < n_parts; i++) {
        TD_TRY(add_up_node(c, &parts[i]));
    }
    if (!td_hierarchy_leads(c)) return TD_OK;
    return td_hierarchy_failed(c, td_between_all_reduce(c->between, call, parts, n_parts));
}

// After enter. bytes: what the leader hands to its ranks, from where the first part begins.
static td_status reduce_all(struct td_collective *c, const struct td_between_call *call,
                            const struct td_between_part *parts, int n_parts, size_t bytes) {
    if (is_integer(parts[0].dtype) && parts[0].op == TD_REDUCE_MEAN) {
        return mean_of_integers(c, call, &parts[0]);
    }
    TD_TRY(reduce_parts(c, call, parts, n_parts));
    return td_hierarchy_spread(c, parts[0].data, bytes);
}

static struct td_between_call call_of(enum td_between_kind kind, const struct td_between_part *part,
                                      uint32_t detail) {
    return (struct td_between_call){.kind = (uint8_t)kind,
                                    .dtype = (uint8_t)part->dtype,
                                    .op = (uint8_t)part->op,
                                    .detail = detail,
                                    .n = part->n};
}

td_status td_hierarchy_all_reduce(struct td_collective *c, void *data, int64_t n,
                                  enum td_dtype dtype, enum td_reduce_op op) {
    const struct td_between_part part = {data, n, dtype, op, c->world};
    TD_TRY(td_collective_check_reduce("all_reduce", data, n, dtype, op));
    const struct td_between_call call = call_of(TD_BETWEEN_ALL_REDUCE, &part, 0);
    TD_TRY(td_hierarchy_enter(c, &call));
    return reduce_all(c, &call, &part, 1, (size_t)n * td_dtype_bytes(dtype));
}

td_status td_hierarchy_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b) {
    char *data;
    TD_TRY(td_collective_check_bucket(b, &data));
    struct td_between_part parts[] = {{data, b->n, b->dtype, TD_REDUCE_MEAN, c->world},
                                      {NULL, TD_CONTROL_FLAGS, TD_F32, TD_REDUCE_SUM, c->world}};
    if (b->has_control) parts[1].data = data + b->control_offset;
    const struct td_between_call call = call_of(TD_BETWEEN_BUCKET, &parts[0], b->has_control);
    TD_TRY(td_hierarchy_enter(c, &call));
    return reduce_all(c, &call, parts, b->has_control ? 2 : 1, td_bucket_bytes(b));
}

td_status td_hierarchy_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                              enum td_reduce_op op, int32_t dst) {
    TD_TRY(td_collective_check_reduce("reduce", data, n, dtype, op));
    TD_TRY(td_collective_check_rank("reduce to", dst, c->world));
    struct td_between_part part = {c->scratch[0], n, dtype, op, c->world};
    const struct td_between_call call = call_of(TD_BETWEEN_REDUCE, &part, (uint32_t)dst);
    const size_t elem = td_dtype_bytes(dtype);
    int64_t done = 0;
    TD_TRY(td_hierarchy_enter(c, &call));
    do { // the others' data stays as it is
        part.n = TD_MIN(n - done, (int64_t)td_hierarchy_chunk(1, elem));
        const size_t bytes = (size_t)part.n * elem, at = (size_t)done * elem;
        if (bytes) memcpy(part.data, (const char *)data + at, bytes);
        TD_TRY(reduce_all(c, &call, &part, 1, bytes));
        if (bytes && c->rank == dst) memcpy((char *)data + at, part.data, bytes);
        done += part.n;
    } while (done < n);
    return TD_OK;
}

// On the leader: the elements of this node's ranks are reduced, n for each rank.
static td_status reduce_own(struct td_collective *c, const struct td_between_call *call,
                            const struct td_between_part *part, int64_t n) {
    TD_AUTO_FREE int64_t *bounds = td_calloc((size_t)c->n_nodes + 1, sizeof *bounds);
    td_status s = bounds ? td_between_open(c->between, call, NULL, 0) : td_fail_oom();
    for (int32_t p = 0; !s && p < c->n_nodes; p++) {
        bounds[p] = n * c->places[p].first_rank;
    }
    if (!s) bounds[c->n_nodes] = n * c->world;
    if (!s) s = td_between_reduce_own(c->between, part, bounds);
    return td_hierarchy_failed(c, s);
}

// One chunk, packed in the scratch: n elements for each rank.
static td_status scatter_chunk(struct td_collective *c, const struct td_between_call *call,
                               enum td_reduce_op op, int64_t n, char *out) {
    const enum td_dtype dtype = (enum td_dtype)call->dtype;
    const size_t bytes = (size_t)n * td_dtype_bytes(dtype);
    const int64_t first = c->rank - c->local_rank;
    struct td_between_part part = {c->scratch[0], n * c->world, dtype, op, c->world};
    if (is_integer(dtype) && op == TD_REDUCE_MEAN) {
        TD_TRY(mean_of_integers(c, call, &part));
        if (n) memcpy(out, c->scratch[0] + (size_t)c->rank * bytes, bytes);
        return TD_OK;
    }
    part.dtype = crossing(c, &part);
    const bool is_wide = part.dtype != dtype;
    char *const own = c->scratch[0] + (size_t)first * bytes;
    float *const wide = (float *)(void *)c->scratch[1];
    if (is_wide) {
        td_float_convert(dtype, c->scratch[0], part.n, TD_F32, wide);
        part.data = wide;
    }
    TD_TRY(add_up_node(c, &part));
    if (td_hierarchy_leads(c)) {
        TD_TRY(reduce_own(c, call, &part, n));
        if (is_wide) td_float_convert(TD_F32, wide + first * n, n * c->n_local, dtype, own);
    }
    return td_hierarchy_deal(c, own, bytes, out);
}

td_status td_hierarchy_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                      enum td_dtype dtype, enum td_reduce_op op) {
    TD_TRY(td_collective_check_reduce_scatter(in, out, n, dtype, op, c->world));
    const struct td_between_part part = {NULL, n, dtype, op, c->world};
    const struct td_between_call call = call_of(TD_BETWEEN_REDUCE_SCATTER, &part, 0);
    const size_t elem = td_dtype_bytes(dtype), world = (size_t)c->world;
    const size_t crossing_bytes = td_dtype_bytes(crossing(c, &part));
    const int64_t most = (int64_t)td_hierarchy_chunk(world, crossing_bytes);
    int64_t done = 0;
    TD_TRY(td_hierarchy_enter(c, &call));
    do {
        const int64_t now = TD_MIN(n - done, most);
        const size_t bytes = (size_t)now * elem;
        for (size_t r = 0; bytes && r < world; r++) {
            memcpy(c->scratch[0] + r * bytes,
                   (const char *)in + (r * (size_t)n + (size_t)done) * elem, bytes);
        }
        TD_TRY(scatter_chunk(c, &call, op, now, bytes ? (char *)out + (size_t)done * elem : out));
        done += now;
    } while (done < n);
    return TD_OK;
}
