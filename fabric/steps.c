// Steps: batches and steps of a program's loop, on engine/train/loop/manual.h. A step is named as
// the module names it. A call in an order that cannot be is refused and changes nothing. Any other
// failure ends the run on all ranks, which are woken.

#include <math.h>
#include <string.h>

#include "engine/train/loop/batch.h"
#include "engine/train/loop/evaluate.h"
#include "fabric/fabric.h"

td_status td_fabric_step(const struct td_fabric *f, const char *name, int *out_step) {
    if (!f->optimizer) {
        return td_fabric_misuse("a step of training without td_fabric_setup_optimizers");
    }
    return td_manual_find(&f->manual, name, out_step);
}

// A call in a wrong order changes nothing, and may be made again in the right one.
static td_status checked(struct td_fabric *f, td_status s) {
    const bool is_misuse = s && strcmp(td_status_reason(s), TD_MANUAL_MISUSE) == 0;
    return is_misuse ? s : td_fabric_failed(f, s);
}

// ---- batches ------------------------------------------------------------------------------------
static void describe(struct td_fabric *f, enum td_split split, const struct td_buffer *fields,
                     int64_t n, int64_t batch_idx, int loader, struct td_fabric_batch *out_batch) {
    const void **own = f->fields[f->manual.gathers % 2];
    size_t n_fields;
    const struct td_field *field = td_data_fields(f->rank->data, &n_fields);
    struct td_fabric_batch batch = {
        .struct_bytes = out_batch->struct_bytes,
        .split = split,
        .is_over = batch_idx < 0,
        .n_samples = n,
        .batch_idx = batch_idx,
        .n_fields = (uint32_t)n_fields,
        .fields = own,
        .field = field,
        .dataloader_idx = loader,
    };
    for (size_t i = 0; i < n_fields; i++) {
        own[i] = td_data_host(fields[i]);
    }
    memcpy(out_batch, &batch, TD_MIN(out_batch->struct_bytes, sizeof batch));
}

// Strategies follow a pass by its hooks, in which all runs are done. Each rank is called, also one
// without samples.
td_status td_fabric_leave_pass(struct td_fabric *f) {
    if (!f->pass.is_open) return TD_OK;
    f->pass.is_open = false;
    TD_TRY(td_manual_drain(&f->manual));
    return td_evaluate_leave(f->rank, f->pass.split, f->pass.done);
}

static td_status enter_pass(struct td_fabric *f, enum td_split split, int loader) {
    struct td_fabric_pass *p = &f->pass;
    const bool is_open = p->is_open;
    if (split == TD_SPLIT_PREDICT) return TD_OK;
    if (is_open && p->loader == loader) return TD_OK;
    TD_TRY(td_manual_drain(&f->manual));
    if (!is_open) TD_TRY(td_evaluate_enter(f->rank, split));
    *p = (struct td_fabric_pass){true, split, loader, is_open ? p->done : 0};
    return td_evaluate_loader(f->rank, split, loader);
}

static td_status next_evaluated(struct td_fabric *f, enum td_split split,
                                struct td_fabric_batch *out_batch) {
    const struct td_data *data = f->rank->data;
    struct td_fabric_place *at = &f->at[split];
    const int64_t batch = f->rank->config->batch_size;
    const struct td_sampler *s = td_data_loader(data, split, at->loader);
    struct td_buffer fields[TD_DATA_FIELDS] = {0};
    int64_t n;
    if (td_sampler_batches(s, at->offset, batch) == 0) {
        *at = (struct td_fabric_place){.loader = at->loader + 1};
        if (at->loader == td_data_n_loaders(data, split)) {
            *at = (struct td_fabric_place){0};
            TD_TRY(td_fabric_leave_pass(f));
            describe(f, split, fields, 0, -1, 0, out_batch);
            return TD_OK;
        }
        s = td_data_loader(data, split, at->loader); // none is empty
    }
    TD_TRY(enter_pass(f, split, at->loader));
    TD_TRY(td_manual_before_gather(&f->manual));
    TD_TRY(td_data_batch(f->rank->data, split, at->loader, at->offset, fields, &n));
    describe(f, split, fields, n, at->batch_idx++, at->loader, out_batch);
    at->offset = td_sampler_next(s, at->offset, batch);
    f->pass.done++;
    return TD_OK;
}

td_status td_fabric_next(struct td_fabric *f, enum td_split split,
                         struct td_fabric_batch *out_batch) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_next"));
    const bool known = split >= 0 && split < TD_SPLIT_COUNT;
    if (!known || !td_data_sampler(f->rank->data, split)) {
        return td_fabric_misuse("the data has no split %s",
                                known ? td_split_name(split) : "of that number");
    }
    if (split == TD_SPLIT_TRAIN && !f->optimizer) {
        return td_fabric_misuse("batches of split train without td_fabric_setup_optimizers");
    }
    if (split != f->pass.split) TD_TRY(checked(f, td_fabric_leave_pass(f)));
    if (split != TD_SPLIT_TRAIN) return checked(f, next_evaluated(f, split, out_batch));
    int64_t n;
    const int64_t idx =
        f->manual.in_epoch ? f->loop.queued.epoch_batches : f->loop.at.epoch_batches;
    TD_TRY(checked(f, td_manual_next(&f->manual, &n)));
    describe(f, split, f->manual.batch, n, n ? idx : -1, 0, out_batch);
    return TD_OK;
}

// ---- steps --------------------------------------------------------------------------------------
td_status td_fabric_forward(struct td_fabric *f, const char *step) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_forward"));
    TD_TRY(td_fabric_step(f, step, &i));
    return checked(f, td_manual_forward(&f->manual, i, 1.0 / f->divisor));
}

td_status td_fabric_backward(struct td_fabric *f) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_backward"));
    return checked(f, td_manual_backward(&f->manual, -1));
}

td_status td_fabric_backward_of(struct td_fabric *f, const char *step) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_backward_of"));
    TD_TRY(td_fabric_step(f, step, &i));
    return checked(f, td_manual_backward(&f->manual, i));
}

td_status td_fabric_optimizer_step(struct td_fabric *f, const char *step, bool *out_stepped) {
    int i;
    bool stepped;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_optimizer_step"));
    TD_TRY(td_fabric_step(f, step, &i));
    TD_TRY(checked(f, td_manual_optimizer_step(&f->manual, i, &stepped)));
    if (out_stepped) *out_stepped = stepped;
    return TD_OK;
}

td_status td_fabric_zero_grad(struct td_fabric *f, const char *step) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_zero_grad"));
    TD_TRY(td_fabric_step(f, step, &i));
    return checked(f, td_manual_zero_grad(&f->manual, i));
}

td_status td_fabric_clip_gradients(struct td_fabric *f, const char *step, double *out_norm) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_clip_gradients"));
    TD_TRY(td_fabric_step(f, step, &i));
    return checked(f, td_manual_norm(&f->manual, i, out_norm));
}

td_status td_fabric_no_backward_sync(struct td_fabric *f, bool enabled) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_no_backward_sync"));
    if (enabled && !f->o.accumulates) {
        return td_fabric_misuse("td_fabric_no_backward_sync in a program that did not set "
                                "options.accumulates");
    }
    f->manual.syncs = !enabled;
    return TD_OK;
}

td_status td_fabric_divide_loss(struct td_fabric *f, int32_t n) {
    if (n < 1) return td_fabric_misuse("td_fabric_divide_loss by %d; it is 1 or more", n);
    if (n > 1 && !f->o.accumulates) {
        return td_fabric_misuse("td_fabric_divide_loss in a program that did not set "
                                "options.accumulates");
    }
    f->divisor = n;
    return TD_OK;
}

td_status td_fabric_lr(struct td_fabric *f, const char *step, double *out_lr) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_lr"));
    TD_TRY(td_fabric_step(f, step, &i));
    const double own = f->manual.of[i].lr;
    *out_lr = isnan(own) ? td_batch_rate(&f->loop, i) : own;
    return TD_OK;
}

td_status td_fabric_set_lr(struct td_fabric *f, const char *step, double lr) {
    int i;
    TD_TRY(td_fabric_need_setup(f, "td_fabric_set_lr"));
    TD_TRY(td_fabric_step(f, step, &i));
    if (isinf(lr) || lr < 0) return td_fabric_misuse("a learning rate of %g", lr);
    f->manual.of[i].lr = lr;
    return TD_OK;
}

td_status td_fabric_evaluate(struct td_fabric *f, const struct td_fabric_batch *batch) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_evaluate"));
    const bool tests = batch->split == TD_SPLIT_TEST;
    if ((batch->split != TD_SPLIT_VAL && !tests) || batch->is_over || batch->n_samples < 0) {
        return td_fabric_misuse("td_fabric_evaluate takes a batch of split val or test");
    }
    struct td_buffer inputs[TD_DATA_FIELDS] = {0};
    const bool has_idx = batch->struct_bytes >= offsetof(struct td_fabric_batch, dataloader_idx) +
                                                    sizeof batch->dataloader_idx;
    if (batch->n_samples) {
        td_data_buffers(f->rank->data, batch->fields, batch->n_samples, inputs);
    }
    td_status s = td_manual_evaluate(&f->manual, tests ? TD_STEP_TEST : TD_STEP_VALIDATE,
                                     has_idx ? batch->dataloader_idx : 0, inputs, batch->n_samples);
    return td_fabric_failed(f, s);
}

td_status td_fabric_value(struct td_fabric *f, const char *name, double *out_value) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_value"));
    return checked(f, td_manual_value(&f->manual, name, out_value));
}

td_status td_fabric_tensor(struct td_fabric *f, const char *name, float *out, int64_t n) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_tensor"));
    return checked(f, td_manual_tensor(&f->manual, name, out, n));
}

td_status td_fabric_result(struct td_fabric *f, const char *name, float *out, int64_t n) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_result"));
    return checked(f, td_manual_result(&f->manual, name, out, n));
}
