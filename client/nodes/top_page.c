// A cell is cut or filled up to its width, in characters; a line is cut at the screen's, and what
// is cut ends in an ellipsis. Where the screen has no room for all columns, those that can be
// spared are left out whole, so that step and loss are there in 40. Characters of double width are
// counted as one: a name of them may push its line's last cells out.

#include "client/nodes/top_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/jobs/job_gpus.h"
#include "client/nodes/node_state.h"
#include "client/screen/format.h"
#include "client/screen/progress.h"
#include "client/screen/screen.h"
#include "lib/base/printable.h"
#include "lib/base/utf8.h"

enum { LINE_BYTES = 8192, FIXED_ROWS = 5, LEAST_JOBS = 3, STEP_WIDTH = 13 };

struct column {
    const char *heading;
    int width; // below 0: on the left
    int spare; // those of the largest number are left out first; 0: never
};
static const struct column node_columns[] = {
    {"NODE", -20, 0}, {"STATE", -8, 0}, {"SLOTS", 7, 0}, {"JOBS", 5, 1}, {"MEMORY", 20, 2}};
static const struct column job_columns[] = {
    {"JOB", -14, 0}, {"NAME", -15, 2},        {"STATE", -10, 1},   {"SLOTS", 5, 7},
    {"EPOCH", 5, 6}, {"STEP", STEP_WIDTH, 0}, {"STEP LOSS", 9, 0}, {"SAMPLES/S", 9, 3},
    {"ETA", 8, 4},   {"GPUS", 10, 5}};

// At most `width` characters, the last of them an ellipsis where there are more. Returns how many.
static td_status put_cut(struct td_buf *text, int width, int *out_n, struct td_buf *out) {
    size_t bytes = td_utf8_prefix(td_buf_cstr(text), text->len, width, out_n);
    const bool is_cut = bytes < text->len;
    if (is_cut) bytes = td_utf8_prefix(text->data, text->len, width - 1, out_n);
    if (bytes) TD_TRY(td_buf_append(out, text->data, bytes));
    if (!is_cut) return TD_OK;
    ++*out_n;
    return td_buf_str(out, td_screen_is_utf8() ? "\u2026" : "~");
}

static td_status put_cell(const char *from, int width, struct td_buf *line) {
    int n;
    TD_AUTO_BUF text, cell;
    td_buf_init(&text, LINE_BYTES);
    td_buf_init(&cell, LINE_BYTES);
    TD_TRY(td_printable_add(&text, from, strnlen(from, LINE_BYTES / 8), ""));
    TD_TRY(put_cut(&text, abs(width), &n, &cell));
    if (width > 0) TD_TRY(td_buf_printf(line, "%*s", width - n, ""));
    TD_TRY(td_buf_str(line, td_buf_cstr(&cell)));
    return width < 0 ? td_buf_printf(line, "%*s", -width - n, "") : TD_OK;
}

static td_status put_line(struct td_buf *line, int columns, struct td_buf *out) {
    int n;
    while (line->len && line->data[line->len - 1] == ' ') {
        line->data[--line->len] = '\0';
    }
    TD_TRY(put_cut(line, columns, &n, out));
    return td_buf_str(out, "\n");
}

static int width_of(const struct column *column, size_t n, int most_spare) {
    int sum = -2;
    for (size_t i = 0; i < n; i++) {
        if (column[i].spare <= most_spare) sum += abs(column[i].width) + 2;
    }
    return sum;
}

// cell: a text for each column; NULL: the headings.
static td_status put_row(const struct column *column, size_t n, const char *const *cell,
                         int columns, struct td_buf *out) {
    int most_spare = (int)n;
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_BYTES);
    while (most_spare > 0 && width_of(column, n, most_spare) > columns) {
        most_spare--;
    }
    for (size_t i = 0; i < n; i++) {
        if (column[i].spare > most_spare) continue;
        TD_TRY(td_buf_str(&line, line.len ? "  " : ""));
        TD_TRY(put_cell(cell ? cell[i] : column[i].heading, column[i].width, &line));
    }
    return put_line(&line, columns, out);
}

static td_status put_text(const char *text, int columns, struct td_buf *out) {
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_BYTES);
    TD_TRY(td_printable_add(&line, text, strnlen(text, LINE_BYTES / 8), ""));
    return put_line(&line, columns, out);
}

// ---- lines --------------------------------------------------------------------------------------
static td_status put_cluster(const Traind__V1__ClusterInfo *c, int columns, struct td_buf *out) {
    char text[LINE_BYTES / 8], up[32];
    snprintf(text, sizeof text,
             "traind %s at %s, up %s: %" PRIu32 " running, %" PRIu32 " queued, slots %" PRIu32
             " of %" PRIu32,
             c->version, c->address, td_format_seconds(c->uptime_s, up), c->jobs_running,
             c->jobs_queued, c->slots_used, c->slots);
    return put_text(text, columns, out);
}

static td_status put_node(const Traind__V1__Node *n, int columns, struct td_buf *out) {
    char slots[32], jobs[32], used[32], all[32], memory[72];
    snprintf(slots, sizeof slots, "%" PRIu32 "/%" PRIu32, n->slots_used, n->slots);
    snprintf(jobs, sizeof jobs, "%zu", n->n_jobs);
    snprintf(memory, sizeof memory, "%s/%s", td_format_bytes(n->memory_used_bytes, used),
             td_format_bytes(n->memory_bytes, all));
    const char *const cell[TD_COUNTOF(node_columns)] = {n->name, td_node_state_word(n), slots, jobs,
                                                        memory};
    return put_row(node_columns, TD_COUNTOF(node_columns), cell, columns, out);
}

// The last column is there where a job has GPUs.
static size_t n_job_columns(const Traind__V1__ListJobsResponse *l) {
    for (size_t i = 0; i < l->n_jobs; i++) {
        if (l->jobs[i]->n_gpus) return TD_COUNTOF(job_columns);
    }
    return TD_COUNTOF(job_columns) - 1;
}

static td_status put_job(const Traind__V1__Job *j, size_t n, int columns, struct td_buf *out) {
    const Traind__V1__Progress *p = j->progress;
    const bool runs = j->state == TRAIND__V1__JOB__STATE__RUNNING && p;
    const bool moves = runs && p->samples_per_s > 0;
    char slots[32], epoch[32], step[48], loss[32] = "-", rate[32], left[32];
    char gpus[TD_JOB_GPUS_BYTES];
    double value;
    snprintf(slots, sizeof slots, "%" PRIu32, j->slots);
    snprintf(epoch, sizeof epoch, "%" PRIu32, runs ? p->epoch : j->epoch);
    const uint32_t at = runs ? p->step : j->global_step, all = j->total_steps;
    snprintf(step, sizeof step, all ? "%" PRIu32 "/%" PRIu32 : "%" PRIu32, at, all);
    if (strlen(step) > STEP_WIDTH) { // 225k/1.6M
        snprintf(step, sizeof step, "%s/%s", td_format_count(at, rate), td_format_count(all, left));
    }
    if (td_job_loss(j, &value)) (void)td_format_value(value, loss);
    const char *const cell[TD_COUNTOF(job_columns)] = {
        j->id,
        j->name,
        td_job_state_word(j->state),
        slots,
        epoch,
        step,
        loss,
        moves ? td_format_count(p->samples_per_s, rate) : "-",
        (moves && all) || (runs && p->eta_s > 0) ? td_format_seconds(p->eta_s, left) : "-",
        td_job_gpus_busy(j, gpus)};
    return put_row(job_columns, n, cell, columns, out);
}

static td_status put_more(size_t n, const char *what, int columns, struct td_buf *out) {
    char text[64];
    if (!n) return TD_OK;
    snprintf(text, sizeof text, "and %zu %s more", n, what);
    return put_text(text, columns, out);
}

td_status td_top_page(const struct td_top *t, int columns, int rows, struct td_buf *out) {
    size_t n_nodes = t->nodes->n_nodes, n_jobs = t->jobs->n_jobs;
    if (rows > 0) { // jobs have the rest, three rows at least
        const int room = TD_MAX(rows - FIXED_ROWS - (t->notice ? 1 : 0), 2);
        const size_t for_nodes = (size_t)TD_MAX(room - LEAST_JOBS, 1);
        if (n_nodes > for_nodes) n_nodes = TD_MAX(for_nodes, (size_t)2) - 1;
        const size_t said = t->nodes->n_nodes > n_nodes;
        const size_t left = (size_t)room - TD_MIN((size_t)room, n_nodes + said);
        if (n_jobs > left) n_jobs = left ? left - 1 : 0;
    }
    if (t->notice) TD_TRY(put_text(t->notice, columns, out));
    TD_TRY(put_cluster(t->cluster, columns, out));
    TD_TRY(td_buf_str(out, "\n"));
    TD_TRY(put_row(node_columns, TD_COUNTOF(node_columns), NULL, columns, out));
    for (size_t i = 0; i < n_nodes; i++) {
        TD_TRY(put_node(t->nodes->nodes[i], columns, out));
    }
    TD_TRY(put_more(t->nodes->n_nodes - n_nodes, "nodes", columns, out));
    TD_TRY(td_buf_str(out, "\n"));
    const size_t n_columns = n_job_columns(t->jobs);
    TD_TRY(put_row(job_columns, n_columns, NULL, columns, out));
    for (size_t i = 0; i < n_jobs; i++) {
        TD_TRY(put_job(t->jobs->jobs[i], n_columns, columns, out));
    }
    return put_more(t->jobs->n_jobs - n_jobs, "jobs", columns, out);
}
