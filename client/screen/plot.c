// A canvas of cells. Each has the dots that are set in it and the series that set the last one,
// whose colour or character the cell gets. Neighbouring points are joined by a straight line.

#include "client/screen/plot.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/printable.h"
#include "lib/base/utf8.h"

enum { LABEL_COLUMNS = 10, LEAST_CELLS = 8, NOBODY = -1, NAME_BYTES = 1024 };

static const char marks[TD_PLOT_SERIES] = {'*', '+', 'o', 'x', '#', '@'};
static const char *const colors[TD_PLOT_SERIES] = {"\033[36m", "\033[33m", "\033[32m",
                                                   "\033[35m", "\033[34m", "\033[31m"};

struct canvas {
    const struct td_plot *plot;
    bool braille;
    int columns, dots_x, dots_y; // of the curve
    uint8_t dots[TD_PLOT_ROWS][TD_PLOT_COLUMNS];
    int8_t owner[TD_PLOT_ROWS][TD_PLOT_COLUMNS];
};

static int cells_of(const struct td_plot *p) {
    return TD_MAX(LEAST_CELLS, TD_MIN(p->columns, TD_PLOT_COLUMNS) - LABEL_COLUMNS - 1);
}

int td_plot_dots(const struct td_plot *p) {
    return 2 * cells_of(p);
}

static bool is_seen(const struct td_plot_series *s, size_t i) {
    return isfinite(s->x[i]) && isfinite(s->y[i]);
}

void td_plot_widen(struct td_plot *p, const struct td_plot_series *series) {
    struct td_plot_range *r = &p->range;
    for (size_t i = 0; i < series->n; i++) {
        if (!is_seen(series, i)) continue;
        const double x = series->x[i], y = series->y[i];
        r->x_min = r->known ? fmin(r->x_min, x) : x;
        r->x_max = r->known ? fmax(r->x_max, x) : x;
        r->y_min = r->known ? fmin(r->y_min, y) : y;
        r->y_max = r->known ? fmax(r->y_max, y) : y;
        r->known = true;
    }
}

// ---- dots ---------------------------------------------------------------------------------------
static void set_dot(struct canvas *c, int x, int y, int8_t series) {
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int column = c->braille ? x / 2 : x, row = c->braille ? y / 4 : y;
    c->dots[row][column] |= c->braille ? bits[y % 4][x % 2] : 1;
    c->owner[row][column] = series;
}

// Where a value is between least and largest, in 0 to n - 1. Halves first: their difference may be
// larger than any number.
static int place(double v, double least, double largest, int n) {
    const double span = largest / 2 - least / 2;
    const double at = span > 0 ? (v / 2 - least / 2) / span : 0.5;
    return TD_MAX(0, TD_MIN(n - 1, (int)lround(at * (n - 1))));
}

static void draw_line(struct canvas *c, int x0, int y0, int x1, int y1, int8_t series) {
    const int steps = TD_MAX(TD_MAX(abs(x1 - x0), abs(y1 - y0)), 1);
    for (int i = 0; i <= steps; i++) {
        set_dot(c, x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, series);
    }
}

static void draw_series(struct canvas *c, const struct td_plot_series *s, int8_t series) {
    const struct td_plot_range *r = &c->plot->range;
    bool joins = false;
    int last_x = 0, last_y = 0;
    for (size_t i = 0; i < s->n; i++) {
        const bool seen = is_seen(s, i);
        if (seen) {
            const int x = place(s->x[i], r->x_min, r->x_max, c->dots_x);
            const int y = c->dots_y - 1 - place(s->y[i], r->y_min, r->y_max, c->dots_y);
            draw_line(c, joins ? last_x : x, joins ? last_y : y, x, y, series);
            last_x = x;
            last_y = y;
        }
        joins = seen;
    }
}

// ---- text ---------------------------------------------------------------------------------------
static td_status put_cell(const struct canvas *c, int row, int column, struct td_buf *out) {
    const int8_t owner = c->owner[row][column];
    if (owner == NOBODY) return td_buf_str(out, " ");
    if (!c->braille) return td_buf_append(out, &marks[owner], 1);
    const unsigned dots = c->dots[row][column]; // U+2800 and up
    const char text[3] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f))};
    return td_buf_append(out, text, 3);
}

static td_status put_color(const struct canvas *c, int8_t owner, struct td_buf *out) {
    if (!c->plot->color) return TD_OK;
    return td_buf_str(out, owner == NOBODY ? "\033[0m" : colors[owner]);
}

static td_status put_row(const struct canvas *c, int row, struct td_buf *out) {
    const struct td_plot_range *r = &c->plot->range;
    char label[32] = "";
    int last = c->columns;
    if (row == 0) snprintf(label, sizeof label, "%.4g", r->y_max);
    if (row == TD_PLOT_ROWS - 1) snprintf(label, sizeof label, "%.4g", r->y_min);
    TD_TRY(td_buf_printf(out, "%*s %s", LABEL_COLUMNS - 1, label, c->plot->utf8 ? "\u2502" : "|"));
    while (last > 0 && c->owner[row][last - 1] == NOBODY) {
        last--; // no trailing blanks
    }
    int8_t color = NOBODY;
    for (int i = 0; i < last; i++) {
        if (c->owner[row][i] != color) TD_TRY(put_color(c, c->owner[row][i], out));
        color = c->owner[row][i];
        TD_TRY(put_cell(c, row, i, out));
    }
    if (color != NOBODY) TD_TRY(put_color(c, NOBODY, out));
    return td_buf_str(out, "\n");
}

static td_status put_axis(const struct canvas *c, struct td_buf *out) {
    const struct td_plot_range *r = &c->plot->range;
    char left[32], right[32];
    TD_TRY(td_buf_printf(out, "%*s%s", LABEL_COLUMNS, "", c->plot->utf8 ? "\u2514" : "+"));
    for (int i = 0; i < c->columns; i++) {
        TD_TRY(td_buf_str(out, c->plot->utf8 ? "\u2500" : "-"));
    }
    snprintf(left, sizeof left, "%.10g", r->x_min);
    snprintf(right, sizeof right, "%.10g", r->x_max);
    const int gap = c->columns - (int)strlen(left) - (int)strlen(right);
    if (r->x_min == r->x_max || gap < 1) right[0] = '\0';
    return td_buf_printf(out, "\n%*s%s%*s%s\n", LABEL_COLUMNS + 1, "", left, right[0] ? gap : 0, "",
                         right);
}

// Names that have no room on a line go on with the next.
static td_status put_legend(const struct canvas *c, const struct td_plot_series *series,
                            size_t n_series, struct td_buf *out) {
    int used = 0; // of the line
    for (size_t i = 0; i < n_series; i++) {
        TD_AUTO_BUF name;
        td_buf_init(&name, NAME_BYTES);
        if (!c->braille && n_series > 1) TD_TRY(td_buf_printf(&name, "%c ", marks[i]));
        TD_TRY(td_printable_add(&name, series[i].label, strlen(series[i].label), ""));
        int n;
        (void)td_utf8_prefix(td_buf_cstr(&name), name.len, INT_MAX, &n);
        const bool fits = used + 2 + n <= c->plot->columns;
        if (used) TD_TRY(td_buf_str(out, fits ? "  " : "\n"));
        used = used && fits ? used + 2 + n : n;
        TD_TRY(put_color(c, (int8_t)i, out));
        TD_TRY(td_buf_str(out, td_buf_cstr(&name)));
        TD_TRY(put_color(c, NOBODY, out));
    }
    return td_buf_str(out, "\n");
}

td_status td_plot_draw(const struct td_plot *p, const struct td_plot_series *series,
                       size_t n_series, struct td_buf *out) {
    static struct canvas c; // as large as the largest screen, and there is one thread
    TD_CHECK(n_series <= TD_PLOT_SERIES);
    c = (struct canvas){.plot = p, .columns = cells_of(p)};
    c.braille = p->utf8 && (p->color || n_series < 2);
    c.dots_x = c.columns * (c.braille ? 2 : 1);
    c.dots_y = TD_PLOT_ROWS * (c.braille ? 4 : 1);
    memset(c.owner, NOBODY, sizeof c.owner);
    TD_TRY(put_legend(&c, series, n_series, out));
    if (!p->range.known) return td_buf_str(out, "  (no finite points)\n");
    for (size_t i = 0; i < n_series; i++) {
        draw_series(&c, &series[i], (int8_t)i);
    }
    for (int row = 0; row < TD_PLOT_ROWS; row++) {
        TD_TRY(put_row(&c, row, out));
    }
    return put_axis(&c, out);
}
