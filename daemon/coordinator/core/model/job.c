// The job's table of states and the small things that live in a job: reasons, failures, notes,
// attempts, last values of metrics. Policy is elsewhere; here is what may follow what.
//
// Decisions in the table that a reader may look for:
// - PAUSING + DONE is SUCCEEDED: a pause that comes after the last step finds nothing to pause.
// - PAUSING + RETRY is PAUSED: the person wanted it to rest; the failure is kept, the next attempt
//   starts from the newest checkpoint.
// - STOPPING ends CANCELLED whatever the attempt did: that is what was asked.
// - RECOVERING keeps its name while its next attempt starts; RUNNING follows when ranks are ready.
// - Pause and cancel of a RECOVERING job without an attempt pass through PAUSING and STOPPING: the
//   caller applies STOPPED at once, because there is nothing to wait for.
// Rejected: handlers in the table; a pure map can be printed, drawn and visited cell by cell.

#include "daemon/coordinator/core/model/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/checkpoint.h"
#include "lib/base/clip.h"
#include "lib/base/digest.h"
#include "lib/base/utf8.h"
#include "lib/job/labels.h"

static const char *const state_names[] = {"QUEUED",    "STARTING", "RUNNING",  "RECOVERING",
                                          "PAUSING",   "PAUSED",   "STOPPING", "CANCELLED",
                                          "SUCCEEDED", "FAILED",   "EXPIRED"};
_Static_assert(TD_COUNTOF(state_names) == TD_JOB_STATE_COUNT, "one name per state");

static const char *const event_names[] = {"ASSIGN", "RUN",   "DONE",   "STOPPED", "RETRY",
                                          "FAIL",   "PAUSE", "RESUME", "CANCEL",  "EXPIRE"};
_Static_assert(TD_COUNTOF(event_names) == TD_JOB_EVENT_COUNT, "one name per event");

// A cell is 0, which refuses the event, or TO(state); to the state itself means that it is kept.
#define TO(s) (TD_JOB_##s + 1)
#define ON(e) [TD_JOB_ON_##e]
// clang-format off
static const uint8_t table[][TD_JOB_EVENT_COUNT] = {
    [TD_JOB_QUEUED] = {
        ON(ASSIGN) = TO(STARTING), ON(FAIL) = TO(FAILED), ON(PAUSE) = TO(PAUSED),
        ON(CANCEL) = TO(CANCELLED), ON(EXPIRE) = TO(EXPIRED),
    },
    [TD_JOB_STARTING] = {
        ON(RUN) = TO(RUNNING), ON(DONE) = TO(SUCCEEDED), ON(STOPPED) = TO(QUEUED),
        ON(RETRY) = TO(RECOVERING), ON(FAIL) = TO(FAILED), ON(PAUSE) = TO(PAUSING),
        ON(CANCEL) = TO(STOPPING),
    },
    [TD_JOB_RUNNING] = {
        ON(RUN) = TO(RUNNING), ON(DONE) = TO(SUCCEEDED), ON(STOPPED) = TO(QUEUED),
        ON(RETRY) = TO(RECOVERING), ON(FAIL) = TO(FAILED), ON(PAUSE) = TO(PAUSING),
        ON(CANCEL) = TO(STOPPING),
    },
    [TD_JOB_RECOVERING] = {
        ON(ASSIGN) = TO(RECOVERING), ON(RUN) = TO(RUNNING), ON(DONE) = TO(SUCCEEDED),
        ON(STOPPED) = TO(QUEUED), ON(RETRY) = TO(RECOVERING), ON(FAIL) = TO(FAILED),
        ON(PAUSE) = TO(PAUSING), ON(CANCEL) = TO(STOPPING), ON(EXPIRE) = TO(EXPIRED),
    },
    [TD_JOB_PAUSING] = {
        ON(RUN) = TO(PAUSING), ON(DONE) = TO(SUCCEEDED), ON(STOPPED) = TO(PAUSED),
        ON(RETRY) = TO(PAUSED), ON(FAIL) = TO(FAILED), ON(PAUSE) = TO(PAUSING),
        ON(CANCEL) = TO(STOPPING),
    },
    [TD_JOB_PAUSED] = {
        ON(PAUSE) = TO(PAUSED), ON(RESUME) = TO(QUEUED), ON(CANCEL) = TO(CANCELLED),
        ON(EXPIRE) = TO(EXPIRED),
    },
    [TD_JOB_STOPPING] = {
        ON(RUN) = TO(STOPPING), ON(DONE) = TO(CANCELLED), ON(STOPPED) = TO(CANCELLED),
        ON(RETRY) = TO(CANCELLED), ON(FAIL) = TO(CANCELLED), ON(CANCEL) = TO(STOPPING),
    },
    [TD_JOB_CANCELLED] = {
        ON(CANCEL) = TO(CANCELLED),
    },
    [TD_JOB_SUCCEEDED] = {0}, // refuses all
    [TD_JOB_FAILED] = {0}, // refuses all
    [TD_JOB_EXPIRED] = {0}, // refuses all
};
// clang-format on
_Static_assert(TD_COUNTOF(table) == TD_JOB_STATE_COUNT, "one row per state");

enum td_job_step td_job_next(enum td_job_state from, enum td_job_event event,
                             enum td_job_state *out_to) {
    TD_CHECK((unsigned)from < TD_JOB_STATE_COUNT && (unsigned)event < TD_JOB_EVENT_COUNT);
    uint8_t cell = table[from][event];
    if (!cell) return TD_JOB_REFUSED;
    *out_to = (enum td_job_state)(cell - 1);
    return *out_to == from ? TD_JOB_KEPT : TD_JOB_MOVED;
}

const char *td_job_state_name(enum td_job_state s) {
    TD_CHECK((unsigned)s < TD_JOB_STATE_COUNT);
    return state_names[s];
}

const char *td_job_event_name(enum td_job_event e) {
    TD_CHECK((unsigned)e < TD_JOB_EVENT_COUNT);
    return event_names[e];
}

bool td_job_state_ended(enum td_job_state s) {
    return s == TD_JOB_CANCELLED || s == TD_JOB_SUCCEEDED || s == TD_JOB_FAILED ||
           s == TD_JOB_EXPIRED;
}

bool td_job_state_waits(enum td_job_state s) {
    return s == TD_JOB_QUEUED || s == TD_JOB_RECOVERING;
}

// ---- reasons, failures, notes -------------------------------------------------------------------
void td_reason_set(struct td_reason *r, const char *code, const char *fmt, ...) {
    memset(r, 0, sizeof *r);
    snprintf(r->code, sizeof r->code, "%s", code);
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(r->text, sizeof r->text, fmt, ap);
    va_end(ap);
    td_utf8_scrub(r->text); // a precision may have cut a character
}

void td_failure_finish(struct td_failure *f) {
    free(f->message);
    free(f->node);
    free(f->last_words);
    memset(f, 0, sizeof *f);
    f->rank = -1;
}

td_status td_failure_set(struct td_failure *f, const struct td_failure *from) {
    struct td_failure copy = *from;
    copy.set = true;
    copy.message = td_strdup(from->message ? from->message : "");
    copy.node = td_strdup(from->node ? from->node : "");
    copy.last_words = td_strdup(from->last_words ? from->last_words : "");
    if (!copy.message || !copy.node || !copy.last_words) {
        td_failure_finish(&copy);
        return td_fail_oom();
    }
    td_failure_finish(f);
    *f = copy;
    return TD_OK;
}

void td_job_note(struct td_job *j, const char *fmt, ...) {
    char text[TD_JOB_NOTE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_utf8_scrub(text);
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (strcmp(j->notes[i], text) == 0) return;
    }
    char *copy = td_strdup(text);
    if (!copy) return; // a note is worth less than the job
    if (j->n_notes == TD_JOB_MAX_NOTES) {
        free(j->notes[0]);
        memmove(j->notes, j->notes + 1, sizeof j->notes[0] * (TD_JOB_MAX_NOTES - 1));
        j->n_notes--;
    }
    j->notes[j->n_notes++] = copy;
}

bool td_job_excludes(const struct td_job *j, const char *node) {
    for (uint32_t i = 0; i < j->n_excluded; i++) {
        if (strcmp(j->excluded[i], node) == 0) return true;
    }
    return false;
}

void td_job_exclude(struct td_job *j, const char *node) {
    if (!node[0] || td_job_excludes(j, node)) return;
    if (j->n_excluded == TD_JOB_MAX_EXCLUDED) {
        memmove(j->excluded, j->excluded + 1, sizeof j->excluded[0] * (TD_JOB_MAX_EXCLUDED - 1));
        j->n_excluded--;
    }
    snprintf(j->excluded[j->n_excluded++], sizeof j->excluded[0], "%s", node);
}

// ---- attempts -----------------------------------------------------------------------------------
td_status td_attempt_create(uint32_t number, uint32_t n_ranks, uint32_t n_parts,
                            struct td_attempt **out_attempt) {
    TD_AUTO(td_attempt) *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    TD_CHECK(n_parts && n_ranks % n_parts == 0);
    a->number = number;
    a->n_ranks = n_ranks;
    a->failure.rank = -1;
    a->ranks = td_calloc(n_ranks ? n_ranks : 1, sizeof *a->ranks);
    a->parts = td_calloc(n_parts, sizeof *a->parts);
    if (!a->ranks || !a->parts) return td_fail_oom();
    for (a->n_parts = 0; a->n_parts < n_parts; a->n_parts++) {
        struct td_attempt_part *p = &a->parts[a->n_parts];
        p->n_ranks = n_ranks / n_parts;
        p->first_rank = a->n_parts * p->n_ranks;
    }
    *out_attempt = td_steal(a);
    return TD_OK;
}

void td_attempt_destroy(struct td_attempt *a) {
    if (!a) return;
    td_failure_finish(&a->failure);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        td_attempt_part_finish(&a->parts[i]);
    }
    for (uint32_t i = 0; a->ranks && i < a->n_ranks; i++) {
        td_metric_names_finish(&a->ranks[i].names);
    }
    free(a->parts);
    free(a->ranks);
    free(a);
}

struct td_attempt_part *td_attempt_part_on(const struct td_attempt *a, const char *node) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (strcmp(a->parts[i].node, node) == 0) return &a->parts[i];
    }
    return NULL;
}

struct td_attempt_part *td_attempt_part_of(const struct td_attempt *a, uint32_t rank) {
    TD_CHECK(rank < a->n_ranks);
    return &a->parts[rank / (a->n_ranks / a->n_parts)];
}

bool td_attempt_forgotten(const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (!a->parts[i].forgotten) return false;
    }
    return true;
}

bool td_attempt_over(const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (!td_attempt_part_over(&a->parts[i])) return false;
    }
    return true;
}

uint32_t td_attempt_n_live(const struct td_attempt *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        n += td_attempt_part_live(&a->parts[i]);
    }
    return n;
}

bool td_attempt_aborts(const struct td_attempt *a) {
    bool bad = false;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_attempt_part *p = &a->parts[i];
        bad = bad || p->failing || p->state == TD_ATTEMPT_FENCED ||
              (p->state == TD_ATTEMPT_ENDED && p->outcome == TD_OUTCOME_FAILED);
    }
    return bad && td_attempt_n_live(a);
}

uint32_t td_attempt_slots(const struct td_attempt *a) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        slots += a->parts[i].slots;
    }
    return slots;
}

uint32_t td_attempt_n_devices(const struct td_attempt *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].devices) n += td_device_list_count(a->parts[i].devices);
    }
    return n;
}

bool td_attempt_live(const struct td_attempt *a) {
    return a->state == TD_ATTEMPT_ASSIGNED || a->state == TD_ATTEMPT_STARTED;
}

td_status td_job_add_attempt(struct td_job *j, struct td_attempt *take_attempt) {
    TD_AUTO(td_attempt) *a = take_attempt;
    TD_CHECK(a->number == j->n_attempts + 1);
    if (j->n_attempts >= TD_JOB_MAX_ATTEMPTS) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "job %s has used all its %d attempts", j->id,
                       TD_JOB_MAX_ATTEMPTS);
    }
    if ((j->n_attempts & (j->n_attempts - 1)) == 0) { // grows at powers of two
        size_t n = j->n_attempts ? 2 * (size_t)j->n_attempts : 1;
        void *grown = td_realloc(j->attempts, n * sizeof(struct td_attempt *));
        if (!grown) return td_fail_oom();
        j->attempts = grown;
    }
    j->attempts[j->n_attempts++] = td_steal(a);
    return TD_OK;
}

struct td_attempt *td_job_attempt(const struct td_job *j, uint32_t number) {
    return number >= 1 && number <= j->n_attempts ? j->attempts[number - 1] : NULL;
}

struct td_attempt *td_job_live(const struct td_job *j) {
    if (!j->n_attempts) return NULL;
    struct td_attempt *a = j->attempts[j->n_attempts - 1];
    return td_attempt_live(a) ? a : NULL;
}

// ---- a job --------------------------------------------------------------------------------------
td_status td_job_create(const char *id, struct td_job **out_job) {
    TD_AUTO(td_job) *j = td_calloc(1, sizeof *j);
    if (!j) return td_fail_oom();
    j->failure.rank = -1;
    td_job_knobs_init(&j->knobs);
    snprintf(j->id, sizeof j->id, "%s", id);
    *out_job = td_steal(j);
    return TD_OK;
}

void td_job_destroy(struct td_job *j) {
    if (!j) return;
    td_job_knobs_finish(&j->knobs);
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        td_attempt_destroy(j->attempts[i]);
    }
    free(j->attempts);
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        td_checkpoint_destroy(j->checkpoints[i]);
    }
    free(j->checkpoints);
    for (uint32_t i = 0; i < j->n_notes; i++) {
        free(j->notes[i]);
    }
    for (uint32_t i = 0; i < j->n_metrics; i++) {
        td_exact_mean_finish(&j->metrics[i].mean);
    }
    free(j->metrics);
    td_failure_finish(&j->failure);
    free(j->name);
    free(j->labels);
    free(j->owner);
    free(j->owner_token);
    free(j->cancel_why);
    free(j->frozen_json);
    free(j->weights);
    td_spec_text_finish(&j->spec);
    free(j->source);
    free(j->source_place);
    free(j->plan_spec);
    free(j);
}

static td_status parse_spec(const struct td_job *j, struct td_arena *arena,
                            struct td_json **out_tree) {
    TD_AUTO_FREE char *inflated = NULL;
    const char *text;
    TD_TRY(td_spec_text_read(&j->spec, &inflated, &text));
    TD_TRY_CTX(td_json_parse(arena, text, strlen(text), out_tree), "canonical spec of job %s",
               j->id);
    return TD_OK;
}

td_status td_job_set_spec(struct td_job *j, const char *spec_json, const struct td_json *tree) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *parsed = NULL;
    struct td_spec spec;
    TD_TRY(td_spec_text_set(&j->spec, spec_json));
    td_plan_digest(spec_json, j->trusted, j->spec_digest);
    if (!tree) {
        TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
        TD_TRY(parse_spec(j, arena, &parsed));
    }
    td_spec_read(tree ? tree : parsed, &spec);
    j->name = td_strdup(spec.name);
    if (!j->name) return td_fail_oom();
    j->n_ranks = (uint32_t)td_spec_ranks(&spec);
    TD_TRY(td_labels_of_map(spec.labels, &j->labels));
    return td_job_knobs_set(&j->knobs, &spec);
}

td_status td_job_read_knobs(struct td_job *j) {
    if (j->knobs.texts) return TD_OK;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    struct td_spec spec;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY(parse_spec(j, arena, &tree));
    td_spec_read(tree, &spec);
    return td_job_knobs_set(&j->knobs, &spec);
}

bool td_job_has_knobs(struct td_job *j) {
    td_status s = td_spec_text_is_set(&j->spec) ? td_job_read_knobs(j) : td_fail_oom();
    td_status_free(s);
    return !s;
}

const char *td_job_plan_spec(const struct td_job *j) {
    return j->plan_spec ? j->plan_spec : j->spec.text;
}

const char *td_job_plan_digest(const struct td_job *j) {
    return j->plan_spec ? j->plan_digest : j->spec_digest;
}

void td_plan_digest_mark(bool trusted, char digest[33]) {
    if (!trusted && digest[0]) digest[0] = 'o'; // no digit of a digest
}

void td_plan_digest(const char *plan_spec, bool trusted, char out[33]) {
    td_xxh3_128_hex(plan_spec, strlen(plan_spec), out);
    td_plan_digest_mark(trusted, out);
}

bool td_plan_digest_is_trusted(const char *digest) {
    return digest[0] != 'o';
}

bool td_job_source_is(const struct td_job *j, const struct td_job *of, const char *path) {
    const size_t n = strlen(of->id);
    return j->source && strncmp(j->source, of->id, n) == 0 && j->source[n] == '/' &&
           strcmp(j->source + n + 1, path) == 0;
}

uint32_t td_job_node_ranks(const struct td_job *j) {
    return j->n_ranks / TD_MAX(j->knobs.num_nodes, (uint32_t)1);
}

// ---- metrics ------------------------------------------------------------------------------------
// NULL: there are too many, or there is no memory.
static struct td_metric_last *metric_slot(struct td_job *j, const char *name) {
    for (uint32_t i = 0; i < j->n_metrics; i++) {
        if (strcmp(j->metrics[i].name, name) == 0) return &j->metrics[i];
    }
    if (j->n_metrics == TD_JOB_MAX_METRICS) return NULL;
    if (j->n_metrics % 8 == 0) {
        void *grown = td_realloc(j->metrics, (j->n_metrics + 8) * sizeof *j->metrics);
        if (!grown) return NULL;
        j->metrics = grown;
    }
    struct td_metric_last *m = &j->metrics[j->n_metrics++];
    *m = (struct td_metric_last){0};
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

bool td_job_take_metric(struct td_job *j, uint32_t attempt, uint32_t n_ranks,
                        const struct td_metric_point *p) {
    struct td_metric_last *m = metric_slot(j, p->name);
    if (!m) return false;
    uint32_t step = p->step > 0 ? (uint32_t)p->step : 0;
    bool merge = (p->flags & TD_METRIC_SUM_COUNT) != 0;
    if (m->n_ranks && (attempt < m->attempt || (attempt == m->attempt && step < m->step))) {
        return true; // a slower rank's older point
    }
    if (!m->n_ranks || attempt != m->attempt || step != m->step || !merge) {
        m->attempt = attempt;
        m->step = step;
        m->n_ranks = 0;
        td_exact_mean_finish(&m->mean);
    }
    if (!td_exact_mean_add(&m->mean, p->sum, p->count)) return false;
    const bool whole = ++m->n_ranks >= n_ranks || !merge;
    if (!m->shown_set || whole) {
        m->shown = td_exact_mean_value(&m->mean);
        m->shown_set = whole;
    }
    if (whole) td_exact_mean_settle(&m->mean);
    return true;
}

void td_job_take_last(struct td_job *j, struct td_metric_last *m) {
    struct td_metric_last *to = metric_slot(j, m->name);
    if (!to) return;
    td_exact_mean_finish(&to->mean);
    *to = *m;
    m->mean = (struct td_exact_mean){0};
}

void td_rank_cursor_look(struct td_rank_cursor *c) {
    if (c->final && c->metrics_done >= c->metrics_end) td_metric_names_finish(&c->names);
}
