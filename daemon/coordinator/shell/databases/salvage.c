// Rows are judged by loading them into a core that is thrown away. A job whose spec or attempt is
// gone is left out whole, because half a job would be run or shown wrongly.

#include "daemon/coordinator/shell/databases/salvage.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/databases.h"
#include "lib/base/log.h"
#include "lib/base/map.h"

enum { KEY_MAX = 256 };

struct salvage {
    struct td_core *judge, *core;
    struct td_map *bad; // "<kind>/<key>" of rows, "<job>" of jobs
    struct td_record *drops;
};

static td_status mark_bad(struct salvage *v, const char *key) {
    return td_map_put(v->bad, key, v, NULL);
}

static void row_name(enum td_record_kind kind, const char *key, char out[KEY_MAX + 16]) {
    snprintf(out, KEY_MAX + 16, "%d/%.*s", (int)kind, KEY_MAX, key);
}

static bool of_a_job(enum td_record_kind kind) {
    return kind == TD_RECORD_JOB || kind == TD_RECORD_SPEC || kind == TD_RECORD_ATTEMPT ||
           kind == TD_RECORD_CHECKPOINT || kind == TD_RECORD_SHARD;
}

static void job_of(const char *key, char out[TD_JOB_ID_MAX]) {
    snprintf(out, TD_JOB_ID_MAX, "%.*s", (int)strcspn(key, "/"), key);
}

static td_status judge_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct salvage *v = arg;
    td_status bad = td_core_load(v->judge, kind, key, body);
    if (!bad) return TD_OK;
    char name[KEY_MAX + 16], job[TD_JOB_ID_MAX];
    td_log_warn("salvage: left out: row '%s': %s", key, td_status_message(bad));
    td_status_free(bad);
    row_name(kind, key, name);
    job_of(key, job);
    TD_TRY(mark_bad(v, name));
    if (kind != TD_RECORD_SPEC && kind != TD_RECORD_ATTEMPT) return TD_OK;
    td_log_warn("salvage: left out: job %s, of which that was a part; its checkpoints stay on disk",
                job);
    return mark_bad(v, job);
}

static const char *what_lacks(const struct td_job *j) {
    bool has_ranks =
        !td_job_state_ended(j->state) && !td_job_state_waits(j->state) && j->state != TD_JOB_PAUSED;
    if (!td_spec_text_is_set(&j->spec)) return "its spec";
    return has_ranks && !td_job_live(j) ? "its newest attempt" : NULL;
}

static td_status judge_jobs(struct salvage *v) {
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(v->judge, before))) {
        before = j->seq;
        const char *lacks = what_lacks(j);
        if (!lacks || td_map_get(v->bad, j->id)) continue;
        td_log_warn("salvage: left out: job %s: %s cannot be read; its checkpoints stay on disk",
                    j->id, lacks);
        TD_TRY(mark_bad(v, j->id));
    }
    return TD_OK;
}

static td_status load_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct salvage *v = arg;
    char name[KEY_MAX + 16], job[TD_JOB_ID_MAX];
    row_name(kind, key, name);
    job_of(key, job);
    if (!td_map_get(v->bad, name) && !(of_a_job(kind) && td_map_get(v->bad, job))) {
        return td_core_load(v->core, kind, key, body);
    }
    struct td_record *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->kind = kind;
    r->key = td_strdup(key);
    r->next = v->drops;
    v->drops = r;
    return r->key ? TD_OK : td_fail_oom();
}

static td_status load(struct salvage *v, struct td_databases *store,
                      const struct td_core_options *options) {
    TD_TRY(td_core_create(options, &v->judge));
    TD_TRY(td_map_create(1 << 20, &v->bad));
    TD_TRY(td_databases_load(store, judge_row, v));
    TD_TRY(judge_jobs(v));
    return td_databases_load(store, load_row, v);
}

td_status td_salvage_load(struct td_databases *store, const struct td_core_options *options,
                          struct td_core *core, uint64_t *out_ticket) {
    struct salvage v = {.core = core};
    td_status failed = load(&v, store, options);
    td_core_destroy(v.judge);
    td_map_destroy(v.bad);
    if (!failed && v.drops) {
        *out_ticket = 1;
        td_databases_commit(store, v.drops, 1);
        return TD_OK;
    }
    while (v.drops) {
        struct td_record *r = v.drops;
        v.drops = r->next;
        td_record_destroy(r);
    }
    return failed;
}
