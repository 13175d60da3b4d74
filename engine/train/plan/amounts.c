// See the header.

#include "engine/train/plan/amounts.h"

#include <inttypes.h>

#include "engine/train/config/limits.h"
#include "engine/train/rank/programs/batches.h"
#include "lib/base/clip.h"

static const struct td_amount whole = {.is_fraction = true, .fraction = 1.0};

static bool is_off(struct td_amount a) {
    return a.is_fraction ? a.fraction <= 0 : a.batches == 0;
}

// Only a fraction can come to nothing without being 0.
static td_status check_fraction(const char *knob, struct td_amount limit, int64_t all,
                                const char *what, const char *instead) {
    if (all == 0 || is_off(limit) || td_amount_of(limit, all) > 0) return TD_OK;
    return td_bad_spec("trainer.%s: %g of %" PRId64 " batch%s %s is less than one batch; raise it "
                       "to %g, or give a count such as 1%s",
                       knob, limit.fraction, all, all == 1 ? "" : "es", what,
                       all == 1 ? 1.0 : (double)((1000 + all - 1) / all) / 1000, instead);
}

// ---- training -----------------------------------------------------------------------------------
static td_status check_training(const struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (td_data_n_loaders(r->data, TD_SPLIT_TRAIN) == 0) return TD_OK; // the loop's to say
    const int64_t samples = td_data_left(r->data, TD_SPLIT_TRAIN, 0, 0);
    const int64_t all = td_limits_batches(samples, c->batch_size, c->drop_last, whole);
    if (samples > 0 && all == 0) {
        return td_bad_spec("data.drop_last leaves out the only batch of training: a rank has "
                           "%" PRId64 " samples, batch_size is %" PRId64
                           "; lower batch_size, or set drop_last: false",
                           samples, c->batch_size);
    }
    if (is_off(c->limits.train_batches)) {
        return td_bad_spec("trainer.limit_train_batches: 0 of %" PRId64
                           " batches leave fit nothing "
                           "to train on; raise it, or leave fit out of stages",
                           all);
    }
    return check_fraction("limit_train_batches (or overfit_batches)", c->limits.train_batches, all,
                          "of an epoch", "");
}

static td_status check_interval(const struct td_rank *r) {
    const struct td_amount every = r->config->limits.val_check_interval;
    const int64_t n = td_rank_epoch_batches(r);
    const bool is_past = !every.is_fraction && every.batches > n;
    if (!n || !is_past || td_rank_eval_batches(r, TD_SPLIT_VAL) == 0) return TD_OK;
    return td_bad_spec("trainer.val_check_interval: %" PRId64 " batches are more than the %" PRId64
                       " of an epoch, so that fit would never validate; give at most %" PRId64
                       ", or a fraction of the epoch, or limit_val_batches: 0 for no validation",
                       every.batches, n, n);
}

// ---- the others ---------------------------------------------------------------------------------
static td_status check_split(const struct td_rank *r, enum td_split split, const char *knob,
                             struct td_amount limit, const char *what) {
    const int n_loaders = td_data_n_loaders(r->data, split);
    for (int i = 0; i < n_loaders; i++) {
        const struct td_sampler *s = td_data_loader(r->data, split, i);
        const int64_t all = td_sampler_batches(s, 0, r->config->batch_size);
        char of[64];
        (void)td_clip(of, sizeof of, "of %s", what);
        if (n_loaders > 1) (void)td_clip(of, sizeof of, "of set %d of %s", i, what);
        TD_TRY(check_fraction(knob, limit, all, of, ", or 0 to leave it out"));
    }
    return TD_OK;
}

td_status td_amounts_check(const struct td_rank *r) {
    const struct td_limits *l = &r->config->limits;
    const unsigned stages = r->config->stages;
    if (stages & TD_STAGE_FIT) TD_TRY(check_training(r));
    if (stages & (TD_STAGE_FIT | TD_STAGE_VALIDATE)) {
        TD_TRY(check_split(r, TD_SPLIT_VAL, "limit_val_batches (or overfit_batches)",
                           l->val_batches, "the validation"));
    }
    if (stages & TD_STAGE_FIT) TD_TRY(check_interval(r));
    if (stages & TD_STAGE_TEST) {
        TD_TRY(check_split(r, TD_SPLIT_TEST, "limit_test_batches", l->test_batches, "the test"));
    }
    if (!(stages & TD_STAGE_PREDICT) || td_rank_generates(r)) return TD_OK;
    return check_split(r, TD_SPLIT_PREDICT, "limit_predict_batches", l->predict_batches,
                       "the prediction");
}
