// See the header.

#include "client/metrics/metrics_rows.h"

#include <inttypes.h>
#include <string.h>

#include "client/screen/format.h"
#include "lib/base/printable.h"

td_status td_csv_text(const char *text, struct td_buf *out) {
    if (!strpbrk(text, ",\"\r\n")) return td_buf_str(out, text);
    TD_TRY(td_buf_str(out, "\""));
    for (const char *at = text; *at; at++) {
        TD_TRY(td_buf_append(out, at, 1));
        if (*at == '"') TD_TRY(td_buf_str(out, "\""));
    }
    return td_buf_str(out, "\"");
}

td_status td_csv_head(bool picture, struct td_buf *out) {
    return td_buf_printf(out, "name,step,epoch,attempt,%sn_ranks,time\n",
                         picture ? "mean,min,max,n_points," : "value,");
}

td_status td_csv_row(const char *name, const Traind__V1__MetricPoint *p, bool picture,
                     struct td_buf *out) {
    TD_TRY(td_csv_text(name, out));
    TD_TRY(td_buf_printf(out, ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%.17g", p->step, p->epoch,
                         p->attempt, p->value));
    if (picture) {
        TD_TRY(td_buf_printf(out, ",%.17g,%.17g,%" PRIu32, p->min, p->max, p->n_points));
    }
    return td_buf_printf(out, ",%" PRIu32 ",%s\n", p->n_ranks, p->time);
}

td_status td_line_head(struct td_buf *out) {
    return td_buf_printf(out, "%-22s  %8s  %6s  %7s  %14s  %5s\n", "NAME", "STEP", "EPOCH",
                         "ATTEMPT", "VALUE", "RANKS");
}

td_status td_line_row(const char *name, const Traind__V1__MetricPoint *p, struct td_buf *out) {
    const size_t before = out->len;
    char value[TD_FORMAT_VALUE_BYTES];
    TD_TRY(td_printable_add(out, name, strlen(name), ""));
    const size_t n = out->len - before;
    return td_buf_printf(out, "%*s  %8" PRIu32 "  %6" PRIu32 "  %7" PRIu32 "  %14s  %5" PRIu32 "\n",
                         n < 22 ? (int)(22 - n) : 0, "", p->step, p->epoch, p->attempt,
                         td_format_value(p->value, value), p->n_ranks);
}
