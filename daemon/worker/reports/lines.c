// See the header.

#include "daemon/worker/reports/lines.h"

#include <string.h>

#include "daemon/worker/reports/sink.h"
#include "lib/attempt/report_message.h"
#include "lib/pattern/line_pattern.h"

enum { SHOWN_BYTES = 40 }; // of a text that is no number

struct td_report_lines {
    struct td_line_pattern *series;
    struct td_report_sink *sink;
    int32_t rank;
    uint64_t n_bad, n_long;
};

td_status td_report_lines_create(const struct td_json *settings, struct td_report_sink *sink,
                                 struct td_report_lines **out_lines) {
    struct td_report_lines *l = td_calloc(1, sizeof *l);
    if (!l) return td_fail_oom();
    l->sink = sink;
    l->rank = (int32_t)td_json_int(td_json_get(settings, "rank"), 0);
    const char *pattern = td_json_string(td_json_get(settings, "pattern"), "");
    td_status failed =
        td_status_context(td_line_pattern_create(pattern, &l->series), "metrics_from.stdout");
    if (failed) {
        free(l);
        return failed;
    }
    *out_lines = l;
    return TD_OK;
}

void td_report_lines_destroy(struct td_report_lines *l) {
    if (!l) return;
    if (l->n_bad > 1) {
        td_report_note(l->sink,
                       "of stdout of rank %d, %llu values that are no number were left out",
                       l->rank, (unsigned long long)l->n_bad);
    }
    if (l->n_long > 1) {
        td_report_note(l->sink, "of stdout of rank %d, %llu lines over %d bytes were left out",
                       l->rank, (unsigned long long)l->n_long, TD_REPORT_LINE);
    }
    td_line_pattern_destroy(l->series);
    free(l);
}

static void count_bad(struct td_report_lines *l, const struct td_line_pattern_said *line) {
    if (line->n_bad && l->n_bad == 0) {
        td_report_note(
            l->sink,
            "stdout of rank %d has '%.*s' where metrics_from.stdout has group '%s', which "
            "takes %s; such values are left out, and counted",
            l->rank, (int)TD_MIN(line->bad.bytes, (size_t)SHOWN_BYTES), line->bad.text,
            line->bad_name,
            strcmp(line->bad_name, "step") == 0 ? "an integer from 0 on" : "a number");
    }
    l->n_bad += (uint64_t)line->n_bad;
}

static void take_line(struct td_report_lines *l, const char *text, size_t bytes) {
    struct td_line_pattern_said line;
    if (bytes == 0) return;
    if (bytes > TD_REPORT_LINE) {
        if (l->n_long++ > 0) return;
        td_report_note(l->sink,
                       "a line of stdout of rank %d is longer than %d bytes: metrics_from.stdout "
                       "does not look at such lines, and they are counted",
                       l->rank, TD_REPORT_LINE);
        return;
    }
    if (!td_line_pattern_read(l->series, text, bytes, &line)) {
        count_bad(l, &line);
        return;
    }
    const struct td_report report = {
        .rank = l->rank, .step = line.step, .total_steps = line.total_steps, .epoch = line.epoch};
    td_report_begin(l->sink, &report);
    for (int i = 0; i < line.n_values; i++) {
        td_report_value(l->sink, line.values[i].name, line.values[i].value);
    }
    td_report_end(l->sink);
    count_bad(l, &line);
}

static void take_versions(struct td_report_lines *l, const char *text, size_t bytes) {
    const char *end = text + bytes;
    for (const char *stop; text < end; text = stop + 1) {
        stop = memchr(text, '\r', (size_t)(end - text));
        if (!stop) stop = end;
        take_line(l, text, (size_t)(stop - text));
    }
}

void td_report_lines_take(struct td_report_lines *l, const char *text, size_t bytes) {
    const char *end = text + bytes;
    for (const char *stop; text < end; text = stop + 1) {
        stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        take_versions(l, text, (size_t)(stop - text));
    }
}
