#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_WEIGHTS_FILE_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_WEIGHTS_FILE_H

// Weights file: parameters and buffers alone, as one file of safetensors that weights.h, torch and
// Hugging Face's library read. It is not a checkpoint: no position, no optimizer, no manifest.
//
// The names, types and bytes are those of a checkpoint's model.safetensors, so a file without a
// filter is that file. It appears whole or not at all. Bound: the weights once more in memory.
// Thread: the training thread, with nothing queued.

#include "engine/train/checkpoint/restore.h"

struct td_weights_file_options {
    const char *path;                            // replaced, if it is there
    bool (*filter)(void *arg, const char *name); // tensors that it takes alone; NULL: all
    void *filter_arg;
    bool durable; // it is on disk before the return; false: a file that another process takes
};
// from: where the weights are. Errors: INVALID_ARGUMENT, class bad_spec: the filter takes no
// tensor; NOT_FOUND, class bad_spec: the path's directory; others of class disk, and none of a
// file's bytes is left.
TD_MUST_USE td_status td_weights_file_write(const struct td_weights_file_options *o,
                                            const struct td_restore_target *from);

#endif
