// metrics.csv, as Lightning's CSVLogger writes it. The header has sorted names, among them our
// epoch and step (logger_sink.h), quoted as RFC 4180 says: a name may have a line break. "\r\n"
// ends each line, and a cell is empty where a row has no such value. There is one row a step, where
// Lightning may write several, and one more for what came late. A new column writes the whole file
// again, by a temporary file and a rename. An open row is the last line, and is written over in
// place as it grows.
//
// Lines wait in memory until the next flush. A write that fails is cut back to the last whole line,
// and the sink is given up then: the logger opens the file again and puts the rows again.

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launcher/loggers/logger_sink.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/json.h"

enum {
    CSV_MAGIC = 0x6c637376,
    COLUMNS_MAX = 256 + TD_LOG_DEVICE_CELLS, // further metrics are left out
    LINE_MAX_BYTES = 64 << 10,
    PENDING_MAX = 256 << 10,
    CELL_BYTES = 32,
};

struct column {
    char name[TD_LOG_COLUMN_BYTES];
    char cell[CELL_BYTES];    // of the last row; "": none
    struct td_step_set there; // steps of its cells
};
struct csv_sink {
    struct td_log_sink base;
    char path[TD_FS_PATH_BYTES];
    int fd;
    struct column column[COLUMNS_MAX]; // sorted by name
    size_t n;
    bool has_row; // the last row, whose line begins at `at` when what waits is written
    int64_t step;
    bool dirty;            // it is not written as it is
    uint64_t at;           // whole lines before that are in the file
    struct td_buf pending; // closed lines that are not
};

// ---- texts --------------------------------------------------------------------------------------
static void print_number(double v, char out[CELL_BYTES]) {
    TD_AUTO_BUF text;
    td_buf_init(&text, CELL_BYTES);
    if (isfinite(v)) {
        td_status_free(td_json_print_double(v, &text));
        snprintf(out, CELL_BYTES, "%s", td_buf_cstr(&text));
    } else {
        snprintf(out, CELL_BYTES, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    }
}

// A name in the header: in quotes where it needs them, as csv does.
static td_status print_name(const char *name, struct td_buf *out) {
    if (!strpbrk(name, ",\"\r\n")) return td_buf_str(out, name);
    TD_TRY(td_buf_str(out, "\""));
    for (const char *p = name; *p; p++) {
        TD_TRY(td_buf_append(out, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1));
    }
    return td_buf_str(out, "\"");
}

static td_status print_header(const struct csv_sink *s, struct td_buf *out) {
    for (size_t i = 0; i < s->n; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(print_name(s->column[i].name, out));
    }
    return td_buf_str(out, "\r\n");
}

static td_status print_row(const struct csv_sink *s, struct td_buf *out) {
    for (size_t i = 0; i < s->n; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        TD_TRY(td_buf_str(out, s->column[i].cell));
    }
    return td_buf_str(out, "\r\n");
}

// The next cell of a line, without its quotes; NULL: it is the last, or damaged.
static const char *read_cell(const char *at, char *out, size_t bytes) {
    size_t n = 0;
    bool quoted = *at == '"';
    for (at += quoted; *at; at++) {
        if (quoted && *at == '"' && at[1] != '"') {
            at++;
            break;
        }
        if (!quoted && (*at == ',' || *at == '\r')) break;
        at += quoted && *at == '"';
        if (n + 1 < bytes) out[n++] = *at;
    }
    out[n] = '\0';
    return *at == ',' ? at + 1 : NULL;
}

// The next line, and those that go on in quotes; false: there is none, or it is too long.
static bool read_line(FILE *f, char line[LINE_MAX_BYTES]) {
    size_t len = 0, quotes = 0;
    do {
        if (!fgets(line + len, (int)(LINE_MAX_BYTES - len), f)) return len > 0;
        for (; line[len]; len++) {
            quotes += line[len] == '"';
        }
    } while (quotes % 2 && len + 1 < LINE_MAX_BYTES);
    return true;
}

// ---- columns ------------------------------------------------------------------------------------
static struct column *find(struct csv_sink *s, const char *name) {
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->column[i].name, name) == 0) return &s->column[i];
    }
    return NULL;
}

// Columns of a row: ours, then its metrics.
enum { OURS = 2 };
static void name_at(const struct td_log_row *row, size_t i, char out[TD_LOG_COLUMN_BYTES]) {
    static const char *const ours[OURS] = {"epoch", "step"};
    if (i >= OURS) {
        td_log_column(row->value[i - OURS].name, out);
    } else {
        snprintf(out, TD_LOG_COLUMN_BYTES, "%s", ours[i]);
    }
}

// The place of each column in the header after those of `row` came to it; true: some did.
static bool grow(struct csv_sink *s, const struct td_log_row *row, size_t out_was[COLUMNS_MAX]) {
    bool grew = false;
    for (size_t i = 0; i < s->n; i++) {
        out_was[i] = i;
    }
    for (size_t i = 0; i < row->n + OURS && s->n < COLUMNS_MAX; i++) {
        char name[TD_LOG_COLUMN_BYTES];
        name_at(row, i, name);
        if (find(s, name)) continue;
        size_t at = s->n++;
        for (; at > 0 && strcmp(s->column[at - 1].name, name) > 0; at--) {
            s->column[at] = s->column[at - 1];
            out_was[at] = out_was[at - 1];
        }
        s->column[at] = (struct column){0};
        snprintf(s->column[at].name, sizeof s->column[at].name, "%s", name);
        out_was[at] = SIZE_MAX; // it was not there
        grew = true;
    }
    return grew;
}

// A line of the old columns as one of the new.
static td_status widen(const struct csv_sink *s, const size_t *was, const char *line,
                       struct td_buf *out) {
    char cell[COLUMNS_MAX][CELL_BYTES] = {{0}};
    const char *at = line;
    for (size_t i = 0; i < COLUMNS_MAX && at; i++) {
        at = read_cell(at, cell[i], sizeof cell[i]);
    }
    for (size_t i = 0; i < s->n; i++) {
        if (i) TD_TRY(td_buf_str(out, ","));
        if (was[i] != SIZE_MAX) TD_TRY(td_buf_str(out, cell[was[i]]));
    }
    return td_buf_str(out, "\r\n");
}

// ---- the file -----------------------------------------------------------------------------------
static struct csv_sink *csv_of(struct td_log_sink *sink) {
    TD_CHECK(sink && sink->magic == CSV_MAGIC);
    return (struct csv_sink *)(void *)sink;
}

static td_status flush(struct csv_sink *s) {
    const size_t closed_bytes = s->pending.len;
    if (s->has_row && s->dirty) TD_TRY(print_row(s, &s->pending));
    const size_t bytes = s->pending.len;
    if (bytes == 0) return TD_OK;
    TD_TRY(td_log_sink_write(s->fd, s->path, &s->pending, s->at));
    if (ftruncate(s->fd, (off_t)(s->at + bytes)) != 0) return td_fs_fail("cut", s->path);
    s->at += closed_bytes;
    s->dirty = false;
    td_buf_clear(&s->pending);
    return TD_OK;
}

// The new file's text, but the last row.
static td_status copy_widened(struct csv_sink *s, const size_t *was, FILE *from, FILE *to,
                              uint64_t *out_bytes) {
    static _Thread_local char line[LINE_MAX_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, PENDING_MAX);
    TD_TRY(print_header(s, &text));
    uint64_t read = 0;
    *out_bytes = 0;
    for (bool more = true, is_header = true; more; is_header = false) {
        more = read < s->at && read_line(from, line);
        read += more ? strlen(line) : 0;
        if (more && !is_header) TD_TRY(widen(s, was, line, &text));
        if (more && text.len < PENDING_MAX - 2 * LINE_MAX_BYTES) continue;
        if (fwrite(text.data, 1, text.len, to) != text.len) return td_fs_fail("write", s->path);
        *out_bytes += text.len;
        td_buf_clear(&text);
    }
    return fflush(to) == 0 ? TD_OK : td_fs_fail("write", s->path);
}

static void file_auto(FILE **f) {
    if (*f) fclose(*f);
}
#define AUTO_FILE __attribute__((cleanup(file_auto))) FILE

// From the start of a file that is open already, and stays open.
static FILE *stream_of(int fd, const char *mode) {
    TD_AUTO_CLOSE int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *f = copy >= 0 && lseek(copy, 0, SEEK_SET) == 0 ? fdopen(copy, mode) : NULL;
    if (f) copy = -1; // the stream's now
    return f;
}

// The file with the columns that there are now. All before is in it, and nothing waits.
static td_status rewrite(struct csv_sink *s, const size_t *was) {
    TD_AUTO_NAMED_OUTPUT new = TD_NAMED_OUTPUT_NONE;
    uint64_t bytes = 0;
    TD_TRY(td_named_output_open(s->path, 0666, &new));
    AUTO_FILE *from = stream_of(s->fd, "re");
    AUTO_FILE *to = stream_of(new.file.fd, "we");
    if (!from) return td_fs_fail("read", s->path);
    if (!to) return td_fs_fail("write", s->path);
    TD_TRY(copy_widened(s, was, from, to, &bytes));
    TD_TRY(td_named_output_finish(&new, 0));
    close(s->fd);
    s->fd = td_steal_fd(&new.file.fd);
    s->at = bytes;
    s->dirty = s->has_row;
    return TD_OK;
}

// ---- taking up a file ---------------------------------------------------------------------------
static td_status not_ours(const struct csv_sink *s) {
    return td_fail(TD_FAILED_PRECONDITION,
                   "'%s' is not a file of metrics that traind wrote: its first line is no header "
                   "with `epoch` and `step`; move it away",
                   s->path);
}

static bool is_whole(const char *line) {
    size_t len = strlen(line);
    return len >= 2 && line[len - 2] == '\r' && line[len - 1] == '\n';
}

// True: it is what would be written for its names. Any other may not be read again as it is
// written, such as a name in quotes that end on another line.
static bool read_header(struct csv_sink *s, const char *line) {
    const char *at = line;
    for (; at && s->n < COLUMNS_MAX; s->n++) {
        at = read_cell(at, s->column[s->n].name, sizeof s->column[s->n].name);
    }
    TD_AUTO_BUF again;
    td_buf_init(&again, LINE_MAX_BYTES);
    td_status failed = print_header(s, &again);
    const bool is_same = !failed && strcmp(td_buf_cstr(&again), line) == 0;
    td_status_free(failed);
    return is_same && find(s, "epoch") && find(s, "step");
}

// False: the line has more or fewer cells, or no step, or a cell in quotes, which no number is.
static bool read_row(struct csv_sink *s, const char *line, int64_t last) {
    static _Thread_local char cell[COLUMNS_MAX][CELL_BYTES];
    const size_t step_at = (size_t)(find(s, "step") - s->column);
    const char *at = line;
    char *end;
    size_t n = 0;
    while (at && n < s->n) {
        at = read_cell(at, cell[n++], CELL_BYTES);
    }
    if (at || n != s->n || strchr(line, '"')) return false;
    const int64_t step = strtoll(cell[step_at], &end, 10);
    if (end == cell[step_at] || *end || step > last || step < 0 || step > INT32_MAX) return false;
    for (size_t i = 0; i < s->n; i++) {
        memcpy(s->column[i].cell, cell[i], CELL_BYTES);
        if (cell[i][0]) (void)td_step_set_add(&s->column[i].there, (int32_t)step);
    }
    s->step = step;
    return true;
}

// Reads up to the first row that is torn or too late, and cuts the file there.
static td_status take_up(struct csv_sink *s, int64_t last) {
    static _Thread_local char line[LINE_MAX_BYTES];
    AUTO_FILE *f = stream_of(s->fd, "re");
    if (!f) return td_fs_fail("read", s->path);
    uint64_t end = 0;
    if (!read_line(f, line)) return TD_OK; // empty
    const bool is_torn = feof(f) && !strchr(line, '\n');
    if (!is_torn) {
        end = strlen(line);
        const bool has_zero = ftello(f) != (off_t)end; // a text that ends before its line does
        if (has_zero || !is_whole(line) || !read_header(s, line)) return not_ours(s);
        while (fgets(line, sizeof line, f) && is_whole(line) && read_row(s, line, last)) {
            s->has_row = true;
            s->at = end; // the row stays the last one
            end += strlen(line);
        }
    }
    if (!s->has_row) s->at = end;
    return ftruncate(s->fd, (off_t)end) == 0 ? TD_OK : td_fs_fail("cut", s->path);
}

static void csv_close(struct td_log_sink *sink) {
    if (!sink) return;
    struct csv_sink *s = csv_of(sink);
    s->base.magic = 0;
    if (s->fd >= 0) close(s->fd);
    td_buf_finish(&s->pending);
    for (size_t i = 0; i < s->n; i++) {
        td_step_set_finish(&s->column[i].there);
    }
    free(s);
}

static td_status csv_open(const struct td_log_open *how, struct td_log_sink **out_sink) {
    struct csv_sink *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    td_buf_init(&s->pending, PENDING_MAX + LINE_MAX_BYTES);
    s->base.magic = CSV_MAGIC;
    s->fd = -1;
    td_status failed = td_fs_path(s->path, "%s/metrics.csv", how->dir);
    if (!failed) {
        failed = td_named_output_update(s->path, O_RDWR, 0666, &s->fd);
        if (!failed && how->fresh && ftruncate(s->fd, 0) != 0) failed = td_fs_fail("cut", s->path);
        if (!failed) failed = take_up(s, how->last);
    }
    if (failed) {
        csv_close(&s->base);
        return failed;
    }
    *out_sink = &s->base;
    return TD_OK;
}

// ---- rows ---------------------------------------------------------------------------------------
static td_status begin_row(struct csv_sink *s, int64_t step) {
    if (s->has_row && s->dirty) TD_TRY(print_row(s, &s->pending));
    if (s->has_row && !s->dirty) { // it is in the file as it is: lines go after it
        TD_AUTO_BUF line;
        td_buf_init(&line, LINE_MAX_BYTES);
        TD_TRY(print_row(s, &line));
        s->at += line.len;
    }
    for (size_t i = 0; i < s->n; i++) {
        s->column[i].cell[0] = '\0';
    }
    s->has_row = true;
    s->step = step;
    return TD_OK;
}

// The columns of a row's values; NULL: there is none, or the file has it. How many are not there.
static size_t find_all(struct csv_sink *s, const struct td_log_row *row,
                       struct column *out[TD_LOG_VALUES]) {
    const bool is_last = s->has_row && row->step == s->step;
    size_t n_new = 0;
    for (size_t i = 0; i < row->n; i++) {
        char name[TD_LOG_COLUMN_BYTES];
        td_log_column(row->value[i].name, name);
        out[i] = find(s, name);
        n_new += !out[i];
        if (!out[i] || (is_last && out[i]->cell[0])) continue; // new, or it is written over
        if (td_step_set_has(&out[i]->there, (int32_t)row->step)) out[i] = NULL;
    }
    return n_new;
}

static td_status csv_put(struct td_log_sink *sink, const struct td_log_row *row) {
    struct csv_sink *s = csv_of(sink);
    struct column *to[TD_LOG_VALUES];
    size_t was[COLUMNS_MAX], n_to = 0;
    if (s->pending.len > PENDING_MAX - 2 * LINE_MAX_BYTES) TD_TRY(flush(s));
    if (find_all(s, row, to) || s->n == 0) {
        TD_TRY(flush(s));
        if (grow(s, row, was)) TD_TRY(rewrite(s, was));
        (void)find_all(s, row, to);
    }
    for (size_t i = 0; i < row->n; i++) {
        n_to += to[i] != NULL;
    }
    if (n_to == 0) return TD_OK;
    if (!s->has_row || row->step != s->step) TD_TRY(begin_row(s, row->step));
    for (size_t i = 0; i < row->n; i++) {
        if (!to[i]) continue;
        print_number(row->value[i].value, to[i]->cell);
        (void)td_step_set_add(&to[i]->there, (int32_t)row->step);
    }
    snprintf(find(s, "step")->cell, CELL_BYTES, "%lld", (long long)row->step);
    snprintf(find(s, "epoch")->cell, CELL_BYTES, "%lld", (long long)row->epoch);
    s->dirty = true;
    return TD_OK;
}

static td_status csv_flush(struct td_log_sink *sink) {
    return flush(csv_of(sink));
}

const struct td_log_sink_ops td_log_csv = {
    .name = "csv", .open = csv_open, .put = csv_put, .flush = csv_flush, .close = csv_close};
