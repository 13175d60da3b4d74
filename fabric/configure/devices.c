// See the header.

#include "fabric/configure/devices.h"

#include <inttypes.h>
#include <string.h>

#include "engine/train/rank/plugins.h"
#include "lib/attempt/devices.h"
#include "lib/base/base.h"
#include "lib/base/clip.h"
#include "lib/base/json.h"
#include "lib/base/utf8.h"
#include "lib/plugin/registry.h"

static td_status blame(const char *accelerator, const char *fmt, int32_t i) {
    td_status s = td_fail(TD_FAILED_PRECONDITION, fmt, i);
    return td_status_context(td_status_with_class(s, TD_CLASS_USER_CODE), "accelerator '%s'",
                             accelerator);
}

// Of the host, which is no device that a rank has for itself: 0, and out_is_host.
static td_status count(const char *accelerator, const struct td_accelerator_ops *ops,
                       const struct td_accel_facts *facts, int32_t *out_n, bool *out_is_host) {
    struct td_device_info first = {.struct_bytes = sizeof first, .is_host = !ops->device_at};
    if (ops->device_at && facts->n_devices > 0) {
        TD_TRY_CTX(ops->device_at(0, &first), "accelerator '%s'", accelerator);
    }
    *out_is_host = first.is_host;
    *out_n = first.is_host ? 0 : TD_MAX(facts->n_devices, 0);
    if (*out_n <= TD_DEVICES_MAX) return TD_OK;
    return blame(accelerator, "it has %" PRId32 " devices here, 64 at most are served", *out_n);
}

static td_status read_one(const char *accelerator, const struct td_accelerator_ops *ops, int32_t i,
                          struct td_device_info *out_info) {
    struct td_device_info info = {.struct_bytes = sizeof info};
    TD_TRY_CTX(ops->device_at(i, &info), "accelerator '%s'", accelerator);
    bool ends = memchr(info.uuid, 0, sizeof info.uuid) && memchr(info.name, 0, sizeof info.name);
    if (!ends || !td_device_uuid_ok(info.uuid)) {
        return blame(accelerator,
                     "the uuid of its device %" PRId32 " must have 1 to 63 letters, digits, '-', "
                     "'_', '.' and ':'; correct the plugin",
                     i);
    }
    *out_info = info;
    return TD_OK;
}

// Device i; no other before it has its uuid.
static td_status read_next(const char *accelerator, const struct td_accelerator_ops *ops, int32_t i,
                           struct td_device_info *out_info) {
    struct td_device_info other;
    TD_TRY(read_one(accelerator, ops, i, out_info));
    for (int32_t k = 0; k < i; k++) {
        TD_TRY(read_one(accelerator, ops, k, &other));
        if (strcmp(other.uuid, out_info->uuid) == 0) {
            return blame(accelerator,
                         "its device %" PRId32 " has the uuid of another; correct the plugin", i);
        }
    }
    return TD_OK;
}

td_status td_devices_find(const char *accelerator, const struct td_accelerator_ops *ops,
                          const struct td_accel_facts *facts, const char *uuid,
                          int32_t *out_index) {
    char known[512] = "";
    struct td_clip_list list;
    struct td_device_info info;
    int32_t n;
    bool is_host;
    TD_TRY(count(accelerator, ops, facts, &n, &is_host));
    td_clip_list_init(&list, known, sizeof known, ", ");
    for (int32_t i = 0; i < n; i++) {
        TD_TRY(read_next(accelerator, ops, i, &info));
        if (strcmp(info.uuid, uuid) == 0) {
            *out_index = i;
            return TD_OK;
        }
        td_clip_list_add(&list, "%s", info.uuid);
    }
    td_status s =
        td_fail(TD_FAILED_PRECONDITION, "accelerator '%s' has no device '%s' here; it has %s",
                accelerator, uuid, n ? known : "none that has a name");
    return td_status_with_class(s, TD_CLASS_DEVICE);
}

// Said by all ranks of the node, not by the one alone that would have none.
static td_status number_of_rank(const struct td_train_config *c, const char *accelerator,
                                int32_t n_devices, int32_t *out_index) {
    if (n_devices && c->local_world_size > n_devices) {
        return td_bad_spec("%" PRId32 " ranks on this machine need a device of '%s' each, it has "
                           "%" PRId32 "; start as many ranks as it has devices",
                           c->local_world_size, accelerator, n_devices);
    }
    *out_index = n_devices ? c->local_rank : 0;
    return TD_OK;
}

td_status td_devices_choose(const struct td_train_config *config, const char *uuid,
                            int32_t *out_index) {
    const char *name = td_rank_accelerator_name(config);
    const struct td_plugin_desc *desc;
    const struct td_accelerator_ops *ops;
    struct td_accel_facts facts = {.struct_bytes = sizeof facts};
    int32_t n;
    bool is_host;
    TD_TRY(td_registry_find(config->registry, TD_PLUGIN_ACCELERATOR, name, &desc));
    ops = desc->ops;
    TD_TRY(ops->probe(&facts));
    if (uuid && *uuid) return td_devices_find(name, ops, &facts, uuid, out_index);
    TD_TRY(count(name, ops, &facts, &n, &is_host));
    return number_of_rank(config, name, n, out_index);
}

td_status td_devices_print(const char *accelerator, const struct td_accelerator_ops *ops,
                           const struct td_accel_facts *facts, struct td_buf *out) {
    struct td_device_info info;
    int32_t n;
    bool is_host;
    TD_TRY(count(accelerator, ops, facts, &n, &is_host));
    if (is_host) return td_buf_str(out, "null");
    TD_TRY(td_buf_str(out, "["));
    for (int32_t i = 0; i < n; i++) {
        TD_TRY(read_next(accelerator, ops, i, &info));
        td_utf8_scrub(info.name);
        TD_TRY(td_buf_printf(out, "%s{\"uuid\":\"%s\",\"name\":", i ? "," : "", info.uuid));
        TD_TRY(td_json_print_string(info.name, strlen(info.name), out));
        TD_TRY(td_buf_printf(out, ",\"memory_bytes\":%" PRId64 "}",
                             (int64_t)TD_MIN(info.memory_bytes, (uint64_t)INT64_MAX)));
    }
    return td_buf_str(out, "]");
}
