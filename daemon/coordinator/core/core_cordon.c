// What operators ask of the core about a node: that it gets no new attempts, that what runs there
// goes elsewhere, and that this is over; its labels; its GPUs. Each is one input as core.c has it.
//
// A node is named by its id, or by its name. Several may have one name, as a machine that was
// installed again has another id. Then the one that is connected is meant. Where none is, the id
// has to be given.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/frame.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/drain.h"
#include "daemon/coordinator/core/nodes/node_admin.h"
#include "daemon/coordinator/core/nodes/node_gpus.h"
#include "daemon/coordinator/core/nodes/node_labels.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

// ---- which node ---------------------------------------------------------------------------------
static td_status not_found(const struct td_core *core, const char *name) {
    struct td_nearest near;
    const struct td_host *n;
    td_nearest_init(&near, name);
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        td_nearest_offer(&near, n->name);
        td_nearest_offer(&near, n->id);
    }
    return td_status_with_reason(
        td_fail(TD_NOT_FOUND,
                "no node has the id or the name '%.80s'%s%s%s; `trainctl node list` shows them",
                name, near.best ? ", did you mean " : "", near.best ? near.best : "",
                near.best ? "?" : ""),
        "NODE_NOT_FOUND");
}

static td_status ambiguous(const struct td_core *core, const char *name, uint32_t n_named) {
    char text[256];
    struct td_clip_list ids;
    const struct td_host *n;
    td_clip_list_init(&ids, text, sizeof text, ", ");
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (strcmp(n->name, name) == 0) td_clip_list_add(&ids, "%s", n->id);
    }
    return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                         "%u nodes are called '%.80s'; give the id of one: %s",
                                         n_named, name, text),
                                 "NODE_AMBIGUOUS");
}

static td_status find(const struct td_core *core, const char *name, struct td_host **out_node) {
    struct td_host *found = td_nodes_find(core, name), *named = NULL, *connected = NULL;
    struct td_host *n;
    uint32_t n_named = 0, n_connected = 0;
    for (size_t cursor = 0; !found && (n = td_map_each(core->nodes, &cursor));) {
        if (strcmp(n->name, name) != 0) continue;
        named = n;
        n_named++;
        n_connected += td_host_connected(n);
        if (td_host_connected(n)) connected = n;
    }
    if (n_named > 1 && n_connected != 1) return ambiguous(core, name, n_named);
    if (!found) found = n_named > 1 ? connected : named;
    if (!found) return not_found(core, name);
    if (found->shown_only) {
        return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                             "node %s has never registered, and gets no jobs: %s",
                                             found->name, found->unfit),
                                     "NODE_NEVER_REGISTERED");
    }
    *out_node = found;
    return TD_OK;
}

// ---- verbs --------------------------------------------------------------------------------------
static void keep_text(const char *from, char *to, size_t bytes) {
    (void)td_clip(to, bytes, "%s", from);
    td_utf8_scrub(to);
}

td_status td_core_cordon(struct td_core *core, struct td_now now,
                         const struct td_core_cordon *request, const struct td_host **out_node) {
    struct td_host *n = NULL;
    td_core_enter(core, now);
    TD_TRY(find(core, request->node, &n));
    struct td_host_cordon *c = &n->cordon;
    if (!c->on) c->epoch = core->next_epoch;
    c->on = true;
    if (request->drains && !c->drains) core->n_draining++;
    c->drains |= request->drains;
    c->time_ns = now.real.ns;
    keep_text(request->by, c->by, sizeof c->by);
    if (request->reason[0]) keep_text(request->reason, c->reason, sizeof c->reason);
    td_node_admin_save(core, n);
    td_core_log(core, "node %s node=%s by=%s why=\"%s\"",
                request->drains ? "is drained" : "is cordoned", n->name, c->by, c->reason);
    core->queue_dirty = true; // what was kept there for jobs that wait
    td_drain_look(core);
    td_core_leave(core);
    *out_node = n;
    return TD_OK;
}

td_status td_core_uncordon(struct td_core *core, struct td_now now, const char *node,
                           const struct td_host **out_node) {
    struct td_host *n = NULL;
    td_core_enter(core, now);
    TD_TRY(find(core, node, &n));
    *out_node = n;
    if (!n->cordon.on) return TD_OK;
    core->n_draining -= n->cordon.drains;
    memset(&n->cordon, 0, sizeof n->cordon);
    td_node_admin_save(core, n);
    td_core_log(core, "node is uncordoned node=%s", n->name);
    core->queue_dirty = true;
    td_core_leave(core);
    return TD_OK;
}

td_status td_core_label_node(struct td_core *core, struct td_now now, const char *node,
                             char *const *changes, size_t n_changes,
                             const struct td_host **out_node) {
    struct td_host *n = NULL;
    td_core_enter(core, now);
    TD_TRY(find(core, node, &n));
    TD_TRY(td_node_labels_change(core, n, changes, n_changes));
    td_core_leave(core);
    *out_node = n;
    return TD_OK;
}

td_status td_core_disable_device(struct td_core *core, struct td_now now,
                                 const struct td_core_device *request,
                                 const struct td_host **out_node) {
    struct td_host *n = NULL;
    td_core_enter(core, now);
    TD_TRY(find(core, request->node, &n));
    TD_TRY(td_node_gpus_disable(core, n, request->device, request->by, request->reason));
    td_core_leave(core);
    *out_node = n;
    return TD_OK;
}

td_status td_core_enable_device(struct td_core *core, struct td_now now, const char *node,
                                const char *device, const struct td_host **out_node) {
    struct td_host *n = NULL;
    td_core_enter(core, now);
    TD_TRY(find(core, node, &n));
    TD_TRY(td_node_gpus_enable(core, n, device));
    td_core_leave(core);
    *out_node = n;
    return TD_OK;
}
