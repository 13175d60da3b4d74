// See the header.

#include "daemon/coordinator/core/catalog/reconcile.h"

#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/jobs.h"
#include "daemon/coordinator/core/model/model.h"

// Files are named in at most so many bytes of a message, the newest checkpoints first. Of the
// others the answer says nothing: they stay as they are.
enum { FILES_MAX_BYTES = 1 << 20, ARENA_BYTES = 16 << 20 };

// ---- what is due --------------------------------------------------------------------------------
// Of the attempts that n may clear: its own that are over, and others' of which all is known. Rank
// 0 writes checkpoints: where its part is known to have ended, nothing is written any more.
static bool may_clear(const struct td_job *j, const struct td_attempt *a, const struct td_host *n) {
    if (j->unlisted) return false; // what the catalog does not name is not without an owner
    const struct td_attempt_part *own = td_attempt_part_on(a, n->id);
    const bool written = td_attempt_over(a) && a->parts[0].forgotten;
    return written || (own && own->state == TD_ATTEMPT_FENCED);
}

bool td_reconcile_is_here(const struct td_job *j, const struct td_checkpoint *c,
                          const struct td_host *n) {
    const struct td_attempt *a = td_job_attempt(j, c->attempt);
    const struct td_attempt_part *own = a ? td_attempt_part_on(a, n->id) : NULL;
    return c->committed && !c->streamed && !c->registered && strcmp(c->node, n->id) == 0 && own &&
           own->forgotten;
}

static bool is_due(const struct td_job *j, const struct td_host *n) {
    bool unconfirmed = false, work = false;
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt *a = td_job_attempt(j, i);
        const struct td_attempt_part *p = td_attempt_part_on(a, n->id);
        work = work || td_attempt_over(a);
        if (p && !p->reconciled && p->reconcile < n->reconcile_from) {
            unconfirmed = true;
        }
    }
    return work && unconfirmed;
}

static void mark(struct td_job *j, const struct td_host *n, uint64_t request) {
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        struct td_attempt_part *p = td_attempt_part_on(td_job_attempt(j, i), n->id);
        if (p) p->reconcile = request;
    }
}

// ---- asking -------------------------------------------------------------------------------------
static void add_files(struct td_arena *arena, const struct td_checkpoint *c,
                      Traind__V1__CatalogedCheckpoint *m, size_t *inout_bytes) {
    m->files = td_core_must(td_arena_array(arena, c->n_files + 1, sizeof *m->files));
    for (uint32_t i = 0; i < c->n_files; i++) {
        Traind__V1__CatalogedFile *f = td_core_must(td_arena_alloc(arena, sizeof *f));
        traind__v1__cataloged_file__init(f);
        f->name = c->files[i].name;
        f->bytes = c->files[i].bytes;
        m->files[m->n_files++] = f;
        *inout_bytes += strlen(f->name) + 16;
    }
}

static void add_checkpoints(struct td_arena *arena, const struct td_job *j, const struct td_host *n,
                            Traind__V1__Reconcile *r) {
    size_t bytes = 0;
    r->checkpoints =
        td_core_must(td_arena_array(arena, j->n_checkpoints + 1, sizeof *r->checkpoints));
    for (uint32_t i = j->n_checkpoints; i-- > 0;) { // the newest matters most
        struct td_checkpoint *c = j->checkpoints[i];
        Traind__V1__CatalogedCheckpoint *m = td_core_must(td_arena_alloc(arena, sizeof *m));
        traind__v1__cataloged_checkpoint__init(m);
        m->path = td_unconst(c->path);
        m->here = td_reconcile_is_here(j, c, n) && bytes < FILES_MAX_BYTES;
        if (m->here) {
            add_files(arena, c, m, &bytes);
            c->asked = r->request;
        }
        r->checkpoints[r->n_checkpoints++] = m;
    }
}

static void send(struct td_core *core, struct td_host *n, Traind__V1__Reconcile *r) {
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_RECONCILE;
    m.reconcile = r;
    td_core_send(core, n, &m);
    n->reconciling++;
}

static void ask(struct td_core *core, struct td_host *n, struct td_job *j) {
    TD_AUTO(td_arena) *arena = NULL;
    Traind__V1__Reconcile r = TRAIND__V1__RECONCILE__INIT;
    if (!td_job_has_knobs(j)) return; // where its files are is not known
    TD_CHECK(!td_arena_create(ARENA_BYTES, &arena));
    r.request = core->next_reconcile++;
    r.job = j->id;
    r.directory = td_unconst(j->knobs.checkpoint.dir);
    r.over = td_core_must(td_arena_array(arena, j->n_attempts + 1, sizeof *r.over));
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        if (may_clear(j, td_job_attempt(j, i), n)) r.over[r.n_over++] = i;
    }
    add_checkpoints(arena, j, n, &r);
    send(core, n, &r);
    mark(j, n, r.request);
}

static void ask_removal(struct td_core *core, struct td_host *n, struct td_removal *gone) {
    TD_AUTO(td_arena) *arena = NULL;
    Traind__V1__Reconcile r = TRAIND__V1__RECONCILE__INIT;
    TD_CHECK(!td_arena_create(ARENA_BYTES, &arena));
    r.request = core->next_reconcile++;
    r.job = gone->job;
    r.directory = gone->directory;
    r.forgotten = true;
    r.keep_checkpoints = gone->keep_checkpoints;
    r.own_directory = gone->own_directory;
    r.results = gone->results;
    r.over = td_core_must(td_arena_array(arena, gone->n_attempts + 1, sizeof *r.over));
    while (r.n_over < gone->n_attempts) {
        r.over[r.n_over] = (uint32_t)r.n_over + 1;
        r.n_over++;
    }
    send(core, n, &r);
    gone->request = r.request;
}

static struct td_removal *next_removal(struct td_core *core, const struct td_host *n) {
    if (!n->n_removals) return NULL;
    struct td_removal *r;
    for (size_t cursor = 0; (r = td_map_each(core->removals, &cursor));) {
        if (strcmp(r->node, n->id) == 0 && r->request < n->reconcile_from) return r;
    }
    return NULL;
}

void td_reconcile_pump(struct td_core *core, struct td_host *n) {
    if (!n->reconciles) return;
    struct td_removal *gone;
    while (n->reconciling < TD_RECONCILE_WINDOW && (gone = next_removal(core, n))) {
        ask_removal(core, n, gone);
    }
    while (n->n_due && n->reconciling < TD_RECONCILE_WINDOW) {
        uint64_t seq = n->due[0];
        memmove(n->due, n->due + 1, --n->n_due * sizeof n->due[0]);
        const struct td_job *j = td_core_job_before(core, seq + 1);
        if (j && j->seq == seq && is_due(j, n)) ask(core, n, td_core_job(core, j->id));
    }
    while (n->reconcile_before && n->reconciling < TD_RECONCILE_WINDOW) {
        const struct td_job *next = td_core_job_before(core, n->reconcile_before);
        n->reconcile_before = next ? next->seq : 0;
        core->counters[TD_COUNT_DUE_LOOKS]++;
        if (next && is_due(next, n)) ask(core, n, td_core_job(core, next->id));
    }
}

static void remember(struct td_host *n, const struct td_job *j) {
    if (!n->reconciles || j->seq < n->reconcile_before) return; // it is still to be looked at
    for (uint32_t i = 0; i < n->n_due; i++) {
        if (n->due[i] == j->seq) return;
    }
    if (n->n_due < TD_RECONCILE_DUE) {
        n->due[n->n_due++] = j->seq;
    } else {
        n->reconcile_before = j->seq + 1;
    }
}

static void ask_nodes(struct td_core *core, const struct td_job *j, const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct td_host *n = td_nodes_find(core, a->parts[i].node);
        if (!n) continue;
        remember(n, j);
        td_reconcile_pump(core, n);
    }
}

void td_reconcile_due(struct td_core *core, struct td_job *j) {
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt *a = td_job_attempt(j, i);
        for (uint32_t k = 0; k < a->n_parts; k++) {
            a->parts[k].reconciled = false;
            a->parts[k].reconcile = 0;
        }
    }
    for (uint32_t i = 1; i <= j->n_attempts; i++) { // is_due passes over those that were asked
        ask_nodes(core, j, td_job_attempt(j, i));
    }
}

static uint32_t count_removals(const struct td_core *core, const struct td_host *n) {
    uint32_t count = 0;
    const struct td_removal *r;
    for (size_t cursor = 0; (r = td_map_each(core->removals, &cursor));) {
        count += strcmp(r->node, n->id) == 0;
    }
    return count;
}

void td_reconcile_node_up(struct td_core *core, struct td_host *n, bool fresh) {
    for (uint32_t i = 0; fresh && i < core->n_jobs; i++) {
        const struct td_job *j = core->order[i];
        for (uint32_t k = 1; k <= j->n_attempts; k++) {
            struct td_attempt_part *p = td_attempt_part_on(td_job_attempt(j, k), n->id);
            if (p) p->reconciled = false;
        }
    }
    n->n_removals = count_removals(core, n);
    n->reconciles = true;
    n->reconciling = 0;
    n->reconcile_from = core->next_reconcile;
    n->reconcile_before = UINT64_MAX;
    n->n_due = 0;
    td_reconcile_pump(core, n);
}

void td_reconcile_node_down(struct td_host *n) {
    n->reconciles = false;
}
