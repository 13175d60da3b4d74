// See the header.

#include "daemon/coordinator/core/attempt/device_errors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/xids.h"
#include "lib/base/clip.h"

enum { XID_TEXT = 200, MESSAGE_BYTES = 2048 };

static const int64_t near_ns = 60 * TD_NS_PER_S; // of an error that leaves the device in use

static enum td_xid_effect effect_of(const struct td_attempt_part *p) {
    return p->xid ? td_xid_get(p->xid).effect : TD_XID_NOTED;
}

static const char *name_of(const struct td_core *core, const char *node) {
    const struct td_host *n = td_nodes_find(core, node);
    return n ? n->name : node;
}

// ---- an error -----------------------------------------------------------------------------------
static void note(const struct td_core *core, struct td_job *j, const struct td_attempt_part *p,
                 const char *uuid, struct td_xid x) {
    char text[XID_TEXT];
    const char *node = name_of(core, p->node);
    td_host_gpus_say_xid(x.number, text, sizeof text);
    if (x.effect == TD_XID_EXCLUDES) {
        td_job_note(j,
                    "GPU %s of node %s reports %s: no rank gets it until `trainctl node device "
                    "enable %s %s`; before that, %s",
                    uuid, node, text, node, uuid, td_xid_advice(x.effect));
    } else {
        td_job_note(j, "GPU %s of node %s reports %s: %s", uuid, node, text,
                    td_xid_advice(x.effect));
    }
}

void td_device_errors_hit(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          struct td_attempt_part *p, const char *uuid, uint32_t xid) {
    const struct td_xid x = td_xid_get(xid);
    if (a->stop && x.effect == TD_XID_USER) return; // a program that is ended has that, too
    note(core, j, p, uuid, x);
    td_core_touch(core, j);
    if (x.effect == TD_XID_NOTED || x.effect < effect_of(p)) return;
    p->xid = xid;
    p->xid_at = core->now.mono;
    snprintf(p->xid_device, sizeof p->xid_device, "%s", uuid);
    td_core_save_attempt(core, j, a);
}

// ---- a failure ----------------------------------------------------------------------------------
static bool explains(const struct td_core *core, const struct td_attempt_part *p) {
    const enum td_xid_effect effect = effect_of(p);
    if (effect == TD_XID_EXCLUDES) return true;
    return effect != TD_XID_NOTED && p->xid_at.ns && core->now.mono.ns - p->xid_at.ns <= near_ns;
}

static const struct td_attempt_part *find_worst(const struct td_core *core,
                                                const struct td_attempt *a) {
    const struct td_attempt_part *worst = NULL;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_attempt_part *p = &a->parts[i];
        if (!explains(core, p)) continue;
        if (!worst || effect_of(p) > effect_of(worst)) worst = p;
    }
    return worst;
}

// A rank that lost its device ends with an error of its own, by a signal, or makes no steps; those
// on other nodes come to no sum. Everything else was known better.
static bool may_be_device(enum td_class cls) {
    return cls == TD_CLASS_USER_CODE || cls == TD_CLASS_INTERNAL || cls == TD_CLASS_KILLED ||
           cls == TD_CLASS_COLLECTIVE || cls == TD_CLASS_STUCK;
}

// A command that asks for another attempt gets one.
static bool may_be_user_code(const struct td_failure *f) {
    return f->cls == TD_CLASS_INTERNAL && f->code != TD_UNAVAILABLE;
}

void td_device_errors_judge(struct td_core *core, struct td_attempt *a) {
    struct td_failure *f = &a->failure;
    const struct td_attempt_part *p = f->set ? find_worst(core, a) : NULL;
    char text[XID_TEXT], message[MESSAGE_BYTES];
    if (!p) return;
    const bool is_device = effect_of(p) != TD_XID_USER;
    if (is_device ? !may_be_device(f->cls) : !may_be_user_code(f)) return;
    f->cls = is_device ? TD_CLASS_DEVICE : TD_CLASS_USER_CODE;
    f->code = is_device ? TD_UNAVAILABLE : TD_FAILED_PRECONDITION;
    f->secondary = false;
    (void)td_clip(message, sizeof message, "GPU %s of node %s reported %s; %s", p->xid_device,
                  name_of(core, p->node), td_host_gpus_say_xid(p->xid, text, sizeof text),
                  f->message);
    free(f->message);
    f->message = td_core_dup(message);
}

bool td_device_errors_may_come(const struct td_core *core, const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_host *n = td_nodes_find(core, a->parts[i].node);
        const char *list = a->parts[i].devices;
        char uuid[TD_DEVICE_UUID];
        if (!n || !list || !td_device_list_at(list, 0, uuid)) continue;
        if (td_host_gpus_has(&n->gpus, uuid)) return true;
    }
    return false;
}

// ---- what is held against a device --------------------------------------------------------------
void td_device_errors_excluded(struct td_core *core, const struct td_host *n, const char *uuid,
                               const char *reason) {
    td_core_log(core, "GPU is excluded node=%s uuid=%s why=\"%s\"", n->name, uuid, reason);
    core->marks_changed = true;
    core->queue_dirty = true;
}

// The one device that is meant: that of the error, else that of the rank. Of a rank with several it
// is not known which.
static const char *find_device(const struct td_core *core, const struct td_attempt *a,
                               const struct td_attempt_part **out_part, char uuid[TD_DEVICE_UUID]) {
    const int32_t rank = a->failure.rank;
    const struct td_attempt_part *p = find_worst(core, a);
    if (p && effect_of(p) != TD_XID_USER) {
        *out_part = p;
        return p->xid_device;
    }
    if (rank < 0 || (uint32_t)rank >= a->n_ranks) return NULL;
    p = td_attempt_part_of(a, (uint32_t)rank);
    if (!p || !p->devices || td_device_list_count(p->devices) != p->n_ranks) return NULL;
    *out_part = p;
    return td_device_list_at(p->devices, (uint32_t)rank - p->first_rank, uuid) ? uuid : NULL;
}

void td_device_errors_blame(struct td_core *core, struct td_job *j, const struct td_attempt *a) {
    const struct td_attempt_part *p = NULL;
    char room[TD_DEVICE_UUID];
    const char *uuid = find_device(core, a, &p, room);
    struct td_host *n = uuid ? td_nodes_find(core, p->node) : NULL;
    if (!n) return;
    const bool is_new = td_gpu_marks_blame(&n->gpus.marks, uuid, j->id, j->owner ? j->owner : "",
                                           core->now.real.ns);
    core->marks_changed |= n->gpus.marks.unsaved;
    if (!is_new) return;
    const char *why = td_host_gpus_excluded(&n->gpus, uuid);
    td_device_errors_excluded(core, n, uuid, why);
    td_job_note(j, "no rank gets GPU %s of node %s until `trainctl node device enable %s %s`: %s",
                uuid, n->name, n->name, uuid, why);
}
