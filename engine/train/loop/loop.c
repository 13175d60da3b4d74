// See the header.

#include "engine/train/loop/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/config/schedule.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/step.h"

// The best of the attempts before, where the rank read the checkpoint that knows it. That of
// another job (ckpt_path) is none: its files are not where later attempts look, nor are they kept.
static void recall_best(struct td_train_loop *l) {
    const struct td_restored *from = &l->rank->restored;
    const struct td_train_config *c = l->rank->config;
    char attempt[TD_FS_PATH_BYTES];
    if (!from->path || !td_best_is_of(&from->manifest.best, &c->checkpoint)) return;
    if (strcmp(from->manifest.job, c->job) != 0) return;
    l->best = from->manifest.best;
    td_best_parent(from->path, attempt);
    td_best_parent(attempt, l->best_dir);
}

// How far each training step is, by name. Of one alone the global step says it.
static void settle_counts(struct td_train_loop *l) {
    const struct td_rank_steps *steps = &l->rank->steps;
    const struct td_progress *from = &l->rank->start;
    l->at.n_counts = steps->n > 1 ? steps->n : 0;
    for (int i = 0; i < l->at.n_counts; i++) {
        struct td_step_count *to = &l->at.count[i];
        *to = (struct td_step_count){0};
        memcpy(to->name, steps->step[i].name, sizeof to->name);
        for (int k = 0; k < from->n_counts; k++) {
            if (strcmp(from->count[k].name, to->name) == 0) to->updates = from->count[k].updates;
        }
    }
}

void td_train_loop_init(struct td_train_loop *l, struct td_rank *rank) {
    *l = (struct td_train_loop){.rank = rank, .at = rank->start, .saved_step = -1};
    settle_counts(l);
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        l->lr[i] = l->grad_norm[i] = (double)NAN;
    }
    l->schedule[0] = rank->config->schedule;
    for (int i = 0; i < rank->config->n_optimizers; i++) {
        l->schedule[i] = rank->config->optimizers[i].schedule;
    }
    td_throughput_init(&l->throughput, rank);
    td_throughput_begin(&l->throughput, l->at.step);
    l->began_ns = l->throughput.since_ns;
    // What another schedule left counts for nothing.
    if (l->schedule[0].kind == TD_SCHEDULE_REDUCE_ON_PLATEAU) {
        td_plateau_begin(&l->at.plateau, &l->schedule[0].plateau);
    } else {
        l->at.plateau = (struct td_plateau){0};
    }
    td_early_stop_begin(&l->at.early_stop, &rank->config->early_stop);
    if (!rank->resumed) return;
    l->saved_step = rank->start.step;
    recall_best(l);
    // What the last validation found still describes these weights. (Only the rank that read the
    // checkpoint knows, and only it writes the next one.)
    td_validated_recall(&l->validated, &rank->restored.manifest,
                        td_data_n_loaders(rank->data, TD_SPLIT_VAL));
}

// Another batch, world or amount of data, or other limits: the run does not end where it would
// have.
static void note_end(const struct td_train_loop *l, bool schedules_follow) {
    const struct td_rank *r = l->rank;
    const int64_t was = r->start.total_steps, is = l->at.total_steps;
    char at[32] = "never";
    if (!r->resumed || !r->facts.is_global_zero || !was || was == is) return;
    if (is) snprintf(at, sizeof at, "at step %lld", (long long)is);
    td_events_note(r->events,
                   "the run ends %s now; when its checkpoint was written it was to end at step "
                   "%lld%s",
                   at, (long long)was,
                   schedules_follow ? "; so the learning rate follows another curve" : "");
}

td_status td_train_loop_settle(struct td_train_loop *l) {
    int64_t n = td_rank_epoch_batches(l->rank);
    if (n == 0) {
        return td_bad_spec("an epoch has no batch for this rank; lower "
                           "batch_size or raise limit_train_batches, or overfit_batches");
    }
    // Each training step has its schedule, which counts windows.
    const int64_t total = td_rank_total_windows(l->rank, &l->at);
    bool follows = false;
    l->at.total_steps = l->rank->steps.n * total;
    atomic_store_explicit(&l->rank->io->page->total_steps, l->at.total_steps, memory_order_relaxed);
    for (int i = 0; i < TD_MAX(l->rank->config->n_optimizers, 1); i++) {
        struct td_schedule_config *s = &l->schedule[i];
        const char *end = td_schedule_end_knob(s->kind);
        if (!end || s->total_steps != 0) continue;
        s->total_steps = total;
        follows = true;
        if (total == 0) {
            return td_bad_spec("%s needs lr_scheduler.%s when neither max_epochs nor "
                               "max_steps ends the run",
                               td_schedule_name(s->kind), end);
        }
    }
    note_end(l, follows);
    return TD_OK;
}

td_status td_train_loop_agree(struct td_train_loop *l, bool *out_leave) {
    float flags[TD_CONTROL_FLAGS];
    TD_TRY(td_rank_sum_flags(l->rank, false, flags));
    struct td_agreement a = td_control_read(flags);
    bool fits = l->rank->config->stages & TD_STAGE_FIT;
    // Once fit is over a pause lets the job end; a cancellation never waits.
    *out_leave = a.stop && !l->mid_window && (a.now || !fits || !l->fit_is_over);
    l->stop_saves = !a.now;
    return TD_OK;
}

// Before the first step of a fit it is the sanity check, and the step is still to be compiled.
void td_train_loop_settled(struct td_train_loop *l) {
    const bool trains = (l->rank->config->stages & TD_STAGE_FIT) && !l->fit_is_over;
    if (!trains || l->stepped) td_rank_expect(l->rank, TD_RANK_TRAINS);
}

// One training step may have other outputs of such names, which are not what it lowers.
static bool is_loss(const struct td_train_loop *l, const char *name) {
    const bool is_named = l->rank->steps.n > 1 && strncmp(name, "loss_", strlen("loss_")) == 0;
    return is_named || strcmp(name, "loss") == 0;
}

const struct td_tally *td_train_loop_loss(const struct td_train_loop *l,
                                          const struct td_tallies *tallies, size_t i) {
    for (size_t t = 0; t < tallies->n; t++) {
        if (is_loss(l, tallies->item[t].name) && i-- == 0) return &tallies->item[t];
    }
    return NULL;
}
