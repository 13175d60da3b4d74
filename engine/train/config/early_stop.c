// The rules of early_stop.h, in Lightning's order: it is seen from outside. A value that a
// threshold ends fit with is no improvement and counts for nothing.

#include "engine/train/config/early_stop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void td_early_stop_begin(struct td_early_stop *s, const struct td_early_stop_config *c) {
    const char *monitor = c->monitor ? c->monitor : "";
    if (strcmp(s->monitor, monitor) == 0 && s->larger_is_better == c->larger_is_better) return;
    *s = (struct td_early_stop){.larger_is_better = c->larger_is_better};
    snprintf(s->monitor, sizeof s->monitor, "%s", monitor);
}

bool td_early_stop_checks_epochs(const struct td_early_stop_config *c,
                                 const struct td_limits *limits, bool has_validation) {
    const struct td_amount every = limits->val_check_interval;
    switch (c->when) {
    case TD_EARLY_STOP_AT_EPOCH:
        return true;
    case TD_EARLY_STOP_AT_VALIDATION:
        return false;
    case TD_EARLY_STOP_USUAL:
        break;
    }
    const bool once = every.is_fraction && every.fraction >= 1;
    return !has_validation || (once && limits->check_val_every_n_epoch == 1);
}

static bool is_better(const struct td_early_stop_config *c, double value, double than) {
    return c->larger_is_better ? value > than : value < than;
}

static bool improves(const struct td_early_stop *s, const struct td_early_stop_config *c,
                     double value) {
    const double worst = c->larger_is_better ? -INFINITY : INFINITY;
    const double margin = c->larger_is_better ? c->min_delta : -c->min_delta;
    return is_better(c, value - margin, s->has_best ? s->best : worst);
}

enum td_early_stop_end td_early_stop_receive(struct td_early_stop *s,
                                             const struct td_early_stop_config *c, double value) {
    if (c->check_finite && !isfinite(value)) return TD_EARLY_STOP_NOT_FINITE;
    if (c->has_stopping && is_better(c, value, c->stopping_threshold)) {
        return TD_EARLY_STOP_THRESHOLD;
    }
    if (c->has_divergence && is_better(c, -value, -c->divergence_threshold)) {
        return TD_EARLY_STOP_DIVERGENCE;
    }
    if (improves(s, c, value)) {
        s->best = value;
        s->has_best = true;
        s->wait = 0;
        return TD_EARLY_STOP_NOT;
    }
    return ++s->wait >= c->patience ? TD_EARLY_STOP_PATIENCE : TD_EARLY_STOP_NOT;
}

void td_early_stop_say(const struct td_early_stop *s, const struct td_early_stop_config *c,
                       enum td_early_stop_end end, double value,
                       char out[TD_EARLY_STOP_REASON_BYTES]) {
    const size_t bytes = TD_EARLY_STOP_REASON_BYTES;
    char best[40] = "";
    out[0] = '\0';
    if (s->has_best) snprintf(best, sizeof best, " (best %g)", s->best);
    switch (end) {
    case TD_EARLY_STOP_NOT:
        return;
    case TD_EARLY_STOP_NOT_FINITE:
        snprintf(out, bytes, "%s is %s%s", c->monitor, isnan(value) ? "nan" : "infinite", best);
        return;
    case TD_EARLY_STOP_THRESHOLD:
        snprintf(out, bytes, "%s is %g, which is %s stopping_threshold %g", c->monitor, value,
                 c->larger_is_better ? "above" : "below", c->stopping_threshold);
        return;
    case TD_EARLY_STOP_DIVERGENCE:
        snprintf(out, bytes, "%s is %g, which is %s divergence_threshold %g", c->monitor, value,
                 c->larger_is_better ? "below" : "above", c->divergence_threshold);
        return;
    case TD_EARLY_STOP_PATIENCE:
        snprintf(out, bytes, "%s did not improve for %lld check%s%s", c->monitor,
                 (long long)s->wait, s->wait == 1 ? "" : "s", best);
        return;
    }
}
