#ifndef TRAIND_ACCELERATORS_FAR_TENSORS_H
#define TRAIND_ACCELERATORS_FAR_TENSORS_H

// Tensors: a state region that is no region. Each tensor has a buffer of its own, and another one
// after each run that has written it, as on a device whose programs give new buffers. Who keeps a
// place in the region, or asks for bytes between tensors, does not find them. Ownership: each
// buffer is the table's. Thread: the training thread, but load and store on that of the queue.

#include "traind/accelerator.h"

struct td_far_tensors;
// Zeroed. The layout of `state` is done, and it outlives this. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_far_tensors_create(const struct td_state_table *state, enum td_role role,
                                            struct td_far_tensors **out_tensors);
void td_far_tensors_destroy(struct td_far_tensors *t); // accepts NULL

// Before a run: every tensor to its place in a region of the loops. After it: those that differ
// there move to new buffers. Errors: RESOURCE_EXHAUSTED.
void td_far_tensors_load(const struct td_far_tensors *t, char *region);
TD_MUST_USE td_status td_far_tensors_store(struct td_far_tensors *t, const char *region);

// Bytes [offset, offset + bytes) of the region that they stand for; between tensors they are 0, and
// what is written there is lost. Errors: OUT_OF_RANGE.
TD_MUST_USE td_status td_far_tensors_read(const struct td_far_tensors *t, size_t offset,
                                          size_t bytes, char *out);
TD_MUST_USE td_status td_far_tensors_write(struct td_far_tensors *t, size_t offset, size_t bytes,
                                           const char *in);

#endif
