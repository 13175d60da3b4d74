// What the hierarchy copies (see hierarchy.h).
//
// Ranks of a node follow each other, so what a node has for all is one block of the result. What
// has another layout is packed in the scratch, a chunk at a time.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/gloo/hierarchy.h"
#include "lib/base/digest.h"

static int32_t node_of(const struct td_collective *c, int32_t rank) {
    int32_t p = c->n_nodes - 1;
    while (c->places[p].first_rank > rank) {
        p--;
    }
    return p;
}

static size_t first_of(const struct td_collective *c, int32_t node) {
    return (size_t)c->places[node].first_rank;
}

static size_t count_of(const struct td_collective *c, int32_t node) {
    return (size_t)c->places[node].n_ranks;
}

// No slice goes anywhere, until some are named.
static void clear_slices(struct td_collective *c) {
    memset(c->to, 0, (size_t)c->n_nodes * sizeof *c->to);
    memset(c->from, 0, (size_t)c->n_nodes * sizeof *c->from);
}

static td_status exchange(struct td_collective *c) {
    return td_between_exchange(c->between, c->to, c->from);
}

static void copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

// ---- all to all: one block of each node ---------------------------------------------------------
static bool fits_frames(const struct td_collective *c, size_t bytes) {
    size_t most = 0;
    for (int32_t p = 0; p < c->n_nodes; p++) {
        most = TD_MAX(most, count_of(c, p));
    }
    return bytes <= TD_BETWEEN_INLINE / most;
}

static td_status gather_blocks(struct td_collective *c, const struct td_between_call *call,
                               size_t bytes, char *out) {
    char *own = bytes ? out + first_of(c, c->node) * bytes : out;
    const size_t own_bytes = count_of(c, c->node) * bytes;
    if (fits_frames(c, bytes)) {
        TD_TRY(td_between_open(c->between, call, own, own_bytes));
        for (int32_t p = 0; p < c->n_nodes; p++) {
            if (p == c->node || !bytes) continue;
            memcpy(out + first_of(c, p) * bytes, td_between_inline(c->between, p),
                   count_of(c, p) * bytes);
        }
        return TD_OK;
    }
    TD_TRY(td_between_open(c->between, call, NULL, 0));
    for (int32_t p = 0; p < c->n_nodes; p++) {
        c->to[p] = (struct td_gloo_slice){own, own_bytes};
        c->from[p] = (struct td_gloo_slice){out + first_of(c, p) * bytes, count_of(c, p) * bytes};
    }
    return exchange(c);
}

td_status td_hierarchy_gather_all(struct td_collective *c, const struct td_between_call *call,
                                  const void *in, size_t bytes, void *out) {
    char *own = bytes ? (char *)out + first_of(c, c->node) * bytes : out;
    TD_TRY(td_hierarchy_collect(c, in, bytes, own));
    if (td_hierarchy_leads(c)) {
        TD_TRY(td_hierarchy_failed(c, gather_blocks(c, call, bytes, out)));
    }
    return td_hierarchy_spread(c, out, (size_t)c->world * bytes);
}

td_status td_hierarchy_all_gather(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    TD_TRY(td_collective_check_gather(in, bytes, out, c->world));
    const struct td_between_call call = {.kind = TD_BETWEEN_ALL_GATHER, .n = (int64_t)bytes};
    TD_TRY(td_hierarchy_enter(c, &call));
    return td_hierarchy_gather_all(c, &call, in, bytes, out);
}

// ---- one to all ---------------------------------------------------------------------------------
static td_status broadcast_nodes(struct td_collective *c, const struct td_between_call *call,
                                 void *data, size_t bytes, int32_t source) {
    const bool is_source = c->node == source;
    if (bytes <= TD_BETWEEN_INLINE) {
        TD_TRY(td_between_open(c->between, call, data, is_source ? bytes : 0));
        if (!is_source) copy(data, td_between_inline(c->between, source), bytes);
        return TD_OK;
    }
    TD_TRY(td_between_open(c->between, call, NULL, 0));
    clear_slices(c);
    for (int32_t p = 0; is_source && p < c->n_nodes; p++) {
        c->to[p] = (struct td_gloo_slice){data, bytes};
    }
    if (!is_source) c->from[source] = (struct td_gloo_slice){data, bytes};
    return exchange(c);
}

td_status td_hierarchy_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    TD_TRY(td_collective_check_broadcast(data, bytes, src, c->world));
    const struct td_between_call call = {
        .kind = TD_BETWEEN_BROADCAST, .detail = (uint32_t)src, .n = (int64_t)bytes};
    TD_TRY(td_hierarchy_enter(c, &call));
    const int32_t source = node_of(c, src);
    const bool is_source = c->node == source;
    if (is_source && c->local) {
        const int32_t local_src = src - (c->rank - c->local_rank);
        TD_TRY(td_hierarchy_failed(c, c->ops->broadcast(c->local, data, bytes, local_src)));
    }
    if (td_hierarchy_leads(c)) {
        TD_TRY(td_hierarchy_failed(c, broadcast_nodes(c, &call, data, bytes, source)));
    }
    // Also on the source's node, where all have it: they end with the leader, whatever becomes of
    // it.
    return td_hierarchy_spread(c, data, is_source ? 0 : bytes);
}

td_status td_hierarchy_barrier(struct td_collective *c, const char *tag) {
    const size_t bytes = strlen(tag);
    struct td_between_call call = {.kind = TD_BETWEEN_BARRIER,
                                   .detail = (uint32_t)td_xxh3_64(tag, bytes)};
    size_t kept = TD_MIN(bytes, sizeof call.tag);
    call.is_cut = kept < bytes;
    while (kept && kept < bytes && ((unsigned char)tag[kept] & 0xc0) == 0x80) {
        kept--; // not within a character of UTF-8
    }
    memcpy(call.tag, tag, kept);
    TD_TRY(td_hierarchy_enter(c, &call));
    if (c->local) TD_TRY(td_hierarchy_failed(c, c->ops->barrier(c->local, tag)));
    if (td_hierarchy_leads(c)) {
        TD_TRY(td_hierarchy_failed(c, td_between_open(c->between, &call, NULL, 0)));
    }
    return c->local ? td_hierarchy_failed(c, c->ops->barrier(c->local, tag)) : TD_OK;
}

// ---- all to one, and one to all, of a part for each ---------------------------------------------
// What the leader has goes to another rank of its node, or comes from it.
static td_status hand(struct td_collective *c, char *data, size_t bytes, int32_t rank,
                      bool to_leader) {
    const int32_t local_rank = rank - (c->rank - c->local_rank);
    if (local_rank == 0) return TD_OK;
    td_status s = TD_OK;
    const bool is_it = c->local_rank == local_rank, leads = td_hierarchy_leads(c);
    if (!is_it && !leads) return TD_OK;
    if (is_it == to_leader) {
        s = c->ops->send(c->local, data, bytes, is_it ? 0 : local_rank, 0);
    } else {
        s = c->ops->recv(c->local, data, bytes, is_it ? 0 : local_rank, 0);
    }
    return td_hierarchy_failed(c, s);
}

// This node's block is in scratch 0; all blocks come to scratch 1 of the leader of `to`.
static td_status collect_blocks(struct td_collective *c, const struct td_between_call *call,
                                size_t n, int32_t to) {
    const size_t own = count_of(c, c->node) * n;
    TD_TRY(td_between_open(c->between, call, NULL, 0));
    clear_slices(c);
    if (c->node != to) c->to[to] = (struct td_gloo_slice){c->scratch[0], own};
    for (int32_t p = 0; c->node == to && p < c->n_nodes; p++) {
        c->from[p] = (struct td_gloo_slice){c->scratch[1] + first_of(c, p) * n, count_of(c, p) * n};
    }
    if (c->node == to) copy(c->scratch[1] + first_of(c, to) * n, c->scratch[0], own);
    return exchange(c);
}

td_status td_hierarchy_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                              int32_t dst) {
    const bool is_dst = c->rank == dst;
    TD_TRY(td_collective_check_rank("gather to", dst, c->world));
    TD_TRY(td_collective_check_parts("gather", in, 1, is_dst ? out : NULL, is_dst ? c->world : 0,
                                     bytes, c->world));
    const struct td_between_call call = {
        .kind = TD_BETWEEN_GATHER, .detail = (uint32_t)dst, .n = (int64_t)bytes};
    const size_t world = (size_t)c->world, most = td_hierarchy_chunk(world, 1);
    size_t done = 0;
    TD_TRY(td_hierarchy_enter(c, &call));
    const int32_t to = node_of(c, dst);
    do {
        const size_t n = TD_MIN(bytes - done, most);
        TD_TRY(td_hierarchy_collect(c, n ? (const char *)in + done : in, n, c->scratch[0]));
        if (td_hierarchy_leads(c)) {
            TD_TRY(td_hierarchy_failed(c, collect_blocks(c, &call, n, to)));
        }
        if (c->node == to) TD_TRY(hand(c, c->scratch[1], world * n, dst, false));
        for (size_t r = 0; is_dst && r < world; r++) {
            copy((char *)out + (n ? r * bytes + done : 0), c->scratch[1] + r * n, n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

// All blocks are in scratch 0 of the leader of `from`; each leader's own comes to scratch 1.
static td_status deal_blocks(struct td_collective *c, const struct td_between_call *call, size_t n,
                             int32_t from) {
    const size_t own = count_of(c, c->node) * n;
    TD_TRY(td_between_open(c->between, call, NULL, 0));
    clear_slices(c);
    for (int32_t p = 0; c->node == from && p < c->n_nodes; p++) {
        c->to[p] = (struct td_gloo_slice){c->scratch[0] + first_of(c, p) * n, count_of(c, p) * n};
    }
    if (c->node == from) copy(c->scratch[1], c->scratch[0] + first_of(c, from) * n, own);
    if (c->node != from) c->from[from] = (struct td_gloo_slice){c->scratch[1], own};
    return exchange(c);
}

td_status td_hierarchy_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                               int32_t src) {
    const bool is_src = c->rank == src;
    TD_TRY(td_collective_check_rank("scatter from", src, c->world));
    TD_TRY(td_collective_check_parts("scatter", is_src ? in : NULL, is_src ? c->world : 0, out, 1,
                                     bytes, c->world));
    const struct td_between_call call = {
        .kind = TD_BETWEEN_SCATTER, .detail = (uint32_t)src, .n = (int64_t)bytes};
    const size_t world = (size_t)c->world, most = td_hierarchy_chunk(world, 1);
    size_t done = 0;
    TD_TRY(td_hierarchy_enter(c, &call));
    const int32_t from = node_of(c, src);
    do {
        const size_t n = TD_MIN(bytes - done, most);
        for (size_t r = 0; is_src && r < world; r++) {
            copy(c->scratch[0] + r * n, (const char *)in + (n ? r * bytes + done : 0), n);
        }
        if (c->node == from) TD_TRY(hand(c, c->scratch[0], world * n, src, true));
        if (td_hierarchy_leads(c)) {
            TD_TRY(td_hierarchy_failed(c, deal_blocks(c, &call, n, from)));
        }
        TD_TRY(td_hierarchy_deal(c, c->scratch[1], n, n ? (char *)out + done : out));
        done += n;
    } while (done < bytes);
    return TD_OK;
}

// The leader has, in scratch 1, what its ranks have for all: (local rank, rank). It sends each node
// a block (local rank, rank there), and leaves in scratch 0 what its ranks get: (local rank, rank).
static td_status cross(struct td_collective *c, const struct td_between_call *call, size_t n) {
    const size_t own = count_of(c, c->node), world = (size_t)c->world;
    char *out = c->scratch[0], *in = c->scratch[1];
    TD_TRY(td_between_open(c->between, call, NULL, 0));
    for (int32_t p = 0; p < c->n_nodes; p++) {
        const size_t first = first_of(c, p), there = count_of(c, p), block = own * first * n;
        for (size_t l = 0; l < own; l++) {
            copy(out + block + l * there * n, in + (l * world + first) * n, there * n);
        }
        c->to[p] = (struct td_gloo_slice){out + block, own * there * n};
        c->from[p] = (struct td_gloo_slice){in + block, there * own * n};
    }
    copy(c->from[c->node].data, c->to[c->node].data, own * own * n);
    TD_TRY(exchange(c));
    for (size_t r = 0; r < world; r++) { // from block (rank there, local rank) of each node
        for (size_t l = 0; l < own; l++) {
            copy(out + (l * world + r) * n, in + (r * own + l) * n, n);
        }
    }
    return TD_OK;
}

td_status td_hierarchy_all_to_all(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    const size_t world = (size_t)c->world;
    TD_TRY(td_collective_check_parts("all_to_all", in, c->world, out, c->world, bytes, c->world));
    const struct td_between_call call = {.kind = TD_BETWEEN_ALL_TO_ALL, .n = (int64_t)bytes};
    size_t done = 0, locals = 1;
    TD_TRY(td_hierarchy_enter(c, &call));
    for (int32_t p = 0; p < c->n_nodes; p++) {
        locals = TD_MAX(locals, count_of(c, p));
    }
    do {
        const size_t n = TD_MIN(bytes - done, td_hierarchy_chunk(world * locals, 1));
        for (size_t r = 0; n && r < world; r++) {
            memcpy(c->scratch[0] + r * n, (const char *)in + r * bytes + done, n);
        }
        TD_TRY(td_hierarchy_collect(c, c->scratch[0], world * n, c->scratch[1]));
        if (td_hierarchy_leads(c)) TD_TRY(td_hierarchy_failed(c, cross(c, &call, n)));
        TD_TRY(td_hierarchy_deal(c, c->scratch[0], world * n, c->scratch[1]));
        for (size_t r = 0; n && r < world; r++) {
            memcpy((char *)out + r * bytes + done, c->scratch[1] + r * n, n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

// ---- parts of any size --------------------------------------------------------------------------
struct said {
    uint64_t bytes, room;
};

// Learns what each rank has, and whether all have room for it. Every rank decides the same.
static td_status agree_on_counts(struct td_collective *c, const struct td_between_call *call,
                                 struct said own, size_t *counts, size_t *out_most) {
    uint64_t all = 0, least_room = UINT64_MAX;
    int32_t least = 0;
    TD_TRY(td_hierarchy_gather_all(c, call, &own, sizeof own, c->scratch[1]));
    *out_most = 0;
    for (int32_t r = 0; r < c->world; r++) {
        struct said said;
        memcpy(&said, c->scratch[1] + (size_t)r * sizeof said, sizeof said);
        counts[r] = (size_t)said.bytes;
        *out_most = TD_MAX(*out_most, counts[r]);
        all = said.bytes > UINT64_MAX - all ? UINT64_MAX : all + said.bytes;
        if (said.room < least_room) least = r;
        least_room = TD_MIN(least_room, said.room);
    }
    if (all <= least_room) return TD_OK;
    return td_fail(TD_RESOURCE_EXHAUSTED,
                   "all_gather_uneven: rank %d has room for %" PRIu64
                   " bytes, all parts have %" PRIu64 "; call again with that much",
                   least, least_room, all);
}

td_status td_hierarchy_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes,
                                         void *out, size_t out_bytes, size_t *counts) {
    TD_TRY(td_collective_check_uneven(in, bytes, out, out_bytes, counts));
    struct td_between_call call = {.kind = TD_BETWEEN_ALL_GATHER_UNEVEN};
    TD_TRY(td_hierarchy_enter(c, &call));
    size_t most;
    TD_TRY(agree_on_counts(c, &call, (struct said){bytes, out_bytes}, counts, &most));
    const size_t chunk = td_hierarchy_chunk((size_t)c->world, 1);
    for (size_t done = 0; done < most; done += TD_MIN(most - done, chunk)) {
        const size_t n = TD_MIN(most - done, chunk);
        const size_t mine = bytes > done ? TD_MIN(bytes - done, n) : 0;
        call.n = (int64_t)n;
        copy(c->scratch[0], mine ? (const char *)in + done : NULL, mine);
        TD_TRY(td_hierarchy_gather_all(c, &call, c->scratch[0], n, c->scratch[1]));
        char *to = out;
        for (int32_t r = 0; r < c->world; to += counts[r], r++) {
            if (counts[r] <= done) continue;
            memcpy(to + done, c->scratch[1] + (size_t)r * n, TD_MIN(counts[r] - done, n));
        }
    }
    return TD_OK;
}
