// See the header.

#include "engine/train/rank/programs/uneven.h"

#include "engine/train/rank/programs/batches.h"
#include "traind/sum.h"

static bool mode_has_sums(const struct td_rank *r, enum td_mode mode) {
    for (int kind = 0; kind < TD_SUM_KINDS; kind++) {
        const td_op_id op = td_sum_kind_op((enum td_sum_kind)kind);
        if (td_programs_have(r->programs, mode, op)) return true;
    }
    return false;
}

// The first share of a split has the most samples left at any batch, the last one the fewest.
static bool is_uneven(const struct td_rank *r, enum td_split split, int loader, int64_t *out_most,
                      int64_t *out_least) {
    const struct td_sampler *s = td_data_loader(r->data, split, loader);
    const int64_t batch = r->config->batch_size;
    const int64_t n = td_sampler_batches(s, 0, batch);
    // A loop of somebody else's knows no limits.
    const bool is_played = r->config->manual || td_rank_loader_batches(r, split, loader) == n;
    if (n == 0 || !is_played) return false;
    const int64_t before = (n - 1) * batch;
    *out_most = td_sampler_left(s, 0, 0) - before;
    *out_least = TD_MAX(td_sampler_left(s, 0, r->share[split].n_replicas - 1) - before, 0);
    return *out_most != *out_least;
}

// ---- the programs -------------------------------------------------------------------------------
static struct td_program_key key_of(const struct td_rank *r, enum td_mode mode, int64_t n) {
    return mode == TD_MODE_PREDICT ? td_rank_predict_key(r, n) : td_rank_eval_key(r, n);
}

static td_status add(struct td_rank *r, enum td_mode mode, int64_t most, int64_t least) {
    const struct td_program_key large = key_of(r, mode, most), small = key_of(r, mode, least);
    struct td_buffer zeros[TD_DATA_FIELDS];
    TD_TRY(td_programs_add(r->programs, &large));
    if (least) return td_programs_add(r->programs, &small);
    return td_data_zeros(r->data, most, zeros); // so that they are counted, also by who plans
}

static td_status add_of_split(struct td_rank *r, enum td_split split, enum td_mode mode) {
    int64_t most, least;
    if (!mode_has_sums(r, mode)) return TD_OK;
    for (int i = 0; i < td_data_n_loaders(r->data, split); i++) {
        if (is_uneven(r, split, i, &most, &least)) TD_TRY(add(r, mode, most, least));
    }
    return TD_OK;
}

td_status td_rank_add_uneven(struct td_rank *r) {
    for (int i = 0; i < TD_SPLIT_COUNT && r->facts.world_size > 1; i++) {
        const enum td_split split = (enum td_split)i;
        const bool predicts = split == TD_SPLIT_PREDICT;
        if (!td_rank_evaluates(r, split)) continue;
        if (!predicts) TD_TRY(add_of_split(r, split, TD_MODE_EVAL));
        if (!predicts && !td_rank_scores_predict(r)) continue;
        TD_TRY(add_of_split(r, split, TD_MODE_PREDICT));
    }
    return TD_OK;
}

// ---- a rank without samples ---------------------------------------------------------------------
bool td_rank_idle_key(const struct td_rank *r, enum td_mode mode, struct td_program_key *out_key) {
    const struct td_program_key *least = NULL;
    if (r->facts.world_size == 1 || !mode_has_sums(r, mode)) return false;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_program_key *k = &td_programs_at(r->programs, i)->program.key;
        if (k->mode == mode && (!least || k->batch < least->batch)) least = k;
    }
    *out_key = *least;
    return true;
}
