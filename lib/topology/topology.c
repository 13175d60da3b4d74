// See the header. hwloc reads cores and what groups them: L3 caches, dies, packages, NUMA nodes.
// Devices and the rest are filtered out. Its x86 backend binds the thread to each CPU in turn and
// asks it. That takes as long as all the rest, so it is used only where the kernel knows no cores.
// Plugins of hwloc (X11, OpenCL, PCI) are not loaded; with Debian's that is 2.5 ms, 0.4 MiB
// and 26 libraries. Only a variable of the environment keeps them out.

#include "lib/topology/topology.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/machine/proc.h"

static int load(hwloc_topology_t t, bool asks_cpus) {
    static const hwloc_obj_type_t groups[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_DIE, HWLOC_OBJ_PACKAGE,
                                              HWLOC_OBJ_GROUP}; // the CPUs of a NUMA node
    const unsigned long flags = HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
    int failed = hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (size_t i = 0; i < TD_COUNTOF(groups) && !failed; i++) {
        failed = hwloc_topology_set_type_filter(t, groups[i], HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    }
    if (!failed) {
        failed = hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    }
    if (!failed) failed = hwloc_topology_set_flags(t, flags);
    if (!failed && !asks_cpus) {
        failed = hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    }
    return failed ? failed : hwloc_topology_load(t);
}

static td_status open_hwloc(bool asks_cpus, hwloc_topology_t *out_topology) {
    hwloc_topology_t t = NULL;
    if (hwloc_topology_init(&t) == 0 && load(t, asks_cpus) == 0) {
        *out_topology = t;
        return TD_OK;
    }
    td_status s = td_fail_errno(TD_FAILED_PRECONDITION,
                                "hwloc reads the CPUs of this machine (is an HWLOC_ variable set "
                                "in the environment?)");
    if (t) hwloc_topology_destroy(t);
    return s;
}

// Where the topology is not this machine's (HWLOC_SYNTHETIC, HWLOC_XMLFILE), any CPU may be used.
static void usable_cpus(hwloc_topology_t t, const cpu_set_t *mask, hwloc_bitmap_t out_cpus) {
    if (mask) {
        (void)hwloc_cpuset_from_glibc_sched_affinity(t, out_cpus, mask, sizeof *mask);
    } else if (hwloc_get_cpubind(t, out_cpus, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_copy(out_cpus, hwloc_topology_get_allowed_cpuset(t));
    }
}

// CPUs in hwloc's order: those of a core are together.
static int32_t list_cores(hwloc_topology_t t, hwloc_const_bitmap_t cpus,
                          struct td_topology_core *out_core) {
    int32_t n = 0;
    hwloc_obj_t cpu = NULL, last = NULL;
    while ((cpu = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, cpu))) {
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_CORE, cpu);
        if (cpu->os_index >= CPU_SETSIZE || !hwloc_bitmap_isset(cpus, cpu->os_index)) continue;
        if (core && core == last) continue;
        last = core;
        int numa = cpu->nodeset ? hwloc_bitmap_first(cpu->nodeset) : 0;
        out_core[n++] =
            (struct td_topology_core){(uint16_t)cpu->os_index, (uint16_t)TD_MAX(numa, 0)};
    }
    return n;
}

static void keep_plugins_out(void) {
    (void)setenv("HWLOC_PLUGINS_PATH", "", 0);
}

td_status td_topology_read(const cpu_set_t *mask, struct td_topology *out_topology) {
    keep_plugins_out();
    hwloc_topology_t t;
    TD_TRY(open_hwloc(false, &t));
    if (hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) <= 0) {
        hwloc_topology_destroy(t);
        TD_TRY(open_hwloc(true, &t));
    }
    struct td_topology found = {0};
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus) {
        usable_cpus(t, mask, cpus);
        found.n_cores = list_cores(t, cpus, found.core);
    }
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(t);
    if (!cpus) return td_fail_oom();
    if (found.n_cores == 0) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "hwloc finds no CPU that this process may use; compare what `lstopo` shows "
                       "with Cpus_allowed_list in /proc/self/status");
    }
    if (!mask) found.n_cores = TD_MIN(found.n_cores, td_proc_n_cpus());
    *out_topology = found;
    return TD_OK;
}

// ---- on a thread --------------------------------------------------------------------------------
struct td_topology_reading {
    pthread_t thread;
    bool runs;
    td_status failure;
    struct td_topology topology;
};

static void *run(void *arg) {
    struct td_topology_reading *r = arg;
    r->failure = td_topology_read(NULL, &r->topology);
    return NULL;
}

td_status td_topology_reading_create(struct td_topology_reading **out_reading) {
    TD_AUTO(td_topology_reading) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    keep_plugins_out();
    int rc = pthread_create(&r->thread, NULL, run, r);
    if (rc != 0) return td_fail(TD_RESOURCE_EXHAUSTED, "thread for hwloc: %s", strerror(rc));
    r->runs = true;
    *out_reading = td_steal(r);
    return TD_OK;
}

static void join(struct td_topology_reading *r) {
    if (r->runs) pthread_join(r->thread, NULL);
    r->runs = false;
}

td_status td_topology_reading_await(struct td_topology_reading *r,
                                    struct td_topology *out_topology) {
    join(r);
    if (r->failure) return td_steal(r->failure);
    *out_topology = r->topology;
    return TD_OK;
}

void td_topology_reading_destroy(struct td_topology_reading *r) {
    if (!r) return;
    join(r);
    td_status_free(r->failure);
    free(r);
}
