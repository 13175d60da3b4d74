// See the header. First fit, lowest ids first: ranks of one attempt are neighbours where they can
// be, which on most machines share a cache. Rejected: a map of sockets and caches; until it is
// measured to pay, the kernel's numbering is as good.

#include "daemon/node/core/cores.h"

#include <stdio.h>

bool td_cores_allocate(const cpu_set_t *here, cpu_set_t *used, uint32_t n_ranks,
                       uint32_t cores_per_rank, char *out, size_t out_bytes) {
    cpu_set_t taken = *used;
    size_t len = 0, core = 0;
    out[0] = '\0';
    for (size_t i = 0; i < (size_t)n_ranks * cores_per_rank; i++) {
        while (core < CPU_SETSIZE && (!CPU_ISSET(core, here) || CPU_ISSET(core, used))) {
            core++;
        }
        const char *mark = i == 0 ? "" : i % cores_per_rank ? "," : ":";
        int n = core < CPU_SETSIZE ? snprintf(out + len, out_bytes - len, "%s%zu", mark, core) : -1;
        if (n < 0 || (size_t)n >= out_bytes - len) {
            out[0] = '\0';
            return false;
        }
        len += (size_t)n;
        CPU_SET(core, &taken);
        core++;
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
