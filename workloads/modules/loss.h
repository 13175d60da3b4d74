#ifndef TRAIND_WORKLOADS_MODULES_LOSS_H
#define TRAIND_WORKLOADS_MODULES_LOSS_H

// What a module minimizes: the section `loss` of its knobs, as every in-tree module reads, checks
// and records it. Which targets a loss takes is checked against the dataset's field "y" when the
// module is opened, so that a misfit is reported with both facts before anything is computed.
// Errors: what a person can mend is INVALID_ARGUMENT, class bad_spec.

#include "traind/build.h"
#include "workloads/modules/layers.h"

enum td_loss_kind { TD_LOSS_CROSS_ENTROPY, TD_LOSS_MSE, TD_LOSS_BCE };

enum { TD_LOSS_MAX_WEIGHTS = 4096 };

struct td_module_loss {
    enum td_loss_kind kind;
    struct td_labels_options labels; // of cross entropy
    double *class_weight;            // (n_weights); NULL: all alike
    int64_t n_weights;
    int64_t width; // of a row of the module's result
};

// The slot `targets` of a module with the knob `loss`.
TD_MUST_USE td_status td_module_loss_targets(const struct td_json *knobs,
                                             struct td_targets *out_targets);
// Reads knobs.loss.
TD_MUST_USE td_status td_module_loss_init(struct td_module_loss *l, const struct td_json *knobs);
void td_module_loss_finish(struct td_module_loss *l);
// The module's result has `width` numbers a row, which `last` (a knob) gives. x is of pixels (u8)
// or numbers (f32), y what the loss takes: a class below width, or width numbers.
TD_MUST_USE td_status td_module_loss_fit(struct td_module_loss *l, const char *module,
                                         const struct td_xy *xy, const char *last, int64_t width);
// The same for rows of tokens, which the module has checked itself: classes are tokens.
TD_MUST_USE td_status td_module_loss_fit_tokens(struct td_module_loss *l, const char *module,
                                                int64_t vocab_size);

// Outputs "loss" and, with `counts`, "accuracy", which mse has not. x (B, width), y (B) or (B, ...)
TD_MUST_USE td_status td_module_loss_record(const struct td_module_loss *l, struct td_graph *g,
                                            td_value x, td_value y, bool counts);
// The same, and in predict mode the result "logits" instead.
TD_MUST_USE td_status td_module_loss_end(const struct td_module_loss *l, struct td_graph *g,
                                         td_value x, td_value y);

#endif
