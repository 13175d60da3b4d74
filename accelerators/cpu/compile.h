#ifndef TRAIND_ACCELERATORS_CPU_COMPILE_H
#define TRAIND_ACCELERATORS_CPU_COMPILE_H

// The slots compile and release: a program becomes a list of kernels.

#include "traind/accelerator.h"

TD_MUST_USE td_status td_cpu_compile(struct td_accelerator *a, const struct td_program *p,
                                     const struct td_bindings *b, struct td_executable **out_exe);
void td_cpu_release(struct td_executable *e); // accepts NULL

#endif
