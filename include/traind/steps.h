#ifndef TRAIND_STEPS_H
#define TRAIND_STEPS_H

// Steps: what the training_step of a module may do with a batch (traind/module.h). It is host code
// of a job's own loop: it runs training steps, reads what they put out, branches, and says when
// parameters move. Everything else (batches, schedules, validation, checkpoints, stops) is the
// loop's. A program that owns the whole loop has the same calls in traind/fabric.h.
//
// step: a name that step_at gives; NULL: the first. NOT_FOUND lists them. Each trains its own
// parameters and no others, which is what Lightning calls toggle_optimizer.
//
// All ranks make the same calls in the same order. A branch on a value of this rank alone would
// split them: agree on it first (td_steps_decide). Gradients that no optimizer step has used are
// kept for the next batch, and add up; while there are any, the loop neither saves nor stops. The
// last batch of an epoch leaves none (class user_code).
// Errors: FAILED_PRECONDITION, class user_code, for calls in an order that cannot be. Every failure
// is for training_step to return. Thread: the training thread, inside training_step.

#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_steps;

// Begins a pass of a step over the batch. Its program is queued when something needs it.
TD_MUST_USE td_status td_steps_forward(struct td_steps *s, const char *step);
// Differentiates the last forward; gradients overwrite those that an update has used, and add to
// others. They are averaged over the ranks unless no_backward_sync is on.
TD_MUST_USE td_status td_steps_backward(struct td_steps *s);
// The same of the forward of a step that is open: its backward is still to come. The forward of
// another step ends it, unless the module says keeps_forwards; so does any optimizer step, which
// moves what a forward has read.
TD_MUST_USE td_status td_steps_backward_of(struct td_steps *s, const char *step);
// Updates what the step trains. Passes of other steps may lie between it and the backward.
// out_stepped may be NULL; false: the precision skipped it.
TD_MUST_USE td_status td_steps_optimizer_step(struct td_steps *s, const char *step,
                                              bool *out_stepped);
// Forgets the gradients of a step.
TD_MUST_USE td_status td_steps_zero_grad(struct td_steps *s, const char *step);
// The norm of the gradients before clipping, as td_fabric_clip_gradients.
TD_MUST_USE td_status td_steps_clip_gradients(struct td_steps *s, const char *step,
                                              double *out_norm);
// From the next forward on: whether gradients stay on this rank, and by how much a loss is divided.
// Both last until they are changed.
TD_MUST_USE td_status td_steps_no_backward_sync(struct td_steps *s, bool enabled);
TD_MUST_USE td_status td_steps_divide_loss(struct td_steps *s, int32_t n);
// What the last forward put out, as a mean over the samples of this rank. It waits for the pass.
// NOT_FOUND lists the names.
TD_MUST_USE td_status td_steps_value(struct td_steps *s, const char *name, double *out_value);
// A tensor of this rank's state as it is now, row-major, as fp32 whatever its type is. name: of a
// parameter or buffer ("gen.fc1.weight"), of a gradient ("gen.fc1.weight:grad", as the last
// backward left it; with 16-mixed scaled), of optimizer state ("gen.fc1.weight:exp_avg"). n: its
// elements. It waits for what was called. NOT_FOUND; INVALID_ARGUMENT names its elements.
TD_MUST_USE td_status td_steps_tensor(struct td_steps *s, const char *name, float *out, int64_t n);
// The same of a result of the last forward (td_graph_result), such as each sample's own loss: n is
// its elements for the samples of the batch.
TD_MUST_USE td_status td_steps_result(struct td_steps *s, const char *name, float *out, int64_t n);
// all: true when every rank says true; else when any does. Collective.
TD_MUST_USE td_status td_steps_decide(struct td_steps *s, bool decision, bool all,
                                      bool *out_decision);

// Where the loop is: optimizer steps completed, the epoch, the batch in it (both from 0), and the
// batch's samples on this rank.
int64_t td_steps_global_step(const struct td_steps *s);
int64_t td_steps_epoch(const struct td_steps *s);
int64_t td_steps_batch_idx(const struct td_steps *s);
int64_t td_steps_n_batches(const struct td_steps *s); // of the epoch
int64_t td_steps_n_samples(const struct td_steps *s);

#ifdef __cplusplus
}
#endif
#endif
