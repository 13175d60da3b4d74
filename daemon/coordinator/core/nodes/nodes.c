// See the header.

#include "daemon/coordinator/core/nodes/nodes.h"

#include <inttypes.h>
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
#include "daemon/coordinator/core/nodes/nodes_evict.h"
#include "daemon/coordinator/core/nodes/register_check.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/digest.h"

enum { NODE_BODY_MAX = 4 << 20 };
// Longer than any that a node makes before it dials again.
static const int64_t node_pause_ns = 10 * TD_NS_PER_S;

// ---- records ------------------------------------------------------------------------------------
static td_status encode(const struct td_host *n, struct td_buf *out) {
    // As signed: a record whose integers pass INT64_MAX would not load again.
    TD_TRY(td_buf_printf(out, "{\"cores\":%u,\"slots\":%u,\"memory_bytes\":%" PRId64, n->cores,
                         n->slots, (int64_t)n->memory_bytes));
    TD_TRY(td_buf_printf(out, ",\"launcher_major\":%u,\"embedded\":%d,\"boot_id\":",
                         n->launcher_major, n->embedded));
    TD_TRY(td_json_print_string(n->boot_id, strlen(n->boot_id), out));
    TD_TRY(td_buf_str(out, ",\"name\":"));
    TD_TRY(td_json_print_string(n->name, strlen(n->name), out));
    TD_TRY(td_buf_str(out, ",\"version\":"));
    TD_TRY(td_json_print_string(n->version, strlen(n->version), out));
    TD_TRY(td_buf_str(out, ",\"accelerators\":"));
    TD_TRY(td_json_print_string(n->accelerators, strlen(n->accelerators), out));
    TD_TRY(td_buf_str(out, ",\"cpu_level\":"));
    TD_TRY(td_json_print_string(n->cpu_level, strlen(n->cpu_level), out));
    TD_TRY(td_buf_str(out, ",\"cpu_level_held\":"));
    TD_TRY(td_json_print_string(n->cpu_level_held, strlen(n->cpu_level_held), out));
    TD_TRY(td_buf_str(out, ",\"plugins\":"));
    TD_TRY(td_json_print_string(n->plugins, strlen(n->plugins), out));
    TD_TRY(td_buf_str(out, ",\"collective_address\":"));
    TD_TRY(td_json_print_string(n->collective_address, strlen(n->collective_address), out));
    TD_TRY(td_buf_str(out, ",\"holder\":"));
    TD_TRY(td_json_print_string(n->holder, strlen(n->holder), out));
    TD_TRY(td_buf_str(out, ",\"devices\":"));
    TD_TRY(td_host_devices_encode(&n->devices, out));
    TD_TRY(td_buf_printf(out, ",\"runs_commands\":%d,\"runs_programs\":%d",
                         td_job_kind_is_in(n->kinds, TD_KIND_COMMAND),
                         td_job_kind_is_in(n->kinds, TD_KIND_PROGRAM)));
    return td_buf_printf(out, ",\"gives_devices\":%d,\"seen_ns\":%" PRId64 "}",
                         !n->devices.withheld, n->seen_ns);
}

static void save(struct td_core *core, const struct td_host *n) {
    TD_AUTO_BUF body;
    td_buf_init(&body, NODE_BODY_MAX);
    TD_CHECK(!encode(n, &body));
    td_core_record(core, TD_RECORD_NODE, n->id, td_buf_cstr(&body));
}

td_status td_nodes_load(struct td_core *core, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *v = NULL;
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, node '%s'", key);
    struct td_host *n = td_calloc(1, sizeof *n);
    if (!n) return td_fail_oom();
    snprintf(n->id, sizeof n->id, "%s", key);
    snprintf(n->boot_id, sizeof n->boot_id, "%s", td_json_string(td_json_get(v, "boot_id"), ""));
    snprintf(n->name, sizeof n->name, "%s", td_json_string(td_json_get(v, "name"), ""));
    snprintf(n->version, sizeof n->version, "%s", td_json_string(td_json_get(v, "version"), ""));
    snprintf(n->accelerators, sizeof n->accelerators, "%s",
             td_json_string(td_json_get(v, "accelerators"), ""));
    snprintf(n->cpu_level, sizeof n->cpu_level, "%s",
             td_json_string(td_json_get(v, "cpu_level"), ""));
    snprintf(n->cpu_level_held, sizeof n->cpu_level_held, "%s",
             td_json_string(td_json_get(v, "cpu_level_held"), ""));
    snprintf(n->plugins, sizeof n->plugins, "%s", td_json_string(td_json_get(v, "plugins"), ""));
    snprintf(n->collective_address, sizeof n->collective_address, "%s",
             td_json_string(td_json_get(v, "collective_address"), ""));
    snprintf(n->holder, sizeof n->holder, "%s", td_json_string(td_json_get(v, "holder"), ""));
    n->cores = (uint32_t)td_json_int(td_json_get(v, "cores"), 1);
    n->slots = (uint32_t)td_json_int(td_json_get(v, "slots"), 1);
    n->memory_bytes = (uint64_t)td_json_int(td_json_get(v, "memory_bytes"), 0);
    n->launcher_major = (uint32_t)td_json_int(td_json_get(v, "launcher_major"), 0);
    n->seen_ns = td_json_int(td_json_get(v, "seen_ns"), 0);
    n->embedded = td_json_int(td_json_get(v, "embedded"), 0) != 0;
    td_host_set_kinds(n, td_json_int(td_json_get(v, "runs_commands"), 0) != 0,
                      td_json_int(td_json_get(v, "runs_programs"), 0) != 0);
    td_host_devices_decode(&n->devices, td_json_get(v, "devices"));
    n->devices.withheld = td_json_int(td_json_get(v, "gives_devices"), 1) == 0;
    td_status s = td_map_put(core->nodes, key, n, NULL);
    if (s) td_host_destroy(n);
    return s;
}

// ---- slots --------------------------------------------------------------------------------------
void td_nodes_count(struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        struct td_host *n = value;
        n->used = 0;
        n->reserved = n->kept_for = 0;
        n->kept = 0;
        td_host_devices_release(&n->devices);
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
    save(core, n);
    td_plans_drop_stale(core);
    core->queue_dirty = true;
}

void td_nodes_devices_changed(struct td_core *core, const struct td_host *n) {
    save(core, n);
    core->queue_dirty = true;
}

void td_nodes_take_probe(struct td_core *core, struct td_host *n, const Traind__V1__PluginList *m) {
    if (td_host_devices_take_probe(&n->devices, m->accelerators, m->n_accelerators)) {
        td_nodes_devices_changed(core, n);
    }
}

static void set_trouble(struct td_core *core, struct td_host *n, const char *trouble) {
    char now[TD_HOST_UNFIT_BYTES];
    (void)td_fit(now, sizeof now, "%s", trouble);
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

// The core wants to be run at least so often, to notice when it is not.
static void stay_awake(struct td_core *core) {
    if (!td_map_count(core->nodes)) return;
    td_core_wake_at(core, td_mono_add(core->now.mono, core->options.lease_ns / 4));
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
    (void)td_fit(n->unfit, sizeof n->unfit, "%s", why);
    n->seen_ns = core->now.real.ns;
    core->queue_dirty = true;
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
    uint64_t before = n->session == s->id ? 0 : n->session;
    bool was_copy = td_register_take(n, m);
    td_register_fill(n, s, m);
    td_register_judge(n, m);
    if (n->unfit[0]) td_core_log(core, "node gets no jobs node=%s why=\"%s\"", n->name, n->unfit);
    if (before && was_copy) {
        td_core_refuse_session(core, before, td_register_refuse_copy(n));
    } else if (before) {
        td_core_close_session(core, before, "the node began another session");
    }
    s->node = n;
    n->session = s->id;
    make_key(core, n);
    n->last_message = core->now.mono;
    n->seen_ns = core->now.real.ns;
    n->lost = n->settling = n->shown_only = false;
    core->counters[TD_COUNT_SESSIONS]++;
    save(core, n);
    td_reconcile_node_down(n); // until it has the answer
    td_rendezvous_node_up(core, n);
    judge_missing(core, n, m);
    forget_missing(core, n, m);
    answer(core, n, m);
    td_reconcile_node_up(core, n, m->fresh);
    clear_silence(core, n);
    stay_awake(core);
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
    save(core, n);
    td_reconcile_node_down(n);
    td_plans_node_gone(core, n->id);
    td_plans_tick(core);
    td_core_wake_at(core, td_mono_add(n->last_message, core->options.lease_ns));
    core->queue_dirty = true;
}

// ---- leases -------------------------------------------------------------------------------------
static void show_silence(struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        const struct td_attempt *a = td_job_live(j);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || !td_attempt_part_live(p) || j->state != TD_JOB_RUNNING) continue;
        td_reason_set(&j->reason, "NODE_SILENT",
                      "node %s is silent; its ranks are taken to run on, and given up after "
                      "%" PRId64 " s",
                      n->name, core->options.lost_after_ns / TD_NS_PER_S);
        td_core_progress(core, j);
    }
}

// The parts that live there. What is still to come of one that has ended comes when the node is
// back; its attempt waits no longer for it than it does for any (td_attempt_maybe_close).
// witnessed: those alone that another part has lost, by its own account. Its silence alone is none.
static void give_up(struct td_core *core, struct td_host *n, int64_t silent_ns, bool witnessed) {
    for (uint32_t i = core->n_active; i-- > 0;) {
        struct td_job *j = core->active[i];
        struct td_attempt *a = td_job_live(j);
        struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || !td_attempt_part_live(p) || (witnessed && !td_attempt_aborts(a))) continue;
        char why[160];
        snprintf(why, sizeof why, "node %s was silent for %" PRId64 " s%s", n->name,
                 silent_ns / TD_NS_PER_S, witnessed ? ", and other ranks of the job lost it" : "");
        td_attempt_lost(core, j, a, p, true, why);
    }
}

static void tick_node(struct td_core *core, struct td_host *n) {
    if (n->session && n->embedded) return; // it lives and dies with us
    int64_t silent_ns = core->now.mono.ns - n->last_message.ns;
    int64_t lease_ns = core->options.lease_ns;
    int64_t lost_ns = lease_ns + core->options.lost_after_ns;
    if (silent_ns < lease_ns) {
        td_core_wake_at(core, td_mono_add(n->last_message, lease_ns));
        return;
    }
    if (!n->lost) {
        n->lost = true;
        if (n->session) td_core_close_session(core, n->session, "nothing received for the lease");
        show_silence(core, n);
        core->queue_dirty = true;
    }
    if (silent_ns < lost_ns) {
        give_up(core, n, silent_ns, true);
        td_core_wake_at(core, td_mono_add(n->last_message, lost_ns));
    } else {
        give_up(core, n, silent_ns, false);
    }
}

// While a node is known the core asks to be run four times a lease. If it was not for half a lease,
// it was stopped, or the machine slept: what nodes sent meanwhile waits unread, and their silence
// is ours. A shorter stall takes no lease: nodes beat at least twice in one.
void td_nodes_after_stall(struct td_core *core, struct td_mono before) {
    int64_t gap_ns = core->now.mono.ns - before.ns;
    if (gap_ns < core->options.lease_ns / 2 || !td_map_count(core->nodes)) return;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        struct td_host *n = value;
        // Of one that was lost before, the time that passed without us does not count.
        n->refused_at.ns += gap_ns;
        n->last_message.ns = n->lost ? n->last_message.ns + gap_ns : core->now.mono.ns;
    }
    for (uint32_t i = 0; i < core->n_active; i++) { // metrics, too, may wait unread
        struct td_attempt *a = td_job_live(core->active[i]);
        if (a && a->closing && a->close_at.ns) a->close_at.ns += gap_ns;
    }
    for (uint32_t i = 0; i < core->n_asks; i++) { // and plans
        if (core->asks[i]->node[0]) core->asks[i]->deadline.ns += gap_ns;
    }
    core->counters[TD_COUNT_STALLS]++;
    td_core_wake_at(core, core->now.mono);
}

// It tries no more. One that never registered was known for its refusal alone.
static bool is_forgotten(struct td_core *core, struct td_host *n) {
    if (!n->refused) return false;
    const struct td_mono until = td_mono_add(n->refused_at, core->options.lease_ns + node_pause_ns);
    if (core->now.mono.ns < until.ns) {
        td_core_wake_at(core, until);
        return false;
    }
    n->refused = false;
    n->unfit[0] = '\0';
    core->queue_dirty = true;
    if (!n->shown_only) return false;
    td_map_remove(core->nodes, n->id);
    td_host_destroy(n);
    return true;
}

void td_nodes_tick(struct td_core *core) {
    stay_awake(core);
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        if (!is_forgotten(core, value)) tick_node(core, value);
    }
}
