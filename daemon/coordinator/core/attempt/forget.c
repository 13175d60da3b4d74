// See the header.

#include "daemon/coordinator/core/attempt/forget.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/job_list.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/specs.h"
#include "lib/base/buf.h"

enum { BODY_MAX = 64 << 10 };
static const int64_t again_ns = 600 * TD_NS_PER_S;

// ---- may it go? ---------------------------------------------------------------------------------
void td_forget_note_pins(struct td_core *core, struct td_job *j) {
    bool pins = j->knobs.ckpt_path[0] || j->knobs.init_from[0];
    if (pins) td_jobs_push(&core->pinning, &core->n_pinning, &core->cap_pinning, j);
}

static void drop_ended_pins(struct td_core *core) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < core->n_pinning; i++) {
        struct td_job *j = core->pinning[i];
        if (!td_job_state_ended(j->state)) core->pinning[n++] = j;
    }
    core->n_pinning = n;
}

td_status td_forget_check(const struct td_core *core, const struct td_job *j) {
    if (!td_job_state_ended(j->state)) {
        td_status s = td_fail(TD_FAILED_PRECONDITION, "job %s is %s; cancel it first", j->id,
                              td_job_state_name(j->state));
        return td_status_with_reason(s, "JOB_NOT_ENDED");
    }
    const struct td_job *by = td_retain_user(core, j, NULL);
    if (!by) return TD_OK;
    td_status s =
        td_fail(TD_FAILED_PRECONDITION,
                "job %s, which has not ended, begins from a checkpoint of job %s", by->id, j->id);
    s = td_status_with_reason(s, "JOB_RESUMED_FROM");
    return td_status_with_meta(s, "job", "%s", by->id);
}

// ---- going --------------------------------------------------------------------------------------
static void ask(struct td_core *core, const char *id, struct td_leaving *l) {
    struct td_action *a = td_core_act(core, TD_ACTION_FORGET);
    snprintf(a->job, sizeof a->job, "%s", id);
    a->text = td_core_dup(l->body);
    l->asked = true;
    core->n_forgetting++;
}

// {"streamed":[1,3]}: attempts whose checkpoints came to the coordinator.
static char *describe(const struct td_job *j, bool keep_checkpoints) {
    TD_AUTO_BUF text;
    td_buf_init(&text, BODY_MAX);
    td_status s = td_buf_str(&text, "{\"streamed\":[");
    const char *comma = "";
    for (uint32_t n = 1; !s && !keep_checkpoints && n <= j->n_attempts; n++) {
        if (!td_job_attempt(j, n)->stream) continue;
        s = td_buf_printf(&text, "%s%u", comma, n);
        comma = ",";
    }
    if (!s) s = td_buf_str(&text, "]}");
    TD_CHECK(!s);
    return td_core_must(td_buf_take_cstr(&text));
}

static uint64_t by_end(const struct td_job *j) {
    return j->end_ns > 0 ? (uint64_t)j->end_ns : 0;
}

void td_forget_ended(struct td_core *core, struct td_job *j) {
    (void)td_jobs_insert(&core->ended, &core->n_ended, &core->cap_ended, j, by_end);
}

static void drop_from_lists(struct td_core *core, struct td_job *j) {
    td_jobs_remove(core->order, &core->n_jobs,
                   td_jobs_find(core->order, core->n_jobs, j, td_job_key_seq));
    td_jobs_remove(core->ended, &core->n_ended,
                   td_jobs_find(core->ended, core->n_ended, j, by_end));
    for (uint32_t i = core->n_live; i-- > 0;) {
        if (core->live[i] == j) td_jobs_remove(core->live, &core->n_live, i);
    }
    drop_ended_pins(core);
    td_specs_remove(core, j);
    td_map_remove(core->jobs, j->id);
}

static void drop_rows(struct td_core *core, struct td_job *j) {
    td_catalog_forget(core, j);
    td_core_record(core, TD_RECORD_JOB, j->id, NULL);
    td_core_record(core, TD_RECORD_SPEC, j->id, NULL);
    for (uint32_t n = 1; n <= j->n_attempts; n++) {
        char key[64];
        snprintf(key, sizeof key, "%s/a%u", j->id, n);
        td_core_record(core, TD_RECORD_ATTEMPT, key, NULL);
    }
}

static void drop_requests(struct td_core *core, const struct td_job *j) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->requests, &cursor, &key, &value)) {
        struct td_request *r = value;
        if (strcmp(r->job, j->id) != 0) continue;
        td_core_record(core, TD_RECORD_REQUEST, key, NULL);
        td_map_remove(core->requests, key);
        free(r);
    }
}

void td_forget_job(struct td_core *core, struct td_job *take_job, enum td_forget how) {
    struct td_job *j = take_job;
    TD_CHECK(td_job_state_ended(j->state) && !td_job_live(j) && !j->listed);
    struct td_leaving *l = td_core_must(td_calloc(1, sizeof *l));
    l->body = describe(j, how == TD_FORGET_KEEP_CHECKPOINTS);
    TD_CHECK(!td_map_put(core->leaving, j->id, l, NULL));
    for (uint32_t n = 1; n <= j->n_attempts; n++) {
        struct td_attempt *a = td_job_attempt(j, n);
        for (uint32_t i = 0; i < a->n_parts; i++) {
            const struct td_attempt_part *p = &a->parts[i];
            if (!p->forgotten) td_attempt_send_forget(core, j, a, p);
        }
    }
    td_removals_plan(core, j, how);
    drop_requests(core, j);
    drop_rows(core, j);
    td_core_record(core, TD_RECORD_LEAVING, j->id, l->body);
    drop_from_lists(core, j);
    ask(core, j->id, l);
    td_removals_pump(core, j->id);
    td_job_destroy(j);
}

// ---- gone ---------------------------------------------------------------------------------------
void td_forget_destroy(void *p) {
    struct td_leaving *l = p;
    free(l->body);
    free(l);
}

void td_forget_answered(struct td_core *core, const char *job, bool all_gone) {
    struct td_leaving *l = td_map_get(core->leaving, job);
    if (l && l->asked) {
        l->asked = false;
        core->n_forgetting--;
        l->again_at = td_mono_add(core->now.mono, again_ns);
        td_core_wake_at(core, l->again_at);
    }
    if (l && all_gone) {
        td_core_record(core, TD_RECORD_LEAVING, job, NULL);
        td_map_remove(core->leaving, job);
        td_forget_destroy(l);
    }
}

// Those that could not be removed, and those that an earlier start left.
void td_forget_tick(struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->leaving, &cursor, &key, &value)) {
        struct td_leaving *l = value;
        if (l->asked) continue;
        if (l->again_at.ns > core->now.mono.ns || core->n_forgetting >= TD_FORGET_AT_ONCE) {
            td_core_wake_at(core, td_mono_add(core->now.mono, TD_NS_PER_S));
            continue;
        }
        ask(core, key, l);
    }
}

td_status td_forget_load(struct td_core *core, const char *key, const char *body) {
    if (strncmp(key, "j-", 2) != 0 || strlen(key) >= TD_JOB_ID_MAX || strchr(key, '/')) {
        return td_fail(TD_DATA_LOSS, "state.db, leaving job '%.40s' cannot be read", key);
    }
    struct td_leaving *l = td_core_must(td_calloc(1, sizeof *l));
    l->body = td_core_dup(body);
    void *old = NULL;
    td_status s = td_map_put(core->leaving, key, l, &old);
    if (s) old = l;
    if (old) td_forget_destroy(old);
    return s;
}
