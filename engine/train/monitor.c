// Is there a validation in fit that lr_scheduler.monitor could hear, and is there a metric of the
// name that it, or checkpoint.monitor, wants? The second is asked of the graphs that training and
// validation will run, whose outputs are the metrics (evaluate.c names them in the same way); the
// metrics that exist are named in the answer.

#include "engine/train/monitor.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/limits.h"

enum { LIST_BYTES = 256 };

static td_status check_validates(const struct td_rank *r) {
    if (td_rank_eval_batches(r, TD_SPLIT_VAL) == 0)
        return td_bad_spec("lr_scheduler.monitor: there is nothing to validate on, so the "
                           "learning rate would never be lowered; give data to validate on, "
                           "raise trainer.limit_val_batches or take another lr_scheduler");
    int64_t n = td_rank_epoch_batches(r);
    if (n > 0 && !td_limits_ever_validates(&r->config->limits, n)) // 0 is refused elsewhere
        return td_bad_spec("lr_scheduler.monitor: the run ends before its first validation, so "
                           "the learning rate would never be lowered; lower "
                           "trainer.val_check_interval or check_val_every_n_epoch, raise "
                           "max_epochs or max_steps, or take another lr_scheduler");
    return TD_OK;
}

// A rank without a sample records what it would evaluate with all the same (rank.c). There is no
// such program where the job evaluates nothing: then no metric is refused.
static td_status check_metric(const struct td_rank *r, const char *knob, const char *monitor,
                              bool validates) {
    const struct td_graph *g =
        td_programs_graph(r->programs, validates ? TD_MODE_EVAL : TD_MODE_TRAIN);
    const char *prefix = validates ? "val_" : "train_";
    char known[LIST_BYTES] = "";
    for (uint32_t i = 0; g && i < td_graph_n_outputs(g); i++) {
        const char *name;
        enum td_output_kind kind;
        td_graph_output_at(g, i, &name, NULL, &kind);
        if (kind != TD_OUTPUT_MEAN && kind != TD_OUTPUT_SUM) continue;
        size_t n = strlen(known), len = strlen(prefix);
        if (strncmp(monitor, prefix, len) == 0 && strcmp(monitor + len, name) == 0) return TD_OK;
        snprintf(known + n, sizeof known - n, "%s%s%s", n ? ", " : "", prefix, name);
    }
    if (!g) return TD_OK;
    return td_bad_spec("%s.monitor: %s gives no '%s'; this model's gives %s", knob,
                       validates ? "validation" : "training", monitor, known);
}

td_status td_monitor_check(const struct td_rank *r) {
    const struct td_schedule_config *s = &r->config->schedule;
    const char *best = r->config->checkpoint.monitor;
    if (best) TD_TRY(check_metric(r, "checkpoint", best, strncmp(best, "train_", 6) != 0));
    if (s->kind != TD_SCHEDULE_REDUCE_ON_PLATEAU) return TD_OK;
    TD_TRY(check_validates(r));
    return check_metric(r, "lr_scheduler", s->plateau.monitor, true);
}
