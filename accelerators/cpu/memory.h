#ifndef TRAIND_ACCELERATORS_CPU_MEMORY_H
#define TRAIND_ACCELERATORS_CPU_MEMORY_H

// Memory of an accelerator besides arena and state: packed weights, partial results, and one
// scratch that all kernels and primitives share, one at a time. All of it is counted. Thread: the
// rank's training thread.

#include "lib/base/base.h"

struct td_cpu_memory {
    bool is_dry;       // sizes are being worked out: nothing is allocated, nothing may be written
    size_t held_bytes; // of all that was allocated and not freed
    void *scratch;     // read it when running: compiling another program may move it
    size_t scratch_bytes;
};

// 64-byte aligned; NULL: out of memory.
void *td_cpu_memory_alloc(struct td_cpu_memory *m, size_t bytes);
// Before all of it is written for the first time: clears its pages at once, where it is large.
void td_cpu_memory_populate(void *p, size_t bytes);
// Takes the size that alloc was given; accepts NULL.
void td_cpu_memory_free(struct td_cpu_memory *m, void *p, size_t bytes);
// The scratch has at least so many bytes from now on.
TD_MUST_USE td_status td_cpu_memory_grow_scratch(struct td_cpu_memory *m, size_t bytes);
// Frees the scratch; everything else was freed before.
void td_cpu_memory_finish(struct td_cpu_memory *m);

#endif
