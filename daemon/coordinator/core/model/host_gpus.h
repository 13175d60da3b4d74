#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_GPUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_GPUS_H

// GPUs of a node, as it reported them last. The list is not stored: a node reports it after each
// registration. Those of a node that is away stay as they were. A list that no node of ours would
// send is refused: then there are none, and the list says why. Bounds: TD_DEVICES_MAX GPUs,
// TD_HOST_GPU_ERRORS errors, TD_HOST_GPUS_BYTES of a list. What is held against single GPUs is
// stored (gpu_marks.h). Pure; the core's thread.

#include "daemon/coordinator/core/model/gpu_marks.h"
#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

struct td_arena;

enum { TD_HOST_GPUS_BYTES = 256 << 10, TD_HOST_GPU_ERRORS = 64 };

struct td_host_gpus {
    bool is_registered;        // since this coordinator started
    bool lists;                // its build reports them
    Traind__V1__GpuList *list; // NULL: it has not done so yet
    struct td_gpu_marks marks;
};

// It has registered, and with another boot of its machine what was reported before is forgotten.
void td_host_gpus_register(struct td_host_gpus *g, bool lists, bool is_other_boot);
// True: it has other GPUs than before, by their uuids.
bool td_host_gpus_take(struct td_host_gpus *g, const Traind__V1__GpuList *m);
// Why no job gets it now, in a few words; "": one may.
void td_host_gpus_bar(const struct td_host_gpus *g, const Traind__V1__Gpu *gpu, char *out,
                      size_t bytes);
void td_host_gpus_finish(struct td_host_gpus *g);
// A copy in the arena, whose why says what is missing; NULL: the arena is full.
Traind__V1__GpuList *td_host_gpus_view(struct td_arena *a, const struct td_host_gpus *g);

// Its row of the list; NULL: no list has it.
const Traind__V1__Gpu *td_host_gpus_find(const struct td_host_gpus *g, const char *uuid);
// It is in the list, or an instance of it is.
bool td_host_gpus_has(const struct td_host_gpus *g, const char *uuid);
// What excludes it, or its whole GPU where it is an instance. NULL: nothing does.
const struct td_gpu_mark *td_host_gpus_mark(const struct td_host_gpus *g, const char *uuid);
// The same: why, in words.
const char *td_host_gpus_excluded(const struct td_host_gpus *g, const char *uuid);
// "XID 79 (the GPU has fallen off the bus: ...)".
char *td_host_gpus_say_xid(uint32_t xid, char *out, size_t bytes);

#endif
