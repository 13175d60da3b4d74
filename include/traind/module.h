#ifndef TRAIND_MODULE_H
#define TRAIND_MODULE_H

// Module: what is trained. It declares steps and records each of them into a graph; it has no loop,
// no device and no idea of precision or strategy.
//
// Steps: a module has one training step, "train", or those that step_at names. record() is called
// once per (step, mode, batch shape); td_graph_step and td_graph_mode say for which. The programs
// of a step name the same parameters each time. Validation, test and prediction record the first
// step, in eval or predict mode. A job that trains is refused (class user_code) where one of those
// names a parameter that no training step names. Initialization is torch's default per layer type.
// What an op is recorded with: build.h.
//
// Several steps share state by name. Each batch goes through all of them, in their order. At the
// end of an accumulation window each step updates the parameters that it trains before the next
// step begins. So a later step computes with what an earlier one has changed. Each parameter is
// trained by one step; for all others it is a constant, which costs no gradient. Every update is
// one optimizer step: global_step grows by as many as there are steps.
// Thread: the training thread; no state but what open() made.
// Ownership: what a slot is handed is borrowed until it returns; what open() gives is freed by
// close(). Errors: an output is written only on success; a graph whose recording failed is thrown
// away, and the attempt ends with the status.

#include "traind/graph.h"
#include "traind/knobs.h"

#ifdef __cplusplus
extern "C" {
#endif

// One field of a batch: what a dataset gives and a module takes. Leading dimension is the batch.
struct td_field {
    char name[16];
    enum td_dtype dtype;
    struct td_shape sample_shape; // without the batch dimension
    int64_t n_classes;            // labels: values are in [0, n_classes); 0 otherwise
};

// What the targets "y" of a module may be. A dataset checks its own against it.
enum td_target_kind {
    TD_TARGET_CLASS,  // integers: one class a sample, or token
    TD_TARGET_REAL,   // numbers
    TD_TARGET_BINARY, // numbers from 0 for no to 1 for yes
};
struct td_targets {
    uint32_t struct_bytes;
    enum td_target_kind kind;
    // CLASS: a label that is ignore_index counts for nothing. It need not be a class, unless it is
    // fed to the model, too, as tokens are.
    bool ignores;
    int32_t ignore_index;
};

enum { TD_STEPS_MAX = 8, TD_STEP_NAME = 14 };
// One training step, as step_at describes it.
struct td_step_info {
    uint32_t struct_bytes;
    const char *name; // [a-z0-9_]+, at most 13 bytes; no two are the same. Dies with the module
    // The parameters that it trains: shell patterns, '|' between them, as in "gen.*|emb.weight".
    // NULL: all that its loss depends on. Dies with the module.
    const char *trains;
};

struct td_module;
struct td_steps; // traind/steps.h

struct td_module_ops {
    uint32_t struct_bytes;
    // knobs: read with traind/knobs.h. INVALID_ARGUMENT (class bad_spec) when the fields do not fit
    // the module. Knobs and fields are borrowed until it returns.
    td_status (*open)(const struct td_json *knobs, const struct td_field *fields, size_t n_fields,
                      struct td_module **out_module);
    void (*close)(struct td_module *m); // accepts NULL
    // batch: samples of this program, the first dimension of each input.
    // Records inputs (in field order), outputs ("loss" MEAN, "accuracy" SUM, ...) and the loss; in
    // predict mode the result "logits" (td_graph_result) instead. At most 8 outputs besides those
    // of kind WEIGHT, in all training steps together, with names of at most 51 bytes. Where two
    // steps give a name, the metric is the mean of both. Training ends (class numeric) when "loss"
    // is not finite or, with several training steps, an output "loss_...".
    td_status (*record)(struct td_module *m, struct td_graph *g, int64_t batch);

    // (optional) A module that predicts the next token records in predict mode the result "logits"
    // (B, vocabulary), for one place of each row. aim() writes into the inputs, host memory of each
    // slot, which place that is: token `position` of row `row`. Absent: the result is one row of
    // logits a sample.
    void (*aim)(struct td_module *m, int64_t row, int64_t position, void *const *inputs);

    // (optional) How the module reads and writes weights of Hugging Face's form.
    // The text of config.json, written beside the weights of each checkpoint; dies with m.
    const char *(*config)(struct td_module *m);
    // What a config.json says of weights to begin with and their shapes cannot: INVALID_ARGUMENT
    // (class bad_spec) naming key and both values.
    td_status (*check_config)(struct td_module *m, const struct td_json *config);
    // The name that a tensor may have instead of a parameter's; NULL: no other. Borrows of `name`.
    const char *(*other_name)(struct td_module *m, const char *name);
    // A tensor that no parameter takes and nobody misses: a mask, a tied head, a counter.
    bool (*spares)(struct td_module *m, const char *name);

    // (optional) What a module of these knobs takes as targets. Asked before the dataset is opened,
    // which checks its own against it. out_targets comes with struct_bytes set and all else 0,
    // which is what an absent slot means: classes, and none is ignored.
    td_status (*targets)(const struct td_json *knobs, struct td_targets *out_targets);

    // (optional) Training step i, from 0 on, in the order in which a batch goes through them; false
    // past the last of them. There is one at least and TD_STEPS_MAX at most. out_info comes with
    // struct_bytes set and all else 0. Asked once, after open. Absent: one step "train", which
    // trains all that its loss depends on.
    bool (*step_at)(struct td_module *m, uint32_t i, struct td_step_info *out_info);

    // (optional) Plays one batch of training: host code that runs training steps and moves
    // parameters, with the calls of traind/steps.h. batch_idx: in the epoch, from 0. Absent: each
    // training step runs once, and updates what it trains at the end of an accumulation window. A
    // job of such a module has no accumulate_grad_batches (class bad_spec): it adds up itself. What
    // it remembers between batches is not in checkpoints, so it is a function of what td_steps
    // says. Errors: any ends training, class user_code where it has none.
    td_status (*training_step)(struct td_module *m, struct td_steps *steps, int64_t batch_idx);
    // With training_step: forwards of several training steps may be open at once, their backward
    // still to come. Each step has memory of its own for activations then. False: all share it, and
    // a forward ends that of another step.
    bool keeps_forwards;
};

#ifdef __cplusplus
}
#endif
#endif
