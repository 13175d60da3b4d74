#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_FAMILIES_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_FAMILIES_H

// What the files of ops export, a function each: the family (kernel.h) of that name.

#include "accelerators/cpu/kernel.h"

#define TD_FAMILY(name) td_kernel_family td_kernel_##name;
#include "accelerators/cpu/kernels/families.def"
#undef TD_FAMILY

#endif
