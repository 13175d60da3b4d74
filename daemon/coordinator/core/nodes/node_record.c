// See the header.

#include "daemon/coordinator/core/nodes/node_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/base/buf.h"

enum { NODE_BODY_MAX = 4 << 20 };

// Texts of a row, in their order.
#define TEXT(field)                                                                                \
    { #field, offsetof(struct td_host, field), sizeof(((struct td_host *)0)->field) }
static const struct {
    const char *key;
    size_t at, bytes;
} texts[] = {TEXT(boot_id),   TEXT(name),           TEXT(version), TEXT(accelerators),
             TEXT(cpu_level), TEXT(cpu_level_held), TEXT(plugins), TEXT(collective_address),
             TEXT(holder)};
#undef TEXT

static td_status encode(const struct td_host *n, struct td_buf *out) {
    // As signed: a record whose integers pass INT64_MAX would not load again.
    TD_TRY(td_buf_printf(out, "{\"cores\":%u,\"slots\":%u,\"memory_bytes\":%" PRId64, n->cores,
                         n->slots, (int64_t)n->memory_bytes));
    TD_TRY(td_buf_printf(out, ",\"launcher_major\":%u,\"embedded\":%d", n->launcher_major,
                         n->embedded));
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        const char *text = (const char *)n + texts[i].at;
        TD_TRY(td_buf_printf(out, ",\"%s\":", texts[i].key));
        TD_TRY(td_json_print_string(text, strlen(text), out));
    }
    TD_TRY(td_buf_str(out, ",\"devices\":"));
    TD_TRY(td_host_devices_encode(&n->devices, out));
    TD_TRY(td_buf_printf(out, ",\"runs_commands\":%d,\"runs_programs\":%d",
                         td_job_kind_is_in(n->kinds, TD_KIND_COMMAND),
                         td_job_kind_is_in(n->kinds, TD_KIND_PROGRAM)));
    return td_buf_printf(out, ",\"gives_devices\":%d,\"seen_ns\":%" PRId64 "}",
                         !n->devices.withheld, n->seen_ns);
}

void td_node_record_save(struct td_core *core, const struct td_host *n) {
    TD_AUTO_BUF body;
    td_buf_init(&body, NODE_BODY_MAX);
    TD_CHECK(!encode(n, &body));
    td_core_record(core, TD_RECORD_NODE, n->id, td_buf_cstr(&body));
}

td_status td_node_record_load(struct td_core *core, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *v = NULL;
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, node '%s'", key);
    struct td_host *n = td_calloc(1, sizeof *n);
    if (!n) return td_fail_oom();
    snprintf(n->id, sizeof n->id, "%s", key);
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        snprintf((char *)n + texts[i].at, texts[i].bytes, "%s",
                 td_json_string(td_json_get(v, texts[i].key), ""));
    }
    n->cores = (uint32_t)td_json_int(td_json_get(v, "cores"), 1);
    n->slots = (uint32_t)td_json_int(td_json_get(v, "slots"), 1);
    n->memory_bytes = (uint64_t)td_json_int(td_json_get(v, "memory_bytes"), 0);
    n->launcher_major = (uint32_t)td_json_int(td_json_get(v, "launcher_major"), 0);
    n->seen_ns = td_json_int(td_json_get(v, "seen_ns"), 0);
    n->embedded = td_json_int(td_json_get(v, "embedded"), 0) != 0;
    td_host_set_kinds(n, td_json_int(td_json_get(v, "runs_commands"), 0) != 0,
                      td_json_int(td_json_get(v, "runs_programs"), 0) != 0);
    td_host_devices_decode(&n->devices, td_json_get(v, "devices"));
    n->devices.withheld = td_json_int(td_json_get(v, "gives_devices"), 1) == 0;
    td_status s = td_map_put(core->nodes, key, n, NULL);
    if (s) td_host_destroy(n);
    return s;
}
