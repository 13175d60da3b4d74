#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_SHARD_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_SHARD_H

// Shard: one file of a checkpoint as bytes in memory, in the safetensors format.
//
// Names and shapes of a rank's state are fixed, so everything of the file but the values is laid
// out once. A snapshot is then a few large copies into the file's own bytes, and writing is a
// digest and writes that go past the page cache. Both cost the training little.
//
//   plan      which tensors, where in the file; the head's text
//   place     give it its memory: td_shard_room() bytes, page-aligned
//   take      copy the state in, or queue the copies (training thread)
//   write     to a new file, with fsync (background thread)
//
// Thread: one at a time; the checkpointer hands the image from one thread to the other.

#include "engine/train/checkpoint/safetensors.h"
#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "traind/accelerator.h"
#include "traind/graph.h"
#include "traind/strategy.h"

enum { TD_SHARD_PAGE = 4096 };

struct td_shard {
    const char *name; // of the file
    struct td_buf head;
    const struct td_state_table *state;
    struct td_shard_tensor *tensor;
    size_t n_tensors;
    size_t bytes; // of the file
    char *image;  // borrowed; NULL before place
};

// Where a tensor of the state table is in the image.
struct td_shard_tensor {
    const struct td_state_info *info;
    size_t at;
};

// The tensors of `roles` that belong into the file `name`. n_tensors 0: there are none.
TD_MUST_USE td_status td_shard_plan(const struct td_state_table *state, uint32_t roles,
                                    const char *name, struct td_shard *out_shard);
// The same of those among them that filter takes; NULL: all.
TD_MUST_USE td_status td_shard_plan_some(const struct td_state_table *state, uint32_t roles,
                                         const char *name,
                                         bool (*filter)(void *arg, const char *name), void *arg,
                                         struct td_shard *out_shard);
void td_shard_finish(struct td_shard *s);
size_t td_shard_room(const struct td_shard *s);
void td_shard_lay(struct td_shard *s, char *memory);
// Copies the tensors to `to`, where to_offset is the place of the image's first byte. Regions of
// whole_roles (bits 1 << td_role) have tensors by whole_offset. With io_ticket the copies are
// queued, and it becomes the ticket of the last one that has one.
TD_MUST_USE td_status td_shard_take(const struct td_shard *s, const struct td_accelerator_ops *ops,
                                    struct td_accelerator *accel,
                                    const struct td_strategy_memory *memory, uint32_t whole_roles,
                                    struct td_buffer to, size_t to_offset, td_ticket *io_ticket);
// Creates path, which must not exist; on failure it is removed. RESOURCE_EXHAUSTED class disk when
// there is no space.
TD_MUST_USE td_status td_shard_write(const struct td_shard *s, const char *path,
                                     char out_digest[TD_DIGEST_HEX]);

#endif
