#ifndef TRAIND_ACCELERATORS_CPU_DRY_COMPILE_H
#define TRAIND_ACCELERATORS_CPU_DRY_COMPILE_H

// The slots measure, preview, plain and skips: what compiling a program would take and choose.

#include "traind/accelerator.h"

TD_MUST_USE td_status td_cpu_measure(struct td_accelerator *a,
                                     const struct td_program *const *programs, size_t n,
                                     size_t *out_bytes);
TD_MUST_USE td_status td_cpu_preview(struct td_accelerator *a, const struct td_program *p,
                                     td_choice_fn *fn, void *arg);
TD_MUST_USE td_status td_cpu_plain(struct td_accelerator *a,
                                   const struct td_program *const *programs, size_t n,
                                   td_plain_fn *fn, void *arg);
td_skips_fn td_cpu_skips;

#endif
