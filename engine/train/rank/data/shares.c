// See the header.

#include "engine/train/rank/data/shares.h"

#include "engine/train/rank/group/group.h"
#include "traind/random.h"

td_status td_rank_take_share(struct td_rank *r, enum td_split split) {
    struct td_strategy_shard *own = &r->share[split];
    TD_TRY(td_rank_shard(r, split, own));
    if (own->rank >= 0 && own->rank < own->n_replicas) return TD_OK;
    return td_status_with_class(
        td_fail(TD_INVALID_ARGUMENT,
                "strategy '%s' gives this rank share %d of %d of split %s; it is 0 or more, and "
                "below their number",
                r->strategy_name, own->rank, own->n_replicas, td_split_name(split)),
        TD_CLASS_USER_CODE);
}

static td_status check_number(const struct td_rank *r, enum td_split split) {
    for (int32_t i = 1; i < r->facts.world_size; i++) {
        const int32_t first = td_rank_share_of(r, split, 0).n_replicas;
        const int32_t other = td_rank_share_of(r, split, i).n_replicas;
        if (other == first) continue;
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT,
                    "strategy '%s' divides split %s into %d shares on rank 0 and into %d on rank "
                    "%d; their number is the same on all ranks",
                    r->strategy_name, td_split_name(split), first, other, i),
            TD_CLASS_USER_CODE);
    }
    return TD_OK;
}

td_status td_rank_keep_shares(struct td_rank *r, const struct td_strategy_shard *take_all) {
    r->shares = take_all;
    for (int split = 0; split < TD_SPLIT_COUNT; split++) {
        TD_TRY(check_number(r, (enum td_split)split));
    }
    return TD_OK;
}

struct td_strategy_shard td_rank_share_of(const struct td_rank *r, enum td_split split,
                                          int32_t rank) {
    return r->shares[(size_t)rank * TD_SPLIT_COUNT + split];
}

bool td_rank_counts(const struct td_rank *r, enum td_split split) {
    if (r->config->whole_data) return true;
    for (int32_t i = 0; i < r->facts.global_rank; i++) {
        if (td_rank_share_of(r, split, i).rank == r->share[split].rank) return false;
    }
    return true;
}

int32_t td_rank_missing_share(const struct td_rank *r, enum td_split split) {
    for (int32_t share = 0; share < r->share[split].n_replicas; share++) {
        int32_t i = 0;
        while (i < r->facts.world_size && td_rank_share_of(r, split, i).rank != share) {
            i++;
        }
        if (i == r->facts.world_size) return share;
    }
    return -1;
}

int32_t td_rank_n_trained_shares(const struct td_rank *r) {
    const int32_t world = r->facts.world_size;
    return r->config->whole_data ? world : TD_MIN(r->share[TD_SPLIT_TRAIN].n_replicas, world);
}

void td_rank_set_random(struct td_rank *r, int64_t step, int64_t offset) {
    const struct td_strategy_shard own = r->share[TD_SPLIT_TRAIN];
    const int32_t world = r->facts.world_size;
    if (r->config->whole_data) { // whoever gathers divides: other samples on each rank
        td_random_set(r->random, r->config->seed, step, offset * world + r->facts.global_rank,
                      world);
        return;
    }
    td_random_set(r->random, r->config->seed, step, offset + own.rank, own.n_replicas);
}
