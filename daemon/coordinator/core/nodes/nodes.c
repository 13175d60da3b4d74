// See the header.

#include "daemon/coordinator/core/nodes/nodes.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt.h"
#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "daemon/coordinator/core/catalog/attempt_over.h"
#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/leases.h"
#include "daemon/coordinator/core/nodes/node_record.h"
#include "daemon/coordinator/core/nodes/nodes_evict.h"
#include "daemon/coordinator/core/nodes/register_check.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "lib/base/clip.h"
#include "lib/base/digest.h"
#include "lib/base/utf8.h"

// ---- slots --------------------------------------------------------------------------------------
// None is held but those that are excluded: their uuids, and those of their instances.
static void release_devices(struct td_host *n) {
    const struct td_gpu_marks *m = &n->gpus.marks;
    const Traind__V1__GpuList *list = m->n ? n->gpus.list : NULL;
    td_host_devices_release(&n->devices);
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->mark[i].excludes) td_host_devices_exclude(&n->devices, m->mark[i].uuid);
    }
    for (size_t i = 0; list && i < list->n_gpus; i++) {
        const char *uuid = list->gpus[i]->uuid;
        if (td_host_gpus_mark(&n->gpus, uuid)) td_host_devices_exclude(&n->devices, uuid);
    }
}

void td_nodes_count(struct td_core *core) {
    void *value;
    for (size_t cursor = 0; (value = td_map_each(core->nodes, &cursor));) {
        struct td_host *n = value;
        n->used = 0;
        n->reserved = n->kept_for = 0;
        n->kept = 0;
        release_devices(n);
    }
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *a = td_job_live(core->live[i]);
        if (!a) continue;
        core->live[n_live++] = core->live[i];
        for (uint32_t k = 0; k < a->n_parts; k++) {
            const struct td_attempt_part *p = &a->parts[k];
            struct td_host *n = td_nodes_find(core, p->node);
            if (n) n->used += p->slots;
            if (n && p->devices) td_host_devices_hold(&n->devices, p->devices);
        }
    }
    core->n_live = n_live;
}

void td_nodes_set_plugins(struct td_core *core, struct td_host *n, const char *plugins) {
    char now[sizeof n->plugins];
    snprintf(now, sizeof now, "%s", plugins);
    td_utf8_scrub(now);
    if (strcmp(now, n->plugins) == 0) return;
    memcpy(n->plugins, now, sizeof now);
    (void)td_host_devices_forget(&n->devices); // other files may have others
    td_node_record_save(core, n);
    td_plans_drop_stale(core);
    core->queue_dirty = true;
}

void td_nodes_devices_changed(struct td_core *core, const struct td_host *n) {
    td_node_record_save(core, n);
    core->queue_dirty = true;
}

void td_nodes_take_probe(struct td_core *core, struct td_host *n, const Traind__V1__PluginList *m) {
    if (td_host_devices_take_probe(&n->devices, m->accelerators, m->n_accelerators)) {
        td_nodes_devices_changed(core, n);
    }
}

static void set_trouble(struct td_core *core, struct td_host *n, const char *trouble) {
    char now[TD_HOST_UNFIT_BYTES];
    (void)td_clip(now, sizeof now, "%s", trouble);
    td_utf8_scrub(now);
    if (strcmp(now, n->trouble) == 0) return;
    memcpy(n->trouble, now, sizeof now);
    if (now[0]) {
        td_core_log(core, "node gets no jobs node=%s why=\"%s\"", n->name, now);
    } else {
        td_core_log(core, "node gets jobs again node=%s", n->name);
    }
    core->queue_dirty = true;
}

void td_nodes_heartbeat(struct td_core *core, struct td_host *n, const Traind__V1__Heartbeat *m) {
    td_nodes_set_plugins(core, n, m->plugins);
    const uint32_t before = m->stale_messages < n->stale ? 0 : n->stale; // it has begun again
    core->counters[TD_COUNT_NODE_STALE] += m->stale_messages - before;
    n->stale = m->stale_messages;
    set_trouble(core, n, m->trouble);
    if (!n->settling) return;
    td_nodes_count(core);
    core->queue_dirty = true; // what jobs that wait keep is not counted any more
    if (m->slots_used <= n->used) n->settling = false;
}

// ---- registration -------------------------------------------------------------------------------
static const Traind__V1__AttemptHeld *
find_held(const Traind__V1__Register *m, const struct td_job *j, const struct td_attempt *a) {
    for (size_t i = 0; i < m->n_attempts; i++) {
        const Traind__V1__AttemptId *id = m->attempts[i]->id;
        if (id && id->attempt == a->number && id->epoch == a->epoch &&
            strcmp(id->job, j->id) == 0) {
            return m->attempts[i];
        }
    }
    return NULL;
}

// Live attempts that we placed there and it does not know. Where its part had ended, nothing more
// of that comes.
static void judge_missing(struct td_core *core, struct td_host *n, const Traind__V1__Register *m) {
    for (uint32_t i = core->n_active; i-- > 0;) {
        struct td_job *j = core->active[i];
        struct td_attempt *a = td_job_live(j);
        struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || td_attempt_part_over(p) || find_held(m, j, a)) continue;
        char why[160];
        snprintf(why, sizeof why, "node %s came back without attempt %u", n->name, a->number);
        if (td_attempt_part_live(p)) {
            td_attempt_lost(core, j, a, p, p->state == TD_ATTEMPT_STARTED, why);
        } else {
            td_attempt_rest_lost(core, j, a, p, why);
        }
    }
}

// Ended attempts of which something was still to come, and now never will.
static void forget_missing(struct td_core *core, struct td_host *n, const Traind__V1__Register *m) {
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct td_job *j = core->order[i];
        for (uint32_t k = 1; k <= j->n_attempts; k++) {
            struct td_attempt *a = td_job_attempt(j, k);
            struct td_attempt_part *p = td_attempt_part_on(a, n->id);
            if (!p || a->state != TD_ATTEMPT_ENDED || p->state != TD_ATTEMPT_ENDED ||
                p->forgotten || find_held(m, j, a)) {
                continue;
            }
            p->forgotten = true;
            if (td_attempt_over(a)) {
                td_catalog_attempt_over(core, j, a);
            } else {
                td_catalog_part_lost(core, j, a, p);
                td_attempt_maybe_forget(core, j, a); // others need not wait for it
            }
            td_core_save_attempt(core, j, a);
        }
    }
}

// Wanted: it is the live one, or an ended one of which something is still to come.
static struct td_attempt *wanted(struct td_core *core, const struct td_host *n,
                                 const Traind__V1__AttemptId *id, struct td_job **out_job) {
    struct td_job *j = id ? td_core_job(core, id->job) : NULL;
    struct td_attempt *a = j ? td_job_attempt(j, id->attempt) : NULL;
    const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
    if (!p || a->epoch != id->epoch) return NULL;
    if (td_attempt_part_over(p)) return NULL;
    *out_job = j;
    return a;
}

static Traind__V1__AttemptCursor *make_cursor(struct td_arena *arena, struct td_job *j,
                                              struct td_attempt *a,
                                              const struct td_attempt_part *p) {
    Traind__V1__AttemptCursor *c = td_core_must(td_arena_alloc(arena, sizeof *c));
    traind__v1__attempt_cursor__init(c);
    c->id = td_core_must(td_arena_alloc(arena, sizeof *c->id));
    td_core_attempt_id(j, a, c->id);
    size_t n = 1 + 3 * (size_t)p->n_ranks;
    c->offsets = td_core_must(td_arena_array(arena, n, sizeof *c->offsets));
    for (size_t i = 0; i < n; i++) {
        Traind__V1__SegmentOffset *o = td_core_must(td_arena_alloc(arena, sizeof *o));
        traind__v1__segment_offset__init(o);
        o->rank = i ? p->first_rank + (uint32_t)((i - 1) / 3) : 0;
        const struct td_rank_cursor *r = &a->ranks[o->rank];
        static const Traind__V1__Segment__Kind kinds[] = {TRAIND__V1__SEGMENT__KIND__METRICS,
                                                          TRAIND__V1__SEGMENT__KIND__OUT,
                                                          TRAIND__V1__SEGMENT__KIND__ERR};
        o->kind = i ? kinds[(i - 1) % 3] : TRAIND__V1__SEGMENT__KIND__EVENTS;
        o->offset = !i                 ? p->events
                    : (i - 1) % 3 == 0 ? r->metrics
                    : (i - 1) % 3 == 1 ? r->out
                                       : r->err;
        c->offsets[i] = o;
    }
    c->n_offsets = n;
    return c;
}

// The last build's frames are not ours: let it save and start again under this one.
static void check_major(struct td_core *core, struct td_host *n, struct td_job *j,
                        struct td_attempt *a, const Traind__V1__AttemptHeld *held) {
    if (!held->alive || held->launcher_major == n->launcher_major || a->stop) return;
    td_attempt_stop(core, j, a, TD_STOP_CAUSE_UPGRADE);
}

// One answer for each, or a list of repetitions would outgrow the arena of the answer.
static bool is_repeated(const Traind__V1__Register *m, size_t i) {
    const Traind__V1__AttemptId *id = m->attempts[i]->id;
    for (size_t k = 0; id && k < i; k++) {
        const Traind__V1__AttemptId *other = m->attempts[k]->id;
        if (other && other->attempt == id->attempt && other->epoch == id->epoch &&
            strcmp(other->job, id->job) == 0) {
            return true;
        }
    }
    return false;
}

static void answer(struct td_core *core, struct td_host *n, const Traind__V1__Register *m) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_CHECK(!td_arena_create((size_t)64 << 20, &arena));
    Traind__V1__Registered r = TRAIND__V1__REGISTERED__INIT;
    r.heartbeat_ms = (uint32_t)(core->options.heartbeat_ns / TD_NS_PER_MS);
    r.lease_ms = (uint32_t)(core->options.lease_ns / TD_NS_PER_MS);
    r.key = n->key;
    r.unfit = n->unfit;
    r.batches = true;
    r.adopt = td_core_must(td_arena_array(arena, m->n_attempts + 1, sizeof *r.adopt));
    r.stop = td_core_must(td_arena_array(arena, m->n_attempts + 1, sizeof *r.stop));
    for (size_t i = 0; i < m->n_attempts; i++) {
        if (is_repeated(m, i)) continue;
        struct td_job *j = NULL;
        struct td_attempt *a = wanted(core, n, m->attempts[i]->id, &j);
        if (a) {
            r.adopt[r.n_adopt++] = make_cursor(arena, j, a, td_attempt_part_on(a, n->id));
        } else if (m->attempts[i]->id) {
            r.stop[r.n_stop++] = m->attempts[i]->id;
            if (m->attempts[i]->alive) n->settling = true;
        }
    }
    Traind__V1__CoordinatorMessage reply = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    reply.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED;
    reply.registered = &r;
    td_core_send(core, n, &reply);
    for (size_t i = 0; i < m->n_attempts; i++) { // after the adoption: stops that are still due
        struct td_job *j = NULL;
        struct td_attempt *a = wanted(core, n, m->attempts[i]->id, &j);
        if (!a) continue;
        td_attempt_maybe_forget(core, j, a); // the last of it came before the session ended
        if (!td_attempt_live(a)) continue;
        struct td_attempt_part *p = td_attempt_part_on(a, n->id);
        p->stop_sent = p->abort_sent = false;
        td_attempt_send_stop(core, j, a);
        check_major(core, n, j, a, m->attempts[i]);
    }
}

// Of each session another one, so that what a node sent in an earlier one is known.
static void make_key(const struct td_core *core, struct td_host *n) {
    struct {
        uint8_t secret[sizeof core->options.secret];
        uint64_t incarnation, session;
    } from = {.incarnation = core->options.incarnation, .session = n->session};
    memcpy(from.secret, core->options.secret, sizeof from.secret);
    td_xxh3_128_hex(&from, sizeof from, n->key);
}

static bool is_used(const struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i < core->n_active; i++) {
        const struct td_attempt *a = td_job_live(core->active[i]);
        if (a && td_attempt_part_on(a, n->id)) return true;
    }
    return n->session;
}

// Why the session's token may not be this node. A node belongs to the name of the token that it
// registered with, so a token of the same name replaces one that expires.
static const char *not_the_holder(const struct td_core *core, const struct td_host *n,
                                  const struct td_node_session *s) {
    if (!n || !s->holder[0] || strcmp(n->holder, s->holder) == 0) return NULL;
    if (n->holder[0]) {
        return "this node registered with a node token of another name; take a token of that name, "
               "or give this daemon a state directory, and so an id, of its own";
    }
    if (!is_used(core, n)) return NULL;
    return "this node registered with the owner's token and is in use; register with a node token "
           "when its session is over and no attempt runs on it";
}

// It speaks again: what was said about its silence is over; a rank of it may be silent still.
static void clear_silence(struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        const struct td_attempt *a = td_job_live(j);
        if (!a || !td_attempt_part_on(a, n->id)) continue;
        if (strcmp(j->reason.code, "NODE_SILENT") != 0) continue;
        td_attempt_node_speaks(j, a);
        td_core_progress(core, j);
    }
}

static struct td_host *add(struct td_core *core, const char *id) {
    struct td_host *n = td_core_must(td_calloc(1, sizeof *n));
    snprintf(n->id, sizeof n->id, "%s", id);
    TD_CHECK(!td_map_put(core->nodes, n->id, n, NULL));
    return n;
}

// A node of a build that is not understood has no session. It is shown with the reason, for as long
// as it tries and does not register; its row on disk stays what it was. Whoever speaks for that id
// is not touched by another machine, and no known node makes room for it.
static void show_refused(struct td_core *core, struct td_host *n, const struct td_node_session *s,
                         const Traind__V1__Register *m, const char *why) {
    if (n && n->session && n->session != s->id) return;
    if (!n) {
        if (td_map_count(core->nodes) >= TD_CORE_MAX_NODES) return;
        n = add(core, m->node_id);
        n->last_message = core->now.mono;
        n->shown_only = true;
    }
    td_register_fill(n, s, m);
    n->refused = true;
    n->refused_at = core->now.mono;
    (void)td_clip(n->unfit, sizeof n->unfit, "%s", why);
    n->seen_ns = core->now.real.ns;
    core->queue_dirty = true;
}

// The node's session gives way to another. Its end may be seen when the node is forgotten.
static void drive_out(struct td_core *core, const struct td_host *n, bool was_copy) {
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        struct td_node_session *s = core->sessions[i];
        if (s->id != n->session) continue;
        s->node = NULL;
        s->ends = true;
    }
    if (was_copy) {
        td_core_refuse_session(core, n->session, td_register_refuse_copy(n));
    } else {
        td_core_close_session(core, n->session, "the node began another session");
    }
}

void td_nodes_register(struct td_core *core, struct td_node_session *s,
                       const Traind__V1__Register *m) {
    const char *bad = td_register_bad(m);
    struct td_host *n = bad ? NULL : td_nodes_find(core, m->node_id);
    if (!bad && s->node && s->node != n) bad = "a session is of one node";
    // It cannot dial again, and needs not: somebody else says that he is this daemon's own node.
    if (!bad && n && n->embedded && n->session && n->session != s->id) {
        bad = "this node is the coordinator's own, whose session lives; give the other one a state "
              "directory, and so an id, of its own";
    }
    if (bad) {
        td_core_close_session(core, s->id, bad);
        return;
    }
    bad = not_the_holder(core, n, s);
    if (bad) {
        td_core_deny_session(core, s->id, bad);
        return;
    }
    td_status refused = td_register_check(core, n, s, m);
    if (refused) {
        if (td_register_is_mismatch(refused)) {
            show_refused(core, n, s, m, td_status_message(refused));
        }
        td_core_refuse_session(core, s->id, refused);
        return;
    }
    td_status full = n ? TD_OK : td_nodes_evict(core);
    if (full) {
        td_core_close_session(core, s->id, td_status_message(full));
        td_status_free(full);
        return;
    }
    if (!n) n = add(core, m->node_id);
    bool was_copy = td_register_take(n, m);
    td_register_fill(n, s, m);
    td_register_judge(n, m);
    if (n->unfit[0]) td_core_log(core, "node gets no jobs node=%s why=\"%s\"", n->name, n->unfit);
    if (n->session && n->session != s->id) drive_out(core, n, was_copy);
    s->node = n;
    n->session = s->id;
    make_key(core, n);
    n->last_message = core->now.mono;
    n->seen_ns = core->now.real.ns;
    n->lost = n->settling = n->shown_only = false;
    core->counters[TD_COUNT_SESSIONS]++;
    td_node_record_save(core, n);
    td_reconcile_node_down(n); // until it has the answer
    td_rendezvous_node_up(core, n);
    judge_missing(core, n, m);
    forget_missing(core, n, m);
    answer(core, n, m);
    td_reconcile_node_up(core, n, m->fresh);
    clear_silence(core, n);
    td_leases_stay_awake(core);
    td_plans_drop_stale(core);
    td_plans_node_gone(core, n->id); // what was asked in an earlier session is asked again
    td_plans_tick(core);
    core->queue_dirty = true;
}

void td_nodes_session_gone(struct td_core *core, struct td_node_session *s) {
    struct td_host *n = s->node;
    if (!n || n->session != s->id) return; // superseded
    n->session = 0;
    n->seen_ns = core->now.real.ns;
    td_node_record_save(core, n);
    td_reconcile_node_down(n);
    td_plans_node_gone(core, n->id);
    td_plans_tick(core);
    td_core_wake_at(core, td_mono_add(n->last_message, core->options.lease_ns));
    core->queue_dirty = true;
}
