// See the header.

#include "daemon/coordinator/api/job_place.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/shell/access/access.h"
#include "lib/attempt/checkpoint_name.h"

enum { WORD_MAX = 64, PATHS_MAX = 4096 };

// ---- the checkpoint of a job --------------------------------------------------------------------
static bool is_which(const char *text) {
    return !strcmp(text, "best") || !strcmp(text, "last") || td_checkpoint_path_ok(text);
}

static bool has(struct td_job *j, const char *which) {
    const struct td_checkpoint *c = NULL;
    td_status s = td_source_pick(j, which, &c);
    td_status_free(s);
    return !s;
}

// The newest job of that name that has such a checkpoint, else the newest of that name, else the
// only one whose id begins so.
static td_status find_job(const struct td_core *core, const char *word, const char *which,
                          struct td_job **out_job) {
    struct td_job *named = NULL, *begins = NULL;
    uint32_t n = 0;
    for (uint32_t i = core->n_jobs; i-- > 0;) {
        struct td_job *j = core->order[i];
        if (strcmp(j->name, word) == 0) {
            if (!named) named = j;
            if (has(j, which)) {
                *out_job = j;
                return TD_OK;
            }
        }
        if (strncmp(j->id, word, strlen(word)) != 0) continue;
        n++;
        begins = j;
    }
    *out_job = named ? named : begins;
    if (named || n <= 1) return TD_OK;
    *out_job = NULL;
    return td_fail(TD_INVALID_ARGUMENT,
                   "%u jobs have an id that begins with '%s'; give more of it (`trainctl list`)", n,
                   word);
}

static td_status find_checkpoint(void *arg, struct td_arena *a, const char *text,
                                 const char **out_name) {
    const struct td_job_place *p = arg;
    char word[WORD_MAX];
    const size_t len = strcspn(text, "/");
    const char *which = text[len] ? text + len + 1 : "last";
    struct td_job *j = NULL;
    const struct td_checkpoint *c = NULL;
    if (len == 0 || len >= sizeof word || !is_which(which)) return TD_OK;
    snprintf(word, sizeof word, "%.*s", (int)len, text);
    TD_TRY(find_job(p->c->core, word, which, &j));
    if (!j) return TD_OK;
    TD_TRY(td_access_may_read_checkpoints(p->c, p->call, j));
    TD_TRY(td_source_pick(j, which, &c));
    *out_name = td_arena_printf(a, "%s/%s", j->id, which);
    return *out_name ? TD_OK : td_fail_oom();
}

// ---- the client ---------------------------------------------------------------------------------
// A node that is lost takes no job, nor does one of another build.
static const struct td_host *stranger(const struct td_core *core, const char *boot_id) {
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!n->lost && !n->unfit[0] && strcmp(n->boot_id, boot_id) != 0) return n;
    }
    return NULL;
}

static const char *or_null(const char *path) {
    return path && path[0] == '/' ? path : NULL;
}

void td_job_place_init(struct td_job_place *p, const struct td_coordinator *c,
                       const struct td_rpc_call *call, const Traind__V1__ClientPlace *client) {
    *p = (struct td_job_place){.c = c, .call = call};
    p->place = (struct td_spec_place){.checkpoint = find_checkpoint, .arg = p};
    if (!client) return;
    p->place.directory = or_null(client->directory);
    p->place.home = or_null(client->home);
    const struct td_host *other = stranger(c->core, client->boot_id);
    if (!other) return;
    snprintf(p->refusal, sizeof p->refusal,
             "node %s is another machine than the one that asks, where this path means nothing; "
             "give an absolute path that is on every node",
             other->name);
    p->place.refusal = p->refusal;
}

td_status td_view_resolved(struct td_arena *a, const struct td_job_place *p,
                           Traind__V1__ValidateJobResponse *m) {
    const size_t n = TD_MIN(p->place.n, (size_t)PATHS_MAX);
    if (!n) return TD_OK;
    m->paths = td_arena_array(a, n, sizeof *m->paths);
    if (!m->paths) return td_fail_oom();
    for (const struct td_spec_resolved *r = p->place.first; r && m->n_paths < n; r = r->next) {
        Traind__V1__ResolvedPath *one = td_arena_alloc(a, sizeof *one);
        if (!one) return td_fail_oom();
        traind__v1__resolved_path__init(one);
        one->key = td_arena_strdup(a, r->key);
        one->given = td_arena_strdup(a, r->given);
        one->path = td_arena_strdup(a, r->path);
        one->output = r->is_output;
        if (!one->key || !one->given || !one->path) return td_fail_oom();
        m->paths[m->n_paths++] = one;
    }
    return TD_OK;
}
