#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_GPUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_GPUS_H

// GPUs of a node, as it reported them last. Nothing is stored: a node reports them after each
// registration. Those of a node that is away stay as they were. A list that no node of ours would
// send is refused: then there are none, and the list says why. Bounds: TD_DEVICES_MAX GPUs,
// TD_HOST_GPUS_BYTES of a list. Pure; the core's thread.

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

struct td_arena;

enum { TD_HOST_GPUS_BYTES = 256 << 10 };

struct td_host_gpus {
    bool is_registered;        // since this coordinator started
    bool lists;                // its build reports them
    Traind__V1__GpuList *list; // NULL: it has not done so yet
};

// It has registered, and with another boot of its machine what was reported before is forgotten.
void td_host_gpus_register(struct td_host_gpus *g, bool lists, bool is_other_boot);
void td_host_gpus_take(struct td_host_gpus *g, const Traind__V1__GpuList *m);
// Why no job gets it now, in a few words; "": one may.
void td_host_gpus_bar(const struct td_host_gpus *g, const Traind__V1__Gpu *gpu, char *out,
                      size_t bytes);
void td_host_gpus_finish(struct td_host_gpus *g);
// A copy in the arena, whose why says what is missing; NULL: the arena is full.
Traind__V1__GpuList *td_host_gpus_view(struct td_arena *a, const struct td_host_gpus *g);

#endif
