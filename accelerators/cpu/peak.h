#ifndef TRAIND_ACCELERATORS_CPU_PEAK_H
#define TRAIND_ACCELERATORS_CPU_PEAK_H

// The slot measure_peak. Products of bf16 that widen have a rate as well, that of fp32 or less.

#include "traind/accelerator.h"

TD_MUST_USE td_status td_cpu_measure_peak(struct td_accelerator *a, size_t memory_bytes,
                                          struct td_accel_rates *out_best,
                                          struct td_accel_rates *out_usual);

#endif
