#ifndef TRAIND_BUFFER_H
#define TRAIND_BUFFER_H

// Buffer: memory of the host or of an accelerator's device, as (space, handle). Only host memory
// may be dereferenced, through td_buffer_host. Ownership: that of who allocated it; the struct is a
// value. Thread: any. Errors: none.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum td_space { TD_SPACE_HOST, TD_SPACE_DEVICE };

struct td_buffer {
    enum td_space space;
    uint64_t handle; // HOST: the address; DEVICE: what the accelerator gave
    size_t bytes;
};
// The address of host memory; NULL: it is somewhere else.
static inline void *td_buffer_host(struct td_buffer b) {
    return b.space == TD_SPACE_HOST ? (void *)(uintptr_t)b.handle : NULL;
}
// The other way round: any host memory of the caller, for copy.
static inline struct td_buffer td_buffer_of_host(const void *data, size_t bytes) {
    struct td_buffer b = {TD_SPACE_HOST, (uint64_t)(uintptr_t)data, bytes};
    return b;
}

#ifdef __cplusplus
}
#endif
#endif
