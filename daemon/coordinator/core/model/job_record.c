// Records of jobs and attempts as JSON text, for state.db.
//
// One writer and one reader per record, side by side, so that a field is added to both. Unknown
// keys are skipped, absent ones take zero: that is the whole compatibility rule within a schema
// version. States are stored by name, so that the numbers of an enum may move. What a restart can
// find out again (progress, numbers of a queue's reason, back-off times) is not stored.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/job.h"

enum { N_COUNTS_OF_ONE = 5 };

// ---- writing ------------------------------------------------------------------------------------
static td_status put_text(struct td_buf *out, const char *key, const char *text) {
    if (!text || !text[0]) return TD_OK;
    TD_TRY(td_buf_printf(out, ",\"%s\":", key));
    return td_json_print_string(text, strlen(text), out);
}

static td_status put_int(struct td_buf *out, const char *key, int64_t v) {
    return v ? td_buf_printf(out, ",\"%s\":%" PRId64, key, v) : TD_OK;
}

static td_status put_failure(struct td_buf *out, const struct td_failure *f) {
    if (!f->set) return TD_OK;
    TD_TRY(td_buf_printf(out, ",\"failure\":{\"class\":\"%s\",\"code\":%d,\"rank\":%d",
                         td_class_name(f->cls), (int)f->code, f->rank));
    TD_TRY(put_int(out, "attempt", f->attempt));
    TD_TRY(put_int(out, "step", f->step));
    TD_TRY(put_int(out, "secondary", f->secondary));
    TD_TRY(put_text(out, "message", f->message));
    TD_TRY(put_text(out, "node", f->node));
    TD_TRY(put_text(out, "last_words", f->last_words));
    return td_buf_str(out, "}");
}

static td_status put_lists(struct td_buf *out, const struct td_job *j) {
    TD_TRY(td_buf_str(out, ",\"notes\":["));
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(td_json_print_string(j->notes[i], strlen(j->notes[i]), out));
    }
    TD_TRY(td_buf_str(out, "],\"excluded\":["));
    for (uint32_t i = 0; i < j->n_excluded; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(td_json_print_string(j->excluded[i], strlen(j->excluded[i]), out));
    }
    return td_buf_str(out, "]");
}

// Only of ended jobs: of the others metrics.db knows.
static td_status put_metrics(struct td_buf *out, const struct td_job *j) {
    if (!td_job_state_ended(j->state)) return TD_OK;
    TD_TRY(td_buf_str(out, ",\"metrics\":["));
    for (uint32_t i = 0; i < j->n_metrics; i++) {
        const struct td_metric_last *m = &j->metrics[i];
        TD_TRY(td_buf_str(out, i ? ",{\"name\":" : "{\"name\":"));
        TD_TRY(td_json_print_string(m->name, strnlen(m->name, sizeof m->name), out));
        TD_TRY(td_buf_printf(out, ",\"step\":%u,\"value\":", m->step));
        TD_TRY(td_json_print_value(m->shown, out));
        TD_TRY(td_buf_str(out, "}"));
    }
    return td_buf_str(out, "]");
}

td_status td_job_encode(const struct td_job *j, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, "{\"state\":\"%s\"", td_job_state_name(j->state)));
    TD_TRY(put_text(out, "name", j->name));
    TD_TRY(put_int(out, "seq", (int64_t)j->seq));
    TD_TRY(put_int(out, "queue_seq", (int64_t)j->queue_seq));
    TD_TRY(put_int(out, "version", (int64_t)j->version));
    TD_TRY(put_text(out, "reason", j->reason.code));
    TD_TRY(put_text(out, "reason_text", j->reason.text));
    TD_TRY(put_int(out, "n_ranks", j->n_ranks));
    TD_TRY(put_int(out, "restarts", j->restarts));
    TD_TRY(put_int(out, "disk_restarts", j->disk_restarts));
    TD_TRY(put_int(out, "port_restarts", j->free_restarts)); // its name from when it had one cause
    TD_TRY(put_int(out, "unlisted", j->unlisted));
    TD_TRY(put_int(out, "create_ns", j->create_ns));
    TD_TRY(put_int(out, "start_ns", j->start_ns));
    TD_TRY(put_int(out, "end_ns", j->end_ns));
    TD_TRY(put_int(out, "wait_ns", j->wait_ns));
    TD_TRY(put_int(out, "step", j->progress.step));
    TD_TRY(put_int(out, "epoch", j->progress.epoch));
    TD_TRY(put_int(out, "total_steps", j->progress.total_steps));
    TD_TRY(put_int(out, "phase", j->progress.phase));
    TD_TRY(td_buf_str(out, ",\"loss\":"));
    TD_TRY(td_json_print_value((double)j->progress.loss, out));
    TD_TRY(td_buf_str(out, ",\"samples_per_s\":"));
    TD_TRY(td_json_print_double(j->progress.samples_per_s, out));
    TD_TRY(put_text(out, "labels", j->labels));
    TD_TRY(put_text(out, "owner", j->owner));
    TD_TRY(put_text(out, "owner_token", j->owner_token));
    if (j->trusted) TD_TRY(put_int(out, "trusted", 1));
    TD_TRY(put_text(out, "cancel_why", j->cancel_why));
    TD_TRY(put_text(out, "frozen", j->frozen_json));
    TD_TRY(put_text(out, "weights", j->weights));
    TD_TRY(put_text(out, "spec_digest", j->spec_digest));
    TD_TRY(put_text(out, "source", j->source));
    TD_TRY(put_text(out, "source_place", j->source_place));
    TD_TRY(put_failure(out, &j->failure));
    TD_TRY(put_lists(out, j));
    TD_TRY(put_metrics(out, j));
    return td_buf_str(out, "}");
}

td_status td_attempt_encode(const struct td_attempt *a, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, "{\"number\":%u,\"state\":\"%s\"", a->number,
                         td_attempt_state_name(a->state)));
    TD_TRY(put_int(out, "epoch", (int64_t)a->epoch));
    TD_TRY(put_int(out, "stop", a->stop));
    TD_TRY(put_int(out, "stream", a->stream));
    TD_TRY(put_int(out, "outcome", a->outcome));
    TD_TRY(put_int(out, "closing", a->closing));
    TD_TRY(put_int(out, "n_ranks", a->n_ranks));
    TD_TRY(put_int(out, "step", a->step));
    TD_TRY(put_failure(out, &a->failure));
    TD_TRY(td_buf_str(out, ",\"parts\":["));
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(td_attempt_part_encode(&a->parts[i], out));
    }
    TD_TRY(td_buf_str(out, "]"));
    TD_TRY(td_buf_str(out, ",\"ranks\":["));
    for (uint32_t r = 0; r < a->n_ranks; r++) { // cursors are beside what they count
        const struct td_rank_cursor *c = &a->ranks[r];
        TD_TRY(td_buf_printf(out, "%s[%d,%d", r ? "," : "", c->ready, c->final));
        const uint64_t counts[] = {c->metrics_end,      c->out_end,           c->err_end,
                                   c->dropped_bytes,    c->dropped_points,    c->kept,
                                   c->passed[0].number, c->passed[0].metrics, c->passed[1].number,
                                   c->passed[1].metrics};
        // Numbers of boundaries are of attempts over several nodes: others leave them out.
        const size_t n = a->n_parts > 1 ? TD_COUNTOF(counts) : N_COUNTS_OF_ONE;
        // As signed: JSON's integers end at INT64_MAX, a node's need not, and all must read back.
        for (size_t i = 0; i < n; i++) {
            TD_TRY(td_buf_printf(out, ",%" PRId64, (int64_t)counts[i]));
        }
        TD_TRY(td_buf_str(out, "]"));
    }
    return td_buf_str(out, "]}");
}

// ---- reading ------------------------------------------------------------------------------------
static const char *get_text(const struct td_json *v, const char *key) {
    return td_json_string(td_json_get(v, key), "");
}

// NULL: it is absent.
static td_status get_some(const struct td_json *v, const char *key, char **out) {
    const char *text = get_text(v, key);
    *out = text[0] ? td_strdup(text) : NULL;
    return *out || !text[0] ? TD_OK : td_fail_oom();
}

static int64_t get_int(const struct td_json *v, const char *key) {
    return td_json_int(td_json_get(v, key), 0);
}

static uint32_t get_u32(const struct td_json *v, const char *key) {
    int64_t n = get_int(v, key);
    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static td_status get_failure(const struct td_json *v, struct td_failure *out) {
    const struct td_json *f = td_json_get(v, "failure");
    if (!f) return TD_OK;
    char *message = td_strdup(get_text(f, "message"));
    char *node = td_strdup(get_text(f, "node"));
    char *words = td_strdup(get_text(f, "last_words"));
    *out = (struct td_failure){.set = true,
                               .secondary = get_int(f, "secondary") != 0,
                               .cls = td_class_parse(get_text(f, "class")),
                               .code = (enum td_code)get_int(f, "code"),
                               .attempt = get_u32(f, "attempt"),
                               .rank = (int32_t)get_int(f, "rank"),
                               .step = get_u32(f, "step"),
                               .message = message,
                               .node = node,
                               .last_words = words};
    return message && node && words ? TD_OK : td_fail_oom();
}

static int find_name(const char *text, const char *(*name)(int), int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(name(i), text) == 0) return i;
    }
    return -1;
}

static const char *job_state(int i) {
    return td_job_state_name((enum td_job_state)i);
}

static const char *attempt_state(int i) {
    return td_attempt_state_name((enum td_attempt_state)i);
}

static void get_metrics(struct td_job *j, const struct td_json *list) {
    for (const struct td_json *m = list ? list->first : NULL; m; m = m->next) {
        struct td_metric_last last = {
            .step = get_u32(m, "step"), .shown_set = true, .shown = (double)NAN};
        snprintf(last.name, sizeof last.name, "%s", get_text(m, "name"));
        (void)td_json_value(td_json_get(m, "value"), &last.shown);
        td_job_take_last(j, &last);
    }
}

td_status td_job_decode(struct td_job *j, const struct td_json *v) {
    int state = find_name(get_text(v, "state"), job_state, TD_JOB_STATE_COUNT);
    if (state < 0) {
        return td_fail(TD_DATA_LOSS, "record of job %s: unknown state '%s'", j->id,
                       get_text(v, "state"));
    }
    j->state = (enum td_job_state)state;
    j->name = td_strdup(get_text(v, "name"));
    j->seq = (uint64_t)get_int(v, "seq");
    j->queue_seq = (uint64_t)get_int(v, "queue_seq");
    j->version = (uint64_t)get_int(v, "version");
    snprintf(j->reason.code, sizeof j->reason.code, "%s", get_text(v, "reason"));
    snprintf(j->reason.text, sizeof j->reason.text, "%s", get_text(v, "reason_text"));
    j->n_ranks = get_u32(v, "n_ranks");
    j->restarts = get_u32(v, "restarts");
    j->disk_restarts = get_u32(v, "disk_restarts");
    j->free_restarts = get_u32(v, "port_restarts");
    j->unlisted = get_int(v, "unlisted") != 0;
    j->trusted = get_int(v, "trusted") != 0;
    j->create_ns = get_int(v, "create_ns");
    j->start_ns = get_int(v, "start_ns");
    j->end_ns = get_int(v, "end_ns");
    j->wait_ns = get_int(v, "wait_ns");
    j->progress.step = get_u32(v, "step");
    j->progress.epoch = get_u32(v, "epoch");
    j->progress.total_steps = get_u32(v, "total_steps");
    j->progress.phase = get_u32(v, "phase");
    double loss = (double)NAN;
    (void)td_json_value(td_json_get(v, "loss"), &loss);
    j->progress.loss = (float)loss;
    j->progress.samples_per_s = td_json_real(td_json_get(v, "samples_per_s"), 0);
    snprintf(j->spec_digest, sizeof j->spec_digest, "%s", get_text(v, "spec_digest"));
    td_plan_digest_mark(j->trusted, j->spec_digest);
    if (!j->name) return td_fail_oom();
    const char *frozen = get_text(v, "frozen");
    if (frozen[0] && !(j->frozen_json = td_strdup(frozen))) return td_fail_oom();
    const char *weights = get_text(v, "weights");
    if (weights[0] && !(j->weights = td_strdup(weights))) return td_fail_oom();
    TD_TRY(get_some(v, "labels", &j->labels));
    TD_TRY(get_some(v, "owner", &j->owner));
    TD_TRY(get_some(v, "owner_token", &j->owner_token));
    TD_TRY(get_some(v, "cancel_why", &j->cancel_why));
    TD_TRY(get_some(v, "source", &j->source));
    TD_TRY(get_some(v, "source_place", &j->source_place));
    const struct td_json *list = td_json_get(v, "notes");
    for (const struct td_json *n = list ? list->first : NULL; n; n = n->next) {
        td_job_note(j, "%s", td_json_string(n, ""));
    }
    list = td_json_get(v, "excluded");
    for (const struct td_json *n = list ? list->first : NULL; n; n = n->next) {
        td_job_exclude(j, td_json_string(n, ""));
    }
    get_metrics(j, td_json_get(v, "metrics"));
    return get_failure(v, &j->failure);
}

static struct td_boundary boundary_of(const int64_t field[2]) {
    return (struct td_boundary){(uint32_t)field[0], (uint64_t)field[1]};
}

static void get_ranks(struct td_attempt *a, const struct td_json *list) {
    uint32_t r = 0;
    for (const struct td_json *v = list ? list->first : NULL; v && r < a->n_ranks;
         v = v->next, r++) {
        int64_t field[12] = {0};
        size_t i = 0;
        for (const struct td_json *n = v->first; n && i < TD_COUNTOF(field); n = n->next) {
            field[i++] = td_json_int(n, 0);
        }
        a->ranks[r] =
            (struct td_rank_cursor){.ready = field[0] != 0,
                                    .final = field[1] != 0,
                                    .metrics_end = (uint64_t)field[2],
                                    .out_end = (uint64_t)field[3],
                                    .err_end = (uint64_t)field[4],
                                    .dropped_bytes = (uint64_t)field[5],
                                    .dropped_points = (uint64_t)field[6],
                                    .kept = (uint32_t)field[7],
                                    .passed = {boundary_of(&field[8]), boundary_of(&field[10])}};
    }
}

// Where all parts are over none lives, whatever its record says. That of an attempt from before
// there were parts has the attempt's state, and a build that read it as the part's may have
// written it so.
static void end_parts(struct td_attempt *a) {
    if (td_attempt_live(a) && !a->closing) return;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct td_attempt_part *p = &a->parts[i];
        if (td_attempt_part_live(p)) p->state = a->closing ? TD_ATTEMPT_ENDED : a->state;
    }
}

// One of before there were parts has what is its one part's now.
static td_status get_parts(struct td_attempt *a, const struct td_json *v) {
    const struct td_json *list = td_json_get(v, "parts");
    for (uint32_t i = 0; i < a->n_parts; i++) {
        a->parts[i].state = a->state;
        a->parts[i].outcome = a->outcome;
    }
    if (!list) return td_attempt_part_decode(v, &a->parts[0]);
    const struct td_json *part = list->first;
    for (uint32_t i = 0; i < a->n_parts; i++, part = part->next) {
        TD_TRY(td_attempt_part_decode(part, &a->parts[i]));
    }
    return TD_OK;
}

static uint32_t count_parts(const struct td_json *list) {
    uint32_t n = 0;
    for (const struct td_json *v = list ? list->first : NULL; v && n <= TD_SPEC_MAX_RANKS;
         v = v->next) {
        n++;
    }
    return list ? n : 1;
}

td_status td_attempt_decode(const struct td_json *v, struct td_attempt **out_attempt) {
    TD_AUTO(td_attempt) *a = NULL;
    const uint32_t n_parts = count_parts(td_json_get(v, "parts"));
    int state = find_name(get_text(v, "state"), attempt_state, TD_ATTEMPT_STATE_COUNT);
    uint32_t n_ranks = get_u32(v, "n_ranks");
    int64_t stop = get_int(v, "stop"), outcome = get_int(v, "outcome");
    if (state < 0 || n_ranks > TD_SPEC_MAX_RANKS || stop < 0 || stop >= TD_STOP_CAUSE_COUNT ||
        outcome < 0 || outcome >= TD_OUTCOME_COUNT || !n_parts || n_ranks % n_parts ||
        (n_parts > 1 && !n_ranks)) {
        return td_fail(TD_DATA_LOSS,
                       "record of an attempt: state '%s', %u ranks in %u parts, stop %" PRId64,
                       get_text(v, "state"), n_ranks, n_parts, stop);
    }
    TD_TRY(td_attempt_create(get_u32(v, "number"), n_ranks, n_parts, &a));
    a->state = (enum td_attempt_state)state;
    a->stop = (enum td_stop_cause)stop;
    a->epoch = (uint64_t)get_int(v, "epoch");
    a->stream = get_int(v, "stream") != 0;
    a->outcome = (enum td_outcome)outcome;
    a->closing = get_int(v, "closing") != 0;
    TD_TRY(get_parts(a, v));
    end_parts(a);
    a->step = get_u32(v, "step");
    get_ranks(a, td_json_get(v, "ranks"));
    TD_TRY(get_failure(v, &a->failure));
    *out_attempt = td_steal(a);
    return TD_OK;
}
