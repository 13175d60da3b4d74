// What a coordinator knows when it starts: the rows of state.db, each kind by its own reader, and
// the offsets and last values that lie elsewhere. A row that makes no sense stops the start and is
// named: a coordinator that forgets a job in silence would be worse than one that does not start.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/forget.h"
#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/specs.h"
#include "daemon/coordinator/core/nodes/node_admin.h"
#include "daemon/coordinator/core/nodes/node_record.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "lib/spec/spec.h"

static td_status load_job(struct td_core *core, const char *key, const struct td_json *v) {
    TD_AUTO(td_job) *j = NULL;
    TD_TRY(td_job_create(key, &j));
    TD_TRY(td_job_decode(j, v));
    core->next_seq = TD_MAX(core->next_seq, TD_MAX(j->seq, j->queue_seq) + 1);
    return td_core_add_job(core, td_steal(j));
}

static td_status load_attempt(struct td_core *core, const char *key, const struct td_json *v) {
    char id[TD_JOB_ID_MAX];
    snprintf(id, sizeof id, "%.*s", (int)strcspn(key, "/"), key);
    struct td_job *j = td_core_job(core, id);
    if (!j) return TD_OK; // of a job that was forgotten
    TD_AUTO(td_attempt) *a = NULL;
    TD_TRY(td_attempt_decode(v, &a));
    core->next_epoch = TD_MAX(core->next_epoch, a->epoch + 1);
    if (a->number != j->n_attempts + 1) {
        return td_fail(TD_DATA_LOSS, "attempt %u of %s follows attempt %u", a->number, id,
                       j->n_attempts);
    }
    return td_job_add_attempt(j, td_steal(a));
}

static td_status load_request(struct td_core *core, const char *key, const struct td_json *v) {
    struct td_request *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    snprintf(r->job, sizeof r->job, "%s", td_json_string(td_json_get(v, "job"), ""));
    snprintf(r->digest, sizeof r->digest, "%s", td_json_string(td_json_get(v, "digest"), ""));
    r->time_ns = td_json_int(td_json_get(v, "time_ns"), 0);
    return td_map_put(core->requests, key, r, NULL);
}

static td_status load_meta(struct td_core *core, const char *key, const char *body) {
    uint64_t n = strtoull(body, NULL, 10);
    if (strcmp(key, "epoch") == 0) core->next_epoch = TD_MAX(core->next_epoch, n);
    return TD_OK;
}

static td_status load_spec(struct td_core *core, const char *key, const char *body) {
    struct td_job *j = td_core_job(core, key);
    if (!j) return TD_OK;
    TD_TRY(td_spec_text_set(&j->spec, body));
    td_specs_add(core, j);
    if (td_job_state_ended(j->state)) return TD_OK;
    TD_TRY(td_job_read_knobs(j));
    return td_source_restore(j);
}

td_status td_core_load(struct td_core *core, enum td_record_kind kind, const char *key,
                       const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    if (kind == TD_RECORD_JOB || kind == TD_RECORD_ATTEMPT || kind == TD_RECORD_REQUEST ||
        kind == TD_RECORD_REMOVAL) {
        TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
        TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, row '%s'", key);
    }
    switch (kind) {
    case TD_RECORD_META:
        return load_meta(core, key, body);
    case TD_RECORD_NODE:
        return td_node_record_load(core, key, body);
    case TD_RECORD_NODE_ADMIN:
        return td_node_admin_load(core, key, body);
    case TD_RECORD_PLAN:
        return td_plans_load(core, key, body);
    case TD_RECORD_JOB:
        return load_job(core, key, v);
    case TD_RECORD_SPEC:
        return load_spec(core, key, body);
    case TD_RECORD_ATTEMPT:
        return load_attempt(core, key, v);
    case TD_RECORD_CHECKPOINT:
        return td_catalog_load(core, key, body);
    case TD_RECORD_SHARD:
        return td_catalog_load_shard(core, key, body);
    case TD_RECORD_LEAVING:
        return td_forget_load(core, key, body);
    case TD_RECORD_REQUEST:
        return load_request(core, key, v);
    case TD_RECORD_REMOVAL:
        return td_core_load_removal(core, key, v);
    case TD_RECORD_TOKEN:
    case TD_RECORD_MEMBER:
    case TD_RECORD_AUDIT:
        return TD_OK; // what a token may do is judged before the core is asked
    case TD_RECORD_KIND_COUNT:
        break;
    }
    return td_fail(TD_INTERNAL, "record kind %d", (int)kind);
}

void td_core_load_offset(struct td_core *core, const char *job, uint32_t attempt, uint32_t rank,
                         Traind__V1__Segment__Kind kind, uint64_t offset) {
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    if (!a || rank >= a->n_ranks) return;
    if (kind == TRAIND__V1__SEGMENT__KIND__METRICS) {
        a->ranks[rank].metrics = a->ranks[rank].metrics_done = offset;
        td_metric_names_finish(&a->ranks[rank].names);
    }
    if (kind == TRAIND__V1__SEGMENT__KIND__OUT) a->ranks[rank].out = offset;
    if (kind == TRAIND__V1__SEGMENT__KIND__ERR) a->ranks[rank].err = offset;
}

void td_core_load_metric(struct td_core *core, const char *job, struct td_metric_last *m) {
    struct td_job *j = td_core_job(core, job);
    if (j) td_job_take_last(j, m);
}

void td_core_load_name(struct td_core *core, const char *job, uint32_t attempt, uint32_t rank,
                       uint32_t number, const char *name) {
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    struct td_rank_cursor *c = a && rank < a->n_ranks ? &a->ranks[rank] : NULL;
    if (!c || (c->final && c->metrics_done >= c->metrics_end)) return;
    if (number == UINT32_MAX) c->names.full = true; // earlier ones were not kept
    if (number == c->names.n) (void)td_metric_names_add(&c->names, name); // full: it takes no more
}
