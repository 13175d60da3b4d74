#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_SAFETENSORS_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_SAFETENSORS_H

// safetensors: the file format of checkpoint shards, readable by the safetensors package.
//
//   u64 LE header bytes | JSON header, padded with spaces so that data starts 64-aligned | data
//   header: {"__metadata__":{...},"name":{"dtype":"F32","shape":[..],"data_offsets":[b,e]},...}
//
// shard.h writes such files. Reading maps one, or takes its bytes from memory. Everything that it
// says is checked before use: sizes, types, holes, overlaps, duplicates. The header may name
// tensors in another order than their bytes have. A file that fails a check is DATA_LOSS
// (class data) naming file and place. Bounds: a header of 16 MiB, 65536 tensors, names of 255
// bytes. Thread: any, one at a time.

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "traind/types.h"

enum { TD_SAFETENSORS_HEADER_MAX = 16 << 20, TD_SAFETENSORS_MAX = 65536 };

struct td_tensor {
    const char *name;
    enum td_dtype dtype;
    struct td_shape shape;
    const void *data;
    size_t bytes;
    // "of type U16": a type of the format that no td_dtype is, or more than TD_MAX_DIMS dimensions.
    // A file may have such tensors beside others, and nobody reads them. NULL: dtype and shape
    // hold.
    const char *foreign;
};

// What comes before the data: length and header, for tensors without data. out is empty before.
TD_MUST_USE td_status td_safetensors_head(const struct td_tensor *tensors, size_t n,
                                          struct td_buf *out);

struct td_safetensors;
TD_MUST_USE td_status td_safetensors_open(const char *path, struct td_safetensors **out_file);
// The same of a file's bytes in memory. name: what messages call them. The bytes are borrowed until
// close; those that do not begin at a 16-byte border are copied.
TD_MUST_USE td_status td_safetensors_open_bytes(const char *name, const void *data, size_t bytes,
                                                struct td_safetensors **out_file);
void td_safetensors_close(struct td_safetensors *f); // accepts NULL
TD_DEFINE_AUTO(td_safetensors, td_safetensors_close);
size_t td_safetensors_count(const struct td_safetensors *f);
const struct td_tensor *td_safetensors_at(const struct td_safetensors *f, size_t i);
const struct td_tensor *td_safetensors_find(const struct td_safetensors *f, const char *name);
// The whole file: for digests.
void td_safetensors_bytes(const struct td_safetensors *f, const void **out_data, size_t *out_bytes);

#endif
