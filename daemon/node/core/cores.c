// See the header. First fit, in the topology's order: ranks of one attempt are neighbours where
// they can be, which share a cache. A rank is on one NUMA node if any has room for all of it: its
// memory is next to the threads that first write it.

#include "daemon/node/core/cores.h"

#include <stdio.h>

enum { ANY_NODE = -1 };

// The first NUMA node of `among`, a bit set, with so many free cores.
static int32_t node_with_room(const struct td_topology *here, const cpu_set_t *taken,
                              uint32_t wanted, uint64_t among) {
    uint32_t room = 0;
    for (int32_t i = 0; i < here->n_cores; i++) {
        const struct td_topology_core *c = &here->core[i];
        if (i > 0 && c->numa != c[-1].numa) room = 0;
        if (among != UINT64_MAX && (c->numa >= 64 || !(among & UINT64_C(1) << c->numa))) continue;
        if (!CPU_ISSET(c->cpu, taken) && ++room == wanted) return c->numa;
    }
    return ANY_NODE;
}

static int32_t choose_node(const struct td_topology *here, const cpu_set_t *taken, uint32_t wanted,
                           uint64_t near) {
    const int32_t node = near ? node_with_room(here, taken, wanted, near) : ANY_NODE;
    return node != ANY_NODE ? node : node_with_room(here, taken, wanted, UINT64_MAX);
}

// Takes the first free core of the NUMA node. -1: there is none.
static int take_core(const struct td_topology *here, int32_t node, cpu_set_t *taken) {
    for (int32_t i = 0; i < here->n_cores; i++) {
        const struct td_topology_core *c = &here->core[i];
        if (CPU_ISSET(c->cpu, taken) || (node != ANY_NODE && c->numa != node)) continue;
        CPU_SET(c->cpu, taken);
        return c->cpu;
    }
    return -1;
}

bool td_cores_allocate(const struct td_topology *here, cpu_set_t *used, uint32_t n_ranks,
                       uint32_t cores_per_rank, const uint64_t *near, char *out, size_t out_bytes) {
    cpu_set_t taken = *used;
    int32_t node = ANY_NODE;
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < (size_t)n_ranks * cores_per_rank; i++) {
        const uint64_t better = near ? near[i / cores_per_rank] : 0;
        if (i % cores_per_rank == 0) node = choose_node(here, &taken, cores_per_rank, better);
        int cpu = take_core(here, node, &taken);
        const char *mark = i == 0 ? "" : i % cores_per_rank ? "," : ":";
        int n = cpu >= 0 ? snprintf(out + len, out_bytes - len, "%s%d", mark, cpu) : -1;
        if (n < 0 || (size_t)n >= out_bytes - len) {
            out[0] = '\0';
            return false;
        }
        len += (size_t)n;
    }
    *used = taken;
    return true;
}

void td_cores_add(const char *lists, cpu_set_t *used) {
    for (const char *p = lists; *p;) {
        char *end;
        unsigned long from = strtoul(p, &end, 10), to = from;
        if (end == p) return; // not ours
        if (*end == '-') to = strtoul(end + 1, &end, 10);
        for (unsigned long core = from; core <= to && core < CPU_SETSIZE; core++) {
            CPU_SET(core, used);
        }
        p = *end ? end + 1 : end;
    }
}
