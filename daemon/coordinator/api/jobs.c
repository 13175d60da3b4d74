// JobService: what people, schedulers and dashboards submit, watch and steer.
// Decode, ask the core, encode. A spec is parsed here (lib/spec) into an arena of its own; whatever
// the core decides is answered through the gate, once its record is committed.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/job_place.h"
#include "daemon/coordinator/api/job_wanted.h"
#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/page.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/plans/offers_check.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/watch.h"
#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/rng.h"
#include "lib/pattern/line_pattern_check.h"
#include "lib/spec/brief.h"
#include "lib/spec/plan.h"

enum {
    REQUEST_ID_MAX = 64,
    SPEC_JSON_MAX = 4 << 20,
    CANONICAL_MAX = 7 << 18, // twice that is below the 4 MiB of an answer
    MAX_PLANNERS = TD_CORE_MAX_PLAN_WAITERS,
};

// ---- specs --------------------------------------------------------------------------------------
// What a client hands in, of three kinds of request.
struct handed_in {
    const char *spec;
    char *const *overrides;
    size_t n_overrides;
    const Traind__V1__ClientPlace *client; // or NULL
};

// Text and overrides -> canonical spec, as a tree in arena and as JSON, the caller's to free.
// settles: what is left to the nodes of now gets what they have.
static td_status read_spec(const struct td_coordinator *c, const struct td_rpc_call *call,
                           struct td_arena *arena, const struct handed_in *in, bool settles,
                           struct td_job_place *place, struct td_json **out_tree, char **out_json) {
    td_job_place_init(place, c, call, in->client);
    TD_TRY(td_spec_parse_at(arena, in->spec, strlen(in->spec), (const char *const *)in->overrides,
                            in->n_overrides, &place->place, out_tree));
    TD_TRY(td_offers_check(c->core, *out_tree));
    TD_TRY(td_line_pattern_check(td_json_path(*out_tree, "metrics_from.stdout")));
    if (settles) TD_TRY(td_gpu_settle_ranks(c->core, arena, *out_tree));
    TD_AUTO_BUF text;
    td_buf_init(&text, CANONICAL_MAX);
    TD_TRY_CTX(td_json_print(*out_tree, false, &text),
               "the spec with all its knobs is longer than %d bytes", CANONICAL_MAX);
    *out_json = td_buf_take_cstr(&text);
    return *out_json ? TD_OK : td_fail_oom();
}

typedef void reply_fn(struct td_coordinator *c, struct td_rpc_call *call,
                      struct td_arena *take_arena, const ProtobufCMessage *message);
// changes: spec_changes_json, or NULL.
static td_status reply_job(struct td_coordinator *c, struct td_rpc_call *call,
                           const struct td_job *j, const char *changes, reply_fn *reply) {
    struct td_arena *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__Job *m = td_view_job(arena, c->core, j, td_shell_now(), TD_VIEW_SPEC);
    if (m && changes) {
        m->spec_changes_json = td_arena_strdup(arena, changes);
        if (!m->spec_changes_json) m = NULL;
    }
    reply(c, call, arena, m ? &m->base : NULL);
    return TD_OK;
}

// ---- CreateJob, ValidateJob ---------------------------------------------------------------------
// With whose request it is: a request id that another used is refused, not answered with his job.
// The owner's digests are as they were before there were others.
static td_status body_digest(const Traind__V1__CreateJobRequest *r, const struct td_caller *who,
                             const struct td_job_place *place, char out[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    if (!who->is_owner) td_digest_update(d, who->name, strlen(who->name) + 1);
    td_digest_update(d, r->spec, strlen(r->spec) + 1);
    for (size_t i = 0; i < r->n_overrides; i++) {
        td_digest_update(d, r->overrides[i], strlen(r->overrides[i]) + 1);
    }
    // The same text, of another directory.
    for (const struct td_spec_resolved *p = place->place.first; p; p = p->next) {
        td_digest_update(d, p->path, strlen(p->path) + 1);
    }
    td_digest_hex(d, out);
    return TD_OK;
}

static td_status check_request_id(const char *id) {
    if (strlen(id) > REQUEST_ID_MAX) {
        return td_shell_bad_field("request_id", "at most %d bytes", REQUEST_ID_MAX);
    }
    for (const char *p = id; *p; p++) {
        if (*p <= ' ' || *p > '~') return td_shell_bad_field("request_id", "printable ASCII only");
    }
    return TD_OK;
}

static td_status create(struct td_coordinator *c, struct td_rpc_call *call,
                        const Traind__V1__CreateJobRequest *r) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_FREE char *json = NULL;
    char digest[TD_DIGEST_HEX], id[TD_JOB_ID_MAX];
    uint8_t bytes[6];
    TD_TRY(check_request_id(r->request_id));
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    const struct handed_in in = {r->spec, r->overrides, r->n_overrides, r->client};
    struct td_job_place place;
    TD_TRY(read_spec(c, call, arena, &in, true, &place, &tree, &json));
    struct td_caller who = td_access_caller(c, call);
    TD_TRY(body_digest(r, &who, &place, digest));
    TD_TRY(td_shell_writable(c));
    td_random_bytes(bytes, sizeof bytes);
    snprintf(id, sizeof id, "j-%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3],
             bytes[4], bytes[5]);
    const struct td_core_create_job request = {.id = id,
                                               .spec_json = json,
                                               .spec = tree,
                                               .request_id = r->request_id,
                                               .digest = digest,
                                               .owner = who.name,
                                               .owner_token = who.token,
                                               .shares = who.role == TD_ROLE_SUBMITTER,
                                               .trusted = who.role == TD_ROLE_ADMIN};
    const struct td_job *j = NULL;
    bool again = false;
    td_status s = td_core_create_job(c->core, td_shell_now(), &request, &j, &again);
    td_shell_after(c);
    if (s) return s;
    td_rpc_call_set_object(call, j->id);
    if (!again) td_log_info("job accepted job=%s ranks=%u", j->id, j->n_ranks);
    return reply_job(c, call, j, NULL, td_shell_reply_changed);
}

static void create_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = create(c, call, (const Traind__V1__CreateJobRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static td_status validate(struct td_coordinator *c, struct td_rpc_call *call,
                          const Traind__V1__ValidateJobRequest *r) {
    TD_AUTO_FREE char *json = NULL;
    TD_AUTO(td_arena) *arena = NULL, *of_spec = NULL;
    struct td_json *tree = NULL;
    const struct handed_in in = {r->spec, r->overrides, r->n_overrides, r->client};
    struct td_job_place place;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &of_spec));
    TD_TRY(read_spec(c, call, of_spec, &in, false, &place, &tree, &json));
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__ValidateJobResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__validate_job_response__init(m);
    m->spec_json = td_arena_strdup(arena, json);
    if (!m->spec_json) return td_fail_oom();
    TD_TRY(td_view_resolved(arena, &place, m));
    td_shell_reply(c, call, td_steal(arena), &m->base);
    return TD_OK;
}

static void validate_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = validate(c, call, (const Traind__V1__ValidateJobRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- PlanJob ------------------------------------------------------------------------------------
struct planner {
    uint64_t token;
    struct td_rpc_call *call;
    char *spec_json;
    char *
        plan_spec; // spec_json with a place where it names a checkpoint of a job; NULL: it does not
};

struct td_planners {
    struct planner list[MAX_PLANNERS];
    size_t n;
    uint64_t next_token;
};

td_status td_planners_create(struct td_planners **out_planners) {
    *out_planners = td_calloc(1, sizeof **out_planners);
    return *out_planners ? TD_OK : td_fail_oom();
}

static void drop_planner(struct td_planners *p, size_t i) {
    td_rpc_call_unref(p->list[i].call);
    free(p->list[i].spec_json);
    free(p->list[i].plan_spec);
    p->list[i] = p->list[--p->n];
}

void td_planners_destroy(struct td_planners *p) {
    while (p && p->n) {
        drop_planner(p, p->n - 1);
    }
    free(p);
}

static uint64_t number(const struct td_json *v, const char *key) {
    int64_t n = td_json_int(td_json_get(v, key), 0);
    return n > 0 ? (uint64_t)n : 0;
}

static td_status add_memory(struct td_arena *arena, const struct td_json *v,
                            Traind__V1__PlanJobResponse *m) {
    Traind__V1__PlanMemory *of = td_arena_alloc(arena, sizeof *of);
    if (!of) return td_fail_oom();
    traind__v1__plan_memory__init(of);
    of->state_bytes = number(v, "state_bytes");
    of->arena_bytes = number(v, "arena_bytes");
    of->scratch_bytes = number(v, "scratch_bytes");
    of->snapshot_bytes = number(v, "snapshot_bytes");
    of->batch_bytes = number(v, "batch_bytes");
    of->order_bytes = number(v, "order_bytes");
    of->process_bytes = number(v, "process_bytes");
    of->staging_bytes = number(v, "staging_bytes");
    of->hook_bytes = number(v, "hook_bytes");
    of->device_bytes = number(v, "device_bytes");
    of->shadow_bytes = number(v, "shadow_bytes");
    m->memory = of;
    m->memory_bytes = number(v, "memory_bytes");
    if (!m->memory_bytes) { // an older node
        m->memory_bytes =
            of->state_bytes + of->arena_bytes + of->scratch_bytes + of->snapshot_bytes;
    }
    return TD_OK;
}

static td_status add_warnings(struct td_arena *arena, const struct td_json *v,
                              Traind__V1__PlanJobResponse *m) {
    const char *slow = td_json_string(td_json_get(v, "slow"), NULL);
    if (!slow) return TD_OK;
    m->warnings = td_arena_array(arena, 1, sizeof *m->warnings);
    if (!m->warnings) return td_fail_oom();
    m->warnings[m->n_warnings++] = td_unconst(slow);
    return TD_OK;
}

static td_status reply_plan(struct td_coordinator *c, const struct planner *p, const char *json) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    struct td_json *v = NULL, *tree = NULL;
    TD_TRY(td_json_parse(arena, json, strlen(json), &v));
    const char *spec = p->plan_spec ? p->plan_spec : p->spec_json;
    TD_TRY(td_json_parse(arena, spec, strlen(spec), &tree));
    struct td_plan plan;
    const struct td_plan_run run = {0}; // threads and ranks: as whoever runs it says
    TD_TRY(td_plan_build(arena, tree, &run, &plan));
    TD_AUTO_BUF text;
    td_buf_init(&text, SPEC_JSON_MAX);
    TD_TRY(td_plan_print(&plan, &text));
    Traind__V1__PlanJobResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__plan_job_response__init(m);
    m->plan_json = td_arena_strdup(arena, td_buf_cstr(&text));
    if (!m->plan_json) return td_fail_oom();
    m->parameters = number(v, "parameters");
    m->spec_json = td_arena_strdup(arena, p->spec_json);
    if (!m->spec_json) return td_fail_oom();
    TD_TRY(add_memory(arena, v, m));
    TD_TRY(add_warnings(arena, v, m));
    m->shared_bytes = number(v, "shared_bytes");
    m->flops_per_step = td_json_real(td_json_get(v, "flops_per_step"), 0);
    m->step_seconds = td_json_real(td_json_get(v, "step_seconds"), 0);
    m->precision = td_unconst(td_json_string(td_json_get(v, "precision"), ""));
    m->other_precision = td_unconst(td_json_string(td_json_get(v, "other_precision"), ""));
    m->other_step_seconds = td_json_real(td_json_get(v, "other_step_seconds"), 0);
    m->rates = td_unconst(td_json_string(td_json_get(v, "rates"), ""));
    m->steps_per_epoch = (uint32_t)number(v, "steps_per_epoch");
    m->total_steps = (uint32_t)number(v, "total_steps");
    m->slots = (uint32_t)td_spec_ranks(&plan.spec);
    m->kind = td_unconst(td_job_kind_name(plan.spec.kind));
    m->gpus_per_rank = (uint32_t)plan.spec.resources.gpus_per_rank;
    m->gpu_view = td_unconst(td_gpu_view(&plan.spec.resources));
    m->accumulate = td_arena_strdup(arena, plan.spec.trainer.accumulate);
    if (!m->accumulate) return td_fail_oom();
    m->graph = td_unconst(td_json_string(td_json_get(v, "graph"), ""));
    td_shell_reply(c, p->call, td_steal(arena), &m->base);
    return TD_OK;
}

void td_planners_on_plan(struct td_coordinator *c, uint64_t token, const char *json,
                         td_status take_failure) {
    struct td_planners *ps = c->planners;
    for (size_t i = 0; i < ps->n; i++) {
        if (ps->list[i].token != token) continue;
        td_status s = take_failure ? td_steal(take_failure) : reply_plan(c, &ps->list[i], json);
        if (s) td_shell_fail(c, ps->list[i].call, s);
        drop_planner(ps, i);
        break;
    }
    td_status_free(take_failure);
}

static td_status plan(struct td_coordinator *c, struct td_rpc_call *call,
                      const Traind__V1__PlanJobRequest *r) {
    struct td_planners *ps = c->planners;
    TD_AUTO_FREE char *json = NULL, *plan_spec = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    const struct handed_in in = {r->spec, r->overrides, r->n_overrides, r->client};
    struct td_job_place place;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY(read_spec(c, call, arena, &in, true, &place, &tree, &json));
    TD_TRY(td_source_join(c->core, json, &plan_spec));
    TD_CHECK(ps->n < MAX_PLANNERS); // caps.def
    uint64_t token = ++ps->next_token;
    const bool trusted = td_access_caller(c, call).role == TD_ROLE_ADMIN;
    TD_TRY(td_core_plan(c->core, td_shell_now(), plan_spec ? plan_spec : json, trusted,
                        r->dump_graph, token));
    ps->list[ps->n++] = (struct planner){token, call, td_steal(json), td_steal(plan_spec)};
    td_rpc_call_ref(call);
    td_shell_after(c);
    return TD_OK;
}

static void plan_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = plan(c, call, (const Traind__V1__PlanJobRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static void plan_done(struct td_rpc_call *call, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    for (size_t i = 0; i < c->planners->n; i++) {
        if (c->planners->list[i].call != call) continue;
        td_core_plan_abandon(c->core, c->planners->list[i].token);
        drop_planner(c->planners, i);
        return;
    }
}

// ---- GetJob, ListJobs, WatchJob -----------------------------------------------------------------
static td_status spec_changes(const struct td_job *j, char **out_json) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_FREE char *inflated = NULL;
    TD_AUTO_BUF text;
    const char *spec;
    struct td_json *tree;
    const struct td_json *brief;
    td_buf_init(&text, SPEC_JSON_MAX);
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY(td_spec_text_read(&j->spec, &inflated, &spec));
    TD_TRY(td_json_parse(arena, spec, strlen(spec), &tree));
    TD_TRY(td_spec_brief(arena, tree, &brief));
    TD_TRY(td_json_print(brief, false, &text));
    *out_json = td_buf_take_cstr(&text);
    return *out_json ? TD_OK : td_fail_oom();
}

static td_status get(struct td_coordinator *c, struct td_rpc_call *call,
                     const Traind__V1__GetJobRequest *r) {
    const struct td_job *j = NULL;
    TD_AUTO_FREE char *changes = NULL;
    TD_TRY(td_core_find_job(c->core, r->id, &j));
    if (r->spec_changes) TD_TRY(spec_changes(j, &changes));
    return reply_job(c, call, j, changes, td_shell_reply);
}

static void get_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = get(c, call, (const Traind__V1__GetJobRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static td_status read_page(const char *token, uint64_t *out_before) {
    char rest;
    unsigned long long seq;
    *out_before = UINT64_MAX;
    if (!token[0]) return TD_OK;
    if (sscanf(token, "j%llu%c", &seq, &rest) != 1 || !seq) {
        return td_page_bad_token();
    }
    *out_before = seq;
    return TD_OK;
}

static td_status list(struct td_coordinator *c, struct td_rpc_call *call,
                      const Traind__V1__ListJobsRequest *r) {
    uint64_t before;
    TD_TRY(read_page(r->page_token, &before));
    TD_TRY(td_jobs_wanted_check(r));
    struct td_page page = td_page_of(r->page_size);
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__ListJobsResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__list_jobs_response__init(m);
    m->jobs = td_arena_array(arena, page.most, sizeof *m->jobs);
    if (!m->jobs) return td_fail_oom();
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        const bool wanted = td_job_is_wanted(j, r);
        Traind__V1__Job *row = wanted ? td_view_job(arena, c->core, j, td_shell_now(), 0) : NULL;
        if (wanted && !row) return td_fail_oom();
        if (row && !td_page_takes(&page, &row->base)) {
            m->next_page_token = td_arena_printf(arena, "j%llu", (unsigned long long)before);
            break;
        }
        if (row) m->jobs[m->n_jobs++] = row;
        before = j->seq;
    }
    if (!m->next_page_token) return td_fail_oom();
    td_shell_reply(c, call, td_steal(arena), &m->base);
    return TD_OK;
}

static void list_jobs(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = list(c, call, (const Traind__V1__ListJobsRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static void watch_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__WatchJobRequest *r = (const Traind__V1__WatchJobRequest *)request;
    td_status s = td_watchers_add(c->watchers, call, r->id, r->token);
    if (s) td_shell_fail(c, call, s);
}

static void watch_done(struct td_rpc_call *call, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_watchers_remove(c->watchers, call);
}

// ---- verbs --------------------------------------------------------------------------------------
// Before a verb: the disk takes it, and the job may be changed by whoever asks.
static td_status may_change(struct td_coordinator *c, struct td_rpc_call *call, const char *id) {
    const struct td_job *j = NULL;
    td_rpc_call_set_object(call, id);
    TD_TRY(td_shell_writable(c));
    TD_TRY(td_core_find_job(c->core, id, &j));
    return td_access_may_change(c, call, j);
}

static void cancel_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__CancelJobRequest *r = (const Traind__V1__CancelJobRequest *)request;
    const struct td_job *j = NULL;
    td_status s = may_change(c, call, r->id);
    if (!s) s = td_core_cancel(c->core, td_shell_now(), r->id, r->reason, &j);
    td_shell_after(c);
    if (!s) s = reply_job(c, call, j, NULL, td_shell_reply_changed);
    if (s) td_shell_fail(c, call, s);
}

static void pause_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__PauseJobRequest *r = (const Traind__V1__PauseJobRequest *)request;
    const struct td_job *j = NULL;
    td_status s = may_change(c, call, r->id);
    if (!s) s = td_core_pause(c->core, td_shell_now(), r->id, &j);
    td_shell_after(c);
    if (!s) s = reply_job(c, call, j, NULL, td_shell_reply_changed);
    if (s) td_shell_fail(c, call, s);
}

static void resume_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__ResumeJobRequest *r = (const Traind__V1__ResumeJobRequest *)request;
    const struct td_job *j = NULL;
    td_status s = may_change(c, call, r->id);
    if (!s) s = td_core_resume(c->core, td_shell_now(), r->id, &j);
    td_shell_after(c);
    if (!s) s = reply_job(c, call, j, NULL, td_shell_reply_changed);
    if (s) td_shell_fail(c, call, s);
}

static void save_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__SaveJobRequest *r = (const Traind__V1__SaveJobRequest *)request;
    const struct td_job *j = NULL;
    td_status s = may_change(c, call, r->id);
    if (!s) s = td_core_save(c->core, td_shell_now(), r->id, &j);
    td_shell_after(c);
    if (!s) s = reply_job(c, call, j, NULL, td_shell_reply_changed);
    if (s) td_shell_fail(c, call, s);
}

// A job that waits is cancelled first, so that whoever watches it sees an end.
static td_status remove_job(struct td_coordinator *c, struct td_rpc_call *call,
                            const Traind__V1__DeleteJobRequest *r) {
    const struct td_job *j = NULL;
    char id[TD_JOB_ID_MAX];
    td_rpc_call_set_object(call, r->id);
    TD_TRY(td_shell_writable(c));
    td_status unknown = td_core_find_job(c->core, r->id, &j);
    td_status_free(unknown); // perhaps it is leaving: then the same answer again
    if (!unknown) TD_TRY(td_access_may_change(c, call, j));
    TD_TRY(td_core_check_delete(c->core, r->id, r->keep_checkpoints, &j));
    snprintf(id, sizeof id, "%s", j ? j->id : r->id);
    if (j && !td_job_state_ended(j->state)) {
        td_status s = td_core_cancel(c->core, td_shell_now(), id, "deleted", &j);
        td_shell_after(c);
        TD_TRY(s);
    }
    if (j) {
        td_status s = td_core_delete(c->core, td_shell_now(), id, r->keep_checkpoints);
        td_shell_after(c);
        TD_TRY(s);
    }
    struct td_arena *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__DeleteJobResponse *m = td_view_deleted(arena, c->core, id);
    td_shell_reply_changed(c, call, arena, m ? &m->base : NULL);
    return TD_OK;
}

static void delete_job(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = remove_job(c, call, (const Traind__V1__DeleteJobRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

#define UNARY(name, least, changes_it, request_type, response_type, fn)                            \
    {                                                                                              \
        .service = "traind.v1.JobService", .method = name, .kind = TD_RPC_UNARY, .role = least,    \
        .changes = changes_it, .request = &traind__v1__##request_type##__descriptor,               \
        .response = &traind__v1__##response_type##__descriptor, .on_call = fn                      \
    }

#define READS(name, ...)   UNARY(name, TD_ROLE_VIEWER, false, __VA_ARGS__)
#define CHANGES(name, ...) UNARY(name, TD_ROLE_SUBMITTER, true, __VA_ARGS__)

static const struct td_rpc_method rows[] = {
    CHANGES("CreateJob", create_job_request, job, create_job),
    READS("ValidateJob", validate_job_request, validate_job_response, validate_job),
    {.service = "traind.v1.JobService",
     .method = "PlanJob",
     .role = TD_ROLE_SUBMITTER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__plan_job_request__descriptor,
     .response = &traind__v1__plan_job_response__descriptor,
     .on_call = plan_job,
     .on_done = plan_done},
    READS("GetJob", get_job_request, job, get_job),
    READS("ListJobs", list_jobs_request, list_jobs_response, list_jobs),
    {.service = "traind.v1.JobService",
     .method = "WatchJob",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_SERVER_STREAM,
     .request = &traind__v1__watch_job_request__descriptor,
     .response = &traind__v1__watch_job_response__descriptor,
     .on_call = watch_job,
     .on_done = watch_done},
    CHANGES("CancelJob", cancel_job_request, job, cancel_job),
    CHANGES("PauseJob", pause_job_request, job, pause_job),
    CHANGES("ResumeJob", resume_job_request, job, resume_job),
    CHANGES("SaveJob", save_job_request, job, save_job),
    CHANGES("DeleteJob", delete_job_request, delete_job_response, delete_job),
};

td_status td_api_jobs_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
