#ifndef TRAIND_STRATEGIES_PRECISION_FP32_H
#define TRAIND_STRATEGIES_PRECISION_FP32_H

// Precision plugin "fp32", the `32-true` of the job spec.

#include "traind/plugin.h"

extern const struct td_plugin_desc td_precision_fp32;

#endif
