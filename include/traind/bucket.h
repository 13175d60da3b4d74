#ifndef TRAIND_BUCKET_H
#define TRAIND_BUCKET_H

// Bucket: gradients that ranks average at once. They are one contiguous range of memory.
//
// A strategy (reduce_gradients) and a collective (all_reduce_bucket) are handed one where a program
// has an all_reduce node. The rank makes its buckets once, when its memory is placed. Only `stream`
// differs from call to call.
//
// The elements begin at `offset` of `buffer`. They are n of one type, the padding between tensors
// included: what is in the padding is reduced like the rest, and nobody reads it. With has_control,
// TD_CONTROL_FLAGS fp32 flags begin at control_offset, after the elements. They are summed over the
// world, never divided, whatever becomes of the gradients. With has_control the bytes of the
// elements are a multiple of 64.
//
// Ownership: the struct is borrowed until the call returns. Tensors, names and memory are the
// rank's and live as long as it. Whoever reduces has the memory to himself, until wait_buckets
// (traind/collective.h) has returned. Thread: that of the call. Errors: none, it is pure data.

#include "traind/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_bucket_tensor {
    const char *name; // in the state table: "fc1.weight:grad"
    size_t offset;    // bytes from where the bucket begins
    struct td_shape shape;
};

struct td_bucket {
    uint32_t struct_bytes;
    uint32_t index, n_buckets;              // buckets are reduced in the order of their indices
    enum td_dtype dtype;                    // of all elements, a float type
    struct td_buffer buffer;                // that the bucket is in, with its flags
    size_t offset;                          // bytes from the start of the buffer
    int64_t n;                              // elements; 0: there are none
    const struct td_bucket_tensor *tensors; // (n_tensors), in the order of their offsets
    size_t n_tensors;
    bool has_control;      // of the last bucket
    size_t control_offset; // bytes from where the bucket begins, a multiple of 4; with has_control
    void *stream;          // the accelerator's, to queue the work on; NULL: it has none
};

// Bytes from where the bucket begins to the end of all that is reduced.
static inline size_t td_bucket_bytes(const struct td_bucket *b) {
    return b->has_control ? b->control_offset + TD_CONTROL_FLAGS * sizeof(float)
                          : (size_t)b->n * td_dtype_bytes(b->dtype);
}

// Where a bucket of host memory begins; NULL: it is somewhere else.
static inline void *td_bucket_host(const struct td_bucket *b) {
    char *host = (char *)td_buffer_host(b->buffer);
    return host ? host + b->offset : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
