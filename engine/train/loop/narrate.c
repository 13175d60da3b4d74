// See the header. A line is not worth a failure: what does not fit it is cut.

#include "engine/train/loop/narrate.h"

#include <math.h>
#include <stdio.h>

#include "engine/train/config/limits.h"
#include "engine/train/rank/programs/batches.h"
#include "lib/base/clock.h"

#define NARRATE_AGAIN_NS (1 * TD_NS_PER_S)

static const char *count_of(int64_t n, bool limited, char out[24]) {
    if (limited) snprintf(out, 24, "%lld", (long long)n);
    return limited ? out : "unlimited";
}

void td_narrate_plan(const struct td_train_loop *l) {
    const struct td_rank *r = l->rank;
    const struct td_limits *limits = &r->config->limits;
    const struct td_epoch epoch = td_rank_epoch(r, &l->at);
    const int64_t n_steps = l->at.total_steps;
    char epochs[24], steps[24];
    td_events_say(r->events,
                  "plan epochs=%s steps=%s batches_per_epoch=%lld batch_size=%lld strategy=%s "
                  "precision=%s accumulate=%s",
                  count_of(limits->max_epochs, limits->max_epochs >= 0, epochs),
                  count_of(n_steps, n_steps > 0, steps), (long long)epoch.n_batches,
                  (long long)r->config->batch_size, r->strategy_name, r->precision_name,
                  r->config->counts_tokens ? "tokens" : "batches");
    if (r->resumed) {
        td_events_say(r->events, "continues from a checkpoint epoch=%lld step=%lld",
                      (long long)l->at.epoch, (long long)l->at.step);
    }
}

void td_narrate_epoch_begin(struct td_train_loop *l) {
    struct td_narration *n = &l->said;
    const int64_t now_ns = td_mono_now().ns;
    n->speaks = n->n_epochs < TD_NARRATED_EPOCHS || now_ns - n->last_ns >= NARRATE_AGAIN_NS;
    n->n_epochs++;
    if (!n->speaks) return;
    n->began_ns = now_ns;
    td_events_say(l->rank->events, "epoch begins epoch=%lld step=%lld batch=%lld of %lld",
                  (long long)l->at.epoch, (long long)l->at.step, (long long)l->epoch.first,
                  (long long)l->epoch.n_batches);
}

void td_narrate_epoch_end(struct td_train_loop *l) {
    struct td_narration *n = &l->said;
    if (!n->speaks) return;
    char loss[40] = "";
    if (isfinite(l->last_loss)) snprintf(loss, sizeof loss, " loss=%.6g", (double)l->last_loss);
    n->speaks = false;
    n->last_ns = td_mono_now().ns;
    td_events_say(l->rank->events, "epoch ends epoch=%lld step=%lld%s seconds=%.3g",
                  (long long)l->at.epoch, (long long)l->at.step, loss,
                  (double)(n->last_ns - n->began_ns) / (double)TD_NS_PER_S);
}

void td_narrate_stop(const struct td_train_loop *l, bool saves) {
    td_events_say(l->rank->events, "stops as asked epoch=%lld step=%lld, %s a checkpoint",
                  (long long)l->at.epoch, (long long)l->at.step, saves ? "with" : "without");
}
