#ifndef TRAIND_LIB_TOPOLOGY_TOPOLOGY_H
#define TRAIND_LIB_TOPOLOGY_TOPOLOGY_H

// lib/topology: the only home of hwloc. It answers one question: on which CPUs may threads that
// compute run, one for each physical core? Two CPUs of one core (SMT) share its units, and a
// second thread of products there gains nothing. hwloc knows which CPUs are siblings on each
// kernel, and in containers that show a part of /sys; it leaves out what is offline or of another
// cpuset.
//
//   topology.c      hwloc, set up to read this much and no more
//
// Read once by whoever gives cores to ranks: a node's daemon, and traind-run. Ranks find one CPU of
// each core in their affinity mask, or the number of threads in their plan. Rejected: hwloc in
// libtraind.so, which would load it in each rank (docs/measurements.md).

#include <sched.h>

#include "lib/base/base.h"

struct td_topology_core {
    uint16_t cpu;  // the number of its first CPU that may be used, as in an affinity mask
    uint16_t numa; // the memory that is next to it
};

// Neighbours in the list share caches, NUMA node and package, as far as the machine has them.
struct td_topology {
    int32_t n_cores; // 1 at least
    struct td_topology_core core[CPU_SETSIZE];
};

// Of the CPUs in `mask`. NULL: of those that this thread may use, and no more cores than the quota
// of its cgroup gives time for. CPUs from number CPU_SETSIZE on are left out, as in masks. Takes 1
// ms with 2 CPUs, tens of them with 256.
// Errors:  FAILED_PRECONDITION hwloc finds no CPU that may be used.
// Thread:  the first caller's is the only one yet: the environment may get a variable.
TD_MUST_USE td_status td_topology_read(const cpu_set_t *mask, struct td_topology *out_topology);

// The same with NULL, on a thread of its own while the caller does something else.
struct td_topology_reading;
TD_MUST_USE td_status td_topology_reading_create(struct td_topology_reading **out_reading);
// Waits for it, once.
TD_MUST_USE td_status td_topology_reading_await(struct td_topology_reading *r,
                                                struct td_topology *out_topology);
void td_topology_reading_destroy(struct td_topology_reading *r); // accepts NULL; waits, too
TD_DEFINE_AUTO(td_topology_reading, td_topology_reading_destroy);

#endif
