// See the header.

#include "daemon/coordinator/core/nodes/node_gpus.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/device_errors.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/xids.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

// ---- errors -------------------------------------------------------------------------------------
// True: the part has the device, or an instance of it. An instance is blamed for what excludes its
// whole GPU alone: whose program had another error is not known.
static bool is_hit(const struct td_host_gpus *g, const struct td_attempt_part *p, const char *uuid,
                   struct td_xid x) {
    char own[TD_DEVICE_UUID];
    for (uint32_t i = 0; p->devices && td_device_list_at(p->devices, i, own); i++) {
        if (strcmp(own, uuid) == 0) return true;
        const Traind__V1__Gpu *d = td_host_gpus_find(g, own);
        if (d && x.effect == TD_XID_EXCLUDES && strcmp(d->parent, uuid) == 0) return true;
    }
    return false;
}

static void hit_jobs(struct td_core *core, const struct td_host *n, const char *uuid,
                     struct td_xid x) {
    for (uint32_t i = 0; i < core->n_live; i++) {
        struct td_job *j = core->live[i];
        struct td_attempt *a = td_job_live(j);
        struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || p->state == TD_ATTEMPT_FENCED || !is_hit(&n->gpus, p, uuid, x)) continue;
        td_device_errors_hit(core, j, a, p, uuid, x.number);
    }
}

static void exclude(struct td_core *core, struct td_host *n, const char *uuid, struct td_xid x) {
    struct td_gpu_mark made = {.xid = x.number, .time_ns = core->now.real.ns};
    snprintf(made.uuid, sizeof made.uuid, "%s", uuid);
    td_host_gpus_say_xid(x.number, made.reason, sizeof made.reason);
    if (!td_gpu_marks_exclude(&n->gpus.marks, &made)) return;
    td_device_errors_excluded(core, n, uuid, made.reason);
}

void td_node_gpus_take(struct td_core *core, struct td_host *n, const Traind__V1__GpuList *m) {
    const bool is_other = td_host_gpus_take(&n->gpus, m);
    if (is_other && n->gpus.marks.n) core->queue_dirty = true;
    if (td_host_devices_take_gpus(&n->devices, &n->gpus)) core->queue_dirty = true;
    const Traind__V1__GpuList *list = n->gpus.list;
    for (size_t i = 0; i < list->n_errors; i++) {
        const Traind__V1__GpuError *e = list->errors[i];
        const struct td_xid x = td_xid_get(e->xid);
        if (!td_gpu_marks_see(&n->gpus.marks, n->daemon, e->number)) continue;
        core->marks_changed = true;
        if (!td_host_gpus_has(&n->gpus, e->uuid)) continue;
        if (x.effect == TD_XID_EXCLUDES) exclude(core, n, e->uuid, x);
        hit_jobs(core, n, e->uuid, x);
    }
}

// ---- operators ----------------------------------------------------------------------------------
struct found { // by the beginning of a uuid
    const char *said;
    size_t len;
    const char *uuid; // NULL: none
    bool is_whole;    // it is that uuid
    struct td_clip_list all;
    char text[256];
    uint32_t n;
};

static void offer(struct found *f, const char *uuid) {
    if (f->is_whole || strncmp(uuid, f->said, f->len) != 0 || !uuid[0]) return;
    if (f->uuid && strcmp(f->uuid, uuid) == 0) return;
    f->is_whole = !uuid[f->len];
    f->uuid = uuid;
    f->n++;
    td_clip_list_add(&f->all, "%s", uuid);
}

static td_status find(const struct td_host *n, const char *said, char out_uuid[TD_DEVICE_UUID]) {
    const Traind__V1__GpuList *list = n->gpus.list;
    struct found f = {.said = said, .len = strlen(said)};
    td_clip_list_init(&f.all, f.text, sizeof f.text, ", ");
    for (size_t i = 0; said[0] && list && i < list->n_gpus; i++) {
        offer(&f, list->gpus[i]->uuid);
        offer(&f, list->gpus[i]->parent);
    }
    for (uint32_t i = 0; said[0] && i < n->gpus.marks.n; i++) {
        const char *uuid = n->gpus.marks.mark[i].uuid;
        if (!td_host_gpus_has(&n->gpus, uuid)) offer(&f, uuid);
    }
    if (!f.n) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND,
                    "node %s has no GPU whose uuid is, or begins with, '%.80s'; `trainctl node "
                    "show %s` lists them",
                    n->name, said, n->name),
            "DEVICE_NOT_FOUND");
    }
    if (f.n > 1 && !f.is_whole) {
        return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                             "%u GPUs of node %s have uuids that begin with "
                                             "'%.80s'; give more of one: %s",
                                             f.n, n->name, said, f.text),
                                     "DEVICE_AMBIGUOUS");
    }
    snprintf(out_uuid, TD_DEVICE_UUID, "%s", f.uuid);
    return TD_OK;
}

td_status td_node_gpus_disable(struct td_core *core, struct td_host *n, const char *device,
                               const char *by, const char *reason) {
    struct td_gpu_mark made = {.time_ns = core->now.real.ns};
    TD_TRY(find(n, device, made.uuid));
    (void)td_clip(made.by, sizeof made.by, "%s", by);
    (void)td_clip(made.reason, sizeof made.reason, "%s",
                  reason[0] ? reason : "an operator took it out of use");
    td_utf8_scrub(made.by);
    td_utf8_scrub(made.reason);
    (void)td_gpu_marks_exclude(&n->gpus.marks, &made);
    td_device_errors_excluded(core, n, made.uuid, made.reason);
    return TD_OK;
}

td_status td_node_gpus_enable(struct td_core *core, struct td_host *n, const char *device) {
    char uuid[TD_DEVICE_UUID];
    TD_TRY(find(n, device, uuid));
    const struct td_gpu_mark *mark = td_host_gpus_mark(&n->gpus, uuid);
    if (mark && strcmp(mark->uuid, uuid) != 0) {
        return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                             "%s is an instance of GPU %s, which is excluded: "
                                             "enable that one",
                                             uuid, mark->uuid),
                                     "DEVICE_IS_PART");
    }
    if (!td_gpu_marks_clear(&n->gpus.marks, uuid)) return TD_OK;
    td_core_log(core, "GPU is enabled node=%s uuid=%s", n->name, uuid);
    core->marks_changed = true;
    core->queue_dirty = true;
    return TD_OK;
}
