// The collective of ranks on one node: gradients are born in a shared mapping.
//
//   [head and slots][stages: 2 halves for each rank][gradient region of rank 0][of rank 1]...
//
// A bucket is reduced where it is. All meet, rank r sums slice r of all regions in the order of the
// ranks and writes the result to every region, all meet again. Each rank reads W slices and writes
// W slices of S / W: nothing is copied in or out. Slices are whole cache lines, so no line has two
// writers. Other memory goes through the stages in chunks. An all_reduce is the same between two
// halves. A gather or broadcast needs one meeting a chunk, because consecutive chunks use
// alternating halves (by the parity of the meeting) and nobody can be two meetings ahead.
//
// The launcher owns the mapping (a zeroed memfd per attempt) and maps it nowhere else. A rank gets
// it as one pointer and size, and the size of a region follows from both. So every rank computes
// the same layout and the head only has to confirm it. Waiting and failure: shm_team.h. Thread: the
// training thread; abort from any. Source: slice-wise reduction as in MPICH's shared memory trees,
// with reduce-scatter and all-gather fused.

#include <inttypes.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/machine.h"
#include "strategies/collective/collective.h"
#include "strategies/collective/reduce.h"
#include "strategies/collective/shm_team.h"

enum { HALF_BYTES = 128 << 10, STAGE_BYTES = 2 * HALF_BYTES };

struct td_collective {
    struct td_shm_team team;
    char *stages;  // (W, 2, HALF_BYTES)
    char *regions; // (W, region_bytes)
    size_t region_bytes;
    void *parts[]; // (W): scratch, the same place in every rank's memory
};

// ---- layout ------------------------------------------------------------------------------------
static size_t head_bytes(int32_t world) {
    return td_align_up(sizeof(struct td_shm_head) + (size_t)world * sizeof(struct td_shm_slot),
                       td_page_bytes());
}

static size_t fixed_bytes(int32_t world) {
    return head_bytes(world) + (size_t)world * STAGE_BYTES;
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
    if (!c) return;
    td_shm_team_finish(&c->team);
    free(c);
}

static void shm_abort(struct td_collective *c) {
    td_shm_team_abort(&c->team);
}

static td_status shm_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    *out_data = c->region_bytes ? c->regions + (size_t)c->team.rank * c->region_bytes : NULL;
    *out_bytes = c->region_bytes;
    return TD_OK;
}

// Offset of memory in this rank's region, or -1.
static int64_t place_of(const struct td_collective *c, const void *data, size_t bytes) {
    uintptr_t region = (uintptr_t)c->regions + (size_t)c->team.rank * c->region_bytes;
    uintptr_t at = (uintptr_t)data;
    if (at < region || at - region > c->region_bytes) return -1;
    return bytes <= c->region_bytes - (at - region) ? (int64_t)(at - region) : -1;
}

// The half of rank p's stage that the next meeting uses.
static char *stage_of(struct td_collective *c, int32_t p, uint32_t meeting) {
    return c->stages + (size_t)p * STAGE_BYTES + (meeting & 1 ? HALF_BYTES : 0);
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
static td_status reduce_staged(struct td_collective *c, const struct td_shm_call *call,
                               char *data) {
    enum td_dtype dtype = (enum td_dtype)call->dtype;
    int64_t elem = (int64_t)td_dtype_bytes(dtype), done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        int64_t n = TD_MIN(call->n - done, HALF_BYTES / elem);
        char *own = stage_of(c, c->team.rank, meeting);
        if (n) memcpy(own, data + done * elem, (size_t)(n * elem));
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : call));
        for (int32_t p = 0; p < c->team.world; p++) {
            c->parts[p] = stage_of(c, p, meeting);
        }
        reduce_slice(c, slice_of(&c->team, n, (size_t)elem), dtype, (enum td_reduce_op)call->op);
        TD_TRY(td_shm_team_meet(&c->team, NULL));
        if (n) memcpy(data + done * elem, own, (size_t)(n * elem));
        done += n;
    } while (done < call->n);
    return TD_OK;
}

static td_status shm_all_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                                enum td_reduce_op op) {
    TD_TRY(td_collective_check_reduce("all_reduce", data, n, dtype, op));
    size_t elem = td_dtype_bytes(dtype);
    struct td_shm_call call = {.kind = TD_SHM_ALL_REDUCE,
                               .dtype = (uint8_t)dtype,
                               .op = (uint8_t)op,
                               .n = n,
                               .place = place_of(c, data, (size_t)n * elem)};
    if (call.place < 0) return reduce_staged(c, &call, data);
    TD_TRY(td_shm_team_meet(&c->team, &call));
    parts_in_regions(c, call.place);
    reduce_slice(c, slice_of(&c->team, n, elem), dtype, op);
    return td_shm_team_meet(&c->team, NULL);
}

static td_status shm_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b) {
    char *data;
    TD_TRY(td_collective_check_bucket(b, &data));
    const size_t elem = td_dtype_bytes(b->dtype), gap = b->control_offset - (size_t)b->n * elem;
    const int64_t n_flags = TD_CONTROL_FLAGS;
    struct td_shm_call call = {
        .kind = TD_SHM_BUCKET,
        .dtype = (uint8_t)b->dtype,
        .op = TD_REDUCE_MEAN,
        .detail = b->has_control ? (uint32_t)(gap / sizeof(float)) + 1 : 0,
        .n = b->n,
        .place = place_of(c, data, td_bucket_bytes(b)),
    };
    if (call.place < 0) { // memory of the caller's own: mean and sum one after the other
        TD_TRY(shm_all_reduce(c, data, b->n, b->dtype, TD_REDUCE_MEAN));
        if (!b->has_control) return TD_OK;
        return shm_all_reduce(c, data + b->control_offset, n_flags, TD_F32, TD_REDUCE_SUM);
    }
    TD_TRY(td_shm_team_meet(&c->team, &call));
    parts_in_regions(c, call.place);
    reduce_slice(c, slice_of(&c->team, b->n, elem), b->dtype, TD_REDUCE_MEAN);
    if (b->has_control) {
        parts_in_regions(c, call.place + (int64_t)b->control_offset);
        reduce_slice(c, slice_of(&c->team, n_flags, sizeof(float)), TD_F32, TD_REDUCE_SUM);
    }
    return td_shm_team_meet(&c->team, NULL);
}

static td_status shm_all_gather(struct td_collective *c, const void *in, size_t bytes, void *out) {
    TD_TRY(td_collective_check_gather(in, bytes, out, c->team.world));
    struct td_shm_call call = {.kind = TD_SHM_ALL_GATHER, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        size_t n = TD_MIN(bytes - done, (size_t)HALF_BYTES);
        if (n) memcpy(stage_of(c, c->team.rank, meeting), (const char *)in + done, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        for (int32_t p = 0; n && p < c->team.world; p++) {
            memcpy((char *)out + (size_t)p * bytes + done, stage_of(c, p, meeting), n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

static td_status shm_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    TD_TRY(td_collective_check_broadcast(data, bytes, src, c->team.world));
    struct td_shm_call call = {
        .kind = TD_SHM_BROADCAST, .detail = (uint32_t)src, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        size_t n = TD_MIN(bytes - done, (size_t)HALF_BYTES);
        char *stage = stage_of(c, src, meeting), *at = (char *)data + done;
        if (n && c->team.rank == src) memcpy(stage, at, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        if (n && c->team.rank != src) memcpy(at, stage, n);
        done += n;
    } while (done < bytes);
    return TD_OK;
}

static td_status shm_barrier(struct td_collective *c, const char *tag) {
    struct td_shm_call call = {
        .kind = TD_SHM_BARRIER, .detail = (uint32_t)td_xxh3_64(tag, strlen(tag)), .place = -1};
    return td_status_context(td_shm_team_meet(&c->team, &call), "barrier '%s'", tag);
}

static const struct td_collective_ops shm_ops = {
    .struct_bytes = sizeof(struct td_collective_ops),
    .facts = td_collective_host_facts,
    .shared_bytes = shm_shared_bytes,
    .join = shm_join,
    .leave = shm_leave,
    .gradients = shm_gradients,
    .all_reduce = shm_all_reduce,
    .all_reduce_bucket = shm_all_reduce_bucket,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .barrier = shm_barrier,
    .abort = shm_abort,
};

const struct td_plugin_desc td_collective_shm =
    TD_PLUGIN_DESC(COLLECTIVE, "shm", "ranks of one node, through shared memory", &shm_ops);
