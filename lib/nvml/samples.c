// What a device does now, and the errors that the driver reports (nvml.h).
//
// A value that the driver does not say is absent; so are events of a device that has none. An older
// library has another layout of processes, which the name of its function says.

#include <poll.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/nvml/state.h"

static const unsigned long long not_known = ~0ULL;

// ---- processes ----------------------------------------------------------------------------------
union found {
    struct td_nvml_process_info now[TD_NVML_PROCESSES];
    struct td_nvml_old_process_info old[TD_NVML_PROCESSES];
};

static void read_processes(const struct td_nvml *n, const struct td_nvml_device *d,
                           struct td_nvml_sample *s) {
    union found found;
    unsigned count = TD_NVML_PROCESSES;
    const bool is_old = n->calls.version[TD_NVML_CALL_processes] == 2;
    memset(&found, 0, sizeof found);
    int code = TD_NVML_TRY_CALL(&n->calls, processes, d->handle, &count, &found);
    if (code == TD_NVML_TOO_SMALL) { // it writes how many there are, and maybe none of them
        s->has_processes = true;
        s->n_more = count;
        return;
    }
    if (code != TD_NVML_OK) return;
    s->has_processes = true;
    for (unsigned i = 0; i < TD_MIN(count, TD_NVML_PROCESSES); i++) {
        const unsigned pid = is_old ? found.old[i].pid : found.now[i].pid;
        const unsigned long long bytes = is_old ? found.old[i].used_bytes : found.now[i].used_bytes;
        s->process[s->n_processes++] =
            (struct td_nvml_process){.pid = pid, .used_bytes = bytes == not_known ? 0 : bytes};
    }
}

void td_nvml_sample(const struct td_nvml *n, const struct td_nvml_device *d,
                    struct td_nvml_sample *out_sample) {
    const struct td_nvml_calls *c = &n->calls;
    struct td_nvml_sample s = {.n_processes = 0};
    struct td_nvml_memory memory = {0};
    struct td_nvml_utilization busy = {0};
    unsigned milliwatts = 0;
    unsigned long long throttle = 0;
    s.has_memory = c->memory(d->handle, &memory) == TD_NVML_OK;
    s.used_bytes = memory.used;
    s.has_utilization = TD_NVML_TRY_CALL(c, utilization, d->handle, &busy) == TD_NVML_OK;
    s.utilization = busy.gpu;
    s.has_power = TD_NVML_TRY_CALL(c, power, d->handle, &milliwatts) == TD_NVML_OK;
    s.power_w = milliwatts / 1e3;
    s.has_temperature = TD_NVML_TRY_CALL(c, temperature, d->handle, TD_NVML_SENSOR_GPU,
                                         &s.temperature_c) == TD_NVML_OK;
    s.has_throttle = TD_NVML_TRY_CALL(c, throttle, d->handle, &throttle) == TD_NVML_OK;
    s.throttle = throttle;
    s.throttled = (throttle & TD_NVML_THROTTLED) != 0;
    read_processes(n, d, &s);
    *out_sample = s;
}

// ---- events -------------------------------------------------------------------------------------
static bool is_registered(const struct td_nvml *n, const void *handle) {
    for (uint32_t i = 0; i < n->n_registered; i++) {
        if (n->registered[i].handle == handle) return true;
    }
    return false;
}

void td_nvml_register_events(struct td_nvml *n, const struct td_nvml_device *gpu) {
    unsigned long long types = 0;
    if (!n->events || n->n_registered == TD_DEVICES_MAX || is_registered(n, gpu->handle)) return;
    n->registered[n->n_registered].handle = gpu->handle; // one that has none is not asked again
    memcpy(n->registered[n->n_registered++].uuid, gpu->uuid, TD_DEVICE_UUID);
    if (TD_NVML_TRY_CALL(&n->calls, event_types, gpu->handle, &types) != TD_NVML_OK) return;
    if (!(types & TD_NVML_EVENT_XID)) return;
    int code =
        TD_NVML_TRY_CALL(&n->calls, event_register, gpu->handle, TD_NVML_EVENT_XID, n->events);
    n->has_events |= code == TD_NVML_OK;
}

// Waits for nothing.
static void pause_for(struct td_mono until) {
    const int64_t left_ns = until.ns - td_mono_now().ns;
    if (left_ns > 0) (void)poll(NULL, 0, (int)(left_ns / TD_NS_PER_MS) + 1);
}

bool td_nvml_await_xid(struct td_nvml *n, int64_t timeout_ns, char out_uuid[TD_DEVICE_UUID],
                       uint64_t *out_xid) {
    const struct td_mono until = td_mono_add(td_mono_now(), timeout_ns);
    struct td_nvml_event_data event = {.device = NULL};
    int code = TD_NVML_NO_FUNCTION;
    if (n->has_events) {
        code = TD_NVML_TRY_CALL(&n->calls, event_wait, n->events, &event,
                                (unsigned)(timeout_ns / TD_NS_PER_MS));
    }
    if (code != TD_NVML_OK || event.type != TD_NVML_EVENT_XID) {
        pause_for(until); // a driver that has an error at once is not asked in a circle
        return false;
    }
    out_uuid[0] = '\0';
    for (uint32_t i = 0; i < n->n_registered; i++) {
        if (n->registered[i].handle != event.device) continue;
        memcpy(out_uuid, n->registered[i].uuid, TD_DEVICE_UUID);
    }
    *out_xid = event.data;
    return true;
}
