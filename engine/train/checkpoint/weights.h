#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_WEIGHTS_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_WEIGHTS_H

// Weights to begin with (`init_from`) or to evaluate (`evaluate_from`): parameters and buffers out
// of safetensors that traind, torch or Hugging Face's library wrote. Training starts at step 0.
//
// They are a file's bytes in memory, or at a path: a file, or a directory with model.safetensors,
// or with model.safetensors.index.json and the shards that it names. A config.json beside them is
// held against the module. Tensors are found by name, or by the other name that the module knows;
// floats of another width are converted. Strict (the default): every tensor of the model must be
// there in its shape, and every tensor of the files must be used, or spared by the module. Else
// INVALID_ARGUMENT, class bad_spec, names each one. Not strict: what fits is loaded, and notes name
// what was skipped, on either side. A filter takes some of the tensors, and strict holds for these
// alone. A config.json that differs is refused in any case, together with all tensors that do not
// fit. Damaged files are DATA_LOSS, class data. Nothing is loaded before all of it was checked.
// Bounds: TD_WEIGHTS_SHARDS files, an index of 16 MiB. Thread: the training thread.

#include "engine/train/checkpoint/restore.h"
#include "traind/module.h"

enum { TD_WEIGHTS_SHARDS = 256 };

struct td_weights_options {
    const char *knob; // that names the path
    const char *path; // or what messages call data
    const void *data; // (data_bytes) of one file, borrowed; NULL: they are at path
    size_t data_bytes;
    bool strict;
    bool (*filter)(void *arg, const char *name); // tensors that it takes alone; NULL: all
    void *filter_arg;
    const struct td_module_ops *module_ops;
    struct td_module *module;
    struct td_events *events; // for notes; NULL: none
};
TD_MUST_USE td_status td_weights_load(const struct td_weights_options *o,
                                      const struct td_restore_target *to);
// All of it but the copies, for a model whose state need not be placed.
TD_MUST_USE td_status td_weights_check(const struct td_weights_options *o,
                                       const struct td_state_table *state);

#endif
