#ifndef TRAIND_DAEMON_NODE_CORE_CORES_H
#define TRAIND_DAEMON_NODE_CORE_CORES_H

// Cores: which ones a rank is pinned to, by the one CPU of each that computes. A slot is
// cores / slots cores; ranks get disjoint sets as long as there are at least as many cores as
// slots, else all share all. Lists are written as the launcher reads them: "0-1:2-3", one a rank.
// Pure.

#include <sched.h>

#include "lib/topology/topology.h"

// Cores for n_ranks ranks of cores_per_rank each, out of those that `used` leaves; adds them to
// used. near: of each rank, a bit set of NUMA nodes that are better than others, 0: none is; NULL:
// of no rank. False: not enough are free; out is "" then, used as it was.
bool td_cores_allocate(const struct td_topology *here, cpu_set_t *used, uint32_t n_ranks,
                       uint32_t cores_per_rank, const uint64_t *near, char *out, size_t out_bytes);
// Adds every CPU of the lists.
void td_cores_add(const char *lists, cpu_set_t *used);

#endif
