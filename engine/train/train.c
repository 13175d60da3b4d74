// Stages in order. Stage events come from rank 0 only: they speak for the job.

#include "engine/train/train.h"

#include <stdio.h>

#include "engine/train/build.h"
#include "engine/train/checkpoint/outputs.h"
#include "engine/train/loop/evaluate.h"
#include "engine/train/loop/fit.h"
#include "engine/train/loop/predict.h"
#include "engine/train/loop/predictions.h"
#include "engine/train/loop/stage_weights.h"
#include "engine/train/plan/profile.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/scores/result.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"

static void announce_start(const struct td_rank *r, const char *stage) {
    td_events_say(r->events, "stage begins stage=%s", stage);
    if (r->facts.is_global_zero) td_events_stage_start(r->events, stage);
}

static void announce_end(const struct td_rank *r, const char *stage, bool interrupted) {
    td_events_say(r->events, "stage %s stage=%s", interrupted ? "is stopped" : "ends", stage);
    if (!r->facts.is_global_zero) return;
    td_events_stage_end(r->events, stage, interrupted ? TD_OUTCOME_STOPPED : TD_OUTCOME_DONE);
}

static td_status evaluate_stage(struct td_train_loop *l, enum td_split split, const char *stage,
                                const char *prefix, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    int64_t n = td_rank_eval_batches(r, split);
    bool interrupted;
    announce_start(r, stage);
    if (n == 0) {
        td_events_note(r->events,
                       "stage %s has nothing to do: its split has no samples, or limit_%s_batches "
                       "is 0",
                       stage, td_split_name(split));
    }
    TD_TRY(td_train_loop_evaluate(l, split, prefix, INT64_MAX, &interrupted));
    announce_end(r, stage, interrupted);
    if (interrupted) *out_end = TD_LOOP_STOPPED;
    return TD_OK;
}

static td_status predict_stage(struct td_train_loop *l, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    bool interrupted;
    announce_start(r, "predict");
    if (!td_rank_generates(r) && td_rank_eval_batches(r, TD_SPLIT_PREDICT) == 0) {
        td_events_note(r->events, "stage predict has nothing to do: there are no samples, or "
                                  "limit_predict_batches is 0");
    }
    l->fit_is_over = true;
    TD_TRY(td_predict(l, &interrupted));
    announce_end(r, "predict", interrupted);
    if (interrupted) *out_end = TD_LOOP_STOPPED;
    return TD_OK;
}

static td_status run_stages(struct td_train_loop *l, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    unsigned stages = r->config->stages;
    *out_end = TD_LOOP_DONE;
    TD_TRY(td_stage_weights_check(r));
    if (stages & TD_STAGE_FIT) {
        announce_start(r, "fit");
        TD_TRY(td_train_loop_fit(l, out_end));
        announce_end(r, "fit", *out_end == TD_LOOP_STOPPED);
        if (*out_end == TD_LOOP_STOPPED) return TD_OK;
    }
    if (stages & ~(unsigned)TD_STAGE_FIT) TD_TRY(td_stage_weights_load(l));
    if (stages & TD_STAGE_VALIDATE) {
        // Beside fit's own validations, whose points it must not mix with.
        const char *prefix = stages & TD_STAGE_FIT ? "validate" : "val";
        TD_TRY(evaluate_stage(l, TD_SPLIT_VAL, "validate", prefix, out_end));
        if (*out_end == TD_LOOP_STOPPED) return TD_OK;
    }
    if (stages & TD_STAGE_TEST) {
        TD_TRY(evaluate_stage(l, TD_SPLIT_TEST, "test", "test", out_end));
        if (*out_end == TD_LOOP_STOPPED) return TD_OK;
    }
    return stages & TD_STAGE_PREDICT ? predict_stage(l, out_end) : TD_OK;
}

static void note_losses(const struct td_rank *r) {
    uint64_t drops = td_metrics_drops(&r->metrics);
    struct td_checkpointer_counts saves = td_checkpointer_counts(r->checkpointer);
    if (drops) {
        td_events_note(r->events,
                       "%llu metric values of rank %d are lost, as they came faster than they were "
                       "stored; a larger trainer.log_every_n_steps logs fewer",
                       (unsigned long long)drops, r->facts.global_rank);
    }
    if (saves.skipped > 1) { // the first was named when it was due
        td_events_note(r->events,
                       "%llu periodic checkpoints were skipped in all, because the one before was "
                       "still being written",
                       (unsigned long long)saves.skipped);
    }
    if (saves.waited_ns >= TD_NS_PER_S) { // less is the loop's business
        td_events_note(
            r->events,
            "training waited %.3g s in all for %llu checkpoint%s, because the one before "
            "was still being written; save less often, or to a faster disk",
            (double)saves.waited_ns / (double)TD_NS_PER_S, (unsigned long long)saves.waited,
            saves.waited == 1 ? "" : "s");
    }
}

// ---- the profile --------------------------------------------------------------------------------
static td_status print_profile(const struct td_profile *p) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_PROFILE_BYTES);
    TD_TRY(td_profile_print(p, &text));
    return td_fd_write_all(STDERR_FILENO, text.data, text.len, "stderr");
}

static td_status write_profile(const struct td_rank *r, const struct td_profile *p, int64_t step,
                               char out_path[TD_FS_PATH_BYTES]) {
    char what[128];
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_PROFILE_BYTES);
    if (td_profile_is_empty(p)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "no kernel took any time: accelerator '%s' counts none, or nothing ran",
                       r->accel_name);
    }
    snprintf(what, sizeof what, "\"attempt\":%d,\"rank\":%d,\"world_size\":%d,\"step\":%lld",
             r->config->attempt, r->config->rank, r->config->world_size, (long long)step);
    TD_TRY(td_profile_json(p, what, &text));
    return td_rank_write_result(r, TD_RESULT_PROFILE, &text, out_path);
}

// For people: a run does not fail for it.
static void report_profile(const struct td_rank *r, int64_t step) {
    TD_AUTO(td_profile) *p = NULL;
    char path[TD_FS_PATH_BYTES];
    td_status failed = td_profile_take(r->programs, &p);
    if (!failed) failed = print_profile(p);
    if (!failed && r->config->profile_file) {
        failed = write_profile(r, p, step, path);
        if (!failed) {
            td_events_note(r->events, "the profile of rank %d is in %s", r->config->rank, path);
        }
    }
    if (failed) {
        td_events_note(r->events, "the profile is not written: %s", td_status_message(failed));
    }
    td_status_free(failed);
}

// A device reports its error once, which may have been to the writer of a checkpoint.
static td_status first_cause(struct td_rank *r, td_status s) {
    td_status_free(td_checkpointer_wait(r->checkpointer));
    td_status writers = td_checkpointer_poll(r->checkpointer);
    if (td_status_class(writers) != TD_CLASS_DEVICE) {
        td_status_free(writers);
        return s;
    }
    td_status_free(s);
    return writers;
}

td_status td_train(const struct td_train_config *config, struct td_train_io *io,
                   struct td_events *events, struct td_train_result *out_result) {
    TD_AUTO(td_rank) *r = NULL;
    *out_result = (struct td_train_result){.end = TD_LOOP_DONE};
    atomic_store_explicit(&io->page->phase, TD_PHASE_LOADING, memory_order_relaxed);
    TD_TRY(td_rank_create(config, io, events, &r));
    struct td_train_loop loop;
    td_train_loop_init(&loop, r);
    td_control_progress(&r->control, &loop.at, 0, 0);
    struct td_named_hold hold = TD_NAMED_HOLD_NONE;
    td_status s = td_outputs_check(config);
    if (!s) s = td_predict_hold(r, &hold);
    if (!s) s = run_stages(&loop, &out_result->end);
    td_named_output_release(&hold);
    out_result->step = loop.at.step;
    note_losses(r);
    if (config->profile && !s) report_profile(r, loop.at.step);
    if (td_status_class(s) == TD_CLASS_DEVICE) s = first_cause(r, s);
    if (!s) s = td_rank_finish(r);
    s = td_rank_classify(s);
    if (s) td_rank_fail(r, s);
    td_control_phase(&r->control, TD_PHASE_ENDED);
    return s;
}
