#ifndef TRAIND_ACCELERATORS_CPU_ESTIMATE_H
#define TRAIND_ACCELERATORS_CPU_ESTIMATE_H

// The slot node_seconds: how long nodes take on the cores of this machine.

#include "traind/accelerator.h"

double td_cpu_node_seconds(const struct td_graph *g, td_node n, const struct td_accel_rates *rates,
                           bool is_slow);

#endif
