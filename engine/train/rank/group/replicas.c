// State that is not in host memory passes through it in pieces, and ranks compare digests before
// they send anything. Gradients are buckets.c's.

#include "engine/train/rank/group/replicas.h"

#include <stdlib.h>

#include "engine/train/rank/group/group.h"
#include "lib/base/digest.h"

enum { N_ROLES = 3, PIECE_BYTES = 8 << 20 };
static const enum td_role roles[N_ROLES] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};

void *td_rank_address(const struct td_rank *r, enum td_role role) {
    return td_buffer_host(r->memory.region[role]);
}

// ---- state --------------------------------------------------------------------------------------

// A region's bytes on the host, piece by piece; what fn leaves in them goes back if writes is set.
typedef td_status piece_fn(struct td_rank *r, void *arg, void *data, size_t bytes);
static td_status each_piece(struct td_rank *r, enum td_role role, bool writes, piece_fn *fn,
                            void *arg) {
    const size_t bytes = td_state_region_bytes(r->state, role);
    const struct td_buffer region = r->memory.region[role];
    if (!bytes || !region.bytes) return TD_OK; // none, or not yet
    void *host = td_rank_address(r, role);
    if (host) return fn(r, arg, host, bytes);
    TD_AUTO_FREE char *piece = malloc(TD_MIN(bytes, (size_t)PIECE_BYTES));
    if (!piece) return td_fail_oom();
    for (size_t at = 0, n; at < bytes; at += n) {
        n = TD_MIN(bytes - at, (size_t)PIECE_BYTES);
        const struct td_buffer here = td_buffer_of_host(piece, n);
        TD_TRY(r->accel_ops->copy(r->accel, here, 0, region, at, n));
        TD_TRY(fn(r, arg, piece, n));
        if (writes) TD_TRY(r->accel_ops->copy(r->accel, region, at, here, 0, n));
    }
    return TD_OK;
}

static td_status digest_piece(struct td_rank *r, void *arg, void *data, size_t bytes) {
    uint64_t *digest = arg;
    (void)r;
    *digest = *digest * 31 + td_xxh3_64(data, bytes);
    return TD_OK;
}

static td_status broadcast_piece(struct td_rank *r, void *arg, void *data, size_t bytes) {
    (void)arg;
    return td_rank_broadcast(r, data, bytes, 0);
}

// which: bits 1 << td_role. What is not asked for is the same.
static td_status compare(struct td_rank *r, uint32_t which, bool out_same[N_ROLES]) {
    uint64_t own[N_ROLES] = {0};
    const size_t world = (size_t)r->facts.world_size;
    TD_AUTO_FREE uint64_t *all = td_calloc(world, sizeof own);
    if (!all) return td_fail_oom();
    for (size_t i = 0; i < N_ROLES; i++) {
        out_same[i] = true;
        if (!(which & 1u << roles[i]) || td_state_role_is_apart(r->state, roles[i])) continue;
        TD_TRY(each_piece(r, roles[i], false, digest_piece, &own[i]));
    }
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, own, sizeof own, all));
    for (size_t i = 0; i < world * N_ROLES; i++) {
        out_same[i % N_ROLES] &= all[i] == all[i % N_ROLES];
    }
    return TD_OK;
}

td_status td_rank_set_up_strategy(struct td_rank *r) {
    if (!r->strategy_ops->setup) return td_rank_share(r, UINT32_MAX);
    TD_TRY_CTX(r->strategy_ops->setup(r->strategy, r->state, &r->memory), "strategy '%s'",
               r->strategy_name);
    return TD_OK;
}

td_status td_rank_share(struct td_rank *r, uint32_t which) {
    bool same[N_ROLES];
    if (r->facts.world_size == 1) return TD_OK;
    TD_TRY_CTX(compare(r, which, same), "compare the state of ranks");
    for (size_t i = 0; i < N_ROLES; i++) {
        if (same[i]) continue;
        TD_TRY_CTX(each_piece(r, roles[i], true, broadcast_piece, NULL),
                   "broadcast the %s state of rank 0", td_role_name(roles[i]));
    }
    return TD_OK;
}
