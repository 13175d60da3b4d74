#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_ENGINE_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_ENGINE_H

// An open engine, as the files of this folder see it.

#include "accelerators/cpu/memory.h"
#include "accelerators/cpu/onednn/dnnl.h"

struct td_packs;
struct td_tune;

struct td_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct td_cpu_memory *memory; // these three are the accelerator's
    struct td_tune *tune;
    struct td_packs *packs;
};

#endif
