// Cells are gathered first, because a column is as wide as its widest cell. libsmartcols lays the
// table out and prints it to a string. Which columns a narrow terminal loses is decided here. And
// texts that do not fit are cut here, as libsmartcols knows no ellipsis. So a table that does not
// fit is laid out three times: for the widths it would like, for those it gets, and with the cells
// cut to them. Cells are UTF-8 whatever the locale is; the locale only says whether the ellipsis is
// one character.

#include "client/screen/table.h"

#include <libsmartcols/libsmartcols.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "client/screen/screen.h"
#include "lib/base/buf.h"
#include "lib/base/files/files.h"
#include "lib/base/printable.h"

enum {
    CELL_MAX = 1 << 16, // bytes; a longer one is cut
    TEXT_MIN = 10,      // columns that a text keeps while another column can be spared
    GAP = 2,
};

void td_table_init(struct td_table *t, struct td_arena *arena, size_t n_columns,
                   const struct td_column *columns) {
    TD_CHECK(n_columns > 0 && n_columns <= TD_TABLE_COLUMNS);
    *t = (struct td_table){.arena = arena, .n_columns = n_columns};
    memcpy(t->column, columns, n_columns * sizeof *columns);
    t->cap = 64 * n_columns;
    t->cell = td_arena_array(arena, t->cap, sizeof *t->cell);
    for (size_t i = 0; t->cell && i < n_columns; i++) {
        t->cell[t->n_cells++] = columns[i].heading;
    }
}

static bool grow(struct td_table *t) {
    const char **more = td_arena_array(t->arena, 2 * t->cap, sizeof *more);
    if (!more) return false;
    memcpy(more, t->cell, t->n_cells * sizeof *more);
    t->cell = more;
    t->cap *= 2;
    return true;
}

td_status td_table_add(struct td_table *t, const char *fmt, ...) {
    if (!t->cell || (t->n_cells == t->cap && !grow(t))) return td_fail_oom();
    TD_AUTO_FREE char *text = NULL;
    TD_AUTO_BUF shown;
    td_buf_init(&shown, 4 * CELL_MAX + 1);
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return td_fail_oom();
    }
    TD_TRY(td_printable_add(&shown, text, TD_MIN((size_t)n, (size_t)CELL_MAX), ""));
    const char *copy = td_arena_strdup(t->arena, td_buf_cstr(&shown));
    if (!copy) return td_fail_oom();
    t->cell[t->n_cells++] = copy;
    return TD_OK;
}

// ---- one table of libsmartcols ------------------------------------------------------------------
struct layout {
    const struct td_table *table;
    struct libscols_table *scols;
    struct libscols_column *column[TD_TABLE_COLUMNS];
    const char *ellipsis;
    size_t ellipsis_columns;
};

static td_status add_columns(struct layout *l) {
    for (size_t i = 0; i < l->table->n_columns; i++) {
        l->column[i] = scols_table_new_column(l->scols, "", 0, 0);
        if (!l->column[i]) return td_fail_oom();
    }
    return TD_OK;
}

static td_status add_rows(struct layout *l) {
    const struct td_table *t = l->table;
    struct libscols_line *line = NULL;
    for (size_t i = 0; i < t->n_cells; i++) {
        if (i % t->n_columns == 0) line = scols_table_new_line(l->scols, NULL);
        if (!line || scols_line_set_data(line, i % t->n_columns, t->cell[i]) != 0) {
            return td_fail_oom();
        }
    }
    return TD_OK;
}

// columns: of the terminal; 0: as wide as it gets.
static td_status draw(struct layout *l, size_t columns, char **out_text) {
    scols_table_set_termforce(l->scols, columns ? SCOLS_TERMFORCE_ALWAYS : SCOLS_TERMFORCE_NEVER);
    if (columns) scols_table_set_termwidth(l->scols, columns);
    return scols_print_table_to_string(l->scols, out_text) == 0 ? TD_OK : td_fail_oom();
}

static bool is_hidden(const struct layout *l, size_t i) {
    return scols_column_get_flags(l->column[i]) & SCOLS_FL_HIDDEN;
}

// Columns that it takes where texts are cut to at_most.
static size_t wanted(const struct layout *l, const size_t *width, size_t at_most) {
    size_t sum = 0;
    for (size_t i = 0; i < l->table->n_columns; i++) {
        if (is_hidden(l, i)) continue;
        const bool is_text = l->table->column[i].flags & TD_COLUMN_TEXT;
        sum += (is_text ? TD_MIN(width[i], at_most) : width[i]) + (sum ? GAP : 0);
    }
    return sum;
}

static void hide(struct layout *l, const size_t *width, size_t columns, unsigned flag) {
    for (size_t i = l->table->n_columns; i-- > 0 && wanted(l, width, TEXT_MIN) > columns;) {
        if (l->table->column[i].flags & flag) {
            scols_column_set_flags(l->column[i], SCOLS_FL_HIDDEN);
        }
    }
}

static void spare_columns(struct layout *l, const size_t *width, size_t columns) {
    hide(l, width, columns, TD_COLUMN_MINOR);
    hide(l, width, columns, TD_COLUMN_SPARE);
    hide(l, width, columns, TD_COLUMN_LATE);
    const bool all = wanted(l, width, TEXT_MIN) > columns; // then every column gives
    for (size_t i = 0; i < l->table->n_columns; i++) {
        const unsigned flags = l->table->column[i].flags;
        const bool gives = all ? !(flags & TD_COLUMN_WHOLE) : (flags & TD_COLUMN_TEXT) != 0;
        if (gives && !is_hidden(l, i)) scols_column_set_flags(l->column[i], SCOLS_FL_TRUNC);
    }
}

// Columns that the table takes where nothing is left to cut but what stays whole.
static size_t whole_columns(const struct layout *l, const size_t *width) {
    size_t sum = 0;
    for (size_t i = 0; i < l->table->n_columns; i++) {
        if (is_hidden(l, i)) continue;
        if (!(l->table->column[i].flags & TD_COLUMN_WHOLE)) return 0;
        sum += width[i] + (sum ? GAP : 0);
    }
    return sum;
}

// The beginning of a text, with an ellipsis, in so many columns of a terminal.
static const char *cut(const struct layout *l, const char *text, size_t columns) {
    const size_t room = columns > l->ellipsis_columns ? columns - l->ellipsis_columns : columns;
    const char *ellipsis = columns > l->ellipsis_columns ? l->ellipsis : "";
    mbstate_t state = {0};
    size_t used = 0, kept = 0, at = 0;
    for (wchar_t c; text[at];) {
        const size_t n = mbrtowc(&c, text + at, strlen(text + at), &state);
        if (n == 0 || n >= (size_t)-2) return text; // no UTF-8: left as it is
        const int wide = wcwidth(c);
        used += wide > 0 ? (size_t)wide : 0;
        at += n;
        if (used <= room) kept = at;
        if (used > columns) break;
    }
    if (used <= columns) return text;
    return td_arena_printf(l->table->arena, "%.*s%s", (int)kept, text, ellipsis);
}

static td_status cut_cells(struct layout *l) {
    const size_t n_columns = l->table->n_columns;
    for (size_t i = 0; i < l->table->n_cells; i++) {
        const size_t k = i % n_columns, width = scols_column_get_width(l->column[k]);
        if (is_hidden(l, k) || strlen(l->table->cell[i]) <= width) continue;
        const char *text = cut(l, l->table->cell[i], width);
        struct libscols_line *line = scols_table_get_line(l->scols, i / n_columns);
        if (!text || scols_line_set_data(line, k, text) != 0) return td_fail_oom();
    }
    return TD_OK;
}

static td_status lay_out(struct layout *l, size_t columns, char **out_text) {
    size_t width[TD_TABLE_COLUMNS];
    TD_TRY(draw(l, 0, out_text));
    for (size_t i = 0; i < l->table->n_columns; i++) {
        width[i] = scols_column_get_width(l->column[i]);
    }
    if (!columns || wanted(l, width, SIZE_MAX) <= columns) return TD_OK;
    spare_columns(l, width, columns);
    columns = TD_MAX(columns, whole_columns(l, width));
    free(*out_text);
    *out_text = NULL;
    TD_TRY(draw(l, columns, out_text));
    TD_TRY(cut_cells(l));
    free(*out_text);
    *out_text = NULL;
    return draw(l, columns, out_text);
}

static td_status print(struct layout *l, bool is_wide) {
    int columns = 0, rows; // 0: no bound
    TD_AUTO_FREE char *text = NULL;
    scols_table_set_column_separator(l->scols, "  ");
    scols_table_enable_minout(l->scols, 1);     // no blanks at an end
    scols_table_enable_noheadings(l->scols, 1); // the first row, which may be cut, too
    scols_table_enable_noencoding(l->scols, 1); // td_table_add did it
    TD_TRY(add_columns(l));
    TD_TRY(add_rows(l));
    if (!is_wide && isatty(STDOUT_FILENO)) td_screen_size(STDOUT_FILENO, &columns, &rows);
    TD_TRY(lay_out(l, (size_t)columns, &text));
    TD_AUTO_BUF out;
    td_buf_init(&out, (size_t)64 << 20);
    TD_TRY(td_buf_printf(&out, "%s\n", text));
    return td_fs_write_stdout(out.data, out.len);
}

td_status td_table_print(const struct td_table *t, bool is_wide) {
    if (!t->cell) return td_fail_oom();
    const bool is_utf8 = td_screen_is_utf8();
    setlocale(LC_CTYPE, "C.UTF-8");
    struct layout l = {.table = t,
                       .scols = scols_new_table(),
                       .ellipsis = is_utf8 ? "\xe2\x80\xa6" : "...",
                       .ellipsis_columns = is_utf8 ? 1 : 3};
    if (!l.scols) return td_fail_oom();
    td_status failed = print(&l, is_wide);
    scols_unref_table(l.scols);
    return failed;
}
