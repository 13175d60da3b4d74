// See the header.

#include "daemon/node/core/gpu_parts.h"

#include <stdio.h>
#include <string.h>

#include "lib/attempt/devices.h"

static const Traind__V1__Gpu *find(const Traind__V1__GpuList *list, const char *uuid) {
    for (size_t i = 0; list && i < list->n_gpus; i++) {
        if (strcmp(list->gpus[i]->uuid, uuid) == 0) return list->gpus[i];
    }
    return NULL;
}

static td_status gone(const char *what, const char *why) {
    return td_status_with_class(td_fail(TD_UNAVAILABLE, "%s %s", what, why), TD_CLASS_DEVICE);
}

td_status td_gpu_parts_name(const Traind__V1__GpuList *list, const char *devices, bool indexes,
                            char *out, size_t bytes) {
    char uuid[TD_DEVICE_UUID];
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; td_device_list_at(devices, i, uuid); i++) {
        const Traind__V1__Gpu *gpu = find(list, uuid);
        const bool is_number = indexes && !td_device_is_instance(uuid);
        if (!td_device_is_gpu(uuid)) continue;
        if (list && !gpu) return gone(uuid, "is assigned, and is not on this node any more");
        if (!gpu && is_number) return gone(uuid, "has no index yet: the driver has not answered");
        const char *comma = len ? "," : "";
        int n = is_number ? snprintf(out + len, bytes - len, "%s%u", comma, gpu->index)
                          : snprintf(out + len, bytes - len, "%s%s", comma, uuid);
        if (n < 0 || (size_t)n >= bytes - len) {
            return td_fail(TD_RESOURCE_EXHAUSTED, "the names of GPUs are longer than %zu bytes",
                           bytes);
        }
        len += (size_t)n;
    }
    return TD_OK;
}

uint64_t td_gpu_parts_near(const Traind__V1__GpuList *list, const char *devices, uint32_t n_ranks,
                           uint32_t i) {
    const uint32_t each = td_device_list_count(devices) / TD_MAX(n_ranks, (uint32_t)1);
    char uuid[TD_DEVICE_UUID];
    uint64_t near = each ? UINT64_MAX : 0;
    for (uint32_t k = i * each; k < (i + 1) * each && td_device_list_at(devices, k, uuid); k++) {
        const Traind__V1__Gpu *gpu = find(list, uuid);
        uint64_t own = 0;
        for (size_t m = 0; gpu && m < gpu->n_numa_nodes; m++) {
            if (gpu->numa_nodes[m] < 64) own |= UINT64_C(1) << gpu->numa_nodes[m];
        }
        near &= own;
    }
    return near;
}
