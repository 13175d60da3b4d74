// Samples of GPUs, to the launchers of the jobs that have them: these make metrics of their ranks
// of them (daemon/launcher/gpus.h). Nothing is kept for a launcher that is not connected, or does
// not read: the next samples come in ten seconds. A launcher of an older build passes the frame
// over. Here alone it is known which job has which device: after a restart by the attempt's
// assignment.json.

#include "daemon/node/shell/attempts/attempts.h"
#include "daemon/node/shell/attempts/launcher_link.h"

enum { VALUES_MAX = 8 }; // of a device; a node reads fewer (daemon/node/shell/gpus/gpu_lines.c)
struct sample {
    Traind__V1__LauncherGpu gpu;
    Traind__V1__LauncherGpu__MeasuredEntry entry[VALUES_MAX], *measured[VALUES_MAX];
};

static Traind__V1__LauncherGpu *fill(const Traind__V1__Gpu *from, struct sample *to) {
    traind__v1__launcher_gpu__init(&to->gpu);
    to->gpu.uuid = from->uuid;
    to->gpu.measured = to->measured;
    for (size_t i = 0; i < from->n_measured && i < VALUES_MAX; i++) {
        traind__v1__launcher_gpu__measured_entry__init(&to->entry[i]);
        to->entry[i].key = from->measured[i]->key;
        to->entry[i].value = from->measured[i]->value;
        to->measured[to->gpu.n_measured++] = &to->entry[i];
    }
    return &to->gpu;
}

static void send_samples(const struct td_node_daemon *n, const struct td_local_attempt *a,
                         const Traind__V1__GpuList *list) {
    struct sample sample[TD_DEVICES_MAX];
    Traind__V1__LauncherGpu *gpus[TD_DEVICES_MAX];
    Traind__V1__LauncherGpus m = TRAIND__V1__LAUNCHER_GPUS__INIT;
    m.node = td_unconst(n->inventory.name);
    m.devices = td_unconst(a->assigned.devices);
    m.gpus = gpus;
    for (size_t i = 0; i < list->n_gpus && m.n_gpus < TD_DEVICES_MAX; i++) {
        const Traind__V1__Gpu *g = list->gpus[i];
        if (!g->n_measured || !td_device_list_has(a->assigned.devices, g->uuid)) continue;
        gpus[m.n_gpus] = fill(g, &sample[m.n_gpus]);
        m.n_gpus++;
    }
    if (m.n_gpus) td_launcher_link_gpus(a->link, &m);
}

void td_attempts_gpus(const struct td_node_daemon *n, const Traind__V1__GpuList *list) {
    const struct td_node_attempt *row;
    for (size_t i = 0; (row = td_node_core_attempt(n->core, i)); i++) {
        const struct td_local_attempt *a = row->shell;
        if (a && a->link && a->linked && a->assigned.devices[0]) send_samples(n, a, list);
    }
}
