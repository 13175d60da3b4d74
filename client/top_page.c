// A cell is cut or filled up to its width, in characters; a line is cut at the screen's. Characters
// of double width are counted as one: a name of them may push its line's last cells out.

#include "client/top_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/format.h"
#include "client/progress.h"
#include "client/screen.h"
#include "lib/base/printable.h"

enum { LINE_BYTES = 8192, FIXED_ROWS = 5, LEAST_JOBS = 3, STEP_WIDTH = 13 };

struct cell {
    const char *text;
    int width; // below 0: on the left
};

// Bytes of the first n characters of valid UTF-8.
static size_t bytes_of(const char *text, size_t len, int n, int *out_characters) {
    size_t at = 0;
    *out_characters = 0;
    while (at < len && *out_characters < n) {
        at += TD_MAX(td_utf8_sequence(text + at, len - at), (size_t)1);
        ++*out_characters;
    }
    return at;
}

static td_status put_cell(struct cell c, struct td_buf *line) {
    const int width = c.width < 0 ? -c.width : c.width;
    int n;
    TD_AUTO_BUF text;
    td_buf_init(&text, LINE_BYTES);
    TD_TRY(td_printable_add(&text, c.text, strnlen(c.text, LINE_BYTES / 8), ""));
    size_t bytes = bytes_of(td_buf_cstr(&text), text.len, width, &n);
    const bool is_cut = bytes < text.len;
    if (is_cut) bytes = bytes_of(td_buf_cstr(&text), text.len, width - 1, &n);
    if (c.width > 0 && !is_cut) TD_TRY(td_buf_printf(line, "%*s", width - n, ""));
    TD_TRY(td_buf_append(line, text.data, bytes));
    if (is_cut) return td_buf_str(line, td_screen_is_utf8() ? "\u2026" : "~");
    return c.width < 0 ? td_buf_printf(line, "%*s", width - n, "") : TD_OK;
}

static td_status put_line(const struct td_buf *line, int columns, struct td_buf *out) {
    int n;
    size_t bytes = bytes_of(line->data, line->len, columns, &n);
    while (bytes && line->data[bytes - 1] == ' ') {
        bytes--;
    }
    if (bytes) TD_TRY(td_buf_append(out, line->data, bytes));
    return td_buf_str(out, "\n");
}

static td_status put_cells(const struct cell *cells, size_t n, int columns, struct td_buf *out) {
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_BYTES);
    for (size_t i = 0; i < n; i++) {
        TD_TRY(td_buf_str(&line, i ? "  " : ""));
        TD_TRY(put_cell(cells[i], &line));
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
    const char *state = td_format_enum(&traind__v1__node__state__descriptor, (int)n->state);
    char slots[32], jobs[32], used[32], all[32], memory[72];
    snprintf(slots, sizeof slots, "%" PRIu32 "/%" PRIu32, n->slots_used, n->slots);
    snprintf(jobs, sizeof jobs, "%zu", n->n_jobs);
    snprintf(memory, sizeof memory, "%s/%s", td_format_bytes(n->memory_used_bytes, used),
             td_format_bytes(n->memory_bytes, all));
    const struct cell cells[] = {{n->name, -20}, {state, -8}, {slots, 7}, {jobs, 5}, {memory, 20}};
    return put_cells(cells, TD_COUNTOF(cells), columns, out);
}

static td_status put_job(const Traind__V1__Job *j, int columns, struct td_buf *out) {
    const Traind__V1__Progress *p = j->progress;
    const bool runs = j->state == TRAIND__V1__JOB__STATE__RUNNING && p;
    const bool moves = runs && p->samples_per_s > 0;
    char slots[32], epoch[32], step[48], loss[32] = "-", rate[32], left[32];
    double value;
    snprintf(slots, sizeof slots, "%" PRIu32, j->slots);
    snprintf(epoch, sizeof epoch, "%" PRIu32, runs ? p->epoch : j->epoch);
    const uint32_t at = runs ? p->step : j->global_step, all = j->total_steps;
    snprintf(step, sizeof step, all ? "%" PRIu32 "/%" PRIu32 : "%" PRIu32, at, all);
    if (strlen(step) > STEP_WIDTH) { // 225k/1.6M
        snprintf(step, sizeof step, "%s/%s", td_format_count(at, rate), td_format_count(all, left));
    }
    if (td_job_metric(j, "train_loss_step", &value)) snprintf(loss, sizeof loss, "%.4f", value);
    if (runs && p->step) snprintf(loss, sizeof loss, "%.4f", p->loss);
    const struct cell cells[] = {{j->id, -14},
                                 {j->name, -16},
                                 {td_job_state_word(j->state), -10},
                                 {slots, 5},
                                 {epoch, 5},
                                 {step, STEP_WIDTH},
                                 {loss, 9},
                                 {moves ? td_format_count(p->samples_per_s, rate) : "-", 9},
                                 {moves && all ? td_format_seconds(p->eta_s, left) : "-", 8}};
    return put_cells(cells, TD_COUNTOF(cells), columns, out);
}

static td_status put_more(size_t n, const char *what, int columns, struct td_buf *out) {
    char text[64];
    if (!n) return TD_OK;
    snprintf(text, sizeof text, "and %zu %s more", n, what);
    return put_text(text, columns, out);
}

td_status td_top_page(const struct td_top *t, int columns, int rows, struct td_buf *out) {
    static const struct cell nodes[] = {
        {"NODE", -20}, {"STATE", -8}, {"SLOTS", 7}, {"JOBS", 5}, {"MEMORY", 20}};
    static const struct cell jobs[] = {{"JOB", -14}, {"NAME", -16},    {"STATE", -10},
                                       {"SLOTS", 5}, {"EPOCH", 5},     {"STEP", STEP_WIDTH},
                                       {"LOSS", 9},  {"SAMPLES/S", 9}, {"ETA", 8}};
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
    TD_TRY(put_cells(nodes, TD_COUNTOF(nodes), columns, out));
    for (size_t i = 0; i < n_nodes; i++) {
        TD_TRY(put_node(t->nodes->nodes[i], columns, out));
    }
    TD_TRY(put_more(t->nodes->n_nodes - n_nodes, "nodes", columns, out));
    TD_TRY(td_buf_str(out, "\n"));
    TD_TRY(put_cells(jobs, TD_COUNTOF(jobs), columns, out));
    for (size_t i = 0; i < n_jobs; i++) {
        TD_TRY(put_job(t->jobs->jobs[i], columns, out));
    }
    return put_more(t->jobs->n_jobs - n_jobs, "jobs", columns, out);
}
