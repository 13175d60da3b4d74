// A list of watchers, a ring of events, a timer for progress. Snapshots for new watchers and for
// progress go through the gate like everything else. So a watcher never sees a state that is not on
// disk, and the order of the gate is the order that it sees.

#include "daemon/coordinator/shell/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/queue/queue_reason.h"
#include "daemon/coordinator/shell/shell.h"

static const int64_t progress_ns = 100 * TD_NS_PER_MS;
static const int64_t queue_ns = TD_NS_PER_S;

struct watcher {
    struct watcher *next;
    struct td_rpc_call *call;
    char job[TD_JOB_ID_MAX];
    uint64_t event; // newest that it was sent
    bool resume;    // came with a token
    bool live;      // got its first message
    bool dirty;     // progress to send
    uint64_t mark;  // of the reason that it got last
};

struct event {
    uint64_t number;
    char job[TD_JOB_ID_MAX];
    char *packed;
    size_t bytes;
};

struct td_watchers {
    struct td_coordinator *c;
    struct watcher *first;
    size_t n;
    struct event ring[TD_WATCH_RING];
    uint64_t n_events; // ever; ring[i % TD_WATCH_RING]
    struct td_loop_timer *timer;
    struct td_mono reported; // when the timer last reported progress
    struct td_loop_timer *queue_timer;
    struct td_mono queue_shown;
};

static void on_timer(void *arg);
static void on_queue_timer(void *arg);

td_status td_watchers_create(struct td_coordinator *c, struct td_watchers **out_w) {
    struct td_watchers *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    w->c = c;
    td_status s = td_loop_timer_create(c->loop, on_timer, w, &w->timer);
    if (!s) s = td_loop_timer_create(c->loop, on_queue_timer, w, &w->queue_timer);
    if (s) {
        td_watchers_destroy(w);
        return s;
    }
    *out_w = w;
    return TD_OK;
}

void td_watchers_destroy(struct td_watchers *w) {
    if (!w) return;
    td_loop_timer_destroy(w->timer);
    td_loop_timer_destroy(w->queue_timer);
    for (size_t i = 0; i < TD_WATCH_RING; i++) {
        free(w->ring[i].packed);
    }
    while (w->first) {
        struct watcher *gone = w->first;
        w->first = gone->next;
        free(gone);
    }
    free(w);
}

size_t td_watchers_count(const struct td_watchers *w) {
    return w->n;
}

bool td_watchers_have(const struct td_watchers *w, const char *job) {
    const struct watcher *x = w->first;
    while (x && strcmp(x->job, job) != 0) {
        x = x->next;
    }
    return x;
}

// ---- sending ------------------------------------------------------------------------------------
static bool job_ended(const Traind__V1__Job *j) {
    return td_job_state_ended((enum td_job_state)(j->state - 1));
}

// Ends the call after a terminal state, or when its queue is full.
static void send_change(struct td_watchers *w, struct watcher *x, uint64_t event,
                        Traind__V1__Job *job, bool durable) {
    if (!td_rpc_call_is_live(x->call)) return;
    char token[48];
    snprintf(token, sizeof token, "%" PRIu64 ":%" PRIu64, td_databases_incarnation(w->c->store),
             event);
    Traind__V1__WatchJobResponse r = TRAIND__V1__WATCH_JOB_RESPONSE__INIT;
    r.token = token;
    r.job = job;
    r.durable = durable;
    x->event = event;
    enum td_rpc_send sent = td_rpc_call_send(x->call, &r.base);
    if (durable && sent == TD_RPC_SEND_REFUSED) {
        td_rpc_call_finish(x->call, td_status_with_reason(
                                        td_fail(TD_RESOURCE_EXHAUSTED,
                                                "the reader is too slow; watch again with the last "
                                                "token seen"),
                                        "READER_TOO_SLOW"));
    } else if (durable && job_ended(job)) {
        td_rpc_call_finish(x->call, TD_OK);
    }
}

static void send_packed(struct td_watchers *w, struct watcher *x, const struct event *e) {
    Traind__V1__Job *job = traind__v1__job__unpack(NULL, e->bytes, (const uint8_t *)e->packed);
    if (!job) return;
    send_change(w, x, e->number, job, true);
    traind__v1__job__free_unpacked(job, NULL);
}

// Never more often than the timer, and never the past: for those that are up to date.
static void send_now(struct td_watchers *w, struct watcher *x, const char *packed, size_t bytes,
                     uint64_t event, bool durable) {
    Traind__V1__Job *job = traind__v1__job__unpack(NULL, bytes, (const uint8_t *)packed);
    if (!job) return;
    send_change(w, x, event, job, durable);
    traind__v1__job__free_unpacked(job, NULL);
}

// ---- first messages and progress, through the gate ----------------------------------------------
struct snapshot {
    struct td_watchers *w;
    struct td_rpc_call *call;
    uint64_t event;
    bool first;
    char *packed;
    size_t bytes;
};

static struct watcher *find(struct td_watchers *w, const struct td_rpc_call *call) {
    struct watcher *x = w->first;
    while (x && x->call != call) {
        x = x->next;
    }
    return x;
}

// From the ring: what came after the token. The rest comes by td_watchers_event.
static void replay(struct td_watchers *w, struct watcher *x, uint64_t up_to) {
    uint64_t begin = w->n_events > TD_WATCH_RING ? w->n_events - TD_WATCH_RING : 0;
    for (uint64_t i = begin; i < w->n_events; i++) {
        const struct event *e = &w->ring[i % TD_WATCH_RING];
        if (e->number > x->event && e->number <= up_to && strcmp(e->job, x->job) == 0) {
            send_packed(w, x, e);
        }
    }
}

static void pass_snapshot(void *take_arg, enum td_gate_pass pass) {
    struct snapshot *s = take_arg;
    struct watcher *x = pass ? find(s->w, s->call) : NULL;
    if (x && s->packed && td_rpc_call_is_live(x->call)) {
        if (s->first && x->resume) {
            replay(s->w, x, s->event);
            Traind__V1__Job *job =
                traind__v1__job__unpack(NULL, s->bytes, (const uint8_t *)s->packed);
            if (job && job_ended(job)) td_rpc_call_finish(x->call, TD_OK); // nothing will follow
            if (job) traind__v1__job__free_unpacked(job, NULL);
        } else {
            send_now(s->w, x, s->packed, s->bytes, s->event, s->first);
        }
        x->live = true;
    }
    td_rpc_call_unref(s->call);
    free(s->packed);
    free(s);
}

static void give(struct td_watchers *w, struct watcher *x, bool first) {
    const struct td_job *j = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    struct snapshot *s = td_calloc(1, sizeof *s);
    if (!s) return; // progress is worth nothing without memory
    td_status failed = td_core_find_job(w->c->core, x->job, &j);
    if (!failed) failed = td_shell_arena(&arena);
    Traind__V1__Job *m = failed ? NULL : td_view_job(arena, w->c->core, j, td_shell_now(), 0);
    td_status_free(failed);
    if (j) x->mark = td_queue_reason_mark(w->c->core, j, td_mono_now());
    s->w = w;
    s->call = x->call;
    s->event = w->c->event;
    s->first = first;
    if (m) {
        s->bytes = traind__v1__job__get_packed_size(m);
        s->packed = malloc(s->bytes + 1);
        if (s->packed) traind__v1__job__pack(m, (uint8_t *)s->packed);
    }
    td_rpc_call_ref(s->call);
    td_gate_put(w->c->gate, pass_snapshot, s);
}

// One turn of the progress clock; it stops when nothing is dirty. After a pause it begins at once.
static void on_timer(void *arg) {
    struct td_watchers *w = arg;
    w->reported = td_mono_now();
    for (struct watcher *x = w->first; x; x = x->next) {
        if (!x->dirty || !x->live) continue;
        x->dirty = false;
        give(w, x, false);
    }
}

static void on_queue_timer(void *arg) {
    struct td_watchers *w = arg;
    w->queue_shown = td_mono_now();
    for (struct watcher *x = w->first; x; x = x->next) {
        const struct td_job *j = NULL;
        if (!x->live || x->dirty) continue;
        td_status_free(td_core_find_job(w->c->core, x->job, &j));
        if (!j || !td_job_state_waits(j->state)) continue;
        if (td_queue_reason_mark(w->c->core, j, w->queue_shown) != x->mark) give(w, x, false);
    }
}

void td_watchers_queue(struct td_watchers *w) {
    if (!w->first || td_loop_timer_is_armed(w->queue_timer)) return;
    int64_t since_ns = td_mono_now().ns - w->queue_shown.ns;
    td_loop_timer_arm(w->queue_timer, TD_MAX(queue_ns - since_ns, 0));
}

void td_watchers_progress(struct td_watchers *w, const char *job) {
    bool any = false;
    for (struct watcher *x = w->first; x; x = x->next) {
        if (strcmp(x->job, job) != 0) continue;
        x->dirty = true;
        any = true;
    }
    if (!any || td_loop_timer_is_armed(w->timer)) return;
    int64_t since_ns = td_mono_now().ns - w->reported.ns;
    td_loop_timer_arm(w->timer, TD_MAX(progress_ns - since_ns, 0));
}

void td_watchers_event(struct td_watchers *w, uint64_t event, const char *job, const char *packed,
                       size_t bytes) {
    if (!packed) return;
    struct event *e = &w->ring[w->n_events % TD_WATCH_RING];
    free(e->packed);
    memset(e, 0, sizeof *e);
    e->packed = malloc(bytes + 1);
    if (e->packed) {
        memcpy(e->packed, packed, bytes);
        e->bytes = bytes;
    }
    e->number = event;
    snprintf(e->job, sizeof e->job, "%s", job);
    w->n_events++;
    if (!e->packed) return;
    for (struct watcher *x = w->first; x; x = x->next) {
        if (x->live && strcmp(x->job, job) == 0 && event > x->event) send_packed(w, x, e);
    }
}

// ---- coming and going ---------------------------------------------------------------------------
static td_status expired(void) {
    return td_status_with_reason(
        td_fail(TD_OUT_OF_RANGE,
                "the token is too old or of an earlier start; watch again without a token"),
        "TOKEN_EXPIRED");
}

static td_status read_token(struct td_watchers *w, const char *token, uint64_t *out_event) {
    uint64_t incarnation, event;
    char rest;
    if (sscanf(token, "%" SCNu64 ":%" SCNu64 "%c", &incarnation, &event, &rest) != 2) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT, "'%.60s' is no token of a watch", token), "TOKEN_INVALID");
    }
    if (incarnation != td_databases_incarnation(w->c->store) || event > w->c->event) {
        return expired();
    }
    uint64_t begin = w->n_events > TD_WATCH_RING ? w->n_events - TD_WATCH_RING : 0;
    if (begin && w->ring[begin % TD_WATCH_RING].number > event + 1) return expired();
    *out_event = event;
    return TD_OK;
}

td_status td_watchers_add(struct td_watchers *w, struct td_rpc_call *call, const char *job,
                          const char *token) {
    const struct td_job *j = NULL;
    uint64_t event = 0;
    TD_TRY(td_core_find_job(w->c->core, job, &j));
    bool resume = token && token[0];
    if (resume) TD_TRY(read_token(w, token, &event));
    struct watcher *x = td_calloc(1, sizeof *x);
    if (!x) return td_fail_oom();
    x->call = call;
    memcpy(x->job, j->id, sizeof x->job);
    x->resume = resume;
    x->event = event;
    x->next = w->first;
    w->first = x;
    w->n++;
    give(w, x, true);
    return TD_OK;
}

void td_watchers_remove(struct td_watchers *w, struct td_rpc_call *call) {
    for (struct watcher **at = &w->first; *at; at = &(*at)->next) {
        if ((*at)->call != call) continue;
        struct watcher *gone = *at;
        *at = gone->next;
        free(gone);
        w->n--;
        return;
    }
}

void td_watchers_forget(struct td_watchers *w, const char *job) {
    for (struct watcher *x = w->first; x; x = x->next) {
        if (strcmp(x->job, job) != 0 || !td_rpc_call_is_live(x->call)) continue;
        td_rpc_call_finish(
            x->call,
            td_status_with_reason(td_fail(TD_NOT_FOUND, "job %s was deleted", job), "JOB_DELETED"));
    }
}

void td_watchers_end_all(struct td_watchers *w) {
    for (struct watcher *x = w->first; x; x = x->next) {
        td_rpc_call_finish(
            x->call,
            td_status_with_reason(td_fail(TD_UNAVAILABLE, "the coordinator stops; watch again when "
                                                          "it is back"),
                                  "DRAINING"));
    }
}
