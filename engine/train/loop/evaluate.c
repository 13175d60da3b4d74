// See the header.

#include "engine/train/loop/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/loop/batch.h"
#include "engine/train/rank/batches.h"
#include "engine/train/rank/step.h"

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

// What is seen of one loader of several.
static void report_loader(struct td_train_loop *l, const char *prefix, int loader,
                          const struct td_tallies *own) {
    char name[40];
    for (size_t i = 0; i < own->n; i++) {
        snprintf(name, sizeof name, "%s_%s/%d", prefix, own->item[i].name, loader);
        td_metrics_mean(&l->rank->metrics, name, l->at.step, l->at.epoch, own->item[i].sum,
                        own->item[i].count);
    }
}

// Own sums go out as metrics; their sum over ranks is kept.
static td_status report(struct td_train_loop *l, const char *prefix, const struct td_tallies *own) {
    struct td_rank *r = l->rank;
    char name[32];
    double sums[2 * TD_TALLIES] = {0};
    for (size_t i = 0; i < own->n; i++) {
        snprintf(name, sizeof name, "%s_%s", prefix, own->item[i].name);
        td_metrics_mean(&r->metrics, name, l->at.step, l->at.epoch, own->item[i].sum,
                        own->item[i].count);
        sums[2 * i] = own->item[i].sum;
        sums[2 * i + 1] = own->item[i].count;
    }
    TD_TRY(td_rank_sum(r, sums, 2 * TD_TALLIES, TD_F64));
    struct td_tallies of_all = *own;
    for (size_t i = 0; i < own->n; i++) {
        of_all.item[i].sum = sums[2 * i];
        of_all.item[i].count = sums[2 * i + 1];
    }
    const struct td_tally *loss;
    for (size_t i = 0; (loss = td_train_loop_loss(l, &of_all, i)); i++) {
        note_not_finite(l, prefix, loss);
    }
    if (strcmp(prefix, "val") == 0) l->validated = of_all;
    return TD_OK;
}

// A rank without a sample reports zeros under the names that the others report: all hold the same
// merged tallies then, and whoever waits for each rank's points gets them.
static void name_tallies(const struct td_rank *r, struct td_tallies *own) {
    static const double nothing[TD_PROGRAM_OUTPUTS];
    const struct td_graph *g = td_programs_graph(r->programs, NULL, TD_MODE_EVAL);
    if (g) td_tallies_add(own, g, nothing, 0);
}

static td_status evaluate_batch(struct td_train_loop *l, enum td_split split, int loader,
                                int64_t offset, struct td_tallies *own) {
    struct td_rank *r = l->rank;
    const void *inputs[TD_DATA_FIELDS];
    const struct td_graph *g;
    int64_t n;
    TD_TRY(td_data_batch(r->data, split, loader, offset, inputs, &n));
    if (n == 0) return TD_OK;
    const struct td_program_key key = td_rank_eval_key(r, n);
    const bool is_test = split == TD_SPLIT_TEST;
    TD_TRY(td_rank_step(r, is_test ? TD_STEP_TEST : TD_STEP_VALIDATE, &key, inputs, &g));
    td_tallies_add(own, g, r->outputs, n);
    return TD_OK;
}

// What a failure calls it.
static const char *stage_of(const char *prefix) {
    return strcmp(prefix, "val") == 0 ? "validation" : *prefix ? prefix : "sanity check";
}

static td_status enter(struct td_rank *r, bool is_test) {
    TD_TRY(td_rank_hook(r, is_test ? TD_HOOK_TEST_START : TD_HOOK_VALIDATE_START, 0));
    return td_rank_hook(r, TD_HOOK_EVAL_START, 0);
}

static td_status leave(struct td_rank *r, bool is_test, int64_t done) {
    TD_TRY(td_rank_hook(r, TD_HOOK_EVAL_END, done));
    return td_rank_hook(r, is_test ? TD_HOOK_TEST_END : TD_HOOK_VALIDATE_END, done);
}

// Adds what it sees to all; done counts its batches.
static td_status evaluate_loader(struct td_train_loop *l, enum td_split split, const char *prefix,
                                 int loader, int64_t most, struct td_tallies *all, int64_t *done,
                                 bool *out_interrupted) {
    struct td_rank *r = l->rank;
    const struct td_sampler *s = td_data_loader(r->data, split, loader);
    const int64_t n_batches = TD_MIN(most, td_rank_loader_batches(r, split, loader));
    const bool is_test = split == TD_SPLIT_TEST, is_one = td_data_n_loaders(r->data, split) == 1;
    struct td_tallies own = {0};
    int64_t offset = 0;
    if (n_batches == 0) return TD_OK;
    if (!is_one) TD_TRY(td_rank_hook(r, TD_HOOK_EVAL_LOADER_START, loader));
    for (int64_t b = 0; b < n_batches; b++) {
        td_control_phase(&r->control, is_test ? TD_PHASE_TESTING : TD_PHASE_VALIDATING);
        TD_TRY(td_train_loop_agree(l, out_interrupted));
        if (*out_interrupted) return TD_OK;
        if (*done) td_train_loop_settled(l);
        td_status failed = evaluate_batch(l, split, loader, offset, &own);
        TD_TRY(td_batch_name(failed, l, stage_of(prefix), b));
        offset = td_sampler_next(s, offset, r->config->batch_size);
        ++*done;
    }
    if (own.n == 0) name_tallies(r, &own);
    if (!is_one && *prefix) report_loader(l, prefix, loader, &own);
    td_tallies_merge(all, &own);
    return TD_OK;
}

td_status td_train_loop_evaluate(struct td_train_loop *l, enum td_split split, const char *prefix,
                                 int64_t most, bool *out_interrupted) {
    struct td_rank *r = l->rank;
    const bool is_test = split == TD_SPLIT_TEST;
    struct td_tallies own = {0};
    int64_t done = 0;
    *out_interrupted = false;
    if (most == 0 || td_rank_eval_batches(r, split) == 0) return TD_OK;
    TD_TRY(enter(r, is_test));
    for (int i = 0; i < td_data_n_loaders(r->data, split) && !*out_interrupted; i++) {
        TD_TRY(evaluate_loader(l, split, prefix, i, most, &own, &done, out_interrupted));
    }
    if (!*out_interrupted && *prefix) TD_TRY(report(l, prefix, &own));
    return leave(r, is_test, done);
}
