// Calls and sums between nodes (see between.h).

#include "collectives/gloo/between.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/reduce.h"
#include "lib/base/clock.h"
#include "lib/base/machine/machine.h"

enum { SLICE_BYTES = 3 << 18, PIECE_BYTES_MAX = 1 << 22, WHOLE_BYTES = 1 << 19 };

struct td_between {
    struct td_between_config config;
    int32_t node, n_nodes;
    struct td_mesh *mesh;                             // until the nodes are connected
    struct td_gloo *gloo;                             // from then on
    uint64_t number, round;                           // calls and rounds so far
    int64_t deadline_ns;                              // of the call
    const struct td_collective_deadline *deadline;    // which one that is
    const struct td_collective_deadline *_Atomic set; // of the calls that follow
    struct td_wire_frame *out, *in;                   // in: (n_nodes)
    size_t piece_bytes;                               // of data that goes at once
    size_t slice_bytes; // the most of it that goes from one node to another
    char *pieces[2];    // (n_nodes, slice_bytes) each, once they are needed
    char *parts_of_own; // (n_nodes, own_bytes): reduce_own's, as large as it was needed
    size_t own_bytes;
    struct td_gloo_slice *to, *from; // (n_nodes): scratch
    void **parts;                    // (n_nodes): scratch
    int64_t *bounds;                 // (n_nodes + 1): scratch
};

// ---- life ---------------------------------------------------------------------------------------
td_status td_between_create(const struct td_between_config *config, struct td_between **out_b) {
    struct td_between *b = td_calloc(1, sizeof *b);
    if (!b) return td_fail_oom();
    const size_t n = (size_t)config->mesh.n_nodes;
    b->config = *config;
    atomic_init(&b->set, &b->config.deadline);
    b->node = config->mesh.node;
    b->n_nodes = config->mesh.n_nodes;
    b->piece_bytes = TD_MIN(n * SLICE_BYTES, (size_t)PIECE_BYTES_MAX);
    b->slice_bytes = (b->piece_bytes / TD_LINE_BYTES / n + 1) * TD_LINE_BYTES; // slice_of
    b->out = td_calloc(1, sizeof *b->out);
    b->in = td_calloc(n, sizeof *b->in);
    b->to = td_calloc(n, sizeof *b->to);
    b->from = td_calloc(n, sizeof *b->from);
    b->parts = td_calloc(n, sizeof *b->parts);
    b->bounds = td_calloc(n + 1, sizeof *b->bounds);
    const bool is_whole = b->out && b->in && b->to && b->from && b->parts && b->bounds;
    td_status s = is_whole ? td_mesh_create(&config->mesh, &b->mesh) : td_fail_oom();
    if (s) {
        td_between_destroy(b);
        return s;
    }
    *out_b = b;
    return TD_OK;
}

void td_between_destroy(struct td_between *b) {
    if (!b) return;
    td_mesh_destroy(b->mesh);
    td_gloo_destroy(b->gloo);
    free(b->out);
    free(b->in);
    free(b->to);
    free(b->from);
    free(b->parts);
    free(b->bounds);
    free(b->pieces[0]);
    free(b->pieces[1]);
    free(b->parts_of_own);
    free(b);
}

void td_between_set_deadline(struct td_between *b, const struct td_collective_deadline *deadline) {
    atomic_store(&b->set, deadline);
}

// ---- deadlines ----------------------------------------------------------------------------------
static int64_t share_of(const struct td_collective_deadline *d) {
    return TD_MAX(d->timeout_ns - d->timeout_ns / 8, (int64_t)1);
}

static void begin_deadline(struct td_between *b) {
    b->deadline = atomic_load(&b->set);
    b->deadline_ns = td_mono_now().ns + share_of(b->deadline);
}

// Says of an error which deadline it was.
static td_status name_deadline(const struct td_between *b, td_status s) {
    char setting[96] = "", within[TD_COLLECTIVE_WITHIN];
    if (td_status_code(s) != TD_DEADLINE_EXCEEDED) return s;
    if (b->deadline->setting) {
        snprintf(setting, sizeof setting, "seven eighths of %s", b->deadline->setting);
    }
    const struct td_collective_deadline share = {share_of(b->deadline), setting};
    return td_status_context(s, "not done %s", td_collective_within(&share, within));
}

static td_status end_round(struct td_between *b, struct td_gloo_round *take_round) {
    return name_deadline(b, td_gloo_end(b->gloo, take_round, b->deadline_ns));
}

// Ends a round of a call that failed, or that did not: the first error counts.
static td_status end_also(struct td_between *b, td_status s, struct td_gloo_round *round) {
    td_status also = end_round(b, round);
    if (!s) return also;
    td_status_free(also);
    return s;
}

// ---- connecting ---------------------------------------------------------------------------------
td_status td_between_connect(struct td_between *b, struct td_mesh_place *out_places) {
    TD_AUTO_FREE int *fds = td_calloc((size_t)b->n_nodes, sizeof *fds);
    if (!fds) return td_fail_oom();
    begin_deadline(b);
    td_status s = name_deadline(b, td_mesh_connect(b->mesh, b->deadline_ns, fds, out_places));
    const enum td_code code = td_status_code(s);
    if (code == TD_DEADLINE_EXCEEDED || code == TD_ABORTED) {
        s = td_status_with_class(s, TD_CLASS_COLLECTIVE);
    }
    TD_TRY_CTX(s, "connect the nodes");
    const struct td_gloo_config config = {.node = b->node,
                                          .n_nodes = b->n_nodes,
                                          .names = b->config.mesh.names,
                                          .aborted = b->config.mesh.aborted,
                                          .aborted_arg = b->config.mesh.aborted_arg};
    TD_TRY(td_gloo_create(&config, fds, &b->gloo));
    td_mesh_destroy(b->mesh);
    b->mesh = NULL;
    return TD_OK;
}

// ---- what nodes came for ------------------------------------------------------------------------
static void describe(const struct td_wire_frame *f, char *out, size_t out_bytes) {
    static const char *const names[] = {
        [TD_BETWEEN_ALL_REDUCE] = "all_reduce",
        [TD_BETWEEN_BUCKET] = "all_reduce_bucket",
        [TD_BETWEEN_ALL_GATHER] = "all_gather",
        [TD_BETWEEN_BROADCAST] = "broadcast",
        [TD_BETWEEN_BARRIER] = "barrier",
        [TD_BETWEEN_REDUCE] = "reduce",
        [TD_BETWEEN_REDUCE_SCATTER] = "reduce_scatter",
        [TD_BETWEEN_GATHER] = "gather",
        [TD_BETWEEN_SCATTER] = "scatter",
        [TD_BETWEEN_ALL_GATHER_UNEVEN] = "all_gather_uneven",
        [TD_BETWEEN_ALL_TO_ALL] = "all_to_all",
    };
    _Static_assert(TD_COUNTOF(names) == TD_BETWEEN_KINDS, "one name per call");
    const struct td_between_call *c = &f->call;
    const char *name = c->kind < TD_BETWEEN_KINDS ? names[c->kind] : "an unknown call";
    const char *dtype = c->dtype < TD_DTYPE_COUNT ? td_dtype_name((enum td_dtype)c->dtype) : "?";
    char peer[40] = "";
    switch ((enum td_between_kind)c->kind) {
    case TD_BETWEEN_BARRIER:
        snprintf(out, out_bytes, "call %" PRIu64 ", barrier '%.*s'%s", f->number,
                 (int)sizeof c->tag, c->tag, c->is_cut ? "..." : "");
        return;
    case TD_BETWEEN_ALL_REDUCE:
    case TD_BETWEEN_BUCKET:
    case TD_BETWEEN_REDUCE:
    case TD_BETWEEN_REDUCE_SCATTER:
        if (c->kind == TD_BETWEEN_REDUCE) snprintf(peer, sizeof peer, " to rank %u", c->detail);
        if (c->kind == TD_BETWEEN_BUCKET && c->detail) snprintf(peer, sizeof peer, " with flags");
        snprintf(out, out_bytes, "call %" PRIu64 ", %s (%s) of %" PRId64 " %s%s", f->number, name,
                 td_reduce_op_name((enum td_reduce_op)c->op), c->n, dtype, peer);
        return;
    case TD_BETWEEN_BROADCAST:
    case TD_BETWEEN_SCATTER:
        snprintf(peer, sizeof peer, " from rank %u", c->detail);
        break;
    case TD_BETWEEN_GATHER:
        snprintf(peer, sizeof peer, " to rank %u", c->detail);
        break;
    case TD_BETWEEN_ALL_GATHER:
    case TD_BETWEEN_ALL_GATHER_UNEVEN:
    case TD_BETWEEN_ALL_TO_ALL:
    case TD_BETWEEN_KINDS:
        break;
    }
    snprintf(out, out_bytes, "call %" PRIu64 ", %s of %" PRId64 " bytes%s", f->number, name, c->n,
             peer);
}

static td_status check_frames(struct td_between *b) {
    for (int32_t p = 0; p < b->n_nodes; p++) {
        const struct td_wire_frame *theirs = &b->in[p];
        if (p == b->node || (theirs->number == b->out->number &&
                             memcmp(&theirs->call, &b->out->call, sizeof theirs->call) == 0)) {
            continue;
        }
        char mine_text[160], their_text[160];
        char mine_name[TD_MESH_NODE_TEXT], their_name[TD_MESH_NODE_TEXT];
        describe(b->out, mine_text, sizeof mine_text);
        describe(theirs, their_text, sizeof their_text);
        td_status s = td_fail(TD_FAILED_PRECONDITION,
                              "node %s is in %s while node %s is in %s; all ranks must make the "
                              "same calls in the same order",
                              td_mesh_node(&b->config.mesh, b->node, mine_name), mine_text,
                              td_mesh_node(&b->config.mesh, p, their_name), their_text);
        return td_status_with_class(td_status_with_reason(s, "COLLECTIVE_MISMATCH"),
                                    TD_CLASS_USER_CODE);
    }
    return TD_OK;
}

static td_status begin(struct td_between *b, const struct td_gloo_slice *to,
                       const struct td_gloo_slice *from, struct td_gloo_round **out_round) {
    return td_gloo_begin(b->gloo, ++b->round, to, from, out_round);
}

td_status td_between_exchange(struct td_between *b, const struct td_gloo_slice *to,
                              const struct td_gloo_slice *from) {
    struct td_gloo_round *round = NULL;
    TD_TRY(begin(b, to, from, &round));
    return end_round(b, round);
}

// The data is in the frame.
static td_status begin_open(struct td_between *b, const struct td_between_call *call, size_t bytes,
                            struct td_gloo_round **out_round) {
    begin_deadline(b);
    b->out->number = ++b->number;
    b->out->call = *call;
    for (int32_t p = 0; p < b->n_nodes; p++) {
        b->to[p] = (struct td_gloo_slice){b->out, sizeof *b->out - TD_BETWEEN_INLINE + bytes};
        b->from[p] = (struct td_gloo_slice){&b->in[p], sizeof b->in[p]};
    }
    return begin(b, b->to, b->from, out_round);
}

// s: of what was begun since.
static td_status end_open(struct td_between *b, td_status s, struct td_gloo_round *take_round) {
    s = end_also(b, s, take_round);
    if (!s) s = check_frames(b);
    if (!s) return TD_OK;
    char what[160];
    describe(b->out, what, sizeof what);
    const bool names_it = td_status_code(s) == TD_FAILED_PRECONDITION;
    return names_it ? s : td_status_context(s, "%s", what);
}

static td_status open_packed(struct td_between *b, const struct td_between_call *call,
                             size_t bytes) {
    struct td_gloo_round *frames = NULL;
    td_status s = begin_open(b, call, bytes, &frames);
    return end_open(b, s, frames);
}

td_status td_between_open(struct td_between *b, const struct td_between_call *call,
                          const void *data, size_t bytes) {
    TD_CHECK(bytes <= TD_BETWEEN_INLINE);
    if (bytes) memcpy(b->out->data, data, bytes);
    return open_packed(b, call, bytes);
}

const void *td_between_inline(const struct td_between *b, int32_t node) {
    return node == b->node ? b->out->data : b->in[node].data;
}

// ---- sums ---------------------------------------------------------------------------------------
static td_status make_pieces(struct td_between *b) {
    for (int i = 0; i < 2; i++) {
        if (!b->pieces[i]) b->pieces[i] = td_calloc((size_t)b->n_nodes, b->slice_bytes);
        if (!b->pieces[i]) return td_fail_oom();
    }
    return TD_OK;
}

// Elements [0, n) of all nodes, whose own are at data; the others have `stride` bytes each.
static void add_up(struct td_between *b, const struct td_between_part *part, char *data, int64_t n,
                   char *others, size_t stride) {
    for (int32_t p = 0; p < b->n_nodes; p++) {
        b->parts[p] = p == b->node ? data : others + (size_t)p * stride;
    }
    const struct td_reduce_how how = {part->op, part->divisor, b->node};
    if (n) td_reduce_as(b->parts, b->n_nodes, 0, n, part->dtype, how);
}

static size_t bytes_of(const struct td_between_part *part) {
    return (size_t)part->n * td_dtype_bytes(part->dtype);
}

// What a part takes of a frame: the next one begins where any element may.
static size_t inline_bytes_of(const struct td_between_part *part) {
    return td_align_up(bytes_of(part), 8);
}

// Parts that came with the frames.
static void reduce_inline(struct td_between *b, const struct td_between_part *parts, int n_parts) {
    size_t at = 0;
    for (int i = 0; i < n_parts; at += inline_bytes_of(&parts[i]), i++) {
        char *data = parts[i].data;
        add_up(b, &parts[i], data, parts[i].n, b->in[0].data + at, sizeof b->in[0]);
    }
}

// A piece of what is reduced: its first element, and how many.
struct piece {
    int64_t first, n;
};

// Two nodes, and no more than there is room for: all of it goes to the other, a round a piece.
static bool goes_whole(const struct td_between *b, const struct td_between_part *part) {
    return b->n_nodes == 2 && bytes_of(part) <= b->piece_bytes;
}

static struct piece piece_at(const struct td_between *b, const struct td_between_part *part,
                             int64_t k) {
    const size_t bytes = goes_whole(b, part) ? (size_t)WHOLE_BYTES : b->piece_bytes;
    const int64_t most = (int64_t)(bytes / td_dtype_bytes(part->dtype));
    const int64_t left = part->n - k * most;
    return (struct piece){k * most, TD_MAX(TD_MIN(left, most), (int64_t)0)};
}

static char *at(const struct td_between_part *part, int64_t element) {
    return (char *)part->data + (size_t)element * td_dtype_bytes(part->dtype);
}

// Elements of a piece in which each node's slice begins, in whole cache lines.
static int64_t slice_of(const struct td_between *b, const struct td_between_part *part, int64_t n,
                        int32_t node) {
    const int64_t per_line = TD_LINE_BYTES / (int64_t)td_dtype_bytes(part->dtype);
    const int64_t lines = (n + per_line - 1) / per_line;
    return TD_MIN(lines * node / b->n_nodes * per_line, n);
}

// To each node its slice of this node's elements; from each this node's slice of theirs, into room
// of that many bytes a node. In a sum, here and in begin_whole, there is room for any slice: the
// first may come before its call was compared.
static td_status begin_scatter(struct td_between *b, const struct td_between_part *part,
                               const int64_t *bounds, char *into, size_t room,
                               struct td_gloo_round **out) {
    const size_t elem = td_dtype_bytes(part->dtype);
    const bool has_own = bounds[b->node + 1] > bounds[b->node];
    for (int32_t p = 0; p < b->n_nodes; p++) {
        const size_t theirs = (size_t)(bounds[p + 1] - bounds[p]) * elem;
        b->to[p] = (struct td_gloo_slice){at(part, bounds[p]), theirs};
        b->from[p] = (struct td_gloo_slice){into + (size_t)p * room, has_own ? room : 0};
    }
    return begin(b, b->to, b->from, out);
}

static td_status begin_gather(struct td_between *b, const struct td_between_part *part,
                              const int64_t *bounds, struct td_gloo_round **out) {
    const size_t elem = td_dtype_bytes(part->dtype);
    const size_t own = (size_t)(bounds[b->node + 1] - bounds[b->node]) * elem;
    for (int32_t p = 0; p < b->n_nodes; p++) {
        b->to[p] = (struct td_gloo_slice){at(part, bounds[b->node]), own};
        b->from[p] =
            (struct td_gloo_slice){at(part, bounds[p]), (size_t)(bounds[p + 1] - bounds[p]) * elem};
    }
    return begin(b, b->to, b->from, out);
}

static void bounds_of(struct td_between *b, const struct td_between_part *part, struct piece k) {
    for (int32_t p = 0; p <= b->n_nodes; p++) {
        b->bounds[p] = k.first + slice_of(b, part, k.n, p);
    }
}

static td_status begin_whole(struct td_between *b, const struct td_between_part *part,
                             struct piece k, char *into, struct td_gloo_round **out) {
    const size_t bytes = (size_t)k.n * td_dtype_bytes(part->dtype);
    for (int32_t p = 0; p < b->n_nodes; p++) {
        b->to[p] = (struct td_gloo_slice){at(part, k.first), bytes};
        b->from[p] =
            (struct td_gloo_slice){into + (size_t)p * b->slice_bytes, bytes ? b->slice_bytes : 0};
    }
    return begin(b, b->to, b->from, out);
}

static td_status begin_piece(struct td_between *b, const struct td_between_part *part, int64_t k,
                             struct td_gloo_round **out) {
    const struct piece piece = piece_at(b, part, k);
    *out = NULL;
    if (!piece.n) return TD_OK;
    if (goes_whole(b, part)) return begin_whole(b, part, piece, b->pieces[k & 1], out);
    bounds_of(b, part, piece);
    return begin_scatter(b, part, b->bounds, b->pieces[k & 1], b->slice_bytes, out);
}

// What has come of piece k is added up; a slice's result goes to all.
static td_status finish_piece(struct td_between *b, const struct td_between_part *part, int64_t k,
                              struct td_gloo_round **out_gather) {
    const struct piece piece = piece_at(b, part, k);
    if (goes_whole(b, part)) {
        add_up(b, part, at(part, piece.first), piece.n, b->pieces[k & 1], b->slice_bytes);
        return TD_OK;
    }
    bounds_of(b, part, piece);
    const int64_t first = b->bounds[b->node];
    add_up(b, part, at(part, first), b->bounds[b->node + 1] - first, b->pieces[k & 1],
           b->slice_bytes);
    return begin_gather(b, part, b->bounds, out_gather);
}

// take_first: the round of piece 0.
static td_status reduce_pieces(struct td_between *b, const struct td_between_part *part,
                               struct td_gloo_round *take_first) {
    struct td_gloo_round *now = take_first, *next = NULL, *gather = NULL;
    td_status s = TD_OK;
    for (int64_t k = 0; !s && now; k++) {
        struct td_gloo_round *gathered = gather;
        gather = NULL;
        s = begin_piece(b, part, k + 1, &next);
        s = end_also(b, s, now);
        now = next;
        next = NULL;
        if (!s) s = finish_piece(b, part, k, &gather);
        s = end_also(b, s, gathered);
    }
    s = end_also(b, s, now);
    return end_also(b, s, gather);
}

td_status td_between_all_reduce(struct td_between *b, const struct td_between_call *call,
                                const struct td_between_part *parts, int n_parts) {
    size_t all = 0, later = 0;
    for (int i = 0; i < n_parts; i++) {
        all += inline_bytes_of(&parts[i]);
        if (i) later += inline_bytes_of(&parts[i]);
    }
    const bool is_small = all <= TD_BETWEEN_INLINE;
    const int first = is_small ? 0 : 1;
    size_t at_byte = 0;
    TD_CHECK(later <= TD_BETWEEN_INLINE);
    for (int i = first; i < n_parts; at_byte += inline_bytes_of(&parts[i]), i++) {
        if (parts[i].n) memcpy(b->out->data + at_byte, parts[i].data, bytes_of(&parts[i]));
    }
    struct td_gloo_round *frames = NULL, *piece = NULL;
    if (!is_small) TD_TRY(make_pieces(b));
    td_status s = begin_open(b, call, is_small ? all : later, &frames);
    if (!s && !is_small) s = begin_piece(b, &parts[0], 0, &piece);
    s = end_open(b, s, frames);
    if (s) {
        td_gloo_drop(piece);
        return s;
    }
    reduce_inline(b, parts + first, n_parts - first);
    return is_small ? TD_OK : reduce_pieces(b, &parts[0], piece);
}

static td_status make_room_for_own(struct td_between *b, size_t bytes) {
    if (bytes <= b->own_bytes) return TD_OK;
    free(td_steal(b->parts_of_own));
    b->own_bytes = 0;
    b->parts_of_own = td_calloc((size_t)b->n_nodes, bytes);
    if (!b->parts_of_own) return td_fail_oom();
    b->own_bytes = bytes;
    return TD_OK;
}

td_status td_between_reduce_own(struct td_between *b, const struct td_between_part *part,
                                const int64_t *bounds) {
    const int64_t first = bounds[b->node], n = bounds[b->node + 1] - first;
    const size_t room = TD_MAX((size_t)n * td_dtype_bytes(part->dtype), (size_t)TD_LINE_BYTES);
    struct td_gloo_round *round = NULL;
    TD_TRY(make_room_for_own(b, room));
    TD_TRY(begin_scatter(b, part, bounds, b->parts_of_own, room, &round));
    TD_TRY(end_round(b, round));
    add_up(b, part, at(part, first), n, b->parts_of_own, room);
    return TD_OK;
}
