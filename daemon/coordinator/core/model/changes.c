// See the header. A job with something to save is listed once; frame.c goes through the list.

#include "daemon/coordinator/core/model/changes.h"

#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"

struct td_job *td_core_job(const struct td_core *core, const char *id) {
    return id ? td_map_get(core->jobs, id) : NULL;
}

void td_core_wake_at(struct td_core *core, struct td_mono t) {
    if (t.ns < core->wake.ns) core->wake = t;
}

static void list(struct td_core *core, struct td_job *j) {
    if (j->listed) return;
    if (core->n_listed == core->cap_listed) {
        core->cap_listed = core->cap_listed ? 2 * core->cap_listed : 64;
        core->listed =
            td_core_must(td_realloc(core->listed, core->cap_listed * sizeof(struct td_job *)));
    }
    j->listed = true;
    core->listed[core->n_listed++] = j;
}

void td_core_touch(struct td_core *core, struct td_job *j) {
    list(core, j);
    j->touched = true;
}

void td_core_save_attempt(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    list(core, j);
    a->touched = true;
}

void td_core_progress(struct td_core *core, const struct td_job *j) {
    struct td_action *a = td_core_act(core, TD_ACTION_PROGRESS);
    memcpy(a->job, j->id, sizeof a->job);
}
