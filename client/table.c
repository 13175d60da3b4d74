// Cells are gathered first and widths are known only then, so the output needs no wrapping tricks
// and pipes into awk. Numbers are formatted by the callers; nothing here depends on a locale.

#include "client/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/fit.h"
#include "lib/base/fsio.h"
#include "lib/base/printable.h"

void td_table_init(struct td_table *t, struct td_arena *arena, size_t n_columns,
                   const char *const *heading) {
    TD_CHECK(n_columns > 0 && n_columns <= TD_TABLE_COLUMNS);
    *t = (struct td_table){.arena = arena, .n_columns = n_columns};
    t->cap = 64 * n_columns;
    t->cell = td_arena_array(arena, t->cap, sizeof *t->cell);
    for (size_t i = 0; t->cell && i < n_columns; i++) {
        t->cell[t->n_cells++] = heading[i];
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
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)td_fit_v(text, sizeof text, fmt, ap);
    va_end(ap);
    TD_AUTO_BUF shown;
    td_buf_init(&shown, 4 * sizeof text + 1);
    TD_TRY(td_printable_add(&shown, text, strlen(text), ""));
    const char *copy = td_arena_strdup(t->arena, td_buf_cstr(&shown));
    if (!copy) return td_fail_oom();
    t->cell[t->n_cells++] = copy;
    return TD_OK;
}

td_status td_table_print(const struct td_table *t) {
    if (!t->cell) return td_fail_oom();
    size_t width[TD_TABLE_COLUMNS] = {0};
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t len = strlen(t->cell[i]);
        width[i % t->n_columns] = TD_MAX(width[i % t->n_columns], len);
    }
    TD_AUTO_BUF out;
    td_buf_init(&out, (size_t)64 << 20);
    for (size_t i = 0; i < t->n_cells; i++) {
        bool last = (i + 1) % t->n_columns == 0;
        int pad = last ? 0 : (int)width[i % t->n_columns] + 2;
        TD_TRY(td_buf_printf(&out, "%-*s%s", pad, t->cell[i], last ? "\n" : ""));
    }
    return td_fd_write_all(STDOUT_FILENO, out.data, out.len, "stdout");
}

const char *td_format_bytes(uint64_t bytes, char out[32]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t i = 0;
    while (v >= 1024 && i + 1 < TD_COUNTOF(unit)) {
        v /= 1024;
        i++;
    }
    snprintf(out, 32, i == 0 ? "%.0f %s" : "%.1f %s", v, unit[i]);
    return out;
}

const char *td_format_count(double n, char out[32]) {
    static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
    size_t i = 0;
    while (n >= 1000 && i + 1 < TD_COUNTOF(unit)) {
        n /= 1000;
        i++;
    }
    snprintf(out, 32, i == 0 ? "%.0f%s" : "%.1f%s", n, unit[i]);
    return out;
}

const char *td_format_seconds(double seconds, char out[32]) {
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(out, 32, "%ld:%02ld", s / 60, s % 60);
    }
    return out;
}

const char *td_format_age(const char *time, char out[32]) {
    struct tm tm = {0};
    const char *end = strptime(time, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%s", time);
    if (!end || (*end != '.' && *end != 'Z')) return out;
    const int64_t s = td_real_now().ns / TD_NS_PER_S - (int64_t)timegm(&tm);
    if (s < 120) {
        snprintf(out, 32, "%llds", (long long)TD_MAX(s, (int64_t)0));
    } else if (s < 120 * 60) {
        snprintf(out, 32, "%lldm", (long long)(s / 60));
    } else if (s < 48 * 3600) {
        snprintf(out, 32, "%lldh", (long long)(s / 3600));
    } else {
        snprintf(out, 32, "%lldd", (long long)(s / 86400));
    }
    return out;
}
