// See the header.

#include "daemon/coordinator/core/attempt/attempt.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/attempt_over.h"
#include "daemon/coordinator/core/catalog/boundaries.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/events.h"
#include "lib/attempt/segments.h"
#include "lib/base/buf.h"

enum {
    LINE_ARENA_BYTES = 4 << 20,
    FROZEN_MAX_BYTES = 256 << 10,
};
static const char RANK_SILENT[] = "RANK_SILENT"; // code of a reason

struct line {
    struct td_core *core;
    struct td_job *job;
    struct td_attempt *attempt;
    struct td_attempt_part *part; // whose launcher wrote it
    const struct td_event *event;
    uint32_t rank; // n_ranks: none
};

static uint32_t u32(int64_t n) {
    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

// ---- identity -----------------------------------------------------------------------------------
struct td_attempt *td_attempt_find(struct td_core *core, const Traind__V1__AttemptId *id,
                                   struct td_job **out_job) {
    struct td_job *j = id ? td_core_job(core, id->job) : NULL;
    struct td_attempt *a = j ? td_job_attempt(j, id->attempt) : NULL;
    if (!a || a->epoch != id->epoch || td_attempt_over(a)) {
        core->counters[TD_COUNT_STALE]++;
        return NULL;
    }
    *out_job = j;
    return a;
}

// The same of one that is not over, and the part of that node, if it may still speak.
static struct td_attempt_part *find_part(struct td_core *core, const struct td_host *node,
                                         const Traind__V1__AttemptId *id, struct td_job **out_job,
                                         struct td_attempt **out_attempt) {
    struct td_attempt *a = td_attempt_find(core, id, out_job);
    struct td_attempt_part *part = a ? td_attempt_part_on(a, node->id) : NULL;
    if (!part) return NULL;
    if (part->state == TD_ATTEMPT_FENCED) {
        core->counters[TD_COUNT_STALE]++;
        return NULL;
    }
    *out_attempt = a;
    return part;
}

// ---- failures -----------------------------------------------------------------------------------
// Keeps the first cause. A second line about the same rank only adds what the first did not know.
static void keep_failure(struct line *l, const struct td_failure *f) {
    struct td_failure *kept = &l->attempt->failure;
    if (kept->set && kept->rank == f->rank && f->rank >= 0) {
        if (f->last_words && f->last_words[0] && !kept->last_words[0]) {
            free(kept->last_words);
            kept->last_words = td_core_dup(f->last_words);
        }
        return;
    }
    if (kept->set && !(kept->secondary && !f->secondary)) return;
    TD_CHECK(!td_failure_set(kept, f));
}

static enum td_code code_of(const char *name) {
    for (int c = 1; c <= TD_UNAUTHENTICATED; c++) {
        if (strcmp(td_code_name((enum td_code)c), name) == 0) return (enum td_code)c;
    }
    return TD_UNKNOWN;
}

static struct td_failure failure_of(const struct line *l, const char *cls, const char *code,
                                    const char *message) {
    struct td_failure f = {.cls = td_class_parse(cls),
                           .code = code_of(code),
                           .attempt = l->attempt->number,
                           .rank = (int32_t)l->event->rank,
                           .node = l->part->node,
                           .message = td_unconst(message)};
    f.secondary = f.cls == TD_CLASS_COLLECTIVE;
    return f;
}

// ---- lines --------------------------------------------------------------------------------------
static void started(struct line *l) {
    if (l->part->state == TD_ATTEMPT_ASSIGNED) l->part->state = TD_ATTEMPT_STARTED;
    if (l->attempt->state == TD_ATTEMPT_ASSIGNED) l->attempt->state = TD_ATTEMPT_STARTED;
}

static void on_launched(struct line *l) {
    started(l);
    l->part->boundaries =
        l->event->launched.boundaries ? TD_BOUNDARIES_WRITTEN : TD_BOUNDARIES_NONE;
}

static void on_ready(struct line *l) {
    struct td_attempt *a = l->attempt;
    started(l);
    if (l->rank >= a->n_ranks) return;
    a->ranks[l->rank].ready = true;
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        if (!a->ranks[r].ready) return;
    }
    td_core_apply(l->core, l->job, TD_JOB_ON_RUN);
}

// Of the ranks' lines about one step the first counts.
static void reached(struct line *l, int64_t global_step) {
    uint32_t step = u32(global_step);
    if (step > l->attempt->step) l->attempt->step = step;
    if (step > l->job->progress.step) l->job->progress.step = step;
}

static void on_step1(struct line *l) {
    reached(l, l->event->step1.step);
    if (l->rank == 0) td_core_touch(l->core, l->job); // who waits for it sees it now
    td_core_apply(l->core, l->job, TD_JOB_ON_RUN);
}

static void on_resumed(struct line *l) {
    if (l->rank != 0 && l->rank < l->attempt->n_ranks) return; // all ranks say the same
    l->job->progress.step = l->attempt->step = u32(l->event->resumed.step);
    td_core_touch(l->core, l->job);
}

static void on_skipped_checkpoint(struct line *l) {
    const struct td_event_skipped_checkpoint *e = &l->event->skipped_checkpoint;
    td_catalog_on_skipped(l->core, l->job, e->path, e->reason);
    td_core_touch(l->core, l->job);
}

// A checkpoint is its writer's. Most strategies let rank 0 write, which comes before the others. Of
// those that a command registers the last one counts, whoever says it.
static bool is_of_another(const struct line *l, const char *path) {
    const struct td_checkpoint *c = path[0] ? td_catalog_find(l->job, path) : NULL;
    return c && !c->registered && c->attempt == l->attempt->number && l->part->first_rank > 0 &&
           strcmp(c->node, l->part->node) != 0;
}

static void on_registered(struct line *l) {
    const int64_t step = l->event->registered.step;
    if (is_of_another(l, td_checkpoint_path_of(l->attempt->number, step).text)) {
        l->core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    td_catalog_on_registered(l->core, l->job, l->attempt, l->part, &l->event->registered);
    reached(l, step);
}

static void on_checkpoint(struct line *l) {
    const struct td_event_checkpoint *e = &l->event->checkpoint;
    if (is_of_another(l, e->path)) {
        l->core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    bool committed = td_catalog_on_checkpoint(l->core, l->job, l->attempt, l->part, e);
    if (committed) td_retain(l->core, l->job); // it stays: its attempt is not over
    reached(l, e->step);
    l->job->progress.epoch = u32(e->epoch);
}

static void settle(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    if (td_catalog_settle(core, j, a)) td_retain(core, j);
}

static void on_boundary(struct line *l) {
    const struct td_event_boundary *e = &l->event->boundary;
    if (l->rank >= l->attempt->n_ranks || e->metrics_bytes < 0) {
        l->core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    td_boundary_passed(&l->attempt->ranks[l->rank], u32(e->number), (uint64_t)e->metrics_bytes);
    settle(l->core, l->job, l->attempt);
    if (td_boundaries_wait(l->attempt)) (void)td_core_act(l->core, TD_ACTION_HURRY);
}

static void on_removed(struct line *l) {
    if (is_of_another(l, l->event->removed.path)) {
        l->core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    td_catalog_on_removed(l->core, l->job, l->event->removed.path);
    td_source_removed(l->core, l->job, l->event->removed.path);
}

static void on_frozen(struct line *l) {
    if (l->job->frozen_json) return; // of the first start
    TD_AUTO_BUF out;
    td_buf_init(&out, FROZEN_MAX_BYTES);
    td_status s = td_json_print(l->event->frozen.plan, false, &out);
    if (s) {
        td_status_free(s);
        return;
    }
    l->job->frozen_json = td_core_dup(td_buf_cstr(&out));
    td_core_touch(l->core, l->job);
}

static void on_weights(struct line *l) {
    free(l->job->weights);
    l->job->weights = td_core_dup(l->event->weights.text);
    td_core_touch(l->core, l->job);
}

static void on_note(struct line *l) {
    td_job_note(l->job, "%s", l->event->note.text);
    td_core_touch(l->core, l->job);
}

static void on_end(struct line *l) {
    const struct td_event_end *e = &l->event->end;
    reached(l, e->step);
    if (td_outcome_parse(e->outcome) != TD_OUTCOME_FAILED) return;
    struct td_failure f = failure_of(l, e->class, e->code, e->message);
    f.step = u32(e->step);
    keep_failure(l, &f);
}

static void on_rank_exit(struct line *l) {
    const struct td_event_rank_exit *e = &l->event->rank_exit;
    struct td_failure f = failure_of(l, e->class, e->status, e->message);
    f.step = u32(e->step);
    f.last_words = td_unconst(e->last_words);
    if (l->rank < l->attempt->n_ranks) {
        l->attempt->ranks[l->rank].dropped_points = u32(e->dropped_points);
        l->attempt->ranks[l->rank].dropped_bytes = (uint64_t)TD_MAX(e->dropped_bytes, 0);
    }
    if (f.cls == TD_CLASS_NONE) {
        if (l->rank == 0) reached(l, e->step); // its last progress may not have come
        return;
    }
    if (f.code == TD_UNKNOWN) f.code = TD_INTERNAL;
    keep_failure(l, &f);
    // A launcher that kills for these kills all its ranks, and its end may be that of a stop.
    if (f.cls == TD_CLASS_STUCK || f.cls == TD_CLASS_PREEMPTED) return;
    td_attempt_part_fails(l->core, l->job, l->attempt, l->part);
}

static void on_launcher_end(struct line *l) {
    const struct td_event_launcher_end *e = &l->event->launcher_end;
    enum td_outcome outcome = td_outcome_parse(e->outcome);
    if (outcome == TD_OUTCOME_NONE) outcome = TD_OUTCOME_FAILED; // no name of ours
    if (outcome == TD_OUTCOME_FAILED) {
        struct td_failure f = failure_of(l, e->class, e->code, e->message);
        if (f.cls == TD_CLASS_NONE) f.cls = TD_CLASS_INTERNAL;
        keep_failure(l, &f);
    }
    if (td_attempt_part_live(l->part)) {
        td_attempt_part_ended(l->core, l->job, l->attempt, l->part, outcome);
    }
}

static void on_launcher_lost(struct line *l) {
    const struct td_event_launcher_lost *e = &l->event->launcher_lost;
    struct td_failure f = failure_of(l, e->class, e->code, e->message);
    if (f.cls == TD_CLASS_NONE) f.cls = TD_CLASS_INTERNAL;
    if (f.code == TD_UNKNOWN) f.code = TD_UNAVAILABLE;
    f.step = l->job->progress.step;
    keep_failure(l, &f);
    td_job_exclude(l->job, l->part->node);
    // A stop that was asked for has happened, if not in the way it was asked.
    if (!td_attempt_part_live(l->part)) return;
    td_attempt_part_ended(l->core, l->job, l->attempt, l->part,
                          l->attempt->stop ? TD_OUTCOME_KILLED : TD_OUTCOME_FAILED);
}

void td_attempt_node_speaks(struct td_job *j, const struct td_attempt *a) {
    const struct td_attempt_part *first =
        NULL; // others may have fallen silent since, waiting for it
    memset(&j->reason, 0, sizeof j->reason);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_attempt_part *p = &a->parts[i];
        if (p->silent && (!first || p->silent_at.ns < first->silent_at.ns)) first = p;
    }
    if (first) td_reason_set(&j->reason, RANK_SILENT, "%s", first->silent);
}

// Its launcher reads its heartbeat; a silent rank changes nothing but what is shown.
static void on_silent(struct line *l) {
    if (l->job->state != TD_JOB_RUNNING) return;
    if (!l->part->silent) l->part->silent_at = l->core->now.mono;
    free(l->part->silent);
    l->part->silent = td_strdup(l->event->silent.text);
    TD_CHECK(l->part->silent && "out of memory: start again from the disk");
    td_attempt_node_speaks(l->job, l->attempt);
    td_core_touch(l->core, l->job);
}

static void on_beats(struct line *l) {
    free(td_steal(l->part->silent));
    if (strcmp(l->job->reason.code, RANK_SILENT) != 0) return;
    td_attempt_node_speaks(l->job, l->attempt);
    td_core_touch(l->core, l->job);
}

// A handler for each row that the coordinator reads.
static void (*const handlers[TD_EVENT_COUNT])(struct line *l) = {
#define READ_BY_RANK(event)
#define READ_BY_LAUNCHER(event)
#define READ_BY_NODE(event)
#define READ_BY_COORDINATOR(event) [TD_EVENT_OF(event)] = on_##event,
#define READ_BY_RUN(event)
#define READ_BY_PEOPLE(event)
#define TD_READER(event, party) READ_BY_##party(event)
#include "lib/attempt/events.def"
};

static void on_line(struct td_core *core, struct td_job *j, struct td_attempt *a,
                    struct td_attempt_part *part, struct td_arena *arena, const char *bytes,
                    size_t len) {
    struct td_event event;
    td_status misfit = td_event_parse(arena, bytes, len, &event);
    if (misfit) {
        td_status_free(misfit);
        core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    if (!handlers[event.kind]) return;
    bool known = event.rank >= 0 && event.rank < (int64_t)a->n_ranks;
    if (known && td_attempt_part_of(a, (uint32_t)event.rank) != part) {
        core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    struct line l = {.core = core,
                     .job = j,
                     .attempt = a,
                     .part = part,
                     .event = &event,
                     .rank = known ? (uint32_t)event.rank : a->n_ranks};
    handlers[event.kind](&l);
}

// ---- segments -----------------------------------------------------------------------------------
static size_t whole_lines(const void *data, size_t len) {
    const char *end = memrchr(data, '\n', len);
    return end ? (size_t)(end - (const char *)data) + 1 : 0; // a half line is sent again
}

static void on_events(struct td_core *core, struct td_job *j, struct td_attempt *a,
                      struct td_attempt_part *part, const char *data, size_t len) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_CHECK(!td_arena_create(LINE_ARENA_BYTES, &arena));
    for (const char *end = data + len; data < end;) {
        const char *stop = memchr(data, '\n', (size_t)(end - data));
        size_t line = (size_t)(stop - data);
        if (line > TD_SEGMENT_LINE_MAX) {
            core->counters[TD_COUNT_BAD_LINES]++;
        } else if (line) {
            on_line(core, j, a, part, arena, data, line);
            td_arena_reset(arena);
        }
        data = stop + 1;
    }
    td_core_save_attempt(core, j, a);
}

// True: the job has said something of itself. What its devices do is stored alone: it is many
// names, and nothing that people wait for.
static bool take_record(struct td_core *core, struct td_job *j, struct td_attempt *a, uint32_t rank,
                        const struct td_metric_record *r, struct td_points *p) {
    struct td_metric_point *to = &p->points[p->n_points];
    switch (td_metric_names_take(&a->ranks[rank].names, r, to)) {
    case TD_METRIC_IS_NAME:
        return true;
    case TD_METRIC_IS_BAD:
        core->counters[TD_COUNT_BAD_POINTS]++;
        return true;
    case TD_METRIC_IS_POINT:
        p->n_points++;
        if (to->flags & TD_METRIC_DEVICE) return false;
        if (!td_job_take_metric(j, a->number, a->n_ranks, to)) {
            core->counters[TD_COUNT_BAD_POINTS]++;
        }
    }
    return true;
}

// Those that were defined among the points.
static void add_names(const struct td_metric_names *t, struct td_points *p) {
    p->n_names = t->n - p->first_name;
    if (!p->n_names) return;
    p->names = td_core_must(td_calloc(p->n_names, sizeof *p->names));
    memcpy(p->names, t->text + p->first_name, p->n_names * sizeof *p->names);
}

static void on_metrics(struct td_core *core, struct td_job *j, struct td_attempt *a, uint32_t rank,
                       const uint8_t *data, size_t len) {
    size_t n = len / sizeof(struct td_metric_record);
    if (!n) return;
    struct td_points *p = td_core_must(td_calloc(1, sizeof *p));
    memcpy(p->job, j->id, sizeof p->job);
    p->attempt = a->number;
    p->rank = rank;
    p->first_name = a->ranks[rank].names.n;
    p->points = td_core_must(td_calloc(n, sizeof *p->points));
    bool is_news = false;
    for (size_t i = 0; i < n; i++) {
        struct td_metric_record r;
        memcpy(&r, data + i * sizeof r, sizeof r);
        is_news |= take_record(core, j, a, rank, &r, p);
    }
    add_names(&a->ranks[rank].names, p);
    a->ranks[rank].metrics += n * sizeof(struct td_metric_record);
    p->offset = a->ranks[rank].metrics;
    td_core_points(core, p);
    if (is_news && !td_job_state_ended(j->state)) {
        td_core_progress(core, j);
    } else if (is_news) {
        td_core_touch(core, j); // its last values are in its record now
    }
    td_attempt_maybe_close(core, j, a);
}

void td_attempt_on_segment(struct td_core *core, struct td_host *node,
                           const Traind__V1__Segment *s) {
    struct td_job *j = NULL;
    struct td_attempt *a = NULL;
    struct td_attempt_part *part = find_part(core, node, s->id, &j, &a);
    if (!part) return;
    bool events = s->kind == TRAIND__V1__SEGMENT__KIND__EVENTS;
    if (!events && (s->kind != TRAIND__V1__SEGMENT__KIND__METRICS || s->rank >= a->n_ranks ||
                    td_attempt_part_of(a, s->rank) != part)) {
        return; // logs are the shell's
    }
    uint64_t have = events ? part->events : a->ranks[s->rank].metrics;
    if (s->offset > have) core->counters[TD_COUNT_GAPS]++;
    bool fresh = s->offset <= have && have - s->offset < s->data.len;
    const uint8_t *data = fresh ? s->data.data + (have - s->offset) : NULL;
    size_t len = fresh ? s->data.len - (size_t)(have - s->offset) : 0;
    if (events) { // acknowledged first, so that Forget, if it follows, comes after it
        len = len ? whole_lines(data, len) : 0;
        part->events += len;
        td_attempt_ack(core, node, j, a, s->kind, 0, part->events);
        if (len) on_events(core, j, a, part, (const char *)data, len);
    } else if (len) {
        on_metrics(core, j, a, s->rank, data, len); // acknowledged when metrics.db has them
    } else {
        td_attempt_ack(core, node, j, a, s->kind, s->rank, a->ranks[s->rank].metrics_done);
    }
}

// ---- the rest of what a node says about an attempt ----------------------------------------------
static double samples_per_s(const struct td_attempt *a) {
    double sum = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        sum += a->parts[i].samples_per_s;
    }
    return sum;
}

void td_attempt_on_progress(struct td_core *core, struct td_host *node,
                            const Traind__V1__AttemptProgress *p) {
    struct td_job *j = NULL;
    struct td_attempt *a = NULL;
    struct td_attempt_part *part = find_part(core, node, p->id, &j, &a);
    if (!part || !td_attempt_live(a)) return;
    part->samples_per_s = p->samples_per_s;
    if (part->first_rank) return; // where the attempt is, its first rank says
    // A sample that its node kept while we were away; of an ended attempt no other follows.
    if (p->step < a->step) return;
    if ((p->step || p->total_steps) && !a->pace_since.ns) {
        a->pace_step = a->pace_last = p->step;
        a->pace_since = core->now.mono;
    }
    if (p->step != a->pace_last) {
        a->pace_last = p->step;
        a->pace_at = core->now.mono;
    }
    j->progress = (struct td_job_progress){.epoch = p->epoch,
                                           .step = p->step,
                                           .total_steps = p->total_steps ? p->total_steps
                                                                         : j->progress.total_steps,
                                           .loss = p->loss,
                                           .samples_per_s = samples_per_s(a),
                                           .phase = p->phase};
    td_core_progress(core, j);
}

// A segment is gone, and with it what was not yet taken of it. An attempt that has ended keeps its
// outcome; that something is missing is said all the same.
static void on_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                    struct td_attempt_part *part, const Traind__V1__LogState *m) {
    td_job_note(j, "attempt %u: %s", a->number, m->lost);
    td_core_touch(core, j);
    if (!td_attempt_live(a)) return;
    struct td_failure f = {.cls = TD_CLASS_INTERNAL,
                           .code = TD_DATA_LOSS,
                           .attempt = a->number,
                           .rank = (int32_t)m->rank,
                           .step = j->progress.step,
                           .node = part->node,
                           .message = m->lost};
    if (!a->failure.set) TD_CHECK(!td_failure_set(&a->failure, &f));
    if (a->closing) a->outcome = td_attempt_unless_lost(a, a->outcome);
}

void td_attempt_on_log_state(struct td_core *core, struct td_host *node,
                             const Traind__V1__LogState *m) {
    struct td_job *j = NULL;
    struct td_attempt *a = NULL;
    struct td_attempt_part *part = find_part(core, node, m->id, &j, &a);
    if (!part || m->rank >= a->n_ranks || td_attempt_part_of(a, m->rank) != part) return;
    struct td_rank_cursor *c = &a->ranks[m->rank];
    c->dropped_bytes = m->dropped_bytes;
    c->dropped_points = TD_MAX(c->dropped_points, m->dropped_points);
    bool lost = m->final && m->lost[0];
    for (size_t i = 0; m->final && i < m->n_gone; i++) {
        td_catalog_on_gone(core, j, a, m->gone[i]);
    }
    if (!m->final || (c->final && !lost && !m->n_gone)) return;
    if (lost) on_lost(core, j, a, part, m);
    c->final = true;
    c->metrics_end = m->metrics_bytes;
    c->out_end = m->out_bytes;
    c->err_end = m->err_bytes;
    td_rank_cursor_look(c);
    settle(core, j, a);
    td_core_save_attempt(core, j, a);
    if (lost || m->n_gone) td_attempt_maybe_close(core, j, a); // what it waited for does not come
    td_attempt_maybe_forget(core, j, a);
}

void td_attempt_on_refused(struct td_core *core, struct td_host *node,
                           const Traind__V1__AttemptRefused *m) {
    struct td_job *j = NULL;
    struct td_attempt *a = NULL;
    struct td_attempt_part *part = find_part(core, node, m->id, &j, &a);
    if (!part || !td_attempt_part_live(part)) return;
    part->forgotten = true;                // nothing of it is on the node
    if (a->stop || td_attempt_aborts(a)) { // it was asked not to run
        td_attempt_part_ended(core, j, a, part, TD_OUTCOME_STOPPED);
        return;
    }
    struct td_failure f = {.cls = td_class_parse(m->class_),
                           .code =
                               (enum td_code)(m->code <= TD_UNAUTHENTICATED ? m->code : TD_UNKNOWN),
                           .attempt = a->number,
                           .rank = -1,
                           .node = part->node,
                           .message = m->message};
    if (f.cls == TD_CLASS_NONE) f.cls = TD_CLASS_INTERNAL;
    if (!a->failure.set || a->failure.secondary) TD_CHECK(!td_failure_set(&a->failure, &f));
    td_job_exclude(j, part->node);
    td_attempt_part_ended(core, j, a, part, TD_OUTCOME_FAILED);
}
