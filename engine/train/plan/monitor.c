// Which metrics will this job give? Those of the graphs that training and validation will run.
// Their outputs are the metrics (epoch_metrics.c and evaluate.c name them in the same way). Those
// of the validation are given only if fit ever comes to one. A monitor that names anything else
// would be NaN for ever, so the job is refused with the names that there are.

#include "engine/train/plan/monitor.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/scores/scores.h"
#include "engine/train/rank/scores/validated.h"
#include "engine/train/config/limits.h"
#include "engine/train/rank/programs/batches.h"
#include "lib/base/clip.h"

enum { LIST_BYTES = 512 };

// Why fit has no validation; NULL: it has.
static const char *why_no_validation(const struct td_rank *r) {
    if (td_rank_eval_batches(r, TD_SPLIT_VAL) == 0) {
        return "there is nothing to validate on; give data to validate on or raise "
               "trainer.limit_val_batches";
    }
    const struct td_limits windows = td_rank_window_limits(r);
    int64_t n = td_rank_epoch_batches(r);
    if (n > 0 && !td_limits_ever_validates(&windows, n)) { // 0 is refused elsewhere
        return "the run ends before its first validation; lower trainer.val_check_interval or "
               "check_val_every_n_epoch, or raise max_epochs or max_steps";
    }
    return NULL;
}

// Metrics that a monitor may name, and the one that is looked for.
struct names {
    const char *wanted;
    bool found;
    bool is_of_epochs; // those of a step are left out
    char list[LIST_BYTES];
    struct td_clip_list items; // in list
};

static void offer(struct names *n, const char *text) {
    td_clip_list_add(&n->items, "%s", text);
    n->found |= strcmp(n->wanted, text) == 0;
}

// Of the validation: over all its samples, and over those of each loader where it has several.
static void offer_validated(struct names *n, const struct td_rank *r, const char *name) {
    char text[TD_METRIC_NAME_BYTES];
    td_validated_name(text, "val", name, -1);
    offer(n, text);
    const int n_loaders = td_data_n_loaders(r->data, TD_SPLIT_VAL);
    for (int i = 0; n_loaders > 1 && i < n_loaders; i++) {
        if (td_rank_loader_batches(r, TD_SPLIT_VAL, i) == 0) continue;
        td_validated_name(text, "val", name, i);
        offer(n, text);
    }
}

static bool is_metric(const struct td_graph *g, uint32_t output, const char **out_name) {
    enum td_output_kind kind;
    td_graph_output_at(g, output, out_name, NULL, &kind);
    return kind == TD_OUTPUT_MEAN || kind == TD_OUTPUT_SUM;
}

// Of a training step; NULL: the job does not train.
static const struct td_graph *graph_of(const struct td_rank *r, int step) {
    return td_programs_graph(r->programs, r->steps.step[step].name, TD_MODE_TRAIN);
}

static void offer_all(struct names *n, const struct td_rank *r, bool trains, bool validates) {
    static const char *const suffixes[] = {"", "_epoch", "_step"};
    td_clip_list_init(&n->items, n->list, sizeof n->list, ", ");
    const struct td_graph *eval = td_programs_graph(r->programs, NULL, TD_MODE_EVAL);
    const char *name;
    for (int step = 0; trains && step < r->steps.n; step++) {
        const struct td_graph *train = graph_of(r, step);
        for (uint32_t i = 0; train && i < td_graph_n_outputs(train); i++) {
            const size_t n_suffixes = TD_COUNTOF(suffixes) - n->is_of_epochs;
            for (size_t k = 0; is_metric(train, i, &name) && k < n_suffixes; k++) {
                char text[80];
                snprintf(text, sizeof text, "train_%s%s", name, suffixes[k]);
                offer(n, text); // check_names bounds them
            }
        }
    }
    // A rank without a sample records what it would evaluate with all the same (record.c).
    for (uint32_t i = 0; validates && eval && i < td_graph_n_outputs(eval); i++) {
        if (is_metric(eval, i, &name)) offer_validated(n, r, name);
    }
    for (unsigned score = 1; validates && score <= r->config->scores; score <<= 1) {
        name = r->config->scores & score ? td_score_name(score) : NULL;
        if (name) offer_validated(n, r, name);
    }
}

// section: of the monitor. none: why there is no validation; NULL: there is one.
static td_status find(struct names *n, const struct td_rank *r, const char *section,
                      const char *none) {
    offer_all(n, r, true, !none);
    if (n->found) return TD_OK;
    const bool of_validation = none && strncmp(n->wanted, "val_", 4) == 0;
    return td_bad_spec("%s.monitor: this job gives no '%s'%s%s; it gives %s", section, n->wanted,
                       of_validation ? ": " : "", of_validation ? none : "", n->list);
}

static td_status check_best(const struct td_rank *r) {
    struct names n = {.wanted = r->config->checkpoint.monitor};
    return n.wanted ? find(&n, r, "checkpoint", why_no_validation(r)) : TD_OK;
}

static td_status check_plateau(const struct td_rank *r) {
    const char *none = why_no_validation(r);
    struct names n = {.wanted = r->config->schedule.plateau.monitor};
    if (r->config->schedule.kind != TD_SCHEDULE_REDUCE_ON_PLATEAU) return TD_OK;
    if (none) {
        return td_bad_spec(
            "lr_scheduler.monitor: the learning rate would never be lowered, because "
            "%s, or take another lr_scheduler",
            none);
    }
    offer_all(&n, r, false, true);
    if (n.found) return TD_OK;
    return td_bad_spec("lr_scheduler.monitor: validation gives no '%s'; this model's gives %s",
                       n.wanted, n.list);
}

// Not of a step: what that is in the middle of a window, or after a resume, nobody can say.
static td_status check_early_stop(const struct td_rank *r) {
    const struct td_early_stop_config *c = &r->config->early_stop;
    const char *none = why_no_validation(r);
    struct names n = {.wanted = c->monitor, .is_of_epochs = true};
    if (!n.wanted) return TD_OK;
    const bool has_validation = td_rank_eval_batches(r, TD_SPLIT_VAL) > 0;
    if (none && !td_early_stop_checks_epochs(c, &r->config->limits, has_validation)) {
        return td_bad_spec("early_stopping.check_on_train_epoch_end: '%s' is checked when a "
                           "validation ends, but none will: %s; or set it to true",
                           c->monitor, none);
    }
    return find(&n, r, "early_stopping", none);
}

// Longer names would be cut in the records of points, and two of them could become one.
static td_status check_names(const struct td_rank *r, int step, int *n) {
    enum { LONGEST = TD_METRIC_NAME_BYTES - sizeof "train__epoch" };
    const struct td_graph *g = graph_of(r, step);
    const char *name;
    for (uint32_t i = 0; g && i < td_graph_n_outputs(g); i++) {
        if (!is_metric(g, i, &name)) continue;
        if (strlen(name) > LONGEST) {
            return td_bad_spec("model '%s': its metric '%s' has a name of %zu bytes; %d are the "
                               "most, so that train_<name>_epoch fits",
                               r->config->model.name, name, strlen(name), LONGEST);
        }
        if (++*n > TD_TALLIES) {
            return td_bad_spec("model '%s' puts out more than %d metrics", r->config->model.name,
                               TD_TALLIES);
        }
    }
    return TD_OK;
}

// What a checkpoint keeps of a validation has a bound.
static td_status check_scores(const struct td_rank *r, int n) {
    for (unsigned score = 1; score <= r->config->scores; score <<= 1) {
        if (r->config->scores & score && td_score_name(score)) n++;
    }
    if (n <= TD_TALLIES) return TD_OK;
    return td_bad_spec("metrics: with those that model '%s' puts out they are more than %d",
                       r->config->model.name, TD_TALLIES);
}

td_status td_monitor_check(const struct td_rank *r) {
    int n = 0; // metrics of all steps
    for (int step = 0; step < r->steps.n; step++) {
        TD_TRY(check_names(r, step, &n));
    }
    TD_TRY(check_scores(r, n));
    TD_TRY(check_best(r));
    TD_TRY(check_early_stop(r));
    return check_plateau(r);
}
