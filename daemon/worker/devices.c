// devices: what NVML says of this machine's GPUs, as JSON lines for the node, which reads them in
// daemon/node/shell/gpus/gpu_lines.h, until it is killed.
//
//   {"inventory":{"driver":V,"notes":TEXT,"devices":[...]}}   first, and when it has changed
//   {"samples":[...]}                                         each interval
//   {"xid":N,"uuid":U}                                        an error event of the driver
//   {"none":WHY,"final":BOOL}                                 last: there is no list. final: nor
//                                                             will there be, until the driver is
//                                                             another
// TD_DEVICES_LOOK_SIGNAL asks for an interval's lines within half a second. It is a process of its
// own because any call of the driver may hang for good. The node sees that
// as silence. What the driver does not say is not in a line.

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "daemon/worker/worker.h"
#include "fabric/config.h"
#include "lib/attempt/devices.h"
#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/nvml/nvml.h"

enum { LINE_BYTES = 512 << 10, XIDS_MAX = 16, SLICE_MS = 500 };

// ---- lines --------------------------------------------------------------------------------------
// The last member has no comma after it, so each begins with one.
static td_status add_text(struct td_buf *b, const char *key, const char *text) {
    if (!text[0]) return TD_OK;
    TD_TRY(td_buf_printf(b, ",\"%s\":", key));
    return td_json_print_string(text, strlen(text), b);
}

static td_status add_bits(struct td_buf *b, const char *key, uint64_t bits) {
    const char *comma = "";
    if (!bits) return TD_OK;
    TD_TRY(td_buf_printf(b, ",\"%s\":[", key));
    for (int i = 0; i < 64; i++) {
        if (!(bits >> i & 1)) continue;
        TD_TRY(td_buf_printf(b, "%s%d", comma, i));
        comma = ",";
    }
    return td_buf_str(b, "]");
}

static td_status add_device(struct td_buf *b, const struct td_nvml_device *d) {
    TD_TRY(td_buf_printf(b, "{\"index\":%" PRIu32, d->index));
    TD_TRY(add_text(b, "uuid", d->uuid));
    TD_TRY(add_text(b, "parent", d->parent));
    TD_TRY(add_text(b, "name", d->name));
    TD_TRY(add_text(b, "bus_id", d->bus_id));
    TD_TRY(add_text(b, "capability", d->capability));
    TD_TRY(add_text(b, "health", d->health));
    if (d->memory_bytes) TD_TRY(td_buf_printf(b, ",\"memory_bytes\":%" PRIu64, d->memory_bytes));
    TD_TRY(add_bits(b, "numa_nodes", d->numa_nodes));
    TD_TRY(add_bits(b, "peers", d->peers));
    return td_buf_str(b, "}");
}

static td_status print_inventory(const struct td_nvml_list *l, struct td_buf *b) {
    TD_TRY(td_buf_printf(b, "{\"inventory\":{\"count\":%" PRIu32, l->n));
    TD_TRY(add_text(b, "driver", l->driver));
    TD_TRY(add_text(b, "notes", l->notes));
    TD_TRY(td_buf_str(b, ",\"devices\":["));
    for (uint32_t i = 0; i < l->n; i++) {
        if (i) TD_TRY(td_buf_str(b, ","));
        TD_TRY(add_device(b, &l->device[i]));
    }
    return td_buf_str(b, "]}}\n");
}

static td_status add_processes(struct td_buf *b, const struct td_nvml_sample *s) {
    TD_TRY(td_buf_str(b, ",\"processes\":["));
    for (uint32_t i = 0; i < s->n_processes; i++) {
        const struct td_nvml_process *p = &s->process[i];
        TD_TRY(td_buf_printf(b, "%s{\"pid\":%" PRIu32, i ? "," : "", p->pid));
        if (p->used_bytes) TD_TRY(td_buf_printf(b, ",\"bytes\":%" PRIu64, p->used_bytes));
        TD_TRY(td_buf_str(b, "}"));
    }
    TD_TRY(td_buf_str(b, "]"));
    return s->n_more ? td_buf_printf(b, ",\"more_processes\":%" PRIu32, s->n_more) : TD_OK;
}

static td_status add_sample(struct td_buf *b, const struct td_nvml_device *d,
                            const struct td_nvml_sample *s) {
    TD_TRY(td_buf_str(b, "{\"uuid\":"));
    TD_TRY(td_json_print_string(d->uuid, strlen(d->uuid), b));
    if (s->has_memory) TD_TRY(td_buf_printf(b, ",\"used_bytes\":%" PRIu64, s->used_bytes));
    if (s->has_utilization) {
        TD_TRY(td_buf_printf(b, ",\"utilization\":%" PRIu32, s->utilization));
    }
    if (s->has_power) TD_TRY(td_buf_printf(b, ",\"power_w\":%.1f", s->power_w));
    if (s->has_temperature) {
        TD_TRY(td_buf_printf(b, ",\"temperature_c\":%" PRIu32, s->temperature_c));
    }
    if (s->has_throttle) {
        TD_TRY(td_buf_printf(b, ",\"throttle\":%" PRIu64 ",\"throttled\":%d", s->throttle,
                             (int)s->throttled));
    }
    if (s->has_processes) TD_TRY(add_processes(b, s));
    return td_buf_str(b, "}");
}

static td_status print_samples(const struct td_nvml *n, const struct td_nvml_list *l,
                               struct td_buf *b) {
    const char *comma = "";
    TD_TRY(td_buf_str(b, "{\"samples\":["));
    for (uint32_t i = 0; i < l->n; i++) {
        struct td_nvml_sample s;
        if (l->device[i].health[0]) continue;
        td_nvml_sample(n, &l->device[i], &s);
        TD_TRY(td_buf_str(b, comma));
        TD_TRY(add_sample(b, &l->device[i], &s));
        comma = ",";
    }
    return td_buf_str(b, "]}\n");
}

static td_status say_none(td_status borrow_why) {
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_BYTES);
    const enum td_code code = td_status_code(borrow_why);
    TD_TRY(td_buf_printf(&line, "{\"final\":%s",
                         code == TD_NOT_FOUND || code == TD_UNIMPLEMENTED ? "true" : "false"));
    TD_TRY(add_text(&line, "none", td_status_message(borrow_why)));
    TD_TRY(td_buf_str(&line, "}\n"));
    return td_fs_write_stdout(line.data, line.len);
}

// ---- asked for --------------------------------------------------------------------------------
static volatile sig_atomic_t looks_now;

static void on_look(int signal) {
    (void)signal;
    looks_now = 1;
}

// ---- life ---------------------------------------------------------------------------------------
// Until the next look; errors of the driver are said as they come, so many of them.
static td_status await(struct td_nvml *n, int64_t interval_ns) {
    const struct td_mono until = td_mono_add(td_mono_now(), interval_ns);
    int n_said = 0;
    for (int64_t left_ns; !looks_now && (left_ns = until.ns - td_mono_now().ns) > 0;) {
        left_ns = TD_MIN(left_ns, SLICE_MS * TD_NS_PER_MS);
        char uuid[TD_DEVICE_UUID];
        uint64_t xid = 0;
        TD_AUTO_BUF line;
        td_buf_init(&line, 1024);
        if (n_said == XIDS_MAX) { // a driver that floods is not asked again for a while
            (void)poll(NULL, 0, (int)(left_ns / TD_NS_PER_MS) + 1);
            continue;
        }
        if (!td_nvml_await_xid(n, left_ns, uuid, &xid)) continue;
        n_said++;
        TD_TRY(td_buf_printf(&line, "{\"xid\":%" PRIu64, TD_MIN(xid, (uint64_t)INT32_MAX)));
        TD_TRY(add_text(&line, "uuid", uuid));
        TD_TRY(td_buf_str(&line, "}\n"));
        TD_TRY(td_fs_write_stdout(line.data, line.len));
    }
    return TD_OK;
}

static td_status look(struct td_nvml *n, struct td_buf *said, struct td_buf *line) {
    const struct td_nvml_list *list;
    looks_now = 0;
    TD_TRY(td_nvml_read(n, &list));
    td_buf_clear(line);
    TD_TRY(print_inventory(list, line));
    if (line->len != said->len || memcmp(line->data, said->data, said->len) != 0) {
        TD_TRY(td_fs_write_stdout(line->data, line->len));
        td_buf_clear(said);
        TD_TRY(td_buf_append(said, line->data, line->len));
    }
    td_buf_clear(line);
    TD_TRY(print_samples(n, list, line));
    return td_fs_write_stdout(line->data, line->len);
}

// Until it fails. *out_nvml is the caller's to close, also then.
static td_status follow(int32_t interval_ms, struct td_nvml **out_nvml) {
    TD_AUTO_BUF said, line;
    td_buf_init(&said, LINE_BYTES);
    td_buf_init(&line, LINE_BYTES);
    (void)sigaction(TD_DEVICES_LOOK_SIGNAL, &(struct sigaction){.sa_handler = on_look}, NULL);
    TD_TRY(td_nvml_open(td_fabric_nvml_file(), out_nvml));
    for (;;) {
        TD_TRY(look(*out_nvml, &said, &line));
        TD_TRY(await(*out_nvml, TD_MAX(interval_ms, 1) * TD_NS_PER_MS));
    }
}

int td_worker_devices(int32_t interval_ms) {
    TD_AUTO(td_nvml) *n = NULL; // closed once the reason is said: closing may hang
    TD_AUTO_STATUS td_status why = follow(interval_ms, &n);
    td_status unsaid = say_none(why);
    if (!unsaid) return TD_EXIT_DONE;
    td_status_log(TD_LOG_ERROR, unsaid, "devices");
    return TD_EXIT_BUG;
}
