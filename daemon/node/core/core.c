// See the header. Actions are queued during an input and taken by the shell right after it, so
// that no action runs inside another one's decision.

#include "daemon/node/core/core.h"

#include <stdio.h>
#include <string.h>

#include "lib/attempt/rank_page.h"

enum { HEARTBEAT_MS_MAX = 600000 };

_Static_assert((int)TD_STOP_CHECKPOINT == TRAIND__V1__STOP__MODE__CHECKPOINT &&
                   (int)TD_STOP_NOW == TRAIND__V1__STOP__MODE__NOW &&
                   (int)TD_STOP_KILL == TRAIND__V1__STOP__MODE__KILL &&
                   (int)TD_STOP_ABORT == TRAIND__V1__STOP__MODE__ABORT,
               "a mode goes from the coordinator to the launcher as it is");

struct td_node_core {
    uint32_t slots;
    struct td_node_attempt **attempts; // (n_attempts)
    size_t n_attempts, cap_attempts;
    struct td_node_attempt *removed; // freed when the next input begins
    struct td_node_action *actions;  // (n_actions), the first `taken` of them are taken
    size_t n_actions, cap_actions, taken;
    bool up, registered;
    uint64_t incarnation;
    int64_t heartbeat_ns;
    struct td_mono next_heartbeat;
    uint64_t stale;
    Traind__V1__AttemptId failed_id; // of the REFUSE in the queue
    char failed_job[TD_NODE_JOB_MAX];
};

const char *td_node_attempt_state_name(enum td_node_attempt_state state) {
    static const char *const names[] = {"preparing", "running", "stopping", "killing", "ended"};
    _Static_assert(TD_COUNTOF(names) == TD_AT_COUNT, "one name per state");
    return names[state];
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_node_core_create(uint32_t slots, struct td_node_core **out_core) {
    struct td_node_core *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->slots = slots;
    *out_core = c;
    return TD_OK;
}

static void clear_actions(struct td_node_core *c) {
    for (size_t i = 0; i < c->n_actions; i++) {
        td_status_free(c->actions[i].status);
    }
    c->n_actions = c->taken = 0;
    free(c->removed);
    c->removed = NULL;
}

void td_node_core_destroy(struct td_node_core *c) {
    if (!c) return;
    clear_actions(c);
    for (size_t i = 0; i < c->n_attempts; i++) {
        free(c->attempts[i]);
    }
    free(c->attempts);
    free(c->actions);
    free(c);
}

// Doubles an array. Memory for a few hundred pointers that is not there ends the daemon: its ranks
// go on, and it is started again.
static void *grown(void *array, size_t *cap, size_t item_bytes) {
    size_t n = *cap ? *cap * 2 : 16;
    void *p = td_realloc(array, n * item_bytes);
    TD_CHECK(p);
    *cap = n;
    return p;
}

static struct td_node_action *act(struct td_node_core *c, enum td_node_action_kind kind,
                                  struct td_node_attempt *a) {
    if (c->n_actions == c->cap_actions) {
        c->actions = grown(c->actions, &c->cap_actions, sizeof *c->actions);
    }
    struct td_node_action *action = &c->actions[c->n_actions++];
    *action = (struct td_node_action){.kind = kind, .attempt = a};
    return action;
}

bool td_node_core_next(struct td_node_core *c, struct td_node_action *out_action) {
    if (c->taken == c->n_actions) return false;
    *out_action = c->actions[c->taken++];
    return true;
}

// ---- attempts -----------------------------------------------------------------------------------
struct td_node_attempt *td_node_core_attempt(const struct td_node_core *c, size_t i) {
    return i < c->n_attempts ? c->attempts[i] : NULL;
}

struct td_node_attempt *td_node_core_find(const struct td_node_core *c, const char *job,
                                          uint32_t attempt) {
    for (size_t i = 0; i < c->n_attempts; i++) {
        struct td_node_attempt *a = c->attempts[i];
        if (a->attempt == attempt && strcmp(a->job, job) == 0) return a;
    }
    return NULL;
}

static struct td_node_attempt *find(struct td_node_core *c, const Traind__V1__AttemptId *id) {
    struct td_node_attempt *a = id ? td_node_core_find(c, id->job, id->attempt) : NULL;
    if (a && a->epoch == id->epoch) return a;
    c->stale++;
    return NULL;
}

static td_status add(struct td_node_core *c, const struct td_node_attempt *from,
                     struct td_node_attempt **out_attempt) {
    if (c->n_attempts == TD_NODE_ATTEMPTS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "this node holds %d attempts already",
                       TD_NODE_ATTEMPTS_MAX);
    }
    struct td_node_attempt *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    *a = *from;
    a->due.ns = INT64_MAX;
    if (c->n_attempts == c->cap_attempts) {
        c->attempts = grown(c->attempts, &c->cap_attempts, sizeof *c->attempts);
    }
    c->attempts[c->n_attempts++] = a;
    *out_attempt = a;
    return TD_OK;
}

td_status td_node_core_found(struct td_node_core *c, const struct td_node_attempt *attempt,
                             struct td_node_attempt **out_attempt) {
    TD_CHECK(attempt->state == TD_AT_RUNNING || attempt->state == TD_AT_ENDED);
    return add(c, attempt, out_attempt);
}

// The struct stays until the next input, so that the action can be carried out.
static void remove_attempt(struct td_node_core *c, struct td_node_attempt *a) {
    act(c, TD_NA_REMOVE, a);
    for (size_t i = 0; i < c->n_attempts; i++) {
        if (c->attempts[i] != a) continue;
        memmove(&c->attempts[i], &c->attempts[i + 1], (--c->n_attempts - i) * sizeof *c->attempts);
        break;
    }
    TD_CHECK(!c->removed);
    c->removed = a;
}

uint32_t td_node_core_slots_used(const struct td_node_core *c) {
    uint32_t used = 0;
    for (size_t i = 0; i < c->n_attempts; i++) {
        used += c->attempts[i]->state == TD_AT_ENDED ? 0 : c->attempts[i]->slots;
    }
    return used;
}

// ---- the table ----------------------------------------------------------------------------------
struct moment {
    struct td_node_core *core;
    struct td_node_attempt *a;
    struct td_mono now;
    td_status failure; // of FAILED; taken by its user
};
typedef void transition(struct moment *m);

static void due_in(struct moment *m, int64_t ns) {
    m->a->due.ns = m->now.ns + ns;
}

static void give_stop(struct moment *m) {
    struct td_node_attempt *a = m->a;
    if (a->stop_mode == TD_STOP_KILL) {
        a->state = TD_AT_KILLING;
        due_in(m, TD_NODE_KILL_S * TD_NS_PER_S);
    } else {
        a->state = TD_AT_STOPPING;
        due_in(m, (int64_t)a->stop_grace_ms * TD_NS_PER_MS + TD_NODE_STOP_MARGIN_S * TD_NS_PER_S);
    }
    act(m->core, TD_NA_STOP, a);
}

static void ignored(struct moment *m) {
    (void)m;
}

static void on_started(struct moment *m) {
    m->a->state = TD_AT_RUNNING;
    if (m->a->stop_mode) give_stop(m);
}

static void on_failed(struct moment *m) {
    struct td_node_core *c = m->core;
    if (!m->a->forget) {
        snprintf(c->failed_job, sizeof c->failed_job, "%s", m->a->job);
        traind__v1__attempt_id__init(&c->failed_id);
        c->failed_id.job = c->failed_job;
        c->failed_id.attempt = m->a->attempt;
        c->failed_id.epoch = m->a->epoch;
        struct td_node_action *refuse = act(c, TD_NA_REFUSE, m->a);
        refuse->id = &c->failed_id;
        refuse->status = td_steal(m->failure);
    }
    remove_attempt(c, m->a);
}

// Not started yet: nothing to save. If its launcher is about to answer, the stop is given then.
static void on_stop_preparing(struct moment *m) {
    act(m->core, TD_NA_ABANDON, m->a);
}

static void on_stop(struct moment *m) {
    give_stop(m);
}

static void on_stop_late(struct moment *m) {
    m->a->stop_mode = TD_STOP_KILL;
    m->a->stop_grace_ms = 0;
    give_stop(m);
}

static void on_kill_late(struct moment *m) {
    act(m->core, TD_NA_KILL, m->a);
    due_in(m, TD_NODE_KILL_S * TD_NS_PER_S);
}

static void on_gone(struct moment *m) {
    m->a->state = TD_AT_ENDED;
    m->a->due.ns = INT64_MAX;
    if (m->a->forget) {
        remove_attempt(m->core, m->a);
    } else if (m->core->registered) {
        act(m->core, TD_NA_FINAL, m->a);
    }
}

// Nobody wants it any more, but it lives: it dies first.
static void on_forget_alive(struct moment *m) {
    m->a->forget = true;
    m->a->stop_mode = TD_STOP_KILL;
    m->a->stop_grace_ms = 0;
    give_stop(m);
}

static void on_forget_preparing(struct moment *m) {
    m->a->forget = true;
    m->a->stop_mode = TD_STOP_KILL; // if it starts all the same
    m->a->stop_grace_ms = 0;
    act(m->core, TD_NA_ABANDON, m->a);
}

static void on_forget_killing(struct moment *m) {
    m->a->forget = true;
}

static void on_forget(struct moment *m) {
    remove_attempt(m->core, m->a);
}

// clang-format off
static transition *const table[][TD_AE_COUNT] = {
    [TD_AT_PREPARING] = {
        [TD_AE_STARTED] = on_started,
        [TD_AE_FAILED]  = on_failed,
        [TD_AE_STOP]    = on_stop_preparing,
        [TD_AE_TIME]    = ignored,
        [TD_AE_GONE]    = ignored,
        [TD_AE_FORGET]  = on_forget_preparing,
    },
    [TD_AT_RUNNING] = {
        [TD_AE_STARTED] = ignored,
        [TD_AE_FAILED]  = ignored,
        [TD_AE_STOP]    = on_stop,
        [TD_AE_TIME]    = ignored,
        [TD_AE_GONE]    = on_gone,
        [TD_AE_FORGET]  = on_forget_alive,
    },
    [TD_AT_STOPPING] = {
        [TD_AE_STARTED] = ignored,
        [TD_AE_FAILED]  = ignored,
        [TD_AE_STOP]    = on_stop,
        [TD_AE_TIME]    = on_stop_late,
        [TD_AE_GONE]    = on_gone,
        [TD_AE_FORGET]  = on_forget_alive,
    },
    [TD_AT_KILLING] = {
        [TD_AE_STARTED] = ignored,
        [TD_AE_FAILED]  = ignored,
        [TD_AE_STOP]    = ignored,
        [TD_AE_TIME]    = on_kill_late,
        [TD_AE_GONE]    = on_gone,
        [TD_AE_FORGET]  = on_forget_killing,
    },
    [TD_AT_ENDED] = {
        [TD_AE_STARTED] = ignored,
        [TD_AE_FAILED]  = ignored,
        [TD_AE_STOP]    = ignored,
        [TD_AE_TIME]    = ignored,
        [TD_AE_GONE]    = ignored,
        [TD_AE_FORGET]  = on_forget,
    },
};
// clang-format on
_Static_assert(TD_COUNTOF(table) == TD_AT_COUNT, "one row per state");

static void run(struct td_node_core *c, struct td_mono now, struct td_node_attempt *a,
                enum td_attempt_event event, td_status *take_failure) {
    struct moment m = {.core = c, .a = a, .now = now};
    if (take_failure) m.failure = td_steal(*take_failure);
    table[a->state][event](&m);
    td_status_free(m.failure);
}

void td_node_core_event(struct td_node_core *c, struct td_mono now, struct td_node_attempt *a,
                        enum td_attempt_event event, td_status take_failure) {
    clear_actions(c);
    run(c, now, a, event, &take_failure);
}

// ---- session ------------------------------------------------------------------------------------
void td_node_core_up(struct td_node_core *c) {
    clear_actions(c);
    c->up = true;
    c->registered = false;
    act(c, TD_NA_REGISTER, NULL);
}

void td_node_core_down(struct td_node_core *c) {
    clear_actions(c);
    c->up = c->registered = false;
}

static void stop_wanted(struct td_node_core *c, struct td_mono now, struct td_node_attempt *a,
                        int mode, uint32_t grace_ms) {
    if (td_stop_strength(mode) < TD_MAX(td_stop_strength(a->stop_mode), 1)) return;
    a->stop_mode = mode;
    a->stop_grace_ms = grace_ms;
    run(c, now, a, TD_AE_STOP, NULL);
}

static void on_registered(struct td_node_core *c, struct td_mono now,
                          const Traind__V1__CoordinatorMessage *m) {
    const Traind__V1__Registered *r = m->registered;
    c->registered = true;
    c->incarnation = m->incarnation;
    uint32_t beat_ms = r->heartbeat_ms ? TD_MIN(r->heartbeat_ms, (uint32_t)HEARTBEAT_MS_MAX) : 3000;
    c->heartbeat_ns = (int64_t)beat_ms * TD_NS_PER_MS;
    c->next_heartbeat.ns = now.ns + c->heartbeat_ns;
    for (size_t i = 0; i < r->n_adopt; i++) {
        struct td_node_attempt *a = find(c, r->adopt[i]->id);
        if (!a) continue;
        act(c, TD_NA_ADOPT, a)->cursor = r->adopt[i];
        if (a->state == TD_AT_ENDED) act(c, TD_NA_FINAL, a);
    }
    for (size_t i = 0; i < r->n_stop; i++) {
        struct td_node_attempt *a = find(c, r->stop[i]);
        if (!a) continue;
        // One removal an input: ended ones wait for the next tick, which follows at once.
        a->forget = true;
        if (a->state == TD_AT_ENDED) {
            a->due = now;
        } else {
            run(c, now, a, TD_AE_FORGET, NULL);
        }
    }
}

static void on_assign(struct td_node_core *c, const Traind__V1__Assign *assign) {
    const Traind__V1__AttemptId *id = assign->id;
    uint32_t slots = assign->slots_per_rank * assign->n_ranks;
    td_status s = TD_OK;
    if (!id || strlen(id->job) >= TD_NODE_JOB_MAX || !id->job[0] || strchr(id->job, '/') ||
        id->job[0] == '.' || id->attempt == 0 || assign->n_ranks == 0 || assign->n_ranks > 4096 ||
        assign->slots_per_rank > 4096) {
        c->stale++;
        return;
    }
    struct td_node_attempt *a = td_node_core_find(c, id->job, id->attempt);
    if (a && a->epoch == id->epoch) return; // reported twice
    if (a) {
        s = td_fail(TD_ALREADY_EXISTS, "attempt %u of %s is here with another epoch", id->attempt,
                    id->job);
    } else if (td_node_core_slots_used(c) + slots > c->slots) {
        s = td_fail(TD_RESOURCE_EXHAUSTED, "%u slots asked, %u of %u are free", slots,
                    c->slots - TD_MIN(c->slots, td_node_core_slots_used(c)), c->slots);
    }
    if (!s) {
        struct td_node_attempt new = {.state = TD_AT_PREPARING,
                                      .attempt = id->attempt,
                                      .epoch = id->epoch,
                                      .slots = slots,
                                      .n_ranks = assign->n_ranks};
        snprintf(new.job, sizeof new.job, "%s", id->job);
        s = add(c, &new, &a);
    }
    if (s) {
        struct td_node_action *refuse = act(c, TD_NA_REFUSE, NULL);
        refuse->id = id;
        refuse->status = s;
        return;
    }
    act(c, TD_NA_START, a)->assign = assign;
}

static void on_forget_message(struct td_node_core *c, struct td_mono now,
                              const Traind__V1__Forget *f) {
    struct td_node_attempt *a = find(c, f->id);
    if (a) run(c, now, a, TD_AE_FORGET, NULL);
}

static void on_store(struct td_node_core *c, const Traind__V1__AttemptId *id,
                     const Traind__V1__CoordinatorMessage *m) {
    struct td_node_attempt *a = find(c, id);
    if (a && a->shell) act(c, TD_NA_STORE, a)->store = m;
}

void td_node_core_message(struct td_node_core *c, struct td_mono now,
                          const Traind__V1__CoordinatorMessage *m) {
    clear_actions(c);
    struct td_node_attempt *a;
    if (!c->up || (m->body_case != TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED &&
                   (!c->registered || m->incarnation != c->incarnation))) {
        c->stale++;
        return;
    }
    switch (m->body_case) {
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED:
        on_registered(c, now, m);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_SEGMENT_ACK:
        a = find(c, m->segment_ack->id);
        if (a) act(c, TD_NA_ACK, a)->ack = m->segment_ack;
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN:
        on_assign(c, m->assign);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP:
        a = find(c, m->stop->id);
        if (a) stop_wanted(c, now, a, (int)m->stop->mode, m->stop->grace_ms);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST:
        act(c, TD_NA_PLAN, NULL)->plan = m->plan_request;
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_CANCEL:
        act(c, TD_NA_PLAN_DROP, NULL)->plan_cancel = m->plan_cancel;
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_FORGET:
        on_forget_message(c, now, m->forget);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_CHECKPOINT_NOW:
        a = find(c, m->checkpoint_now->id);
        if (a && a->state == TD_AT_RUNNING) act(c, TD_NA_SAVE, a);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_RECONCILE:
        act(c, TD_NA_RECONCILE, NULL)->reconcile = m->reconcile;
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_DONE:
        on_store(c, m->store_done->id, m);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_VALUE:
        on_store(c, m->store_value->id, m);
        return;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY__NOT_SET:
    case _TRAIND__V1__COORDINATOR_MESSAGE__BODY__CASE_IS_INT_SIZE:
        break;
    }
    c->stale++; // of a later minor version
}

// ---- time ---------------------------------------------------------------------------------------
void td_node_core_tick(struct td_node_core *c, struct td_mono now) {
    clear_actions(c);
    if (c->registered && now.ns >= c->next_heartbeat.ns) {
        c->next_heartbeat.ns = now.ns + c->heartbeat_ns;
        act(c, TD_NA_HEARTBEAT, NULL)->n = td_node_core_slots_used(c);
    }
    for (size_t i = 0; i < c->n_attempts; i++) {
        struct td_node_attempt *a = c->attempts[i];
        if (now.ns < a->due.ns) continue;
        if (a->state == TD_AT_ENDED && a->forget) {
            run(c, now, a, TD_AE_FORGET, NULL);
            return; // the others are due still
        }
        a->due.ns = INT64_MAX;
        run(c, now, a, TD_AE_TIME, NULL);
    }
}

struct td_mono td_node_core_wake(const struct td_node_core *c) {
    struct td_mono wake = {c->registered ? c->next_heartbeat.ns : INT64_MAX};
    for (size_t i = 0; i < c->n_attempts; i++) {
        wake.ns = TD_MIN(wake.ns, c->attempts[i]->due.ns);
    }
    return wake;
}

uint64_t td_node_core_incarnation(const struct td_node_core *c) {
    return c->incarnation;
}

bool td_node_core_registered(const struct td_node_core *c) {
    return c->registered;
}

uint64_t td_node_core_stale(const struct td_node_core *c) {
    return c->stale;
}
