// See the header.

#include "engine/train/rank/programs/batches.h"

#include <string.h>

struct td_epoch td_rank_epoch(const struct td_rank *r, const struct td_progress *p) {
    const struct td_train_config *c = r->config;
    struct td_epoch e = {.index = p->epoch, .first = p->epoch_batches};
    if (td_data_n_loaders(r->data, TD_SPLIT_TRAIN) == 0) return e;
    static const struct td_amount all = {.is_fraction = true, .fraction = 1.0};
    e.n_batches = td_limits_batches(td_data_left(r->data, TD_SPLIT_TRAIN, 0, 0), c->batch_size,
                                    c->drop_last, c->limits.train_batches);
    if (p->epoch_offset == 0) return e;
    const int64_t samples = td_data_left(r->data, TD_SPLIT_TRAIN, 0, p->epoch_offset);
    int64_t left = td_limits_batches(samples, c->batch_size, c->drop_last, all);
    // Another world or batch may need one more for what is left; only a limit leaves it out.
    struct td_amount limit = c->limits.train_batches;
    bool plays_all = limit.is_fraction && limit.fraction >= 1;
    e.n_batches = TD_MAX(e.n_batches, p->epoch_batches);
    if (plays_all || e.n_batches > p->epoch_batches + left) e.n_batches = p->epoch_batches + left;
    return e;
}

int64_t td_rank_epoch_batches(const struct td_rank *r) {
    struct td_progress whole = {0};
    return td_rank_epoch(r, &whole).n_batches;
}

int64_t td_rank_loader_batches(const struct td_rank *r, enum td_split split, int loader) {
    const struct td_sampler *s = td_data_loader(r->data, split, loader);
    if (!s) return 0;
    const struct td_limits *l = &r->config->limits;
    struct td_amount limit = split == TD_SPLIT_TEST      ? l->test_batches
                             : split == TD_SPLIT_PREDICT ? l->predict_batches
                                                         : l->val_batches;
    return td_amount_of(limit, td_sampler_batches(s, 0, r->config->batch_size));
}

int64_t td_rank_eval_batches(const struct td_rank *r, enum td_split split) {
    int64_t n = 0;
    for (int i = 0; i < td_data_n_loaders(r->data, split); i++) {
        n += td_rank_loader_batches(r, split, i);
    }
    return n;
}

static struct td_program_key key_of(const struct td_rank *r, int step, enum td_mode mode,
                                    int64_t n) {
    struct td_program_key key = {.mode = mode, .batch = n};
    memcpy(key.step, r->steps.step[step].name, sizeof r->steps.step[step].name);
    return key;
}

struct td_program_key td_rank_train_key(const struct td_rank *r, int step, const struct td_epoch *e,
                                        int64_t batch, int64_t n) {
    const struct td_limits *l = &r->config->limits;
    bool steps = td_limits_steps_after(l, e, batch) || r->facts.handles_gradient_accumulation;
    struct td_program_key key = key_of(r, step, TD_MODE_TRAIN, n);
    key.accumulate = !td_limits_begins(l, e, batch);
    key.sync = key.apply = steps;
    return key;
}

struct td_program_key td_rank_manual_key(const struct td_rank *r, int step, bool accumulate,
                                         bool sync, int64_t n) {
    struct td_program_key key = key_of(r, step, TD_MODE_TRAIN, n);
    key.accumulate = accumulate;
    key.sync = key.apply = sync || r->facts.world_size == 1;
    return key;
}

struct td_program_key td_rank_eval_key(const struct td_rank *r, int64_t n) {
    return key_of(r, 0, TD_MODE_EVAL, n);
}

struct td_program_key td_rank_predict_key(const struct td_rank *r, int64_t n) {
    return key_of(r, 0, TD_MODE_PREDICT, n);
}

struct td_limits td_rank_window_limits(const struct td_rank *r) {
    struct td_limits l = r->config->limits;
    if (l.max_steps > 0) l.max_steps = (l.max_steps - 1) / r->steps.n + 1;
    return l;
}

void td_rank_recount(const struct td_rank *r, struct td_progress *p) {
    const int64_t batch = r->config->batch_size * r->share[TD_SPLIT_TRAIN].n_replicas;
    if (p->epoch_offset) p->epoch_batches = (p->epoch_offset + batch - 1) / batch;
    // An older traind did not count them; what is counted from here on adds to them.
    if (!p->windows) p->windows = (p->step + p->precision.skipped_steps) / r->steps.n;
}

int64_t td_rank_total_windows(const struct td_rank *r, const struct td_progress *p) {
    const struct td_limits windows = td_rank_window_limits(r);
    const struct td_epoch e = td_rank_epoch(r, p);
    const int64_t n_steps = r->steps.n;
    const int64_t total = td_limits_total_steps(&windows, p->windows, &e, td_rank_epoch_batches(r));
    return total ? TD_MAX(total, p->step / n_steps) : 0; // a limit may be below what is done
}

bool td_rank_evaluates(const struct td_rank *r, enum td_split split) {
    const unsigned stages = r->config->stages;
    if (split == TD_SPLIT_VAL) return stages & (TD_STAGE_FIT | TD_STAGE_VALIDATE);
    if (split == TD_SPLIT_TEST) return stages & TD_STAGE_TEST;
    return split == TD_SPLIT_PREDICT && (stages & TD_STAGE_PREDICT) && !td_rank_generates(r);
}

bool td_rank_generates(const struct td_rank *r) {
    const struct td_predict_config *p = &r->config->predict;
    return p->prompt || (p->prompt_tokens && p->prompt_tokens->n_children > 0);
}

bool td_rank_scores_predict(const struct td_rank *r) {
    return (r->config->scores & ~(unsigned)TD_SCORE_PERPLEXITY) != 0;
}
