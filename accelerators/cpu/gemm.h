#ifndef TRAIND_ACCELERATORS_CPU_GEMM_H
#define TRAIND_ACCELERATORS_CPU_GEMM_H

// Gemm: one matrix product, by the way that is the fastest here. Thread: the training thread.

#include "accelerators/cpu/gemm_spec.h"
#include "traind/accelerator.h"

struct td_gemm;

// Are there products of these types here?
bool td_gemm_takes(enum td_dtype operands, enum td_dtype result);
// Is our own kernel worth a try at the CPU level in use? Of fp32 and bf16.
bool td_gemm_own_races(enum td_dtype operands);
// True if a product like this reads its parameter through a pack; it is given what b was cast from.
bool td_gemm_packs(const struct td_gemm_spec *spec);
TD_MUST_USE td_status td_gemm_create(struct td_accelerator *a, const struct td_gemm_spec *spec,
                                     struct td_gemm **out_gemm);
void td_gemm_destroy(struct td_gemm *g); // accepts NULL
// What a run may write in the accelerator's scratch: its first bytes.
size_t td_gemm_scratch_bytes(const struct td_gemm *g);
TD_MUST_USE td_status td_gemm_run(struct td_gemm *g, const void *a, const void *b, const void *bias,
                                  void *y);

#endif
