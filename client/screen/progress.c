// The bar is one line: state, epoch, steps, loss, rate and what is left. It is drawn as often as
// Watch sends, 10 a second at most. It never wraps: where the terminal is too narrow, rate and
// cells are left out whole. A state change prints a line of its own, which stays in the scroll-back
// with the reason's numbers.

#include "client/screen/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/screen.h"
#include "lib/base/buf.h"

enum { BAR_CELLS = 24, LEAST_CELLS = 4, AROUND_CELLS = 3 };

void td_progress_line_init(struct td_progress_line *p, bool dumb, bool color) {
    *p = (struct td_progress_line){
        .bar = isatty(STDERR_FILENO) && !dumb, .color = color, .state = -1};
}

const char *td_job_state_word(Traind__V1__Job__State state) {
    return td_format_enum(&traind__v1__job__state__descriptor, (int)state);
}

bool td_job_state_terminal(Traind__V1__Job__State state) {
    return state == TRAIND__V1__JOB__STATE__SUCCEEDED || state == TRAIND__V1__JOB__STATE__FAILED ||
           state == TRAIND__V1__JOB__STATE__CANCELLED || state == TRAIND__V1__JOB__STATE__EXPIRED;
}

const char *td_job_labels_text(const Traind__V1__Job *job, char out[TD_LABELS_BYTES]) {
    out[0] = '\0';
    for (size_t i = 0; i < job->n_labels; i++) {
        td_labels_put(out, job->labels[i]->key, job->labels[i]->value);
    }
    return out;
}

bool td_job_has_labels(const Traind__V1__Job *job, const char *const *wishes, size_t n_wishes) {
    char labels[TD_LABELS_BYTES];
    if (!n_wishes) return true;
    td_job_labels_text(job, labels);
    for (size_t i = 0; i < n_wishes; i++) {
        if (!td_labels_has(labels, wishes[i])) return false;
    }
    return true;
}

bool td_job_metric(const Traind__V1__Job *job, const char *name, double *out_value) {
    for (size_t i = 0; i < job->n_metrics; i++) {
        if (strcmp(job->metrics[i]->key, name) != 0) continue;
        *out_value = job->metrics[i]->value;
        return true;
    }
    return false;
}

bool td_job_loss(const Traind__V1__Job *job, double *out_loss) {
    const Traind__V1__Progress *p = job->progress;
    const bool is_logged = td_job_metric(job, "train_loss_step", out_loss);
    const bool runs = p && p->step && job->state == TRAIND__V1__JOB__STATE__RUNNING;
    if (!runs || (p->loss == 0 && !is_logged)) return is_logged; // 0: nobody reported one
    *out_loss = p->loss;
    return true;
}

static const char *color_of(const struct td_progress_line *p, Traind__V1__Job__State state) {
    if (!p->color) return "";
    if (state == TRAIND__V1__JOB__STATE__SUCCEEDED) return "\033[32m";
    if (state == TRAIND__V1__JOB__STATE__FAILED) return "\033[31m";
    return "\033[1m";
}

void td_progress_line_end(struct td_progress_line *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
    fflush(stderr);
}

static void state_line(struct td_progress_line *p, const Traind__V1__Job *job) {
    const char *reason = job->reason ? job->reason->text : "";
    if (p->state == (int)job->state && !strcmp(p->reason, reason)) return;
    td_progress_line_end(p);
    fputs(color_of(p, job->state), stderr);
    td_print(stderr, "%s", td_job_state_word(job->state));
    fputs(p->color ? "\033[0m" : "", stderr);
    if (job->attempt > 1) td_print(stderr, " (attempt %" PRIu32 ")", job->attempt);
    if (job->n_nodes > 0 && job->state == TRAIND__V1__JOB__STATE__STARTING) {
        td_print(stderr, " on %s", job->nodes[0]);
    }
    td_print(stderr, "%s%s\n", *reason ? ": " : "", reason);
    p->state = (int)job->state;
    snprintf(p->reason, sizeof p->reason, "%s", reason);
}

// A job of many notes has the last ones: what is new is what follows the one that was shown last.
static void note_lines(struct td_progress_line *p, const Traind__V1__Job *job) {
    size_t first = job->n_notes;
    while (first > 0 && strncmp(job->notes[first - 1], p->note, sizeof p->note - 1) != 0) {
        first--;
    }
    for (size_t i = first; i < job->n_notes; i++) {
        td_progress_line_end(p);
        td_print(stderr, "note: %s\n", job->notes[i]);
        snprintf(p->note, sizeof p->note, "%s", job->notes[i]);
    }
}

// "[=====>    ] " in what the rest of the line leaves of the terminal, 4 to 24 cells; "": fewer.
static void draw_cells(double done, int room, char out[BAR_CELLS + AROUND_CELLS + 1]) {
    const int cells = TD_MIN(room - AROUND_CELLS, BAR_CELLS);
    const int full = (int)(TD_MIN(done, 1.0) * cells);
    out[0] = '\0';
    if (cells < LEAST_CELLS) return;
    memset(out, ' ', (size_t)cells + AROUND_CELLS);
    out[0] = '[';
    memset(out + 1, '=', (size_t)full);
    if (full < cells) out[1 + full] = '>';
    out[1 + cells] = ']';
    out[cells + AROUND_CELLS] = '\0';
}

static void draw_bar(struct td_progress_line *p, const Traind__V1__Job *job) {
    const Traind__V1__Progress *now = job->progress;
    if (!p->bar || !now || job->state != TRAIND__V1__JOB__STATE__RUNNING) return;
    char rate[32], left[32], loss[TD_FORMAT_VALUE_BYTES], head[64], tail[160],
        cells[BAR_CELLS + AROUND_CELLS + 1];
    bool training = !strcmp(now->phase, "training");
    if (now->detail[0]) { // before the first step: no epoch, no loss
        fputs("\r\033[K", stderr);
        td_print(stderr, "%s %s", now->phase, now->detail);
        p->drawn = true;
        fflush(stderr);
        return;
    }
    snprintf(head, sizeof head, "%s%sepoch %" PRIu32 " ", training ? "" : now->phase,
             training ? "" : " ", now->epoch);
    double value;
    const char *shown = td_job_loss(job, &value) ? td_format_value(value, loss) : "-";
    int n = now->total_steps
                ? snprintf(tail, sizeof tail, "step %" PRIu32 "/%" PRIu32 " loss %s", now->step,
                           now->total_steps, shown)
                : snprintf(tail, sizeof tail, "step %" PRIu32 " loss %s", now->step, shown);
    int columns, rows;
    td_screen_size(STDERR_FILENO, &columns, &rows);
    columns--; // a line that is as wide as the terminal would wrap
    if (now->samples_per_s > 0) {
        const int more = snprintf(tail + n, sizeof tail - (size_t)n, " %s samples/s ETA %s",
                                  td_format_count(now->samples_per_s, rate),
                                  td_format_seconds(now->eta_s, left));
        const int least = (int)strlen(head) + LEAST_CELLS + AROUND_CELLS + n + more;
        if (least > columns) tail[n] = '\0';
    } else if (now->eta_s > 0) {
        (void)snprintf(tail + n, sizeof tail - (size_t)n, " ETA %s",
                       td_format_seconds(now->eta_s, left));
    }
    double done = now->total_steps ? (double)now->step / now->total_steps : 0;
    draw_cells(done, columns - (int)strlen(head) - (int)strlen(tail), cells);
    char line[320];
    n = snprintf(line, sizeof line, "%s%s%s", head, cells, tail);
    fputs("\r\033[K", stderr);
    td_print(stderr, "%.*s", TD_MIN(n, columns), line);
    p->drawn = true;
    fflush(stderr);
}

void td_progress_line_show(struct td_progress_line *p, const Traind__V1__Job *job) {
    const bool over = td_job_state_terminal(job->state); // what came of it is its last line
    if (over) note_lines(p, job);
    state_line(p, job);
    if (!over) note_lines(p, job);
    draw_bar(p, job);
}
