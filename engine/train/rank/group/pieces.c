// A place has the pieces of rank 0, then those of rank 1 and so on. After them are once more those
// of this rank, which reduce_scatter gives, and all_gather takes. Control flags that follow the
// last bucket are at the end of its place; after it is scattered they are summed in a call of their
// own.

#include "engine/train/rank/group/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/rank/group/group.h"
#include "traind/op.h"

enum { FLAG_BYTES = TD_CONTROL_FLAGS * sizeof(float) };

// ---- places -------------------------------------------------------------------------------------

// TD_PIECE_KINDS: it is no sum of pieces.
static int kind_of(td_op_id op) {
    return op == TD_OP_REDUCE_SCATTER ? 0 : op == TD_OP_ALL_GATHER ? 1 : TD_PIECE_KINDS;
}

static size_t place_bytes(const struct td_rank *r, const struct td_graph *g,
                          const struct td_node_info *node) {
    size_t own = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const uint32_t index = td_graph_value(g, node->inputs[i])->index;
        const struct td_state_info *t = td_state_at(td_graph_state(g), index);
        own += t->bytes / (size_t)t->n_pieces;
    }
    return own * (size_t)(r->facts.world_size + 1) + FLAG_BYTES;
}

// By kind, and by bucket in it: the largest place over all programs.
static void find_largest(const struct td_rank *r, size_t *out_bytes) {
    const uint32_t n_buckets = td_state_n_buckets(r->state);
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_graph *g = td_programs_at(r->programs, i)->graph;
        for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
            const struct td_node_info *node = td_graph_node(g, n);
            const int kind = kind_of(node->op);
            if (kind == TD_PIECE_KINDS) continue;
            size_t *most = &out_bytes[(uint32_t)kind * n_buckets + node->attrs.bucket];
            *most = TD_MAX(*most, place_bytes(r, g, node));
        }
    }
}

// One place serves all where tensors are in host memory. A plan has no memory, and believes the
// facts.
static bool shares_place(const struct td_rank *r) {
    const struct td_buffer *region = r->memory.region;
    if (!region[TD_ROLE_GRAD].bytes) return !r->accel_facts.own_memory;
    return region[TD_ROLE_GRAD].space == TD_SPACE_HOST &&
           region[TD_ROLE_PARAM].space == TD_SPACE_HOST;
}

static td_status measure(const struct td_rank *r, size_t **out_largest, size_t *out_bytes) {
    const size_t n = TD_PIECE_KINDS * (size_t)td_state_n_buckets(r->state);
    size_t all = 0, most = 0;
    TD_AUTO_FREE size_t *largest = td_calloc(n, sizeof *largest);
    if (!largest) return td_fail_oom();
    if (r->facts.world_size > 1) find_largest(r, largest);
    for (size_t i = 0; i < n; i++) {
        all += largest[i];
        most = TD_MAX(most, largest[i]);
    }
    *out_bytes = shares_place(r) ? most : all;
    if (out_largest) *out_largest = td_steal(largest);
    return TD_OK;
}

td_status td_rank_pieces_bytes(const struct td_rank *r, size_t *out_bytes) {
    return measure(r, NULL, out_bytes);
}

td_status td_rank_lay_pieces(struct td_rank *r) {
    const uint32_t n = td_state_n_buckets(r->state);
    TD_AUTO_FREE size_t *largest = NULL;
    size_t bytes;
    TD_TRY(measure(r, &largest, &bytes));
    if (!bytes) return TD_OK;
    r->piece_memory = malloc(bytes);
    if (!r->piece_memory) return td_status_context(td_fail_oom(), "%zu bytes for pieces", bytes);
    r->piece_place = td_arena_array(r->arena, TD_PIECE_KINDS * n, sizeof *r->piece_place);
    if (!r->piece_place) return td_fail_oom();
    char *at = r->piece_memory;
    for (uint32_t i = 0; i < TD_PIECE_KINDS * n; i++) {
        r->piece_place[i] = at;
        if (!shares_place(r)) at += largest[i];
    }
    return TD_OK;
}

// ---- packing ------------------------------------------------------------------------------------

static size_t part_bytes(const struct td_sum *sum, const struct td_sum_range *t) {
    return (size_t)(t->n / sum->n_pieces) * td_dtype_bytes(sum->dtype);
}

static size_t own_bytes(const struct td_sum *sum) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < sum->n_out; i++) {
        bytes += part_bytes(sum, &sum->out[i]);
    }
    return bytes;
}

static char *place_of(const struct td_rank *r, const struct td_sum *sum) {
    const uint32_t kind = (uint32_t)kind_of(td_sum_kind_op(sum->kind));
    return r->piece_place[kind * td_state_n_buckets(r->state) + sum->index];
}

// Copies rank q's pieces between the tensors and `place`. Where both are the host's that is a
// memcpy, on any thread.
static td_status copy_pieces(struct td_rank *r, const struct td_sum *sum, int32_t q, char *place,
                             bool to_place) {
    for (uint32_t i = 0; i < sum->n_out; i++) {
        const struct td_sum_range *t = &sum->out[i];
        const size_t bytes = part_bytes(sum, t), at = t->offset + (size_t)q * bytes;
        char *host = td_sum_range_host(t);
        const struct td_buffer here = td_buffer_of_host(place, bytes);
        if (host) {
            char *there = host + (size_t)q * bytes;
            memcpy(to_place ? place : there, to_place ? there : place, bytes);
        } else if (to_place) {
            TD_TRY(r->accel_ops->copy(r->accel, here, 0, t->buffer, at, bytes));
        } else {
            TD_TRY(r->accel_ops->copy(r->accel, t->buffer, at, here, 0, bytes));
        }
        place += bytes;
    }
    return TD_OK;
}

static bool carries_flags(const struct td_rank *r, const struct td_sum *sum) {
    return sum->kind == TD_SUM_REDUCE_SCATTER && sum->index + 1 == td_state_n_buckets(r->state);
}

// Beside a bucket on a device; of one in host memory they are summed where they are.
static bool brings_flags(const struct td_rank *r, const struct td_sum *sum) {
    return carries_flags(r, sum) && !td_sum_range_host(sum->in);
}

static td_status copy_flags(struct td_rank *r, char *place, bool to_place) {
    const struct td_buffer region = r->memory.region[TD_ROLE_GRAD];
    const struct td_buffer here = td_buffer_of_host(place, FLAG_BYTES);
    const size_t at = td_state_control_offset(r->state);
    return to_place ? r->accel_ops->copy(r->accel, here, 0, region, at, FLAG_BYTES)
                    : r->accel_ops->copy(r->accel, region, at, here, 0, FLAG_BYTES);
}

// Those that the group reads. A scatter reads the pieces of all ranks, a gather this rank's.
static td_status pack(struct td_rank *r, const struct td_sum *sum) {
    const int32_t world = r->facts.world_size;
    const size_t own = own_bytes(sum);
    char *place = place_of(r, sum), *end = place + (size_t)(world + 1) * own;
    if (sum->kind == TD_SUM_ALL_GATHER) {
        return copy_pieces(r, sum, r->facts.global_rank, place + (size_t)world * own, true);
    }
    for (int32_t q = 0; q < world; q++) {
        TD_TRY(copy_pieces(r, sum, q, place + (size_t)q * own, true));
    }
    return brings_flags(r, sum) ? copy_flags(r, end, true) : TD_OK;
}

static td_status unpack(struct td_rank *r, const struct td_sum *sum) {
    const int32_t world = r->facts.world_size, rank = r->facts.global_rank;
    const size_t own = own_bytes(sum);
    char *place = place_of(r, sum), *end = place + (size_t)(world + 1) * own;
    if (sum->kind == TD_SUM_REDUCE_SCATTER) {
        TD_TRY(copy_pieces(r, sum, rank, place + (size_t)world * own, false));
        return brings_flags(r, sum) ? copy_flags(r, end, false) : TD_OK;
    }
    for (int32_t q = 0; q < world; q++) {
        if (q != rank) TD_TRY(copy_pieces(r, sum, q, place + (size_t)q * own, false));
    }
    return TD_OK;
}

// ---- begin, make, end ---------------------------------------------------------------------------

td_status td_rank_begin_pieces(struct td_rank *r, const struct td_sum *sum) {
    if (r->facts.world_size == 1) return TD_OK; // each has its piece, which is all
    atomic_fetch_add_explicit(&r->io->page->collective_seq, 1, memory_order_relaxed);
    if (!td_sum_range_host(sum->in)) TD_TRY(pack(r, sum));
    if (r->comm) return td_comm_thread_post(r->comm, sum, carries_flags(r, sum));
    return td_rank_make_pieces(r, sum);
}

static td_status scatter(struct td_rank *r, const struct td_sum *sum, char *place, size_t own) {
    char *mine = place + (size_t)r->facts.world_size * own, *flags = mine + own;
    const int64_t n = (int64_t)(own / td_dtype_bytes(sum->dtype));
    TD_TRY(r->group_ops->reduce_scatter(r->group, place, mine, n, sum->dtype, sum->op));
    if (!carries_flags(r, sum)) return TD_OK;
    char *host = td_sum_range_host(sum->in); // of the first tensor of the bucket
    if (host) flags = host - sum->in->offset + td_state_control_offset(r->state);
    return r->group_ops->all_reduce(r->group, flags, TD_CONTROL_FLAGS, TD_F32, TD_REDUCE_SUM);
}

static td_status make(struct td_rank *r, const struct td_sum *sum) {
    const size_t own = own_bytes(sum);
    const bool on_host = td_sum_range_host(sum->in) != NULL;
    char *place = place_of(r, sum);
    const char *mine = place + (size_t)r->facts.world_size * own;
    if (on_host) TD_TRY(pack(r, sum));
    if (sum->kind == TD_SUM_ALL_GATHER) {
        TD_TRY(r->group_ops->all_gather(r->group, mine, own, place));
    } else {
        TD_TRY(scatter(r, sum, place, own));
    }
    return on_host ? unpack(r, sum) : TD_OK;
}

td_status td_rank_make_pieces(struct td_rank *r, const struct td_sum *sum) {
    const struct td_mono start = td_mono_now();
    char name[32];
    td_status s = make(r, sum);
    if (s) td_rank_bucket_failed(r);
    if (s || !r->timeline) return s;
    snprintf(name, sizeof name, "%s %u", td_sum_kind_name(sum->kind), (unsigned)sum->index);
    return td_timeline_add(r->timeline, name, r->comm ? "communication" : "queue", start, NULL);
}

td_status td_rank_end_pieces(struct td_rank *r, const struct td_sum *sum) {
    if (r->facts.world_size == 1) return TD_OK;
    TD_TRY(td_comm_thread_wait(r->comm, sum));
    return td_sum_range_host(sum->out) ? TD_OK : unpack(r, sum);
}
