// See the header.

#include "daemon/coordinator/core/nodes/node_admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/base/buf.h"

enum { ADMIN_BODY_MAX = 1 << 20 };

bool td_node_admin_is_set(const struct td_host *n) {
    return td_node_admin_holds(n) || td_gpu_marks_any(&n->gpus.marks);
}

bool td_node_admin_holds(const struct td_host *n) {
    return n->cordon.on || n->labels || n->gpus.marks.n;
}

// ---- the cordon ---------------------------------------------------------------------------------
static td_status put_cordon(const struct td_host_cordon *c, struct td_buf *out) {
    TD_TRY(td_buf_printf(
        out, "\"cordon\":{\"time_ns\":%" PRId64 ",\"epoch\":%" PRId64 ",\"drains\":%d,\"by\":",
        c->time_ns, (int64_t)c->epoch, c->drains));
    TD_TRY(td_json_print_string(c->by, strlen(c->by), out));
    TD_TRY(td_buf_str(out, ",\"reason\":"));
    TD_TRY(td_json_print_string(c->reason, strlen(c->reason), out));
    return td_buf_str(out, "}");
}

static void get_cordon(struct td_core *core, const struct td_json *v, struct td_host_cordon *c) {
    if (!v) return;
    *c = (struct td_host_cordon){.on = true,
                                 .drains = td_json_int(td_json_get(v, "drains"), 0) != 0,
                                 .time_ns = td_json_int(td_json_get(v, "time_ns"), 0),
                                 .epoch = (uint64_t)td_json_int(td_json_get(v, "epoch"), 0)};
    snprintf(c->by, sizeof c->by, "%s", td_json_string(td_json_get(v, "by"), ""));
    snprintf(c->reason, sizeof c->reason, "%s", td_json_string(td_json_get(v, "reason"), ""));
    core->n_draining += c->drains;
}

// ---- the row ------------------------------------------------------------------------------------
static td_status encode(const struct td_host *n, struct td_buf *out) {
    const char *comma = "";
    TD_TRY(td_buf_str(out, "{"));
    if (n->cordon.on) {
        TD_TRY(put_cordon(&n->cordon, out));
        comma = ",";
    }
    if (n->labels) {
        TD_TRY(td_buf_printf(out, "%s\"labels\":", comma));
        TD_TRY(td_json_print_string(n->labels, strlen(n->labels), out));
        comma = ",";
    }
    if (td_gpu_marks_any(&n->gpus.marks)) {
        TD_TRY(td_buf_printf(out, "%s\"gpus\":", comma));
        TD_TRY(td_gpu_marks_encode(&n->gpus.marks, out));
    }
    return td_buf_str(out, "}");
}

void td_node_admin_save(struct td_core *core, struct td_host *n) {
    TD_AUTO_BUF body;
    td_buf_init(&body, ADMIN_BODY_MAX);
    TD_CHECK(!encode(n, &body));
    td_core_record(core, TD_RECORD_NODE_ADMIN, n->id,
                   td_node_admin_is_set(n) ? td_buf_cstr(&body) : NULL);
    n->gpus.marks.unsaved = false;
}

td_status td_node_admin_load(struct td_core *core, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    struct td_host *n = td_nodes_find(core, key);
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, node_admin '%s'", key);
    const char *labels = td_json_string(td_json_get(v, "labels"), "");
    if (n) get_cordon(core, td_json_get(v, "cordon"), &n->cordon);
    if (n && labels[0]) n->labels = td_core_dup(labels);
    if (n) td_gpu_marks_decode(&n->gpus.marks, td_json_get(v, "gpus"));
    return TD_OK;
}
