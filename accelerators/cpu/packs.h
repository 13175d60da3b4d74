#ifndef TRAIND_ACCELERATORS_CPU_PACKS_H
#define TRAIND_ACCELERATORS_CPU_PACKS_H

// Packed weights: parameters in the layout that products like best.
//
// A pack is made by the first product that reads it after its parameter was written, or
// by the kernel that wrote it: optimizers pack as they update (kernels/optim/update.h). Products
// that want the same layout of the same parameter share a pack. Whether anything else has written
// it is known by TD_RUN_STEADY, or its absence. Packs live as long as the accelerator: programs of
// one job share them. At most TD_PACKS_MAX. Thread: the rank's training thread.

#include "accelerators/cpu/kernels/matmul/pack.h"
#include "accelerators/cpu/memory.h"
#include "traind/status.h"

enum { TD_PACKS_MAX = 4096 };

struct td_packs;

struct td_pack {
    const void *param;          // NULL: weights that a node computes; nobody shares it
    struct td_pack_shape shape; // cols 0: a library packs
    size_t bytes;
    void *of; // the library's part: made and freed by
    td_status (*make)(void *of, const void *weights);
    void (*destroy_of)(void *of);
    // Set by packs.c:
    void *data;
    uint64_t era;  // in which it was made; good if that is the set's
    bool was_read; // since it was made
    bool is_populated;
    struct td_pack *next;
};

// memory: the accelerator's. destroy accepts NULL.
TD_MUST_USE td_status td_packs_create(struct td_cpu_memory *memory, struct td_packs **out_packs);
void td_packs_destroy(struct td_packs *s);

// Before a run; steady: as TD_RUN_STEADY says. And before a kernel that writes this parameter.
void td_packs_begin(struct td_packs *s, bool steady);
void td_packs_param_changes(struct td_packs *s, const void *param);
// The packs of a parameter that its update writes as well: those that were read since they were
// made and that kernels/matmul/pack.c makes. They are good from now on. Returns their number, at
// most TD_PACKS_OF_UPDATE.
int td_packs_update(struct td_packs *s, const void *param, struct td_pack_target *out_targets);
// What was read of these packs was no parameter (a race ran on made-up weights). None of them is
// good, and no update shall write them until they are read again.
void td_packs_forget(struct td_packs *s, const void *param);

// The packs of a parameter, one after the other; after NULL: the first. NULL: no more.
struct td_pack *td_packs_next(const struct td_packs *s, const void *param,
                              const struct td_pack *after);
// A new pack like `like`, with memory of its own (not written while sizes are worked out). On
// success it owns like->of.
TD_MUST_USE td_status td_packs_add(struct td_packs *s, const struct td_pack *like,
                                   struct td_pack **out_pack);
// The pack of the accelerator's own products, created on first use.
TD_MUST_USE td_status td_packs_own(struct td_packs *s, const void *param,
                                   const struct td_pack_shape *shape, struct td_pack **out_pack);

// Before a product reads the pack: makes it of the weights, unless it is good.
TD_MUST_USE td_status td_packs_read(struct td_packs *s, struct td_pack *p, const void *weights);

#endif
