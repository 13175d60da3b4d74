// See the header. A request number names the state of the catalog that an answer is about: it
// counts only if nothing was asked since.

#include "daemon/coordinator/core/catalog/reconcile_answer.h"

#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

static const char *find_missing(const Traind__V1__Reconciled *m, const char *path) {
    for (size_t i = 0; i < m->n_missing; i++) {
        if (strcmp(m->missing[i]->path, path) == 0) return m->missing[i]->why;
    }
    return NULL;
}

static void judge(struct td_core *core, struct td_host *n, struct td_job *j,
                  const Traind__V1__Reconciled *m) {
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        struct td_checkpoint *c = j->checkpoints[i];
        if (!td_reconcile_is_here(j, c, n) || c->asked != m->request) continue;
        td_catalog_on_missing(core, j, c, n->name, find_missing(m, c->path));
    }
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        struct td_attempt_part *p = td_attempt_part_on(td_job_attempt(j, i), n->id);
        if (p) p->reconciled = true;
    }
    td_retain(core, j); // of what is missing some would have gone anyhow
}

static bool is_newest(const struct td_job *j, const struct td_host *n, uint64_t request) {
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt_part *p = td_attempt_part_on(td_job_attempt(j, i), n->id);
        if (p && td_retain_is_over(j, i) && p->reconcile != request) return false;
    }
    return true;
}

void td_reconcile_on_answer(struct td_core *core, struct td_host *n,
                            const Traind__V1__Reconciled *m) {
    if (m->request < n->reconcile_from || !n->reconciling) {
        core->counters[TD_COUNT_STALE]++;
        return;
    }
    n->reconciling--;
    struct td_job *j = td_core_job(core, m->job);
    struct td_removal *gone = td_core_removal(core, m->job, n->id);
    if (m->failure[0]) {
        td_core_log(core, "checkpoints not reconciled job=%s node=%s why=\"%s\", when it registers",
                    m->job, n->name, m->failure);
    } else if (gone && gone->request == m->request) {
        td_core_log(core, "deleted job is off the node job=%s node=%s checkpoints=%u", m->job,
                    n->name, m->removed);
        td_core_drop_removal(core, gone);
    } else if (j && is_newest(j, n, m->request)) {
        if (m->removed) {
            td_core_log(core, "checkpoints removed on the node job=%s node=%s n=%u", m->job,
                        n->name, m->removed);
        }
        judge(core, n, j, m);
    }
    td_reconcile_pump(core, n);
}
