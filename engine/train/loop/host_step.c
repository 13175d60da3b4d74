// See the header.

#include "engine/train/loop/host_step.h"

#include <string.h>

#include "engine/train/rank/group/group.h"
#include "traind/steps.h"

#define MAGIC 0x54445354U

void td_host_step_init(struct td_steps *s, struct td_train_loop *l) {
    *s = (struct td_steps){.magic = MAGIC, .divisor = 1, .boundary_step = l->at.step};
    td_manual_init(&s->manual, l);
}

td_status td_host_step(struct td_steps *s, int64_t batch, bool *out_boundary) {
    struct td_train_loop *l = s->manual.l;
    struct td_rank *r = l->rank;
    s->batch_idx = batch;
    TD_TRY(td_manual_take(&s->manual));
    td_status failed = r->module_ops->training_step(r->module, s, batch);
    if (failed && td_status_class(failed) == TD_CLASS_NONE) {
        failed = td_status_with_class(failed, TD_CLASS_USER_CODE);
    }
    TD_TRY_CTX(failed, "training_step of '%s' at step %lld (epoch %lld), batch %lld",
               r->config->model.name, (long long)l->at.step, (long long)l->at.epoch,
               (long long)batch + 1);
    TD_TRY(td_manual_drain(&s->manual));
    td_manual_pass(&s->manual);
    l->window_steps = l->at.step - s->boundary_step;
    *out_boundary = !td_manual_has_gradients(&s->manual);
    if (*out_boundary) s->boundary_step = l->at.step;
    if (*out_boundary || batch + 1 < l->epoch.n_batches) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "training_step of '%s' left gradients that no optimizer "
                "step has used at the end of epoch %lld, where the epoch is "
                "saved and validated; use or clear them in its last batch "
                "(td_steps_n_batches)",
                r->config->model.name, (long long)l->at.epoch),
        TD_CLASS_USER_CODE);
}

// ---- the calls ----------------------------------------------------------------------------------
static td_status find(const struct td_steps *s, const char *name, int *out_step) {
    TD_CHECK(s->magic == MAGIC);
    return td_manual_find(&s->manual, name, out_step);
}

td_status td_steps_forward(struct td_steps *s, const char *step) {
    int i;
    TD_TRY(find(s, step, &i));
    return td_manual_forward(&s->manual, i, 1.0 / s->divisor);
}

td_status td_steps_backward(struct td_steps *s) {
    return td_manual_backward(&s->manual, -1);
}

td_status td_steps_backward_of(struct td_steps *s, const char *step) {
    int i;
    TD_TRY(find(s, step, &i));
    return td_manual_backward(&s->manual, i);
}

td_status td_steps_optimizer_step(struct td_steps *s, const char *step, bool *out_stepped) {
    int i;
    bool stepped;
    TD_TRY(find(s, step, &i));
    TD_TRY(td_manual_optimizer_step(&s->manual, i, &stepped));
    if (out_stepped) *out_stepped = stepped;
    return TD_OK;
}

td_status td_steps_zero_grad(struct td_steps *s, const char *step) {
    int i;
    TD_TRY(find(s, step, &i));
    return td_manual_zero_grad(&s->manual, i);
}

td_status td_steps_clip_gradients(struct td_steps *s, const char *step, double *out_norm) {
    int i;
    TD_TRY(find(s, step, &i));
    return td_manual_norm(&s->manual, i, out_norm);
}

td_status td_steps_no_backward_sync(struct td_steps *s, bool enabled) {
    s->manual.syncs = !enabled;
    return TD_OK;
}

td_status td_steps_divide_loss(struct td_steps *s, int32_t n) {
    if (n < 1) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "td_steps_divide_loss by %d; it is 1 or more", n),
            TD_CLASS_USER_CODE);
    }
    s->divisor = n;
    return TD_OK;
}

td_status td_steps_value(struct td_steps *s, const char *name, double *out_value) {
    return td_manual_value(&s->manual, name, out_value);
}

td_status td_steps_tensor(struct td_steps *s, const char *name, float *out, int64_t n) {
    return td_manual_tensor(&s->manual, name, out, n);
}

td_status td_steps_result(struct td_steps *s, const char *name, float *out, int64_t n) {
    return td_manual_result(&s->manual, name, out, n);
}

td_status td_steps_decide(struct td_steps *s, bool decision, bool all, bool *out_decision) {
    TD_TRY(td_manual_drain(&s->manual));
    return td_rank_decide(s->manual.l->rank, decision, all, out_decision);
}

int64_t td_steps_global_step(const struct td_steps *s) {
    return s->manual.l->at.step;
}
int64_t td_steps_epoch(const struct td_steps *s) {
    return s->manual.l->at.epoch;
}
int64_t td_steps_batch_idx(const struct td_steps *s) {
    return s->batch_idx;
}
int64_t td_steps_n_batches(const struct td_steps *s) {
    return s->manual.l->epoch.n_batches;
}
int64_t td_steps_n_samples(const struct td_steps *s) {
    return s->manual.n_samples;
}
