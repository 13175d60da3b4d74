// What the shared-memory collective computes (see shm.h).
//
// A bucket is reduced where it is. All meet, rank r sums slice r of all regions in the order of the
// ranks and writes the result to every region, all meet again. Each rank reads W slices and writes
// W slices of S / W: nothing is copied in or out. Slices are whole cache lines, so no line has two
// writers. A rank that comes for a bucket goes on with its backward pass. It reduces its slice when
// it comes for the next one, by when the others have come, too, unless they are later than a bucket
// takes. That meeting is also the end of the bucket before. So K buckets take K + 1 meetings, and
// ranks wait for each other once a step, in wait_buckets.
// Memory that is elsewhere goes through the stages, and is reduced there between two
// meetings a chunk. A reduce_scatter has a piece for each rank in every half. So one meeting is
// enough: nobody but rank r reads or writes the pieces of rank r. Source: slice-wise reduction as
// in MPICH's shared memory trees, with reduce-scatter and all-gather fused.

#include <string.h>

#include "collectives/reduce.h"
#include "collectives/shm.h"

// Offset of memory in this rank's region, or -1.
static int64_t place_of(const struct td_collective *c, const void *data, size_t bytes) {
    uintptr_t region = (uintptr_t)c->regions + (size_t)c->team.rank * c->region_bytes;
    uintptr_t at = (uintptr_t)data;
    if (!c->region_bytes || at < region || at - region > c->region_bytes) return -1;
    return bytes <= c->region_bytes - (at - region) ? (int64_t)(at - region) : -1;
}

// ---- slices ------------------------------------------------------------------------------------
struct slice {
    int64_t lo, hi; // elements
};

// Rank r's share of n elements, in whole cache lines.
static struct slice slice_of(const struct td_shm_team *t, int64_t n, size_t elem_bytes) {
    int64_t per_line = TD_LINE_BYTES / (int64_t)elem_bytes, lines = (n + per_line - 1) / per_line;
    int64_t lo = lines * t->rank / t->world * per_line;
    int64_t hi = lines * (t->rank + 1) / t->world * per_line;
    return (struct slice){TD_MIN(lo, n), TD_MIN(hi, n)};
}

static void reduce_slice(struct td_collective *c, struct slice s, enum td_dtype dtype,
                         enum td_reduce_op op) {
    if (s.lo < s.hi) td_reduce(c->parts, c->team.world, s.lo, s.hi, dtype, op);
}

static void parts_in_regions(struct td_collective *c, int64_t place) {
    for (int32_t p = 0; p < c->team.world; p++) {
        c->parts[p] = c->regions + (size_t)p * c->region_bytes + place;
    }
}

// ---- the calls ---------------------------------------------------------------------------------
static td_status reduce_staged(struct td_collective *c, const struct td_shm_call *call, char *data,
                               bool takes_result) {
    enum td_dtype dtype = (enum td_dtype)call->dtype;
    int64_t elem = (int64_t)td_dtype_bytes(dtype), done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        int64_t n = TD_MIN(call->n - done, (int64_t)c->half_bytes / elem);
        char *own = td_shm_stage(c, c->team.rank, meeting);
        if (n) memcpy(own, data + done * elem, (size_t)(n * elem));
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : call));
        for (int32_t p = 0; p < c->team.world; p++) {
            c->parts[p] = td_shm_stage(c, p, meeting);
        }
        reduce_slice(c, slice_of(&c->team, n, (size_t)elem), dtype, (enum td_reduce_op)call->op);
        TD_TRY(td_shm_team_meet(&c->team, NULL));
        if (n && takes_result) memcpy(data + done * elem, own, (size_t)(n * elem));
        done += n;
    } while (done < call->n);
    return TD_OK;
}

td_status td_shm_all_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                            enum td_reduce_op op) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(td_collective_check_reduce("all_reduce", data, n, dtype, op));
    size_t elem = td_dtype_bytes(dtype);
    struct td_shm_call call = {.kind = TD_SHM_ALL_REDUCE,
                               .dtype = (uint8_t)dtype,
                               .op = (uint8_t)op,
                               .n = n,
                               .place = place_of(c, data, (size_t)n * elem)};
    if (call.place < 0) return reduce_staged(c, &call, data, true);
    TD_TRY(td_shm_team_meet(&c->team, &call));
    parts_in_regions(c, call.place);
    reduce_slice(c, slice_of(&c->team, n, elem), dtype, op);
    return td_shm_team_meet(&c->team, NULL);
}

// ---- buckets -----------------------------------------------------------------------------------
// All have come for the bucket: this rank's slice of it.
static td_status reduce_bucket(struct td_collective *c) {
    struct td_shm_bucket *b = &c->bucket;
    b->is_open = false;
    TD_TRY(td_shm_team_await(&c->team));
    parts_in_regions(c, b->place);
    reduce_slice(c, slice_of(&c->team, b->n, td_dtype_bytes(b->dtype)), b->dtype, TD_REDUCE_MEAN);
    if (!b->has_control) return TD_OK;
    parts_in_regions(c, b->controls);
    reduce_slice(c, slice_of(&c->team, TD_CONTROL_FLAGS, sizeof(float)), TD_F32, TD_REDUCE_SUM);
    return TD_OK;
}

td_status td_shm_settle(struct td_collective *c) {
    td_works_settle(c->works);
    if (!c->bucket.is_open) return TD_OK;
    TD_TRY(reduce_bucket(c));
    return td_shm_team_meet(&c->team, NULL);
}

// Memory of the caller's own: mean and sum one after the other.
static td_status reduce_elsewhere(struct td_collective *c, const struct td_bucket *b, char *data) {
    TD_TRY(td_shm_all_reduce(c, data, b->n, b->dtype, TD_REDUCE_MEAN));
    if (!b->has_control) return TD_OK;
    return td_shm_all_reduce(c, data + b->control_offset, TD_CONTROL_FLAGS, TD_F32, TD_REDUCE_SUM);
}

td_status td_shm_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b) {
    char *data;
    td_works_settle(c->works);
    TD_TRY(td_collective_check_bucket(b, &data));
    const size_t elem = td_dtype_bytes(b->dtype), gap = b->control_offset - (size_t)b->n * elem;
    const struct td_shm_call call = {
        .kind = TD_SHM_BUCKET,
        .dtype = (uint8_t)b->dtype,
        .op = TD_REDUCE_MEAN,
        .detail = b->has_control ? (uint32_t)(gap / sizeof(float)) + 1 : 0,
        .n = b->n,
        .place = place_of(c, data, td_bucket_bytes(b)),
    };
    if (call.place < 0) return reduce_elsewhere(c, b, data);
    if (c->bucket.is_open) TD_TRY(reduce_bucket(c));
    TD_TRY(td_shm_team_arrive(&c->team, &call));
    c->bucket = (struct td_shm_bucket){
        .is_open = true,
        .has_control = b->has_control,
        .dtype = b->dtype,
        .n = b->n,
        .place = call.place,
        .controls = call.place + (int64_t)b->control_offset,
    };
    return TD_OK;
}

// ---- the others --------------------------------------------------------------------------------
td_status td_shm_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                        enum td_reduce_op op, int32_t dst) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(td_collective_check_reduce("reduce", data, n, dtype, op));
    TD_TRY(td_collective_check_rank("reduce to", dst, c->team.world));
    const struct td_shm_call call = {.kind = TD_SHM_REDUCE,
                                     .dtype = (uint8_t)dtype,
                                     .op = (uint8_t)op,
                                     .detail = (uint32_t)dst,
                                     .n = n,
                                     .place = -1};
    return reduce_staged(c, &call, data, c->team.rank == dst);
}

td_status td_shm_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                enum td_dtype dtype, enum td_reduce_op op) {
    TD_TRY(td_shm_settle(c));
    const int32_t world = c->team.world;
    TD_TRY(td_collective_check_reduce_scatter(in, out, n, dtype, op, world));
    const struct td_shm_call call = {.kind = TD_SHM_REDUCE_SCATTER,
                                     .dtype = (uint8_t)dtype,
                                     .op = (uint8_t)op,
                                     .n = n,
                                     .place = -1};
    const size_t elem = td_dtype_bytes(dtype), piece = td_shm_piece(c, elem);
    int64_t done = 0;
    do {
        const uint32_t meeting = c->team.meeting + 1;
        const int64_t now = TD_MIN(n - done, (int64_t)(piece / elem));
        const size_t bytes = (size_t)now * elem, at = (size_t)done * elem;
        char *own = td_shm_stage(c, c->team.rank, meeting);
        for (size_t p = 0; bytes && p < (size_t)world; p++) {
            memcpy(own + p * piece, (const char *)in + p * (size_t)n * elem + at, bytes);
        }
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        for (int32_t p = 0; p < world; p++) {
            c->parts[p] = td_shm_stage(c, p, meeting) + (size_t)c->team.rank * piece;
        }
        reduce_slice(c, (struct slice){0, now}, dtype, op);
        if (bytes) memcpy((char *)out + at, c->parts[0], bytes);
        done += now;
    } while (done < n);
    return TD_OK;
}
