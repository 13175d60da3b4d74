// See the header.

#include "engine/train/loop/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/loop/batch.h"
#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/scores/result.h"
#include "engine/train/rank/scores/scores.h"
#include "engine/train/rank/scores/validated.h"
#include "engine/train/rank/step.h"
#include "lib/attempt/checkpoint_name.h"

// Training goes on, so somebody has to know; once is enough.
static void note_not_finite(struct td_train_loop *l, const char *prefix,
                            const struct td_tally *loss) {
    struct td_rank *r = l->rank;
    if (isfinite(loss->sum) || l->noted_not_finite || !r->facts.is_global_zero) return;
    l->noted_not_finite = true;
    td_events_note(r->events,
                   "%s_%s is %s at step %lld (epoch %lld): a sample of that split is no number, "
                   "or the weights overflow on it; detect_anomaly finds the op it begins with",
                   prefix, loss->name, isnan(loss->sum) ? "nan" : "infinite", (long long)l->at.step,
                   (long long)l->at.epoch);
}

// The rank's own sums of a loader, or of all (-1).
static void report_part(struct td_train_loop *l, const char *prefix, int loader,
                        const struct td_tallies *own) {
    char name[TD_METRIC_NAME_BYTES];
    for (size_t i = 0; i < own->n; i++) {
        td_validated_name(name, prefix, own->item[i].name, loader);
        td_metrics_mean(&l->rank->metrics, name, l->at.step, l->at.epoch, own->item[i].sum,
                        own->item[i].count);
    }
}

// In place, over ranks.
static td_status sum_over_ranks(struct td_rank *r, struct td_validated *v) {
    double sums[1 + TD_LOADERS_MAX][TD_TALLIES][2] = {0};
    struct td_tallies *part[1 + TD_LOADERS_MAX] = {&v->all};
    const int n_parts = 1 + v->n_loaders;
    for (int p = 0; p < n_parts; p++) {
        if (p > 0) part[p] = &v->loader[p - 1];
        for (size_t i = 0; i < part[p]->n; i++) {
            sums[p][i][0] = part[p]->item[i].sum;
            sums[p][i][1] = part[p]->item[i].count;
        }
    }
    TD_TRY(td_rank_sum(r, sums, (int64_t)n_parts * TD_TALLIES * 2, TD_F64));
    for (int p = 0; p < n_parts; p++) {
        for (size_t i = 0; i < part[p]->n; i++) {
            part[p]->item[i].sum = sums[p][i][0];
            part[p]->item[i].count = sums[p][i][1];
        }
    }
    return TD_OK;
}

// ---- scores -------------------------------------------------------------------------------------
// The matrix of the pass, beside the checkpoints: the later one stays. Nothing fails for it.
static void write_matrix(struct td_train_loop *l, const char *prefix, const struct td_buf *text) {
    struct td_rank *r = l->rank;
    char name[64], path[TD_FS_PATH_BYTES];
    snprintf(name, sizeof name, TD_RESULT_CONFUSION, prefix);
    td_status failed = td_rank_write_result(r, name, text, path);
    if (failed) {
        td_events_note(r->events, "the confusion matrix of %s is not written: %s", prefix,
                       td_status_message(failed));
        td_status_free(failed);
    } else if (!l->noted_matrix || strcmp(prefix, "val") != 0) {
        td_events_note(r->events, "the confusion matrix of %s is in %s", prefix, path);
        l->noted_matrix = true;
    }
}

static td_status report_matrix(struct td_train_loop *l, const char *prefix,
                               const struct td_scores *scores) {
    char what[96];
    bool has;
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)TD_SCORE_CLASSES * TD_SCORE_CLASSES * 24);
    snprintf(what, sizeof what, "\"stage\":\"%s\",\"step\":%lld,\"epoch\":%lld", prefix,
             (long long)l->at.step, (long long)l->at.epoch);
    if (!l->rank->facts.is_global_zero) return TD_OK;
    TD_TRY(td_scores_matrix(scores, what, &text, &has));
    if (has) write_matrix(l, prefix, &text);
    return TD_OK;
}

// All ranks have the same values, so each reports them whole.
static void report_new(struct td_train_loop *l, const char *prefix, int loader,
                       const struct td_tallies *t, size_t first) {
    char name[TD_METRIC_NAME_BYTES];
    for (size_t i = first; i < t->n; i++) {
        td_validated_name(name, prefix, t->item[i].name, loader);
        td_metrics_value(&l->rank->metrics, name, l->at.step, l->at.epoch, t->item[i].sum);
    }
}

static td_status report_scores(struct td_train_loop *l, const char *prefix,
                               struct td_scores *scores, struct td_validated *io_all) {
    size_t first[1 + TD_LOADERS_MAX] = {io_all->all.n};
    for (int i = 0; i < io_all->n_loaders; i++) {
        first[1 + i] = io_all->loader[i].n;
    }
    TD_TRY(td_scores_sum(scores, l->rank));
    td_scores_tally(scores, io_all);
    report_new(l, prefix, -1, &io_all->all, first[0]);
    for (int i = 0; i < io_all->n_loaders; i++) {
        report_new(l, prefix, i, &io_all->loader[i], first[1 + i]);
    }
    return report_matrix(l, prefix, scores);
}

// ---- a pass -------------------------------------------------------------------------------------
// Own sums go out as metrics; their sum over ranks is kept.
static td_status report(struct td_train_loop *l, const char *prefix, struct td_validated *own,
                        struct td_scores *scores) {
    report_part(l, prefix, -1, &own->all);
    TD_TRY(sum_over_ranks(l->rank, own));
    if (scores) TD_TRY(report_scores(l, prefix, scores, own));
    const struct td_tally *loss;
    for (size_t i = 0; (loss = td_train_loop_loss(l, &own->all, i)); i++) {
        note_not_finite(l, prefix, loss);
    }
    if (strcmp(prefix, "val") == 0) l->validated = *own;
    return TD_OK;
}

// A rank that has counted no sample reports zeros under the names of the others. So all hold the
// same merged tallies, and whoever waits for each rank's points gets them.
static void name_tallies(const struct td_rank *r, struct td_tallies *own) {
    static const double nothing[TD_PROGRAM_OUTPUTS];
    const struct td_graph *g = td_programs_graph(r->programs, NULL, TD_MODE_EVAL);
    if (g) td_tallies_add(own, g, nothing, 0);
}

static td_status score_batch(struct td_rank *r, struct td_scores *scores, int loader,
                             const struct td_buffer *inputs, int64_t n, bool counts) {
    const struct td_program_key key = td_rank_predict_key(r, n);
    const struct td_graph *g;
    TD_TRY(td_rank_step(r, TD_STEP_PREDICT, &key, loader, inputs, &g));
    return counts ? td_scores_add(scores, r, loader, inputs, n) : TD_OK;
}

static td_status evaluate_batch(struct td_train_loop *l, enum td_split split, int loader,
                                int64_t offset, struct td_scores *scores, struct td_tallies *own) {
    struct td_rank *r = l->rank;
    const enum td_strategy_step kind = split == TD_SPLIT_TEST ? TD_STEP_TEST : TD_STEP_VALIDATE;
    const bool predicts = scores && td_rank_scores_predict(r);
    struct td_buffer inputs[TD_DATA_FIELDS];
    const struct td_graph *g;
    int64_t n;
    TD_TRY(td_data_batch(r->data, split, loader, offset, inputs, &n));
    if (n == 0) {
        TD_TRY(td_rank_step_idle(r, kind, loader));
        return predicts ? td_rank_step_idle(r, TD_STEP_PREDICT, loader) : TD_OK;
    }
    const struct td_program_key key = td_rank_eval_key(r, n);
    TD_TRY(td_rank_step(r, kind, &key, loader, inputs, &g));
    const bool counts = td_rank_counts(r, split);
    if (counts) td_tallies_add(own, g, r->outputs, n);
    return predicts ? score_batch(r, scores, loader, inputs, n, counts) : TD_OK;
}

// What a failure calls it.
static const char *stage_of(const char *prefix) {
    return strcmp(prefix, "val") == 0 ? "validation" : *prefix ? prefix : "sanity check";
}

td_status td_evaluate_enter(struct td_rank *r, enum td_split split) {
    const bool is_test = split == TD_SPLIT_TEST;
    TD_TRY(td_rank_hook(r, is_test ? TD_HOOK_TEST_START : TD_HOOK_VALIDATE_START, 0));
    return td_rank_hook(r, TD_HOOK_EVAL_START, 0);
}

td_status td_evaluate_leave(struct td_rank *r, enum td_split split, int64_t done) {
    const bool is_test = split == TD_SPLIT_TEST;
    TD_TRY(td_rank_hook(r, TD_HOOK_EVAL_END, done));
    return td_rank_hook(r, is_test ? TD_HOOK_TEST_END : TD_HOOK_VALIDATE_END, done);
}

td_status td_evaluate_loader(struct td_rank *r, enum td_split split, int loader) {
    if (td_data_n_loaders(r->data, split) == 1) return TD_OK;
    return td_rank_hook(r, TD_HOOK_EVAL_LOADER_START, loader);
}

// Adds what it sees to all; done counts its batches.
static td_status evaluate_loader(struct td_train_loop *l, enum td_split split, const char *prefix,
                                 int loader, int64_t most, struct td_scores *scores,
                                 struct td_validated *all, int64_t *done, bool *out_interrupted) {
    struct td_rank *r = l->rank;
    const struct td_sampler *s = td_data_loader(r->data, split, loader);
    const int64_t n_batches = TD_MIN(most, td_rank_loader_batches(r, split, loader));
    const bool is_test = split == TD_SPLIT_TEST, is_one = td_data_n_loaders(r->data, split) == 1;
    struct td_tallies own = {0};
    int64_t offset = 0;
    if (n_batches == 0) return TD_OK;
    TD_TRY(td_evaluate_loader(r, split, loader));
    for (int64_t b = 0; b < n_batches; b++) {
        td_control_phase(&r->control, is_test ? TD_PHASE_TESTING : TD_PHASE_VALIDATING);
        TD_TRY(td_train_loop_agree(l, out_interrupted));
        if (*out_interrupted) return TD_OK;
        if (*done) td_train_loop_settled(l);
        td_status failed = evaluate_batch(l, split, loader, offset, scores, &own);
        TD_TRY(td_batch_name(failed, l, stage_of(prefix), b));
        offset = td_sampler_next(s, offset, r->config->batch_size);
        ++*done;
    }
    if (own.n == 0) name_tallies(r, &own);
    if (!is_one) {
        if (*prefix) report_part(l, prefix, loader, &own);
        all->loader[loader] = own;
    }
    td_tallies_merge(&all->all, &own);
    return TD_OK;
}

td_status td_train_loop_evaluate(struct td_train_loop *l, enum td_split split, const char *prefix,
                                 int64_t most, bool *out_interrupted) {
    struct td_rank *r = l->rank;
    const int n_loaders = td_data_n_loaders(r->data, split);
    struct td_validated own = {.n_loaders = n_loaders > 1 ? n_loaders : 0};
    TD_AUTO(td_scores) *scores = NULL;
    int64_t done = 0;
    *out_interrupted = false;
    if (most == 0 || td_rank_eval_batches(r, split) == 0) return TD_OK;
    if (r->config->scores && *prefix) TD_TRY(td_scores_create(r, n_loaders, &scores));
    TD_TRY(td_evaluate_enter(r, split));
    for (int i = 0; i < n_loaders && !*out_interrupted; i++) {
        TD_TRY(evaluate_loader(l, split, prefix, i, most, scores, &own, &done, out_interrupted));
    }
    if (!*out_interrupted && *prefix) TD_TRY(report(l, prefix, &own, scores));
    return td_evaluate_leave(r, split, done);
}
