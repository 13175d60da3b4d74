// See the header.

#include "daemon/coordinator/core/plans/gpu_capacity.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/model.h"
#include "lib/base/clip.h"
#include "lib/job/labels.h"
#include "lib/spec/spec.h"

enum { KINDS_BYTES = 256 };

struct td_device_want td_gpu_want(const struct td_spec_resources *r, uint32_t n_ranks) {
    return (struct td_device_want){.n = n_ranks * (uint32_t)r->gpus_per_rank,
                                   .model = r->gpu_model,
                                   .memory_bytes =
                                       (uint64_t)TD_MAX(r->gpu_memory_bytes, (int64_t)0),
                                   .whole = r->gpus_per_rank > 1};
}

static double gib(uint64_t bytes) {
    return (double)bytes / 0x1p30;
}

const char *td_gpu_words(const struct td_device_want *want, char out[TD_GPU_WORDS]) {
    char memory[48] = "";
    if (want->memory_bytes) {
        snprintf(memory, sizeof memory, " of at least %.1f GiB", gib(want->memory_bytes));
    }
    (void)td_clip(out, TD_GPU_WORDS, "%u GPU%s%s%s%s", want->n, want->n == 1 ? "" : "s",
                  want->model[0] ? " like " : "", want->model, memory);
    return out;
}

const char *td_gpu_view(const struct td_spec_resources *r) {
    if (r->unmanaged_gpus) return "CUDA_VISIBLE_DEVICES is not set by traind";
    if (!r->gpus_per_rank) return "";
    if (r->isolate_gpus) return "a rank finds its own alone, the first as cuda:0";
    return r->gpus_per_rank == 1 ? "a rank's own is cuda:LOCAL_RANK; an instance of MIG is cuda:0"
                                 : "a rank finds those of all ranks of its node, in their order";
}

// ---- what comes nearest -------------------------------------------------------------------------
static bool is_like(const struct td_host_device *a, const struct td_host_device *b) {
    return strcmp(a->name, b->name) == 0 && a->memory_bytes == b->memory_bytes;
}

// "4 NVIDIA A100-SXM4-40GB (40.0 GiB), 2 NVIDIA L4 (22.5 GiB)"
static void say_kinds(const struct td_host_accel *a, char out[KINDS_BYTES]) {
    struct td_clip_list kinds;
    td_clip_list_init(&kinds, out, KINDS_BYTES, ", ");
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t n = 0;
        bool is_first = true;
        for (uint32_t k = 0; k < a->n; k++) {
            const bool like = is_like(&a->device[k], &a->device[i]);
            n += like;
            is_first &= !like || k >= i;
        }
        if (!is_first) continue;
        td_clip_list_add(&kinds, "%u %s (%.1f GiB)", n, a->device[i].name,
                         gib(a->device[i].memory_bytes));
    }
}

struct nearest {
    const struct td_host *node;
    const struct td_host_accel *gpus;
    uint32_t has; // of those that will do
    const struct td_host *withheld;
};

static td_status refuse(const struct td_device_want *want, const struct nearest *near) {
    char words[TD_GPU_WORDS], kinds[KINDS_BYTES] = "";
    td_gpu_words(want, words);
    if (near->gpus && near->gpus->n) {
        say_kinds(near->gpus, kinds);
        return td_fail(TD_FAILED_PRECONDITION,
                       "UNSATISFIABLE: no known node has %s for a job; node %.71s comes nearest, "
                       "with %s. Ask for fewer or for others, or start a node that has them",
                       words, near->node->name, kinds);
    }
    if (near->withheld) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "UNSATISFIABLE: no known node has a GPU for a job; node %.71s has an older "
                       "build, which gives jobs no GPUs. Update it",
                       near->withheld->name);
    }
    return td_fail(TD_FAILED_PRECONDITION,
                   "UNSATISFIABLE: no known node has a GPU for a job. `trainctl node list -o wide` "
                   "says why");
}

td_status td_gpu_capacity(const struct td_core *core, const char *labels, uint32_t n_ranks,
                          const struct td_spec_resources *r) {
    const struct td_device_want want = td_gpu_want(r, n_ranks);
    struct nearest near = {0};
    bool is_any = false;
    const struct td_host *n;
    for (size_t cursor = 0; want.n && (n = td_map_each(core->nodes, &cursor));) {
        if (!td_labels_have(n->labels, labels)) continue;
        const struct td_host_accel *a = td_host_accel_find(&n->devices, TD_ACCEL_GPU);
        const uint32_t has = a ? td_host_devices_fitting(a, &want) : 0;
        if (!a || has >= want.n) return TD_OK;
        is_any = true;
        if (n->devices.no_gpus) near.withheld = n;
        const bool is_nearer =
            !near.gpus || has > near.has || (has == near.has && a->n > near.gpus->n);
        if (!is_nearer) continue;
        near.node = n;
        near.gpus = a;
        near.has = has;
    }
    if (!is_any) return TD_OK;
    td_status s = refuse(&want, &near);
    s = td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_BAD_SPEC);
    s = td_status_with_meta(s, "needed_devices", "%u", want.n);
    return td_status_with_meta(s, "largest_node_devices", "%u", near.has);
}

// ---- trainer.devices: auto ----------------------------------------------------------------------
// Nodes that have GPUs for so many ranks.
static int32_t count_nodes(const struct td_core *core, const char *labels,
                           const struct td_spec_resources *r, uint32_t n_ranks) {
    const struct td_device_want want = td_gpu_want(r, n_ranks);
    int32_t found = 0;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        const struct td_host_accel *a = td_host_accel_find(&n->devices, TD_ACCEL_GPU);
        found +=
            a && td_labels_have(n->labels, labels) && td_host_devices_fitting(a, &want) >= want.n;
    }
    return found;
}

static td_status settle(const struct td_core *core, const char *labels, const struct td_spec *spec,
                        uint32_t *out_ranks) {
    const struct td_spec_resources *r = &spec->resources;
    uint32_t n_ranks = TD_SPEC_MAX_GPUS / (uint32_t)r->gpus_per_rank;
    while (n_ranks && count_nodes(core, labels, r, n_ranks) < TD_MAX(spec->trainer.num_nodes, 1)) {
        n_ranks--;
    }
    *out_ranks = n_ranks;
    if (n_ranks) return TD_OK;
    TD_TRY(td_gpu_capacity(core, labels, 1, r));
    return td_fail(TD_FAILED_PRECONDITION,
                   "trainer.devices is auto, as many as a node has GPUs for, and too few nodes "
                   "have said yet which they have; give a number, with which the job waits, or try "
                   "again");
}

td_status td_gpu_settle_ranks(const struct td_core *core, struct td_arena *arena,
                              struct td_json *inout_spec) {
    struct td_spec spec;
    uint32_t n_ranks;
    TD_AUTO_FREE char *labels = NULL;
    td_spec_read(inout_spec, &spec);
    if (!spec.resources.gpus_per_rank || spec.trainer.devices) return TD_OK;
    TD_TRY(td_labels_of_map(spec.node_labels, &labels));
    TD_TRY(settle(core, labels ? labels : "", &spec, &n_ranks));
    struct td_json *trainer = td_json_get(inout_spec, "trainer"),
                   *made = td_json_new_int(arena, n_ranks);
    return td_json_set(arena, trainer, "devices", made) ? TD_OK : td_fail_oom();
}
