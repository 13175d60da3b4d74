#ifndef TRAIND_ACCELERATORS_CPU_ACCELERATOR_H
#define TRAIND_ACCELERATORS_CPU_ACCELERATOR_H

// The accelerator that cpu.c opens, and what compile.c makes of a program. Kernels see neither.

#include "accelerators/cpu/kernel.h"
#include "accelerators/cpu/memory.h"
#include "traind/accelerator.h"

struct td_dnnl; // onednn/onednn.h
struct td_tune; // tune.h
struct td_spin; // spin.h

struct td_accelerator {
    int32_t n_threads;
    struct td_cpu_memory memory;
    bool detects_anomaly;
    bool profiles;    // kernels are timed
    td_node compiles; // the node whose kernel is being made
    struct td_packs *packs;
    struct td_dnnl *dnnl;
    struct td_tune *tune;
    struct td_spin *spin; // NULL: one thread
};

struct td_executable {
    uint32_t magic;
    struct td_accelerator *accel;
    struct td_kernel *kernel;
    uint32_t n_kernels;
    struct td_sums *sums; // over ranks
    const struct td_program *program;
    float *control;     // flags that runs carry, and
    char *control_tail; // where: at the end of GRAD
    const double *scalars;
    float rounded[TD_SCALAR_COUNT]; // step scalars, as values of f32 read them
    size_t bridge_bytes;
    char *bridge; // memory of reordered images, for one node after the other
};
enum { td_executable_magic = 0x43505545 };

#endif
