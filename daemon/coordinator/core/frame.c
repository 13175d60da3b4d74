// See the header.

#include "daemon/coordinator/core/frame.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/leases.h"
#include "daemon/coordinator/core/nodes/node_admin.h"
#include "daemon/coordinator/core/queue/queue.h"

enum { RECORD_MAX = 4 << 20 };

void td_core_enter(struct td_core *core, struct td_now now) {
    struct td_mono before = core->now.mono;
    core->now = now;
    if (core->started) td_leases_after_stall(core, before);
}

static void save_job(struct td_core *core, struct td_job *j, struct td_buf *body) {
    j->touched = false;
    td_queue_insert(core, j);
    j->version++;
    td_buf_clear(body);
    TD_CHECK(!td_job_encode(j, body));
    td_core_record(core, TD_RECORD_JOB, j->id, td_buf_cstr(body));
    struct td_action *a = td_core_act(core, TD_ACTION_EVENT);
    memcpy(a->job, j->id, sizeof a->job);
}

static void save_attempt(struct td_core *core, const struct td_job *j, struct td_attempt *a,
                         struct td_buf *body) {
    char key[64];
    a->touched = false;
    td_buf_clear(body);
    TD_CHECK(!td_attempt_encode(a, body));
    snprintf(key, sizeof key, "%s/a%u", j->id, a->number);
    td_core_record(core, TD_RECORD_ATTEMPT, key, td_buf_cstr(body));
}

static void save_marks(struct td_core *core) {
    struct td_host *n;
    for (size_t cursor = 0; core->marks_changed && (n = td_map_each(core->nodes, &cursor));) {
        if (!n->gpus.marks.unsaved) continue;
        td_node_admin_save(core, n);
        (void)td_host_devices_take_gpus(&n->devices, &n->gpus); // why none gets one is another
    }
    core->marks_changed = false;
}

void td_core_leave(struct td_core *core) {
    TD_AUTO_BUF body;
    td_buf_init(&body, RECORD_MAX);
    for (uint32_t i = 0; i < core->n_listed; i++) {
        struct td_job *j = core->listed[i];
        j->listed = false;
        for (uint32_t k = 1; k <= j->n_attempts; k++) {
            struct td_attempt *a = td_job_attempt(j, k);
            if (a->touched) save_attempt(core, j, a, &body);
        }
        if (j->touched) save_job(core, j, &body);
    }
    core->n_listed = 0;
    save_marks(core);
}
