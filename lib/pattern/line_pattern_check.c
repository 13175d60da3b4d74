// See the header. What is compiled is thrown away: the job's own child does it again.

#include "lib/pattern/line_pattern_check.h"

#include <stdio.h>

#include "lib/pattern/line_pattern.h"

td_status td_line_pattern_check(const struct td_json *v) {
    struct td_line_pattern *series = NULL;
    char where[64] = "metrics_from.stdout";
    const char *text = td_json_string(v, NULL);
    if (!text) return TD_OK;
    TD_AUTO_STATUS td_status failed = td_line_pattern_create(text, &series);
    td_line_pattern_destroy(series);
    if (!failed) return TD_OK;
    if (td_status_code(failed) != TD_INVALID_ARGUMENT) return td_steal(failed);
    if (v->line > 0) snprintf(where, sizeof where, "metrics_from.stdout (line %d)", v->line);
    const char *why = td_status_message(failed);
    td_status s = td_fail(TD_INVALID_ARGUMENT, "the job spec has an error: %s: %s", where, why);
    s = td_status_with_class(td_status_with_reason(s, "SPEC_INVALID"), TD_CLASS_BAD_SPEC);
    return td_status_with_field(s, where, "%s", why);
}
