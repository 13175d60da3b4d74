#ifndef TRAIND_ACCELERATORS_CPU_DRY_COMPILE_H
#define TRAIND_ACCELERATORS_CPU_DRY_COMPILE_H

// The slots for planning and list_choices: what compiling a program would take and choose.

#include "traind/accelerator.h"

TD_MUST_USE td_status td_cpu_program_bytes(struct td_accelerator *a,
                                           const struct td_program *const *programs, size_t n,
                                           size_t *out_bytes);
TD_MUST_USE td_status td_cpu_list_choices(struct td_accelerator *a, const struct td_program *p,
                                          td_choice_fn *fn, void *arg);
TD_MUST_USE td_status td_cpu_slow_nodes(struct td_accelerator *a,
                                        const struct td_program *const *programs, size_t n,
                                        td_slow_node_fn *fn, void *arg);
td_elides_fn td_cpu_elides;

#endif
