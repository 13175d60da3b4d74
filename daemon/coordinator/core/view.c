// From the core's structs to messages, one function per message. No decision is taken here; times
// become RFC 3339, unset values become absent ones.

#include "daemon/coordinator/core/view.h"

#include <math.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/drain.h"
#include "daemon/coordinator/core/plans/capacity.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "daemon/coordinator/core/queue/match.h"
#include "daemon/coordinator/core/queue/queue_reason.h"
#include "daemon/coordinator/core/view_gpus.h"
#include "daemon/coordinator/core/view_labels.h"
#include "lib/attempt/rank_page.h"

enum { MAX_BLOCKERS = 16 };

static char *copy(struct td_arena *a, const char *s) {
    return td_arena_strdup(a, s ? s : "");
}

char *td_view_time(struct td_arena *a, int64_t real_ns) {
    char text[32];
    if (!real_ns) return td_unconst("");
    td_real_format((struct td_real){real_ns}, text, sizeof text);
    return td_arena_strdup(a, text);
}

// ---- jobs ---------------------------------------------------------------------------------------
static Traind__V1__Reason *view_reason(struct td_arena *a, const struct td_core *core,
                                       const struct td_job *j, const struct td_reason *from,
                                       struct td_now now) {
    if (!from->code[0]) return NULL;
    Traind__V1__Reason *r = td_arena_alloc(a, sizeof *r);
    if (!r) return NULL;
    traind__v1__reason__init(r);
    r->code = td_arena_strdup(a, from->code);
    r->text = td_arena_strdup(a, from->text);
    r->needed_slots = from->needed_slots;
    r->free_slots = from->free_slots;
    r->needed_devices = from->needed_devices;
    r->free_devices = from->free_devices;
    r->all_devices = from->all_devices;
    r->queue_position = from->position;
    if (j->state == TD_JOB_RECOVERING && j->retry_at.ns > now.mono.ns) {
        r->retry_in_ms = (uint32_t)((j->retry_at.ns - now.mono.ns) / TD_NS_PER_MS);
    }
    const struct td_job *blocker[MAX_BLOCKERS];
    const uint32_t n = td_queue_blockers(core, j, now.mono, blocker, MAX_BLOCKERS);
    r->blockers = td_arena_array(a, n + 1, sizeof *r->blockers);
    for (uint32_t i = 0; r->blockers && i < n; i++) {
        r->blockers[r->n_blockers++] = copy(a, blocker[i]->id);
    }
    return r;
}

// A node by the name that people know it by; by its id once it is forgotten.
static char *host_name(struct td_arena *a, const struct td_core *core, const char *id) {
    const struct td_host *n = td_nodes_find(core, id);
    return copy(a, n ? n->name : id);
}

static Traind__V1__Failure *view_failure(struct td_arena *a, const struct td_core *core,
                                         const struct td_failure *f) {
    if (!f->set) return NULL;
    Traind__V1__Failure *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__failure__init(m);
    m->class_ = td_unconst(td_class_name(f->cls));
    m->code = td_unconst(td_code_name(f->code));
    m->message = copy(a, f->message);
    m->attempt = f->attempt;
    m->rank = f->rank;
    m->step = f->step;
    m->node = host_name(a, core, f->node);
    m->last_words = copy(a, f->last_words);
    return m;
}

// Of what counts no samples: by the time that steps took so far. 0: nothing is known.
static double eta_of_steps(const struct td_job *j) {
    const struct td_attempt *live = j->attempts[j->n_attempts - 1];
    const struct td_job_progress *at = &j->progress;
    // Steps may come seconds apart: their time is that of the last one, not of who looks.
    const int64_t took_ns = live->pace_at.ns - live->pace_since.ns;
    const bool moves = took_ns > 0 && at->step > live->pace_step;
    if (!moves || at->step >= at->total_steps) return 0;
    return (double)took_ns / 1e9 / (double)(at->step - live->pace_step) *
           (double)(at->total_steps - at->step);
}

static Traind__V1__Progress *view_progress(struct td_arena *a, const struct td_job *j) {
    if (!j->n_attempts) return NULL;
    Traind__V1__Progress *p = td_arena_alloc(a, sizeof *p);
    if (!p) return NULL;
    traind__v1__progress__init(p);
    const struct td_job_progress *from = &j->progress;
    p->epoch = from->epoch;
    p->step = from->step;
    p->total_steps = from->total_steps;
    p->loss = (double)from->loss;
    p->samples_per_s = from->samples_per_s;
    p->phase = td_unconst(td_rank_phase_name(from->phase));
    p->detail = td_unconst(td_rank_phase_detail(from->phase));
    int64_t batch = j->knobs.batch_size * j->n_ranks;
    if (batch > 0 && from->samples_per_s > 0 && from->total_steps > from->step) {
        p->eta_s = (double)(from->total_steps - from->step) * (double)batch / from->samples_per_s;
    } else if (batch == 0) {
        p->eta_s = eta_of_steps(j);
    }
    return p;
}

static bool view_metrics(struct td_arena *a, const struct td_job *j, Traind__V1__Job *m) {
    m->metrics = td_arena_array(a, j->n_metrics + 1, sizeof *m->metrics);
    if (!m->metrics) return false;
    for (uint32_t i = 0; i < j->n_metrics; i++) {
        Traind__V1__Job__MetricsEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__job__metrics_entry__init(e);
        e->key = td_arena_strdup(a, j->metrics[i].name);
        e->value = j->metrics[i].shown;
        m->metrics[m->n_metrics++] = e;
    }
    return true;
}

// Of all parts, in the order of the ranks.
static void view_devices(struct td_arena *a, const struct td_attempt *live, Traind__V1__Job *m) {
    char uuid[TD_DEVICE_UUID];
    m->devices = td_arena_array(a, td_attempt_n_devices(live) + 1, sizeof *m->devices);
    for (uint32_t k = 0; m->devices && k < live->n_parts; k++) {
        const char *list = live->parts[k].devices;
        for (uint32_t i = 0; list && td_device_list_at(list, i, uuid); i++) {
            m->devices[m->n_devices++] = copy(a, uuid);
        }
    }
}

static Traind__V1__Part *view_part(struct td_arena *a, const struct td_core *core,
                                   const struct td_attempt_part *p) {
    Traind__V1__Part *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__part__init(m);
    m->node = host_name(a, core, p->node);
    m->first_rank = p->first_rank;
    m->n_ranks = p->n_ranks;
    m->slots = p->slots;
    m->state = td_unconst(td_attempt_state_name(p->state));
    return m;
}

static void view_places(struct td_arena *a, const struct td_core *core, const struct td_job *j,
                        const struct td_reason *why, Traind__V1__Job *m) {
    const struct td_attempt *live = td_job_live(j);
    if (live) {
        m->nodes = td_arena_array(a, live->n_parts, sizeof *m->nodes);
        m->parts = td_arena_array(a, live->n_parts, sizeof *m->parts);
        for (uint32_t i = 0; m->nodes && m->parts && i < live->n_parts; i++) {
            Traind__V1__Part *part = view_part(a, core, &live->parts[i]);
            if (!part) break; // the arena is full, which its owner notices
            m->nodes[m->n_nodes++] = part->node;
            m->parts[m->n_parts++] = part;
        }
        m->slots = td_attempt_slots(live);
        view_devices(a, live, m);
    } else {
        m->slots = why->needed_slots ? why->needed_slots : j->n_ranks;
    }
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    m->checkpoint = c ? td_arena_strdup(a, c->path) : td_unconst("");
}

static char *view_spec(struct td_arena *a, const struct td_job *j) {
    if (!td_spec_text_is_set(&j->spec)) return td_unconst("");
    TD_AUTO_FREE char *inflated = NULL;
    const char *text;
    td_status s = td_spec_text_read(&j->spec, &inflated, &text);
    char *shown = s ? NULL : td_arena_strdup(a, text);
    td_status_free(s);
    return shown;
}

Traind__V1__Job *td_view_job(struct td_arena *a, const struct td_core *core, const struct td_job *j,
                             struct td_now now, int flags) {
    Traind__V1__Job *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__job__init(m);
    m->id = copy(a, j->id);
    m->name = copy(a, j->name);
    m->state = (Traind__V1__Job__State)(j->state + 1);
    struct td_reason why;
    td_queue_reason(core, j, now.mono, &why);
    m->reason = view_reason(a, core, j, &why, now);
    m->attempt = j->n_attempts;
    m->global_step = j->progress.step;
    m->total_steps = j->progress.total_steps;
    m->epoch = j->progress.epoch;
    m->restarts = j->restarts;
    m->progress = view_progress(a, j);
    m->failure = view_failure(a, core, &j->failure);
    m->create_time = td_view_time(a, j->create_ns);
    m->start_time = td_view_time(a, j->start_ns);
    m->end_time = td_view_time(a, j->end_ns);
    m->n_ranks = j->n_ranks;
    m->spec_json = flags & TD_VIEW_SPEC ? view_spec(a, j) : td_unconst("");
    m->weights = copy(a, j->weights);
    m->owner = copy(a, j->owner);
    m->owner_token = copy(a, j->owner_token);
    m->etag = td_arena_printf(a, "%llu", (unsigned long long)j->version);
    view_places(a, core, j, &why, m);
    m->notes = td_arena_array(a, j->n_notes + 1, sizeof *m->notes);
    if (!m->notes || !m->etag || !view_metrics(a, j, m) || !td_view_job_labels(a, j->labels, m)) {
        return NULL;
    }
    const struct td_attempt *live = td_job_live(j);
    if (live && !td_view_job_gpus(a, core, live, m)) return NULL;
    for (uint32_t i = 0; i < j->n_notes; i++) {
        m->notes[m->n_notes++] = copy(a, j->notes[i]);
    }
    return m;
}

// ---- checkpoints --------------------------------------------------------------------------------
static bool view_numbers(struct td_arena *a, const char *json, Traind__V1__Checkpoint *m) {
    struct td_json *v = NULL;
    td_status s = json ? td_json_parse(a, json, strlen(json), &v) : TD_OK;
    td_status_free(s);
    m->metrics = td_arena_array(a, v ? v->n_children + 1 : 1, sizeof *m->metrics);
    if (!m->metrics) return false;
    for (const struct td_json *n = v ? v->first : NULL; n; n = n->next) {
        Traind__V1__Checkpoint__MetricsEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__checkpoint__metrics_entry__init(e);
        e->key = copy(a, n->key);
        e->value = (double)NAN;
        (void)td_json_value(n, &e->value);
        m->metrics[m->n_metrics++] = e;
    }
    return true;
}

Traind__V1__Checkpoint *td_view_checkpoint(struct td_arena *a, const struct td_core *core,
                                           const struct td_job *j, const struct td_checkpoint *c) {
    Traind__V1__Checkpoint *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__checkpoint__init(m);
    m->job = copy(a, j->id);
    m->path = copy(a, c->path);
    m->state = c->damage       ? TRAIND__V1__CHECKPOINT__STATE__DAMAGED
               : c->registered ? TRAIND__V1__CHECKPOINT__STATE__REGISTERED
               : c->committed  ? TRAIND__V1__CHECKPOINT__STATE__COMMITTED
                               : TRAIND__V1__CHECKPOINT__STATE__PENDING;
    m->note = c->damage ? copy(a, c->damage) : td_unconst("");
    m->attempt = c->attempt;
    m->step = c->step;
    m->epoch = c->epoch;
    m->bytes = td_checkpoint_bytes(c);
    m->node = c->streamed ? td_unconst("") : host_name(a, core, c->node);
    m->directory = c->streamed
                       ? td_arena_printf(a, "%s/%s/%s", core->checkpoint_dir, j->id, c->path)
                       : copy(a, c->directory);
    m->time = td_view_time(a, c->time_ns);
    m->files = td_arena_array(a, c->n_files + 1, sizeof *m->files);
    if (!m->files || !m->directory || !view_numbers(a, c->metrics_json, m)) return NULL;
    for (uint32_t i = 0; i < c->n_files; i++) {
        Traind__V1__CheckpointFile *f = td_arena_alloc(a, sizeof *f);
        if (!f) return NULL;
        traind__v1__checkpoint_file__init(f);
        f->name = copy(a, c->files[i].name);
        f->bytes = c->files[i].bytes;
        f->digest = copy(a, c->files[i].digest);
        m->files[m->n_files++] = f;
    }
    return m;
}

// ---- a deleted job -----------------------------------------------------------------------------
Traind__V1__DeleteJobResponse *td_view_deleted(struct td_arena *a, const struct td_core *core,
                                               const char *id) {
    Traind__V1__DeleteJobResponse *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__delete_job_response__init(m);
    m->id = copy(a, id);
    size_t cursor = 0, n_parts = 0;
    const struct td_removal *part;
    while (td_core_is_leaving(core, id, &cursor, &part)) {
        n_parts++;
    }
    m->nodes_waiting = td_arena_array(a, n_parts + 1, sizeof *m->nodes_waiting);
    if (!m->id || !m->nodes_waiting) return NULL;
    cursor = 0;
    while (td_core_is_leaving(core, id, &cursor, &part)) {
        const struct td_host *n = td_nodes_find(core, part->node);
        if (!part->node[0] || (n && n->session)) continue; // it goes as we speak
        m->nodes_waiting[m->n_nodes_waiting++] = host_name(a, core, part->node);
        if (!m->nodes_waiting[m->n_nodes_waiting - 1]) return NULL;
    }
    return m;
}

// ---- nodes and the cluster ----------------------------------------------------------------------
static uint32_t used_slots(const struct td_core *core, const struct td_host *n) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *a = td_job_live(core->live[i]);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (p) used += p->slots;
    }
    return used;
}

static uint64_t used_memory(const struct td_core *core, const struct td_host *n) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_job *j = core->live[i];
        const struct td_attempt *a = td_job_live(j);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        const int64_t asked = TD_MAX(j->knobs.resources.memory_bytes, (int64_t)0);
        if (p) used += td_capacity_bytes(p->n_ranks, td_plans_of(core, j, n), (uint64_t)asked);
    }
    return used;
}

// That have an attempt there.
static size_t count_jobs(const struct td_core *core, const struct td_host *n) {
    size_t n_jobs = 0;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *live = td_job_live(core->live[i]);
        n_jobs += live && td_attempt_part_on(live, n->id);
    }
    return n_jobs;
}

static bool view_node_jobs(struct td_arena *a, const struct td_core *core, const struct td_host *n,
                           Traind__V1__Node *m) {
    m->jobs = td_arena_array(a, count_jobs(core, n) + 1, sizeof *m->jobs);
    m->accelerators = td_arena_array(a, 16, sizeof *m->accelerators);
    if (!m->jobs || !m->accelerators) return false;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *live = td_job_live(core->live[i]);
        if (live && td_attempt_part_on(live, n->id)) {
            m->jobs[m->n_jobs++] = copy(a, core->live[i]->id);
        }
    }
    const char *p = n->accelerators;
    while (*p && m->n_accelerators < 16) {
        size_t len = strcspn(p, ",");
        m->accelerators[m->n_accelerators++] = td_arena_strndup(a, p, len);
        p += len + (p[len] == ',');
    }
    return true;
}

static bool shows(const struct td_host *n, const struct td_host_accel *accel) {
    return !accel->refused && (accel->is_host || !n->devices.withheld);
}

static bool add_device(struct td_arena *a, const struct td_host_device *from,
                       Traind__V1__AcceleratorDevices *m) {
    for (size_t i = 0; i < m->n_devices; i++) {
        if (strcmp(m->devices[i]->uuid, from->uuid) == 0) return true;
    }
    Traind__V1__Device *d = td_arena_alloc(a, sizeof *d);
    if (!d) return false;
    traind__v1__device__init(d);
    d->uuid = copy(a, from->uuid);
    d->name = copy(a, from->name);
    d->memory_bytes = from->memory_bytes;
    d->used = from->held == TD_DEVICE_ATTEMPT;
    m->devices[m->n_devices++] = d;
    return true;
}

// The devices of all accelerators of that name: plugins of specs are apart, people see one row.
static Traind__V1__AcceleratorDevices *view_accel(struct td_arena *a, const struct td_host *n,
                                                  const char *name) {
    Traind__V1__AcceleratorDevices *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__accelerator_devices__init(m);
    m->accelerator = copy(a, name);
    m->is_host = true;
    size_t most = 1;
    for (uint32_t i = 0; i < n->devices.n; i++) {
        most += n->devices.accel[i]->n;
    }
    m->devices = td_arena_array(a, most, sizeof *m->devices);
    for (uint32_t i = 0; m->devices && i < n->devices.n; i++) {
        const struct td_host_accel *accel = n->devices.accel[i];
        if (strcmp(accel->name, name) != 0 || !shows(n, accel)) continue;
        m->is_host &= accel->is_host;
        for (uint32_t k = 0; k < accel->n; k++) {
            if (!add_device(a, &accel->device[k], m)) return NULL;
        }
    }
    return m->devices ? m : NULL;
}

static bool has_row(const Traind__V1__Node *m, const char *name) {
    for (size_t i = 0; i < m->n_devices; i++) {
        if (strcmp(m->devices[i]->accelerator, name) == 0) return true;
    }
    return false;
}

static bool view_node_devices(struct td_arena *a, const struct td_host *n, Traind__V1__Node *m) {
    m->devices = td_arena_array(a, n->devices.n + 1, sizeof *m->devices);
    for (uint32_t i = 0; m->devices && i < n->devices.n; i++) {
        const struct td_host_accel *accel = n->devices.accel[i];
        if (!shows(n, accel) || has_row(m, accel->name)) continue;
        m->devices[m->n_devices] = view_accel(a, n, accel->name);
        if (!m->devices[m->n_devices++]) return false;
    }
    return m->devices != NULL;
}

static Traind__V1__Node__State node_state(const struct td_core *core, const struct td_host *n) {
    if (!td_host_connected(n) && !n->refused) return TRAIND__V1__NODE__STATE__LOST;
    if (n->unfit[0]) return TRAIND__V1__NODE__STATE__INCOMPATIBLE;
    if (n->trouble[0]) return TRAIND__V1__NODE__STATE__TROUBLED;
    bool drains = core->stopping && n->embedded;
    return drains ? TRAIND__V1__NODE__STATE__DRAINING : TRAIND__V1__NODE__STATE__READY;
}

static Traind__V1__DrainedJob *view_drained(struct td_arena *a, const struct td_job *j) {
    const char *why;
    Traind__V1__DrainedJob *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__drained_job__init(m);
    m->id = copy(a, j->id);
    m->name = copy(a, j->name);
    m->leaves = td_drain_leaves(j, td_job_live(j), &why);
    m->why = td_unconst(why);
    return m;
}

static Traind__V1__Cordon *view_cordon(struct td_arena *a, const struct td_core *core,
                                       const struct td_host *n) {
    const struct td_host_cordon *from = &n->cordon;
    Traind__V1__Cordon *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__cordon__init(m);
    m->by = copy(a, from->by);
    m->time = td_view_time(a, from->time_ns);
    m->reason = copy(a, from->reason);
    m->drains = from->drains;
    if (!m->time || !from->drains) return m->time ? m : NULL;
    m->empty = td_drain_is_empty(core, n);
    m->jobs = td_arena_array(a, count_jobs(core, n) + 1, sizeof *m->jobs);
    if (!m->jobs) return NULL;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *live = td_job_live(core->live[i]);
        if (!live || !td_attempt_part_on(live, n->id)) continue;
        m->jobs[m->n_jobs] = view_drained(a, core->live[i]);
        if (!m->jobs[m->n_jobs++]) return NULL;
    }
    return m;
}

Traind__V1__Node *td_view_node(struct td_arena *a, const struct td_core *core,
                               const struct td_host *n, struct td_now now) {
    Traind__V1__Node *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__node__init(m);
    m->id = copy(a, n->id);
    m->name = copy(a, n->name);
    m->state = node_state(core, n);
    if (m->state == TRAIND__V1__NODE__STATE__INCOMPATIBLE) m->state_reason = copy(a, n->unfit);
    if (m->state == TRAIND__V1__NODE__STATE__TROUBLED) m->state_reason = copy(a, n->trouble);
    m->slots = n->slots;
    m->slots_used = used_slots(core, n);
    m->cores = n->cores;
    m->memory_bytes = n->memory_bytes;
    m->memory_used_bytes = used_memory(core, n);
    m->version = copy(a, n->version);
    m->cpu_level = copy(a, n->cpu_level);
    m->cpu_level_held = copy(a, n->cpu_level_held);
    m->embedded = n->embedded;
    m->address = copy(a, n->from);
    m->gpus = td_view_gpus(a, core, n);
    int64_t ago_ns = n->embedded && n->session ? 0 : now.mono.ns - n->last_message.ns;
    m->last_seen_ms = ago_ns > 0 ? (uint32_t)TD_MIN(ago_ns / TD_NS_PER_MS, UINT32_MAX) : 0;
    if (n->cordon.on && !(m->cordon = view_cordon(a, core, n))) return NULL;
    if (!td_view_node_labels(a, n->labels, m)) return NULL;
    return m->gpus && view_node_jobs(a, core, n, m) && view_node_devices(a, n, m) ? m : NULL;
}

Traind__V1__ListNodesResponse *td_view_nodes(struct td_arena *a, const struct td_core *core,
                                             struct td_now now, struct td_page page,
                                             const char *after) {
    Traind__V1__ListNodesResponse *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__list_nodes_response__init(m);
    m->nodes = td_arena_array(a, td_map_count(core->nodes) + 1, sizeof *m->nodes);
    size_t cursor = 0;
    const char *key, *last = after;
    void *value;
    bool skips = after[0];
    while (m->nodes && td_map_next(core->nodes, &cursor, &key, &value)) {
        if (skips) {
            skips = strcmp(key, after) != 0;
            continue;
        }
        Traind__V1__Node *n = td_view_node(a, core, value, now);
        if (!n) return NULL;
        if (!td_page_takes(&page, &n->base)) {
            m->next_page_token = copy(a, last);
            break;
        }
        m->nodes[m->n_nodes++] = n;
        last = key;
    }
    return m->nodes && m->next_page_token ? m : NULL;
}

Traind__V1__ClusterInfo__CountersEntry *td_view_counter(struct td_arena *a, const char *key,
                                                        uint32_t value) {
    Traind__V1__ClusterInfo__CountersEntry *e = td_arena_alloc(a, sizeof *e);
    if (!e) return NULL;
    traind__v1__cluster_info__counters_entry__init(e);
    e->key = td_unconst(key);
    e->value = value;
    return e;
}

static bool add_timers(struct td_arena *a, const struct td_core *core, Traind__V1__ClusterInfo *m) {
    const struct {
        const char *name;
        int64_t ns;
    } timers[] = {{"heartbeat", core->options.heartbeat_ns},
                  {"lease", core->options.lease_ns},
                  {"lost_after", core->options.lost_after_ns},
                  {"stop_grace", core->options.stop_grace_ns}};
    m->timers_ms = td_arena_array(a, TD_COUNTOF(timers), sizeof *m->timers_ms);
    for (size_t i = 0; m->timers_ms && i < TD_COUNTOF(timers); i++) {
        Traind__V1__ClusterInfo__TimersMsEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__cluster_info__timers_ms_entry__init(e);
        e->key = td_unconst(timers[i].name);
        e->value = (uint32_t)(timers[i].ns / TD_NS_PER_MS);
        m->timers_ms[m->n_timers_ms++] = e;
    }
    return m->timers_ms != NULL;
}

Traind__V1__ClusterInfo *td_view_cluster(struct td_arena *a, const struct td_core *core,
                                         size_t n_more) {
    Traind__V1__ClusterInfo *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__cluster_info__init(m);
    m->incarnation = core->options.incarnation;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_host_ready(n)) continue;
        m->nodes++;
        m->slots += n->slots;
        m->slots_used += used_slots(core, n);
    }
    for (uint32_t i = 0; i < core->n_live; i++) {
        m->jobs_running += td_job_live(core->live[i]) != NULL;
    }
    m->jobs_queued = core->n_waiting;
    m->counters = td_arena_array(a, TD_COUNT_COUNT + n_more, sizeof *m->counters);
    if (!m->counters || !add_timers(a, core, m)) return NULL;
    for (int c = 0; c < TD_COUNT_COUNT; c++) {
        m->counters[m->n_counters] =
            td_view_counter(a, td_core_counter_name((enum td_core_counter)c), core->counters[c]);
        if (!m->counters[m->n_counters++]) return NULL;
    }
    return m;
}
