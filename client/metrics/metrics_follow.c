// Asks once a second for the newest points of each series, as many as a second is likely to bring,
// and shows those after its mark. Where more came than that, it asks again for all of them. Each
// series has a mark of its own: validation logs a step long after training has gone past it.
// A later attempt repeats steps, and its points are new. Bound: MARKS_MAX series; what is beyond
// them is an error that names --from and names of series as the way out.
//
// The daemon may be restarted meanwhile, which costs nothing: a mark is all that is remembered.

#include "client/metrics/metrics_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/metrics/metrics_rows.h"
#include "client/metrics/series.h"
#include "client/screen/print.h"
#include "client/screen/progress.h"
#include "lib/base/files/files.h"

#define ASK_AGAIN_NS (1 * TD_NS_PER_S)
#define SETTLE_NS    (10 * TD_NS_PER_S) // nodes may have points of a job that has ended
enum { MARKS_MAX = 4096, NAME_BYTES = 64, NEWEST_POINTS = 256 };

struct place {
    uint32_t attempt, step;
};

struct mark {
    char name[NAME_BYTES];
    bool any;
    struct place last; // that was shown
    struct place held; // that was not whole when it was seen last
};

struct fresh {
    const Traind__V1__Series *series;
    const Traind__V1__MetricPoint *point;
    size_t order;
};

struct following {
    struct td_session *session;
    const struct td_flags *flags;
    bool latest;
    bool ended; // the job has
    uint32_t n_ranks;
    struct mark *mark; // (MARKS_MAX)
    size_t n_marks;
    struct fresh *fresh;
    size_t n_fresh, fresh_cap;
};

static struct mark *mark_of(struct following *w, const char *name) {
    for (size_t i = 0; i < w->n_marks; i++) {
        if (strncmp(w->mark[i].name, name, NAME_BYTES - 1) == 0) return &w->mark[i];
    }
    if (w->n_marks == MARKS_MAX) return NULL;
    struct mark *m = &w->mark[w->n_marks++];
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

static struct place place_of(const Traind__V1__MetricPoint *p) {
    return (struct place){p->attempt, p->step};
}

static bool is_after(const struct mark *m, struct place at) {
    return !m->any || at.attempt > m->last.attempt ||
           (at.attempt == m->last.attempt && at.step > m->last.step);
}

// ---- which points are new -----------------------------------------------------------------------
static td_status add_fresh(struct following *w, const Traind__V1__Series *s,
                           const Traind__V1__MetricPoint *p) {
    if (w->n_fresh == w->fresh_cap) {
        const size_t cap = TD_MAX(2 * w->fresh_cap, (size_t)256);
        struct fresh *grown = td_realloc(w->fresh, cap * sizeof *grown);
        if (!grown) return td_fail_oom();
        w->fresh = grown;
        w->fresh_cap = cap;
    }
    w->fresh[w->n_fresh] = (struct fresh){.series = s, .point = p, .order = w->n_fresh};
    w->n_fresh++;
    return TD_OK;
}

// Every rank has reported it, or none will: it was there a second ago, or others came after it.
static bool is_whole(const struct following *w, const struct mark *m, const Traind__V1__Series *s,
                     size_t i) {
    const Traind__V1__MetricPoint *p = s->points[i];
    const bool seen = m->held.attempt == p->attempt && m->held.step == p->step;
    return w->ended || seen || p->n_ranks >= w->n_ranks;
}

static td_status take_series(struct following *w, const Traind__V1__Series *s) {
    struct mark *m = mark_of(w, s->name);
    if (!m) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "more than %d series; follow some by name",
                       MARKS_MAX);
    }
    for (size_t i = w->latest && s->n_points ? s->n_points - 1 : 0; i < s->n_points; i++) {
        const struct place at = place_of(s->points[i]);
        if (!is_after(m, at)) continue;
        if (!is_whole(w, m, s, i)) {
            m->held = at;
            return TD_OK; // with what comes after it, so that steps are in order
        }
        TD_TRY(add_fresh(w, s, s->points[i]));
        m->last = at;
        m->any = true;
    }
    return TD_OK;
}

// Were there points after a mark that the answer left out?
static bool passes_over(struct following *w, const Traind__V1__QueryMetricsResponse *r) {
    for (size_t i = 0; i < r->n_series && !w->latest; i++) {
        const Traind__V1__Series *s = r->series[i];
        const struct mark *m = mark_of(w, s->name);
        if (m && s->left_out && s->n_points && is_after(m, place_of(s->points[0]))) return true;
    }
    return false;
}

// ---- showing ------------------------------------------------------------------------------------
static int by_step(const void *a, const void *b) {
    const struct fresh *x = a, *y = b;
    if (x->point->attempt != y->point->attempt) {
        return x->point->attempt < y->point->attempt ? -1 : 1;
    }
    if (x->point->step != y->point->step) return x->point->step < y->point->step ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

// One object for each series, as without --follow, of its new points.
static td_status show_json(struct following *w) {
    for (size_t i = 0, n; i < w->n_fresh; i += n) {
        const Traind__V1__Series *s = w->fresh[i].series;
        for (n = 1; i + n < w->n_fresh && w->fresh[i + n].series == s; n++) {}
        TD_AUTO_FREE Traind__V1__MetricPoint **points = td_calloc(n, sizeof *points);
        if (!points) return td_fail_oom();
        for (size_t k = 0; k < n; k++) {
            points[k] = td_unconst(w->fresh[i + k].point);
        }
        Traind__V1__Series part = *s;
        part.points = points;
        part.n_points = n;
        TD_TRY(td_session_print_json(w->session, &part.base));
    }
    return TD_OK;
}

static td_status show(struct following *w) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)512 << 20);
    if (td_output_is_json(w->flags->output)) return show_json(w);
    if (w->n_fresh) qsort(w->fresh, w->n_fresh, sizeof *w->fresh, by_step);
    for (size_t i = 0; i < w->n_fresh; i++) {
        const struct fresh *x = &w->fresh[i];
        if (w->flags->output == TD_OUTPUT_CSV) {
            TD_TRY(td_csv_row(x->series->name, x->point, false, &text));
        } else {
            TD_TRY(td_line_row(x->series->name, x->point, &text));
        }
    }
    return td_fs_write_stdout(text.data, text.len);
}

// ---- asking -------------------------------------------------------------------------------------
static td_status ask(struct following *w, uint32_t newest, struct td_series **out_series) {
    Traind__V1__QueryMetricsRequest request;
    td_series_request_init(w->flags, &request);
    request.max_points = newest;
    return td_series_read(w->session, &request, out_series);
}

// The job first: what comes after its end is in the answer.
static td_status look(struct following *w) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_get_job(w->session, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    w->ended = td_job_state_terminal(job->state);
    w->n_ranks = job->n_ranks;
    return TD_OK;
}

// *out_more: nodes have yet to send some.
static td_status one_round(struct following *w, bool *out_more) {
    TD_AUTO(td_series) *series = NULL;
    TD_TRY(look(w));
    TD_TRY(ask(w, w->latest ? 1 : w->n_marks ? NEWEST_POINTS : 0, &series));
    if (passes_over(w, td_series_get(series))) {
        td_series_destroy(td_steal(series));
        TD_TRY(ask(w, 0, &series));
    }
    td_session_is_back(w->session);
    const Traind__V1__QueryMetricsResponse *r = td_series_get(series);
    *out_more = r->n_awaited > 0;
    w->n_fresh = 0;
    for (size_t i = 0; i < r->n_series; i++) {
        TD_TRY(take_series(w, r->series[i]));
    }
    return show(w);
}

// A name that never came is misspelt, or of another job.
static td_status check_names(struct following *w) {
    TD_AUTO(td_series) *series = NULL;
    if (w->flags->n_args == 1) return TD_OK;
    TD_TRY(ask(w, 1, &series));
    return td_series_check_names(w->session, w->flags, td_series_get(series));
}

// The daemon was there when the job was looked for.
static td_status follow(struct following *w) {
    const int64_t timeout_ns = w->flags->timeout_ns;
    struct td_mono start = td_mono_now(), last = start, ended = {0};
    for (;;) {
        bool more = false;
        td_status s = one_round(w, &more);
        const struct td_mono now = td_mono_now();
        if (s && td_status_code(s) != TD_UNAVAILABLE) return s;
        if (!s || !w->session->away) last = now; // until this call it was there
        if (!s && w->ended && !ended.ns) ended = now;
        if (!s && w->ended && (!more || now.ns - ended.ns > SETTLE_NS)) return check_names(w);
        if (timeout_ns && now.ns - start.ns >= timeout_ns) {
            td_status_free(s);
            return td_fail(TD_DEADLINE_EXCEEDED, "job %s has not ended within --timeout (%.9g s)",
                           w->flags->args[0], (double)timeout_ns / TD_NS_PER_S);
        }
        TD_TRY(s ? td_session_reconnect(w->session, s, last)
                 : td_loop_run_for(w->session->loop, NULL, ASK_AGAIN_NS));
    }
}

td_status td_metrics_follow(struct td_session *s, const struct td_flags *f, bool latest) {
    struct following w = {.session = s, .flags = f, .latest = latest};
    TD_AUTO_BUF head;
    td_buf_init(&head, 4096);
    if (f->output == TD_OUTPUT_CSV) TD_TRY(td_csv_head(false, &head));
    if (f->output == TD_OUTPUT_TABLE) TD_TRY(td_line_head(&head));
    w.mark = td_calloc(MARKS_MAX, sizeof *w.mark);
    td_status failed = w.mark ? TD_OK : td_fail_oom();
    if (!failed) failed = look(&w); // a job that is not there has no heading
    if (!failed) failed = td_fs_write_stdout(head.data, head.len);
    if (!failed) failed = follow(&w);
    free(w.mark);
    free(w.fresh);
    return failed;
}
