// See the header.

#include "daemon/coordinator/core/catalog/attempt_over.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

static void sweep(struct td_core *core, const struct td_job *j, const struct td_attempt *a) {
    if (!a->stream) return; // its files are the node's
    struct td_action *action = td_core_act(core, TD_ACTION_SWEEP);
    memcpy(action->job, j->id, sizeof action->job);
    action->token = a->number;
}

void td_catalog_on_gone(struct td_core *core, struct td_job *j, const struct td_attempt *a,
                        const char *path) {
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        const struct td_checkpoint *c = j->checkpoints[i];
        if (c->committed || c->attempt != a->number || strcmp(c->path, path) != 0) continue;
        char prefix[160];
        snprintf(prefix, sizeof prefix, "%s/%s/", j->id, path);
        td_job_note(j,
                    "checkpoint %s is lost: it was removed on its node before the coordinator had "
                    "a whole copy",
                    path);
        td_catalog_remove(core, j, i);
        td_catalog_drop_shards(core, prefix);
    }
}

// node: NULL: of all parts.
static void drop_pending(struct td_core *core, struct td_job *j, const struct td_attempt *a,
                         const char *node) {
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        const struct td_checkpoint *c = j->checkpoints[i];
        if (c->committed || c->attempt != a->number) continue;
        if (node && strcmp(c->node, node) != 0) continue;
        td_job_note(j,
                    "checkpoint %s is lost: attempt %u was given up before the coordinator had a "
                    "whole copy",
                    c->path, a->number);
        td_catalog_remove(core, j, i);
    }
}

void td_catalog_part_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          const struct td_attempt_part *part) {
    drop_pending(core, j, a, part->node);
    (void)td_catalog_settle(core, j, a); // its attempt lives, which keeps what is older
}

void td_catalog_attempt_over(struct td_core *core, struct td_job *j, const struct td_attempt *a) {
    drop_pending(core, j, a, NULL);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/a%u/", j->id, a->number);
    td_catalog_drop_shards(core, prefix);
    sweep(core, j, a);
    td_retain(core, j);
    td_reconcile_due(core, j);
}
