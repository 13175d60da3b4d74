#ifndef TRAIND_TESTS_TENSORS_FILE_H
#define TRAIND_TESTS_TENSORS_FILE_H

// Tensors as one safetensors file, written the plain way: what the reader is fed with, and what the
// image of a shard is held against. A file that is there is written over.

#include "engine/train/checkpoint/safetensors.h"
#include "lib/base/files/files.h"

static inline td_status tensors_file(const char *path, const struct td_tensor *tensors, size_t n) {
    TD_AUTO_BUF all;
    td_buf_init(&all, 1 << 20);
    TD_TRY(td_safetensors_head(tensors, n, &all));
    for (size_t i = 0; i < n; i++) {
        TD_TRY(td_buf_append(&all, tensors[i].data, tensors[i].bytes));
    }
    return td_fs_write(path, all.data, all.len, 0600, 0);
}

#endif
