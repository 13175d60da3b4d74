// See the header. In the order of model.h: jobs and their lists, attempts, checkpoints, specs,
// nodes, plans, what is left of jobs that are gone.
//
// Slots and devices that nodes show as taken are counted by the next pass of the queue where one is
// due (queue_dirty), so they are compared only where none is.

#include "tests/unit/coordinator/core/core_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job_list.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/drain.h"
#include "daemon/coordinator/core/queue/match.h"
#include "lib/job/labels.h"

#define HOLDS(x, ...)                                                                              \
    do {                                                                                           \
        if (!(x)) return td_fail(TD_INTERNAL, __VA_ARGS__);                                        \
    } while (0)

// ---- lists of jobs ------------------------------------------------------------------------------
static bool has_not_ended(const struct td_job *j) {
    return !td_job_state_ended(j->state);
}

static bool has_ended(const struct td_job *j) {
    return td_job_state_ended(j->state);
}

static bool may_live(const struct td_job *j) {
    return td_job_live(j) != NULL;
}

static bool wants_a_place(const struct td_job *j) {
    return td_job_state_waits(j->state) && !td_job_live(j);
}

static bool pins(const struct td_job *j) {
    return has_not_ended(j) && (j->knobs.ckpt_path[0] || j->knobs.init_from[0]);
}

static uint64_t turn_of(const struct td_job *j) {
    return j->turn;
}

static uint64_t end_of(const struct td_job *j) {
    return j->end_ns > 0 ? (uint64_t)j->end_ns : 0;
}

struct list {
    const char *name;
    struct td_job *const *jobs;
    uint32_t n;
    bool (*has)(const struct td_job *j); // each such job is in it, once
    bool keeps_others;                   // some that no longer are, too
    td_job_key_fn *key;                  // smallest first; NULL: in no order
};

// Its place among all jobs; n_jobs: it is none of them.
static uint32_t index_of(const struct td_core *core, const struct td_job *j) {
    uint32_t low = 0, high = core->n_jobs;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (core->order[mid]->seq < j->seq) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < core->n_jobs && core->order[low] == j ? low : core->n_jobs;
}

// marks: (n_jobs), of a caller that needs none of them.
static td_status check_list(const struct td_core *core, const struct list *l, bool *marks) {
    memset(marks, 0, core->n_jobs);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct td_job *j = l->jobs[i];
        const uint32_t at = index_of(core, j);
        HOLDS(at < core->n_jobs, "list %s: number %u of it is no job that is known", l->name, i);
        HOLDS(!marks[at], "job %s is twice in list %s", j->id, l->name);
        HOLDS(l->keeps_others || l->has(j), "job %s is %s, and in list %s", j->id,
              td_job_state_name(j->state), l->name);
        HOLDS(!i || !l->key || l->key(l->jobs[i - 1]) <= l->key(j),
              "job %s is out of its order in list %s", j->id, l->name);
        marks[at] = true;
    }
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct td_job *j = core->order[i];
        HOLDS(marks[i] || !l->has(j), "job %s is %s, and not in list %s", j->id,
              td_job_state_name(j->state), l->name);
    }
    return TD_OK;
}

static td_status check_lists(const struct td_core *core) {
    const struct list lists[] = {
        {"active", core->active, core->n_active, has_not_ended, false, td_job_key_seq},
        {"ended", core->ended, core->n_ended, has_ended, false, end_of},
        {"live", core->live, core->n_live, may_live, true, NULL},
        {"waiting", core->waiting, core->n_waiting, wants_a_place, false, turn_of},
        {"pinning", core->pinning, core->n_pinning, pins, true, NULL},
    };
    TD_AUTO_FREE bool *marks = calloc(core->n_jobs + 1, sizeof *marks);
    if (!marks) return td_fail_oom();
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct td_job *j = core->order[i];
        HOLDS(!i || core->order[i - 1]->seq < j->seq, "job %s is out of the order of creation",
              j->id);
        HOLDS(td_core_job(core, j->id) == j, "job %s is not found by its id", j->id);
    }
    HOLDS(td_map_count(core->jobs) == core->n_jobs, "%zu jobs have ids, and %u are in their order",
          td_map_count(core->jobs), core->n_jobs);
    for (size_t i = 0; i < TD_COUNTOF(lists); i++) {
        TD_TRY(check_list(core, &lists[i], marks));
    }
    for (uint32_t i = 1; i < core->n_waiting; i++) { // turns say the same, by one number
        const struct td_job *a = core->waiting[i - 1], *b = core->waiting[i];
        const bool again = a->state == TD_JOB_RECOVERING, too = b->state == TD_JOB_RECOVERING;
        HOLDS(again == too ? a->queue_seq < b->queue_seq : again,
              "job %s waits before %s, which comes first", a->id, b->id);
    }
    HOLDS(core->n_looked <= core->n_waiting, "a pass looked at %u of %u jobs that wait",
          core->n_looked, core->n_waiting);
    HOLDS(!core->n_listed, "job %s has changed and is not saved", core->listed[0]->id);
    return TD_OK;
}

static bool has_turn(const struct td_core *core, uint64_t turn) {
    uint32_t low = 0, high = core->n_waiting;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (core->waiting[mid]->turn < turn) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < core->n_waiting && core->waiting[low]->turn == turn;
}

// ---- attempts -----------------------------------------------------------------------------------
static td_status check_cursor(const struct td_job *j, const struct td_attempt *a, uint32_t rank) {
    const struct td_rank_cursor *c = &a->ranks[rank];
    const struct td_boundary *b = c->passed;
    HOLDS(c->metrics_done <= c->metrics,
          "job %s attempt %u rank %u: more metrics are committed than were taken", j->id, a->number,
          rank);
    HOLDS(b[0].number ? b[0].number > c->kept : !b[1].number,
          "job %s attempt %u rank %u waits for no boundary, or one that is kept", j->id, a->number,
          rank);
    HOLDS(!b[1].number || b[1].number > b[0].number,
          "job %s attempt %u rank %u: boundaries out of order", j->id, a->number, rank);
    return TD_OK;
}

static td_status check_part(const struct td_core *core, const struct td_job *j,
                            const struct td_attempt *a, uint32_t at) {
    const struct td_attempt_part *p = &a->parts[at];
    const bool lives = td_attempt_part_live(p);
    HOLDS(p->n_ranks == a->n_ranks / a->n_parts && p->first_rank == at * p->n_ranks,
          "job %s attempt %u: part %u has ranks of another", j->id, a->number, at);
    HOLDS(!lives || (!p->forgotten && !p->outcome),
          "job %s attempt %u: part %u lives and has an end", j->id, a->number, at);
    HOLDS(p->state != TD_ATTEMPT_STARTED || a->state != TD_ATTEMPT_ASSIGNED,
          "job %s attempt %u: part %u has started before its attempt", j->id, a->number, at);
    HOLDS(!p->failing || a->n_parts > 1, "job %s attempt %u of one part fails in advance", j->id,
          a->number);
    HOLDS(!p->devices || !j->knobs.texts || td_device_list_count(p->devices) == td_match_want(j).n,
          "job %s attempt %u: part %u has not its ranks' devices", j->id, a->number, at);
    HOLDS(td_attempt_part_over(p) || td_nodes_find(core, p->node),
          "job %s attempt %u: part %u is on node %s, which is not known", j->id, a->number, at,
          p->node);
    const struct td_host *n = td_nodes_find(core, p->node);
    HOLDS(!n || !n->cordon.on || a->epoch < n->cordon.epoch,
          "job %s attempt %u was placed on node %s, which is cordoned", j->id, a->number, p->node);
    HOLDS(p->reconcile < core->next_reconcile,
          "job %s attempt %u: part %u waits for what was not asked", j->id, a->number, at);
    for (uint32_t i = 0; i < at; i++) {
        HOLDS(strcmp(a->parts[i].node, p->node) != 0, "job %s attempt %u has two parts on node %s",
              j->id, a->number, p->node);
    }
    return TD_OK;
}

static bool is_all_fenced(const struct td_attempt *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        n += a->parts[i].state == TD_ATTEMPT_FENCED;
    }
    return n == a->n_parts;
}

static td_status check_attempt(const struct td_core *core, const struct td_job *j,
                               uint32_t number) {
    const struct td_attempt *a = td_job_attempt(j, number);
    const struct td_attempt *before = td_job_attempt(j, number - 1);
    const bool lives = td_attempt_live(a);
    HOLDS(a->number == number, "job %s: its attempt %u says that it is %u", j->id, number,
          a->number);
    HOLDS(number == j->n_attempts || !lives, "job %s: attempt %u of %u lives", j->id, number,
          j->n_attempts);
    HOLDS(a->epoch < core->next_epoch && (!before || before->epoch < a->epoch),
          "job %s attempt %u: its epoch is not the newest when it began", j->id, number);
    HOLDS(a->n_ranks == j->n_ranks, "job %s attempt %u has other ranks than the job", j->id,
          number);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        TD_TRY(check_part(core, j, a, i));
    }
    for (uint32_t i = 0; i < a->n_ranks; i++) {
        TD_TRY(check_cursor(j, a, i));
    }
    HOLDS(a->closing == (lives && !td_attempt_n_live(a)),
          "job %s attempt %u closes, and not all its parts are over, or the other way round", j->id,
          number);
    HOLDS(lives || !td_attempt_n_live(a), "job %s attempt %u is over, and a part of it lives",
          j->id, number);
    HOLDS(is_all_fenced(a) == (a->state == TD_ATTEMPT_FENCED),
          "job %s attempt %u is given up, and not all its parts are, or the other way round", j->id,
          number);
    HOLDS(a->state != TD_ATTEMPT_ENDED || a->outcome, "job %s attempt %u ended without an outcome",
          j->id, number);
    HOLDS(!a->touched, "job %s attempt %u has changed and is not saved", j->id, number);
    return TD_OK;
}

// ---- jobs ---------------------------------------------------------------------------------------
// Whether the job has an attempt that lives, and what that may have been asked to stop for.
enum { NO_ATTEMPT = 1, AN_ATTEMPT = 2 };
static const struct fit {
    unsigned attempts, stops;
} fits[] = {
#define STOP(cause) (1u << TD_STOP_CAUSE_##cause)
#define OWN         (STOP(NONE) | STOP(DAEMON) | STOP(UPGRADE) | STOP(DRAIN))
    [TD_JOB_QUEUED] = {NO_ATTEMPT, 0},
    [TD_JOB_STARTING] = {AN_ATTEMPT, OWN},
    [TD_JOB_RUNNING] = {AN_ATTEMPT, OWN},
    [TD_JOB_RECOVERING] = {NO_ATTEMPT | AN_ATTEMPT, OWN},
    [TD_JOB_PAUSING] = {AN_ATTEMPT, STOP(PAUSE)},
    [TD_JOB_PAUSED] = {NO_ATTEMPT, 0},
    [TD_JOB_STOPPING] = {AN_ATTEMPT, STOP(CANCEL)},
    [TD_JOB_CANCELLED] = {NO_ATTEMPT, 0},
    [TD_JOB_SUCCEEDED] = {NO_ATTEMPT, 0},
    [TD_JOB_FAILED] = {NO_ATTEMPT, 0},
    [TD_JOB_EXPIRED] = {NO_ATTEMPT, 0},
};
_Static_assert(TD_COUNTOF(fits) == TD_JOB_STATE_COUNT, "one row per state");

static td_status check_checkpoint(const struct td_job *j, uint32_t at) {
    const struct td_checkpoint *c = j->checkpoints[at];
    const struct td_checkpoint *before = at ? j->checkpoints[at - 1] : NULL;
    const struct td_attempt *a = td_job_attempt(j, c->attempt);
    bool is_whole = true;
    for (uint32_t i = 0; i < c->n_files; i++) {
        is_whole = is_whole && c->files[i].here;
    }
    HOLDS(a, "checkpoint %s/%s is of no attempt", j->id, c->path);
    HOLDS(!before || before->attempt < c->attempt ||
              (before->attempt == c->attempt && before->step <= c->step),
          "checkpoint %s/%s is out of its order", j->id, c->path);
    HOLDS(c->committed || (c->streamed && !td_attempt_over(a)),
          "checkpoint %s/%s is on its way, and no node sends it", j->id, c->path);
    HOLDS(!c->committed || !c->streamed || is_whole,
          "checkpoint %s/%s is committed, and a file of it is not here", j->id, c->path);
    HOLDS(!c->damage || c->committed, "checkpoint %s/%s is damaged before it is committed", j->id,
          c->path);
    HOLDS(!c->missing || c->damage, "checkpoint %s/%s is missing and whole", j->id, c->path);
    HOLDS(!c->leaving || c->streamed, "checkpoint %s/%s of a node leaves later", j->id, c->path);
    HOLDS(!c->registered || (c->committed && !c->streamed && !c->n_files),
          "checkpoint %s/%s is a command's, and has files", j->id, c->path);
    return TD_OK;
}

static td_status check_job(const struct td_core *core, const struct td_job *j) {
    const struct td_attempt *live = td_job_live(j);
    const struct fit *f = &fits[j->state];
    HOLDS(j->seq < core->next_seq && j->queue_seq < core->next_seq,
          "job %s came after the next one", j->id);
    HOLDS(f->attempts & (live ? AN_ATTEMPT : NO_ATTEMPT), "job %s is %s with %s that lives", j->id,
          td_job_state_name(j->state), live ? "an attempt" : "no attempt");
    HOLDS(!live || f->stops >> live->stop & 1, "job %s is %s, and its attempt stops for cause %d",
          j->id, td_job_state_name(j->state), live->stop);
    HOLDS((j->turn != 0) == wants_a_place(j), "job %s is %s with turn %" PRIu64, j->id,
          td_job_state_name(j->state), j->turn);
    HOLDS(j->state != TD_JOB_FAILED || j->failure.set, "job %s has failed for no reason", j->id);
    HOLDS(!j->touched && !j->listed, "job %s has changed and is not saved", j->id);
    HOLDS(has_ended(j) ? !j->plan_spec : j->spec.text || !td_spec_text_is_set(&j->spec),
          "job %s is %s: its spec is not as such jobs have it", j->id, td_job_state_name(j->state));
    HOLDS(j->n_attempts <= TD_JOB_MAX_ATTEMPTS && j->n_notes <= TD_JOB_MAX_NOTES &&
              j->n_metrics <= TD_JOB_MAX_METRICS && j->n_excluded <= TD_JOB_MAX_EXCLUDED &&
              j->n_checkpoints <= TD_CORE_MAX_CHECKPOINTS,
          "job %s has more of something than its bound", j->id);
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        TD_TRY(check_attempt(core, j, i));
    }
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        TD_TRY(check_checkpoint(j, i));
    }
    return TD_OK;
}

// ---- specs --------------------------------------------------------------------------------------
static td_status check_share(const struct td_core *core, const char *owner,
                             const struct td_spec_share *share) {
    struct td_spec_share found = {0};
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct td_job *j = core->order[i];
        const bool is_own = strcmp(j->owner ? j->owner : "", owner) == 0;
        if (!is_own || !td_spec_text_is_set(&j->spec)) continue;
        found.n_jobs++;
        found.bytes += td_spec_text_kept(&j->spec);
    }
    HOLDS(found.n_jobs && found.n_jobs == share->n_jobs && found.bytes == share->bytes,
          "owner '%s' has %u specs of %" PRIu64 " bytes, and %u of %" PRIu64 " are counted", owner,
          found.n_jobs, found.bytes, share->n_jobs, share->bytes);
    return TD_OK;
}

static td_status check_specs(const struct td_core *core) {
    size_t cursor = 0;
    const char *owner;
    void *value;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        bytes += td_spec_text_kept(&core->order[i]->spec);
    }
    HOLDS(bytes == core->spec_bytes, "specs take %" PRIu64 " bytes, and %" PRIu64 " are counted",
          bytes, core->spec_bytes);
    while (td_map_next(core->spec_shares, &cursor, &owner, &value)) {
        TD_TRY(check_share(core, owner, value));
    }
    return TD_OK;
}

// ---- nodes --------------------------------------------------------------------------------------
// What attempts that may be alive have of a node. Of those with an answer the node itself says that
// they are there, and it may have come back with fewer slots than it had.
struct taken {
    uint32_t slots, live_slots;
    bool has_assigned;
};

static struct taken count_taken(const struct td_core *core, const struct td_host *n) {
    struct taken t = {0};
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *a = td_job_live(core->live[i]);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p) continue;
        t.slots += p->slots;
        t.live_slots += td_attempt_part_live(p) ? p->slots : 0;
        t.has_assigned |= p->state == TD_ATTEMPT_ASSIGNED;
    }
    return t;
}

// How many attempts that may be alive have the device.
static uint32_t count_holders(const struct td_core *core, const struct td_host *n,
                              const char *uuid) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_attempt *a = td_job_live(core->live[i]);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        char other[TD_DEVICE_UUID];
        for (uint32_t k = 0; p && p->devices && td_device_list_at(p->devices, k, other); k++) {
            found += strcmp(other, uuid) == 0;
        }
    }
    return found;
}

static td_status check_devices(const struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i <= n->devices.n; i++) {
        const struct td_host_accel *a = i < n->devices.n ? n->devices.accel[i] : n->devices.gpus;
        for (uint32_t k = 0; a && k < a->n; k++) {
            const struct td_host_device *d = &a->device[k];
            const uint32_t holders = count_holders(core, n, d->uuid);
            HOLDS(holders <= 1, "node %s: device %s is given %u times", n->id, d->uuid, holders);
            if (core->queue_dirty) continue;
            HOLDS((d->held == TD_DEVICE_ATTEMPT) == (holders == 1),
                  "node %s: device %s is held by %u attempts, and shown otherwise", n->id, d->uuid,
                  holders);
            const bool is_out = td_host_gpus_mark(&n->gpus, d->uuid);
            HOLDS(holders || is_out == (d->held == TD_DEVICE_EXCLUDED),
                  "node %s: device %s is excluded, and shown otherwise", n->id, d->uuid);
            HOLDS(holders || is_out || d->held == TD_DEVICE_FREE || has_turn(core, d->held),
                  "node %s: device %s is kept for no job", n->id, d->uuid);
        }
    }
    return TD_OK;
}

static td_status check_places(const struct td_core *core, const struct td_host *n) {
    const struct taken t = count_taken(core, n);
    HOLDS(!t.has_assigned || t.live_slots <= n->slots, "node %s: %u of %u slots are given", n->id,
          t.live_slots, n->slots);
    TD_TRY(check_devices(core, n));
    if (core->queue_dirty) return TD_OK;
    HOLDS(n->used == t.slots + n->kept, "node %s: attempts have %u slots, %u are kept, and %u used",
          n->id, t.slots, n->kept, n->used);
    HOLDS(!n->reserved || has_turn(core, n->reserved), "node %s is reserved for no job", n->id);
    HOLDS(n->kept_for ? has_turn(core, n->kept_for) : !n->kept, "node %s is kept for no job",
          n->id);
    return TD_OK;
}

static uint32_t count_removals(const struct td_core *core, const struct td_host *n) {
    uint32_t count = 0;
    const struct td_removal *r;
    for (size_t cursor = 0; (r = td_map_each(core->removals, &cursor));) {
        count += strcmp(r->node, n->id) == 0;
    }
    return count;
}

static bool is_set_of_labels(const char *labels) {
    struct td_label l, before = {0};
    uint32_t n = 0;
    for (const char *at = labels; td_labels_next(&at, &l); before = l, n++) {
        const size_t both = TD_MIN(l.key.len, before.key.len);
        const int order = n ? memcmp(before.key.data, l.key.data, both) : -1;
        if (!td_label_key_ok(l.key.data, l.key.len)) return false;
        if (!td_label_value_ok(l.value.data, l.value.len)) return false;
        if (order > 0 || (order == 0 && before.key.len >= l.key.len)) return false;
    }
    return n <= TD_LABELS_MAX && (!labels || n);
}

static td_status check_node(const struct td_core *core, const char *key, const struct td_host *n) {
    HOLDS(strcmp(key, n->id) == 0, "node %s is found as %s", n->id, key);
    HOLDS(!n->refused || n->unfit[0], "node %s is refused for no reason", n->id);
    HOLDS(n->cordon.on || (!n->cordon.drains && !n->cordon.epoch),
          "node %s is drained and takes jobs", n->id);
    HOLDS(!n->cordon.is_empty || (n->cordon.drains && td_drain_is_empty(core, n)),
          "node %s is said to be empty, and is not", n->id);
    HOLDS(is_set_of_labels(n->labels), "node %s has the labels '%s'", n->id, n->labels);
    HOLDS(!n->shown_only || !n->session, "node %s has a session and never registered", n->id);
    HOLDS(n->reconciling <= TD_RECONCILE_WINDOW && n->n_due <= TD_RECONCILE_DUE &&
              n->values_flying <= TD_RENDEZVOUS_FLYING,
          "node %s has more on its way than its bounds", n->id);
    HOLDS(!n->reconciles || n->n_removals == count_removals(core, n),
          "node %s has %u deleted jobs, and %u are counted", n->id, count_removals(core, n),
          n->n_removals);
    return check_places(core, n);
}

static td_status check_sessions(const struct td_core *core, uint32_t n_connected) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        const struct td_node_session *s = core->sessions[i];
        HOLDS(s->id < core->next_session, "session %" PRIu64 " comes after the next one", s->id);
        if (!s->node) continue;
        HOLDS(td_nodes_find(core, s->node->id) == s->node,
              "session %" PRIu64 " is of a node that is not known", s->id);
        n += s->node->session == s->id;
    }
    HOLDS(n == n_connected, "%u nodes have a session, and %u sessions a node", n_connected, n);
    return TD_OK;
}

static td_status check_nodes(const struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    uint32_t n_connected = 0, n_draining = 0, free_slots = 0;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        TD_TRY(check_node(core, key, n));
        n_connected += n->session != 0;
        n_draining += n->cordon.drains;
        free_slots += td_host_ready(n) ? td_match_free(n) : 0;
    }
    HOLDS(n_draining == core->n_draining, "%u nodes are drained, and %u are counted", n_draining,
          core->n_draining);
    HOLDS(core->queue_dirty || core->free_slots == free_slots,
          "%u slots are free, and %u are counted", free_slots, core->free_slots);
    for (cursor = 0; td_map_next(core->offers, &cursor, &key, &value);) {
        HOLDS(td_nodes_find(core, key), "node %s has plugins and is not known", key);
    }
    return check_sessions(core, n_connected);
}

// ---- plans --------------------------------------------------------------------------------------
static bool is_asked(const struct td_core *core, const struct td_plan_waiter *w) {
    for (uint32_t i = 0; i < core->n_asks; i++) {
        const struct td_plan_ask *a = core->asks[i];
        if (strcmp(a->digest, w->digest) == 0 && strcmp(a->dump, w->dump) == 0) return true;
    }
    return false;
}

static td_status check_plans(const struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->plans, &cursor, &key, &value)) {
        const struct td_plan_entry *e = value;
        HOLDS(strcmp(key, e->key) == 0 && e->used < core->next_use,
              "plan %s is found as %s, or used after the next one", e->key, key);
    }
    for (uint32_t i = 0; i < core->n_asks; i++) {
        const struct td_plan_ask *a = core->asks[i];
        const struct td_host *n = a->node[0] ? td_nodes_find(core, a->node) : NULL;
        HOLDS(!a->node[0] || (n && n->session), "plan %s is asked of node %s, which is away",
              a->digest, a->node);
        HOLDS(a->tries <= TD_PLAN_MAX_TRIES, "plan %s is asked for %u times", a->digest, a->tries);
        for (uint32_t k = 0; k < i; k++) {
            const struct td_plan_ask *b = core->asks[k];
            HOLDS(strcmp(a->digest, b->digest) != 0 || strcmp(a->level, b->level) != 0 ||
                      strcmp(a->dump, b->dump) != 0,
                  "plan %s is asked for twice", a->digest);
        }
    }
    for (uint32_t i = 0; i < core->n_waiters; i++) {
        HOLDS(is_asked(core, &core->waiters[i]), "plan %s is waited for, and no node is asked",
              core->waiters[i].digest);
    }
    return TD_OK;
}

// ---- what is kept of a job, by its name ---------------------------------------------------------
// "<job>", "<job>/<node>" and "<job>/a<n>...": the job, NULL where it is gone, and its attempt n.
static const struct td_job *job_of(const struct td_core *core, const char *key,
                                   const struct td_attempt **out_attempt) {
    char id[TD_JOB_ID_MAX];
    const size_t len = strcspn(key, "/");
    snprintf(id, sizeof id, "%.*s", (int)len, key);
    const struct td_job *j = td_core_job(core, id);
    const bool has_number = j && strncmp(key + len, "/a", 2) == 0;
    *out_attempt =
        has_number ? td_job_attempt(j, (uint32_t)strtoul(key + len + 2, NULL, 10)) : NULL;
    return j;
}

static td_status check_forgotten(const struct td_core *core) {
    const struct td_attempt *a;
    size_t cursor = 0;
    const char *key;
    void *value;
    uint32_t n_asked = 0;
    while (td_map_next(core->leaving, &cursor, &key, &value)) {
        HOLDS(!job_of(core, key, &a), "job %s is forgotten, and known", key);
        n_asked += ((const struct td_leaving *)value)->asked;
    }
    HOLDS(n_asked == core->n_forgetting, "%u jobs are being removed, and %u are counted", n_asked,
          core->n_forgetting);
    for (cursor = 0; td_map_next(core->removals, &cursor, &key, &value);) {
        HOLDS(!job_of(core, key, &a), "what %s has of a job is removed, and the job is known", key);
    }
    for (cursor = 0; td_map_next(core->requests, &cursor, &key, &value);) {
        const char *id = ((const struct td_request *)value)->job;
        HOLDS(job_of(core, id, &a), "request %s is remembered, and its job %s is not known", key,
              id);
    }
    return TD_OK;
}

static td_status check_values(const struct td_core *core) {
    const struct td_attempt *a;
    size_t cursor = 0, bytes = 0;
    const char *key;
    void *value;
    for (cursor = 0; td_map_next(core->shards, &cursor, &key, &value);) {
        HOLDS(job_of(core, key, &a) && a && !td_attempt_over(a),
              "file %s is here, and its checkpoint does not come", key);
    }
    for (cursor = 0; td_map_next(core->rendezvous, &cursor, &key, &value);) {
        HOLDS(job_of(core, key, &a) && a && td_attempt_live(a),
              "ranks of %s meet, and the attempt is over", key);
        bytes += td_rendezvous_bytes(value);
    }
    HOLDS(bytes == core->rendezvous_bytes && bytes <= TD_RENDEZVOUS_BYTES,
          "%zu bytes are kept for ranks that meet, and %zu are counted", bytes,
          core->rendezvous_bytes);
    return TD_OK;
}

td_status td_core_check(const struct td_core *core) {
    if (!core->started) return TD_OK;
    TD_TRY(check_lists(core));
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        TD_TRY(check_job(core, core->order[i]));
    }
    TD_TRY(check_specs(core));
    TD_TRY(check_nodes(core));
    TD_TRY(check_plans(core));
    TD_TRY(check_forgotten(core));
    TD_TRY(check_values(core));
    HOLDS(core->n_active <= TD_CORE_MAX_ACTIVE && core->n_jobs <= TD_CORE_MAX_JOBS,
          "%u jobs are known, %u have not ended: more than the bounds", core->n_jobs,
          core->n_active);
    return TD_OK;
}
