// See the header. A report that is longer than a message can be is several of the same step.

#include "daemon/worker/reports/sink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/attempt/metric_names.h"
#include "lib/attempt/report_message.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/json.h"
#include "lib/base/utf8.h"

enum {
    FLUSH_BYTES = 4 << 10, // what is more leaves at once
    LINE_BYTES = 8 << 10,  // of a report, then it goes on in another one
    NOTE_BYTES = 512,
};

struct td_report_sink {
    int fd;
    struct td_buf out;
    size_t line_at; // where the report that is open begins
    struct td_report report;
    bool has_values; // of that one
    bool failed;     // no memory for all of it: it is dropped
    bool gone;
    bool noted_name;
    int n_notes;
};

td_status td_report_sink_create(int fd, struct td_report_sink **out_sink) {
    struct td_report_sink *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->fd = fd;
    td_buf_init(&s->out, 4 * TD_REPORT_MAX);
    *out_sink = s;
    return TD_OK;
}

void td_report_sink_destroy(struct td_report_sink *s) {
    if (!s) return;
    td_buf_finish(&s->out);
    free(s);
}

bool td_report_sink_is_gone(const struct td_report_sink *s) {
    return s->gone;
}

void td_report_sink_flush(struct td_report_sink *s) {
    if (s->out.len == 0) return;
    ssize_t n;
    do {
        n = send(s->fd, s->out.data, s->out.len, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0) s->gone = true;
    td_buf_clear(&s->out);
}

static void keep(struct td_report_sink *s, td_status failed) {
    s->failed = s->failed || failed;
    td_status_free(failed);
}

// A line is whole, or is dropped.
static void settle(struct td_report_sink *s) {
    if (s->failed) s->out.len = s->line_at;
    if (s->out.len >= FLUSH_BYTES) td_report_sink_flush(s);
}

// ---- reports ------------------------------------------------------------------------------------
static void begin_line(struct td_report_sink *s) {
    const struct td_report *r = &s->report;
    s->line_at = s->out.len;
    s->failed = s->has_values = false;
    keep(s, td_buf_printf(&s->out, "{\"rank\":%d", r->rank));
    if (r->step >= 0) keep(s, td_buf_printf(&s->out, ",\"step\":%lld", (long long)r->step));
    if (r->total_steps >= 0) {
        keep(s, td_buf_printf(&s->out, ",\"total_steps\":%lld", (long long)r->total_steps));
    }
    if (r->epoch >= 0 && r->epoch <= (double)INT32_MAX) {
        keep(s, td_buf_printf(&s->out, ",\"epoch\":%d", (int)r->epoch));
    }
    keep(s, td_buf_str(&s->out, ",\"metrics\":{"));
}

static void end_line(struct td_report_sink *s, bool is_last) {
    const struct td_report *r = &s->report;
    keep(s, td_buf_str(&s->out, r->aside ? "},\"aside\":true" : "}"));
    if (is_last && r->kept) {
        keep(s, td_buf_printf(&s->out, ",\"kept\":[\"%s\",\"%s\"]", r->kept_name, r->kept));
    }
    keep(s, td_buf_str(&s->out, "}\n"));
    settle(s);
}

void td_report_begin(struct td_report_sink *s, const struct td_report *r) {
    s->report = *r;
    begin_line(s);
}

void td_report_value(struct td_report_sink *s, const char *name, double value) {
    if (!td_metric_name_fits(name)) {
        const bool is_first = !s->noted_name;
        s->noted_name = true;
        if (!is_first) return;
        end_line(s, false); // a note is a line between two
        td_report_note(s,
                       "a metric's name has 1 to %d bytes of UTF-8, and '%.80s...' has not: values "
                       "of such names are not taken",
                       TD_METRIC_NAME_BYTES - 1, name);
        begin_line(s);
        return;
    }
    if (s->out.len - s->line_at > LINE_BYTES) {
        end_line(s, false);
        begin_line(s);
    }
    if (s->has_values) keep(s, td_buf_str(&s->out, ","));
    s->has_values = true;
    keep(s, td_json_print_string(name, strlen(name), &s->out));
    keep(s, td_buf_str(&s->out, ":"));
    keep(s, td_json_print_value(value, &s->out));
}

void td_report_end(struct td_report_sink *s) {
    end_line(s, true);
}

// ---- other lines --------------------------------------------------------------------------------
void td_report_say(struct td_report_sink *s, const char *line) {
    s->line_at = s->out.len;
    s->failed = false;
    keep(s, td_buf_str(&s->out, line));
    settle(s);
}

void td_report_note(struct td_report_sink *s, const char *fmt, ...) {
    char text[NOTE_BYTES];
    va_list ap;
    if (s->n_notes == TD_REPORT_NOTES) return;
    s->n_notes++;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_utf8_scrub(text);
    s->line_at = s->out.len;
    s->failed = false;
    keep(s, td_buf_str(&s->out, "{\"note\":"));
    keep(s, td_json_print_string(text, strlen(text), &s->out));
    keep(s, td_buf_str(&s->out, "}\n"));
    settle(s);
}
