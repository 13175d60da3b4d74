// See the header.

#include "engine/train/loop/early_stopping.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/rank/programs/batches.h"

static bool checks_epochs(const struct td_train_loop *l) {
    const struct td_train_config *c = l->rank->config;
    return td_early_stop_checks_epochs(&c->early_stop, &c->limits,
                                       td_rank_eval_batches(l->rank, TD_SPLIT_VAL) > 0);
}

// In the epoch that is played.
static int64_t epochs_done(const struct td_train_loop *l) {
    return l->at.epoch + (l->at.epoch_batches == l->epoch.n_batches);
}

// Who reads the note knows that fit goes on.
static const char *what_follows(const struct td_train_loop *l) {
    if (l->at.early_stop.revocable) return "; fit ends at min_epochs, unless it improves before";
    return td_early_stopping_ends(l, epochs_done(l), l->at.step)
               ? ""
               : "; fit ends once min_epochs and min_steps are reached";
}

static void say(const struct td_train_loop *l, const char *what, const char *rest) {
    if (l->fit_is_over || !l->rank->facts.is_global_zero) return; // limits end it here anyway
    td_events_note(l->rank->events, "early stopping: %s, at step %lld (epoch %lld)%s", what,
                   (long long)l->at.step, (long long)l->at.epoch, rest);
}

static void check(struct td_train_loop *l, double value) {
    const struct td_early_stop_config *c = &l->rank->config->early_stop;
    struct td_early_stop *s = &l->at.early_stop;
    char reason[TD_EARLY_STOP_REASON_BYTES];
    const enum td_early_stop_end end = td_early_stop_receive(s, c, value);
    if (end == TD_EARLY_STOP_NOT && s->revocable) {
        s->decided = s->revocable = false;
        snprintf(reason, sizeof reason, "%s has improved to %g", s->monitor, value);
        say(l, reason, "; fit goes on");
    } else if (end != TD_EARLY_STOP_NOT && !s->decided) {
        s->decided = true;
        s->revocable =
            end == TD_EARLY_STOP_PATIENCE && epochs_done(l) < l->rank->config->limits.min_epochs;
        td_early_stop_say(s, c, end, value, reason);
        say(l, reason, what_follows(l));
    } else if (end != TD_EARLY_STOP_NOT && end != TD_EARLY_STOP_PATIENCE) {
        s->revocable = false;
    }
}

// The newest value of the metric; false: it is not known.
static td_status read_value(struct td_train_loop *l, bool *out_known, double *out_value) {
    const struct td_early_stop *s = &l->at.early_stop;
    if (strncmp(s->monitor, "train_", 6) == 0) {
        return td_epoch_metrics_mean(&l->played, s->monitor, out_known, out_value);
    }
    *out_known = s->has_value;
    *out_value = s->value;
    return TD_OK;
}

static td_status look(struct td_train_loop *l) {
    bool known;
    double value;
    TD_TRY(read_value(l, &known, &value));
    if (known) check(l, value);
    return TD_OK;
}

td_status td_early_stopping_validated(struct td_train_loop *l) {
    struct td_early_stop *s = &l->at.early_stop;
    const char *monitor = l->rank->config->early_stop.monitor;
    if (!monitor) return TD_OK;
    const struct td_tally *t = td_validated_find(&l->validated, monitor);
    if (t) {
        s->has_value = t->count > 0;
        s->value = t->count > 0 ? t->sum / t->count : 0;
    }
    return checks_epochs(l) ? TD_OK : look(l);
}

td_status td_early_stopping_epoch_ended(struct td_train_loop *l) {
    const struct td_train_config *c = l->rank->config;
    const bool is_whole = l->at.epoch_batches == l->epoch.n_batches;
    if (!c->early_stop.monitor || !is_whole) return TD_OK;
    if (checks_epochs(l)) TD_TRY(look(l));
    if (epochs_done(l) >= c->limits.min_epochs) l->at.early_stop.revocable = false;
    return TD_OK;
}

bool td_early_stopping_ends(const struct td_train_loop *l, int64_t n_epochs, int64_t steps_done) {
    const struct td_early_stop *s = &l->at.early_stop;
    return s->decided && !s->revocable &&
           td_limits_may_stop_early(&l->rank->config->limits, n_epochs, steps_done);
}

bool td_early_stopping_validates(const struct td_train_loop *l) {
    const struct td_limits *limits = &l->rank->config->limits;
    return (limits->min_epochs > 0 || limits->min_steps > 0) &&
           td_early_stopping_ends(l, l->at.epoch, l->at.step) &&
           (l->at.epoch + 1) % limits->check_val_every_n_epoch == 0;
}
