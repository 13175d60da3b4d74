// See the header. Which group means what is settled once, when the pattern is compiled.

#include "lib/pattern/line_pattern.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/attempt/metric_names.h"
#include "lib/base/base.h"

enum { NUMBER_BYTES = 64 }; // of a number's text

struct td_line_pattern {
    struct td_pattern *pattern;
    int step, epoch, total; // groups; 0: there is none
};

// ---- the groups ---------------------------------------------------------------------------------
static td_status take_group(struct td_line_pattern *s, const char *name, int i) {
    const bool is_total = strcmp(name, "total_steps") == 0 || strcmp(name, "total") == 0;
    if (is_total && s->total) {
        return td_fail(TD_INVALID_ARGUMENT, "names both `total` and `total_steps`, which mean the "
                                            "same");
    }
    for (int before = 1; before < i; before++) { // RE2 of today takes it
        const char *other = td_pattern_group(s->pattern, before);
        if (!other || strcmp(other, name) != 0) continue;
        return td_fail(TD_INVALID_ARGUMENT, "has two groups '%s'", name);
    }
    if (strcmp(name, "step") == 0) s->step = i;
    if (strcmp(name, "epoch") == 0) s->epoch = i;
    if (is_total) s->total = i;
    if (td_metric_name_fits(name)) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "group '%s': a metric's name has at most %d bytes", name,
                   TD_METRIC_NAME_BYTES - 1);
}

static td_status create(struct td_line_pattern *s, const char *text) {
    if (strlen(text) > TD_PATTERN_BYTES) {
        return td_fail(TD_INVALID_ARGUMENT, "has %zu bytes, at most %d are taken", strlen(text),
                       TD_PATTERN_BYTES);
    }
    TD_TRY(td_pattern_create(text, &s->pattern));
    for (int i = 1; i <= td_pattern_n_groups(s->pattern); i++) {
        const char *name = td_pattern_group(s->pattern, i);
        if (name) TD_TRY(take_group(s, name, i));
    }
    if (s->step) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "has no group `step`, which says of which step a line is: write (?P<step>\\d+) "
                   "where the number is");
}

td_status td_line_pattern_create(const char *text, struct td_line_pattern **out_series) {
    struct td_line_pattern *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    td_status failed = create(s, text);
    if (failed) {
        td_line_pattern_destroy(s);
        return failed;
    }
    *out_series = s;
    return TD_OK;
}

void td_line_pattern_destroy(struct td_line_pattern *s) {
    if (!s) return;
    td_pattern_destroy(s->pattern);
    free(s);
}

// ---- a line -------------------------------------------------------------------------------------
// The part as a number, all of it. False: it is none.
static bool number_of(const struct td_pattern_part *part, double *out_value) {
    char text[NUMBER_BYTES], *end;
    if (part->bytes == 0 || part->bytes >= sizeof text) return false;
    memcpy(text, part->text, part->bytes);
    text[part->bytes] = '\0';
    if (strlen(text) != part->bytes || text[0] == ' ' || text[0] == '\t') return false;
    const double v = strtod(text, &end);
    if (end == text || *end) return false;
    *out_value = v;
    return true;
}

static bool to_count(double v, int64_t *out_count) {
    if (!(v >= 0 && v <= (double)INT32_MAX) || floor(v) != v) return false;
    *out_count = (int64_t)v;
    return true;
}

static void note_bad(struct td_line_pattern_said *out, const char *name,
                     const struct td_pattern_part *part) {
    if (out->n_bad++) return;
    out->bad_name = name;
    out->bad = *part;
}

static void take_value(const struct td_line_pattern *s, int i, const struct td_pattern_part *part,
                       struct td_line_pattern_said *out) {
    const char *name = td_pattern_group(s->pattern, i);
    double v = 0;
    bool fits = number_of(part, &v);
    if (i == s->total) {
        fits = fits && to_count(v, &out->total_steps);
    } else if (i == s->epoch) {
        fits = fits && v >= 0 && v <= (double)INT32_MAX;
        if (fits) out->epoch = v;
    } else if (fits) {
        out->values[out->n_values++] = (struct td_line_pattern_value){name, v};
    }
    if (!fits) note_bad(out, name, part);
}

bool td_line_pattern_read(const struct td_line_pattern *s, const char *line, size_t bytes,
                          struct td_line_pattern_said *out_line) {
    struct td_pattern_part parts[TD_PATTERN_GROUPS + 1];
    double step;
    out_line->n_bad = 0;
    if (!td_pattern_match(s->pattern, line, bytes, parts)) return false;
    out_line->n_values = 0;
    out_line->total_steps = -1;
    out_line->epoch = -1;
    if (!parts[s->step].text) return false; // it took no part
    if (!number_of(&parts[s->step], &step) || !to_count(step, &out_line->step)) {
        note_bad(out_line, "step", &parts[s->step]);
        return false;
    }
    for (int i = 1; i <= td_pattern_n_groups(s->pattern); i++) {
        if (i == s->step || !parts[i].text || !td_pattern_group(s->pattern, i)) continue;
        take_value(s, i, &parts[i], out_line);
    }
    return true;
}
