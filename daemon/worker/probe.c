// probe: which accelerators work here, or, with --plugins, which plugins a spec can name
// (probe_plugins.h). One JSON object a line; one that does not load says why,
// which is an answer and not a failure. The reference comes first, then whatever is in the plugin
// directory; nothing is opened beyond the probe slot, so no memory is taken and no device is woken.
// For people and scripts, in a process of its own, because a vendor library may crash.

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "fabric/plugins.h"
#include "daemon/worker/probe_plugins.h"
#include "daemon/worker/worker.h"
#include "fabric/configure/devices.h"
#include "lib/base/cpu_level.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "traind/accelerator.h"

// devices: the list of those that have names.
static td_status probe_one(struct td_registry *r, const char *name,
                           struct td_accel_facts *out_facts, struct td_buf *devices) {
    const struct td_plugin_desc *desc;
    TD_TRY(td_registry_find(r, TD_PLUGIN_ACCELERATOR, name, &desc));
    const struct td_accelerator_ops *ops = desc->ops;
    *out_facts = (struct td_accel_facts){.struct_bytes = sizeof *out_facts};
    TD_TRY(ops->probe(out_facts));
    return td_devices_print(name, ops, out_facts, devices);
}

static td_status print_text(struct td_buf *b, const char *key, const char *text) {
    TD_TRY(td_buf_printf(b, ",\"%s\":", key));
    return td_json_print_string(text, strlen(text), b);
}

enum { LINE_MAX_BYTES = 128 << 10 };

static td_status print_one(struct td_registry *r, const char *name) {
    struct td_accel_facts facts;
    TD_AUTO_BUF b;
    TD_AUTO_BUF devices;
    td_buf_init(&b, LINE_MAX_BYTES);
    td_buf_init(&devices, LINE_MAX_BYTES / 2);
    td_status probed = probe_one(r, name, &facts, &devices);
    TD_AUTO_STATUS td_status owned = probed;
    TD_TRY(td_buf_printf(&b, "{\"accelerator\":\"%s\",\"devices\":%d", name,
                         owned ? 0 : facts.n_devices));
    if (owned) {
        TD_TRY(print_text(&b, "error", td_status_message(owned)));
    } else {
        TD_TRY(print_text(&b, "device", facts.device_name));
        TD_TRY(print_text(&b, "build", facts.build));
        TD_TRY(td_buf_printf(&b, ",\"memory_bytes\":%llu", (unsigned long long)facts.memory_bytes));
        TD_TRY(td_buf_printf(&b, ",\"device_list\":%s", td_buf_cstr(&devices)));
    }
    TD_TRY(td_buf_str(&b, "}\n"));
    return td_fs_write_stdout(b.data, b.len);
}

static td_status probe_all(const struct td_rank_args *args) {
    char dir[4096], name[32];
    TD_AUTO(td_registry) *r = NULL;
    TD_TRY(td_plugin_dir(dir, sizeof dir));
    TD_TRY(td_registry_create(dir, &r));
    TD_TRY(td_built_in_plugins(r));
    if (args->plugins) return td_probe_plugins(r, dir);
    TD_TRY(print_one(r, "reference"));
    DIR *d = opendir(dir);
    td_status s = TD_OK;
    for (struct dirent *e; !s && d && (e = readdir(d));) {
        if (sscanf(e->d_name, "accelerator-%31[a-z0-9_].so", name) == 1) s = print_one(r, name);
    }
    if (d) closedir(d);
    return s;
}

static td_status hold_level(const struct td_rank_args *args) {
    enum td_cpu_level level, most = td_cpu_level_of_machine(NULL);
    TD_TRY(td_cpu_level_read(args->cpu_level_from, args->cpu_level, most, &level));
    return td_cpu_level_hold(level);
}

int td_worker_probe(const struct td_rank_args *args) {
    td_status s = hold_level(args);
    if (!s) s = probe_all(args);
    int code = !s                                        ? TD_EXIT_DONE
               : td_status_class(s) == TD_CLASS_BAD_SPEC ? TD_EXIT_BAD_SPEC
                                                         : TD_EXIT_BUG;
    td_status_log(TD_LOG_ERROR, s, "probe");
    return code;
}
