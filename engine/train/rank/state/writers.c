// See the header.

#include "engine/train/rank/state/writers.h"

#include <stdlib.h>
#include <string.h>

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/state/apart.h"

enum { PIECE_BYTES = 8 << 20 };
static const enum td_role saved[] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};

static td_status claim(struct td_rank *r, enum td_role role, int32_t rank) {
    struct td_rank_writers *w = &r->writers;
    if (w->of[role] >= 0) {
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT,
                    "strategy '%s' lets ranks %d and %d both write the %s state of a checkpoint, "
                    "in %s; save_checkpoint gives each role to one rank",
                    r->strategy_name, w->of[role], rank, td_role_name(role),
                    td_manifest_file_of(role)),
            TD_CLASS_USER_CODE);
    }
    if (w->owner < 0) w->owner = rank;
    w->of[role] = rank;
    w->roles |= 1u << role;
    return TD_OK;
}

// That a checkpoint needs of a role.
static size_t bytes_of(const struct td_rank *r, enum td_role role) {
    return td_state_role_is_apart(r->state, role) ? td_state_whole_region_bytes(r->state, role)
                                                  : td_state_region_bytes(r->state, role);
}

// Of ranks that have other roles than this one, which writes.
static td_status make_room(struct td_rank *r) {
    struct td_rank_writers *w = &r->writers;
    for (size_t i = 0; i < TD_COUNTOF(saved); i++) {
        const bool apart = td_state_role_is_apart(r->state, saved[i]);
        const size_t bytes = bytes_of(r, saved[i]);
        if (w->of[saved[i]] < 0 || (w->of[saved[i]] == w->owner && !apart) || !bytes) continue;
        w->sends = true;
        if (apart) w->apart |= 1u << saved[i];
        if (!td_rank_writes(r)) continue;
        w->brought[saved[i]] = td_calloc(1, bytes);
        if (!w->brought[saved[i]]) return td_fail_oom();
    }
    return TD_OK;
}

td_status td_rank_claim_roles(struct td_rank *r, const uint32_t *roles) {
    r->writers = (struct td_rank_writers){.owner = -1};
    memset(r->writers.of, -1, sizeof r->writers.of);
    for (int32_t rank = 0; rank < r->facts.world_size; rank++) {
        for (size_t i = 0; i < TD_COUNTOF(saved); i++) {
            if (roles[rank] & 1u << saved[i]) TD_TRY(claim(r, saved[i], rank));
        }
    }
    return make_room(r);
}

size_t td_rank_most_brought(const struct td_rank *r, uint32_t own) {
    size_t bytes = 0;
    for (size_t i = 0; i < TD_COUNTOF(saved) && r->facts.world_size > 1; i++) {
        const enum td_role role = saved[i];
        const bool others = r->strategy_ops->save_checkpoint && !(own & 1u << role);
        if (td_state_role_is_apart(r->state, role)) { // in the snapshot it is counted as its own
            bytes += bytes_of(r, role);
        } else if (others) {
            bytes += 2 * bytes_of(r, role);
        }
    }
    return bytes;
}

bool td_rank_writes(const struct td_rank *r) {
    return r->writers.owner == r->facts.global_rank;
}

static td_status bring(struct td_rank *r, enum td_role role) {
    const int32_t from = r->writers.of[role];
    const size_t bytes = td_state_region_bytes(r->state, role);
    char *to = r->writers.brought[role];
    TD_AUTO_FREE char *piece = malloc(TD_MIN(bytes, (size_t)PIECE_BYTES));
    if (!piece) return td_fail_oom();
    for (size_t at = 0, n; at < bytes; at += n) {
        n = TD_MIN(bytes - at, (size_t)PIECE_BYTES);
        if (from == r->facts.global_rank) {
            TD_TRY(r->accel_ops->copy(r->accel, td_buffer_of_host(piece, n), 0,
                                      r->memory.region[role], at, n));
        }
        TD_TRY(td_rank_broadcast(r, piece, n, from));
        if (to) memcpy(to + at, piece, n);
    }
    return TD_OK;
}

td_status td_rank_bring_state(struct td_rank *r, struct td_strategy_memory *out_memory) {
    const struct td_rank_writers *w = &r->writers;
    *out_memory = r->memory;
    for (size_t i = 0; i < TD_COUNTOF(saved) && w->sends; i++) {
        const enum td_role role = saved[i];
        const bool apart = w->apart >> role & 1;
        if (w->of[role] < 0 || (w->of[role] == w->owner && !apart)) continue;
        if (apart) {
            TD_TRY_CTX(td_rank_bring_pieces(r, role, w->brought[role]),
                       "the %s state of all ranks, for a checkpoint", td_role_name(role));
        } else {
            TD_TRY_CTX(bring(r, role), "the %s state of rank %d, for a checkpoint",
                       td_role_name(role), w->of[role]);
        }
        if (!w->brought[role]) continue;
        out_memory->region[role] = td_buffer_of_host(w->brought[role], bytes_of(r, role));
    }
    return TD_OK;
}
