#ifndef TRAIND_COLLECTIVES_SHM_H
#define TRAIND_COLLECTIVES_SHM_H

// What the parts of the shared-memory collective share: the group, and where its bytes are.
//
//   shm.c         layout of the mapping, joining and leaving, the table of calls
//   shm_reduce.c  calls that compute: all_reduce, buckets, reduce, reduce_scatter
//   shm_move.c    calls that copy: gathers, broadcast, scatter, all_to_all, barrier
//   shm_pair.c    send and recv, of two ranks
//   shm_groups.c  groups of some ranks, in places of the same mapping
//
// Calls that were started are made by a thread of their group (works.h). Every other call waits for
// them first, so one thread at a time is inside a group. A bucket that is not finished is finished
// first, too.
// Thread: one at a time; abort and set_deadline from any.

#include "collectives/collectives.h"
#include "collectives/shm_team.h"
#include "collectives/works.h"

enum {
    TD_SHM_HALF_BYTES = 128 << 10,      // of a rank's stage, in the group of all ranks
    TD_SHM_GROUP_HALF_BYTES = 16 << 10, // in a group of some
};

// Where a group of some ranks is. Rank 0 of all fills a free one while the others wait.
struct td_shm_place {
    _Atomic uint32_t n_ranks; // 0: free
    uint16_t ranks[];         // (world of all)
};

// The bucket that this rank came for last, while it is not reduced; all of it is in the region.
struct td_shm_bucket {
    bool is_open;
    bool has_control;
    enum td_dtype dtype;
    int64_t n;               // elements
    int64_t place, controls; // offsets in the gradient region: elements, control flags
};

struct td_collective {
    struct td_shm_team team;
    char *stages; // (W, 2, half_bytes)
    size_t half_bytes;
    char *regions; // (W, region_bytes)
    size_t region_bytes;
    char *places; // (TD_GROUPS_MAX, place_bytes); NULL: this is a group of some ranks
    size_t place_bytes;
    struct td_collective *groups[TD_GROUPS_MAX]; // by place; NULL: none that this rank is in
    struct td_works *works;                      // what was started; NULL: nothing ever was
    struct td_shm_bucket bucket;
    void *parts[]; // (W): scratch, the same place in every rank's memory
};

// The half of rank p's stage that the next meeting uses.
static inline char *td_shm_stage(const struct td_collective *c, int32_t p, uint32_t meeting) {
    return c->stages + ((size_t)p * 2 + (meeting & 1)) * c->half_bytes;
}

// A half that holds something for each rank: bytes of one such piece, a multiple of elem_bytes (8
// at most). Whole cache lines, where there are so many.
static inline size_t td_shm_piece(const struct td_collective *c, size_t elem_bytes) {
    const size_t share = c->half_bytes / (size_t)c->team.world;
    const size_t unit = share >= TD_LINE_BYTES ? TD_LINE_BYTES : elem_bytes;
    return share / unit * unit;
}

// ---- shm_reduce.c
td_status td_shm_all_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                            enum td_reduce_op op);
td_status td_shm_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b);
// Nothing that was begun before is left to do. Each call but that of a bucket begins with it, and
// wait_buckets is no more than that.
td_status td_shm_settle(struct td_collective *c);
td_status td_shm_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                        enum td_reduce_op op, int32_t dst);
td_status td_shm_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                enum td_dtype dtype, enum td_reduce_op op);

// ---- shm_move.c
td_status td_shm_all_gather(struct td_collective *c, const void *in, size_t bytes, void *out);
td_status td_shm_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src);
td_status td_shm_barrier(struct td_collective *c, const char *tag);
td_status td_shm_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                        int32_t dst);
td_status td_shm_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                         int32_t src);
td_status td_shm_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes, void *out,
                                   size_t out_bytes, size_t *counts);
td_status td_shm_all_to_all(struct td_collective *c, const void *in, size_t bytes, void *out);

// ---- shm_pair.c
td_status td_shm_send(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                      uint32_t tag);
td_status td_shm_recv(struct td_collective *c, void *data, size_t bytes, int32_t src, uint32_t tag);

// ---- shm_groups.c
size_t td_shm_place_bytes(int32_t world); // of one place
td_status td_shm_group_create(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                              struct td_collective **out_group);
td_status td_shm_group_destroy(struct td_collective *c, struct td_collective *group);
void td_shm_leave_groups(struct td_collective *c); // those that this rank is still in

#endif
