// Group: what the ranks of a program do together. Calls go to the strategy, or to the collective
// where it has none, on host memory. All ranks call in the same order; a failure wakes the others.
// Nothing is queued while they run.

#include "engine/train/rank/group/group.h"

#include "fabric/fabric.h"

// A queued run may use the group itself, so it is done before.
static td_status enter(struct td_fabric *f, const char *call) {
    TD_TRY(td_fabric_need_setup(f, call));
    return td_fabric_failed(f, td_manual_drain(&f->manual));
}

td_status td_fabric_all_reduce(struct td_fabric *f, void *data, int64_t n, enum td_dtype dtype,
                               enum td_reduce_op op) {
    TD_TRY(enter(f, "td_fabric_all_reduce"));
    return td_fabric_failed(f, td_rank_reduce(f->rank, TD_GROUP_WORLD, data, n, dtype, op));
}

td_status td_fabric_all_gather(struct td_fabric *f, const void *in, size_t bytes, void *out) {
    TD_TRY(enter(f, "td_fabric_all_gather"));
    return td_fabric_failed(f, td_rank_all_gather(f->rank, TD_GROUP_WORLD, in, bytes, out));
}

td_status td_fabric_broadcast(struct td_fabric *f, void *data, size_t bytes, int32_t src) {
    TD_TRY(enter(f, "td_fabric_broadcast"));
    if (src < 0 || src >= f->rank->facts.world_size) {
        return td_fabric_misuse("td_fabric_broadcast from rank %d of %d", src,
                                f->rank->facts.world_size);
    }
    return td_fabric_failed(f, td_rank_broadcast(f->rank, data, bytes, src));
}

td_status td_fabric_barrier(struct td_fabric *f, const char *tag) {
    TD_TRY(enter(f, "td_fabric_barrier"));
    return td_fabric_failed(f, td_rank_barrier(f->rank, tag));
}

td_status td_fabric_reduce_boolean_decision(struct td_fabric *f, bool decision, bool all,
                                            bool *out_decision) {
    TD_TRY(enter(f, "td_fabric_reduce_boolean_decision"));
    return td_fabric_failed(f, td_rank_decide(f->rank, decision, all, out_decision));
}

td_status td_fabric_rank_zero_first(struct td_fabric *f, td_status (*fn)(void *arg), void *arg) {
    TD_TRY(enter(f, "td_fabric_rank_zero_first"));
    const bool is_first = f->rank->facts.is_global_zero;
    td_status s = is_first ? fn(arg) : TD_OK;
    if (s) return td_fabric_failed(f, s); // it wakes the others
    TD_TRY(td_fabric_failed(f, td_rank_barrier(f->rank, "rank_zero_first")));
    return is_first ? TD_OK : td_fabric_failed(f, fn(arg));
}
