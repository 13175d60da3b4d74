// The page of events, printed from the table: what `traind --dump-events` shows and what
// docs/events.md is. `make lint` compares the two, so the document cannot become old.
//
// A section for each row, with its writers, its readers and a table of its fields, in the order of
// events.def.

#include "lib/attempt/events.h"

static const char intro[] =
    "# Events of an attempt\n"
    "\n"
    "<!-- Printed by `traind --dump-events` from lib/attempt/events.def. Change it there. -->\n"
    "\n"
    "`events.log` in `<state>/attempts/<job>/a<N>/` has one JSON object a line: what happened to "
    "an\n"
    "attempt, in order. Its launcher writes it, and adds what each rank sends. A reader takes a "
    "line\n"
    "that begins with `{\"event\":\"<name>\"`.\n"
    "\n"
    "- Every event may have `rank`, the rank that it is about, and `real_ns`, nanoseconds since "
    "1970.\n"
    "  The launcher adds both to the event of a rank.\n"
    "- A line without a required field, or with a field of another type, is refused. The\n"
    "  coordinator counts it. A launcher drops such an event of a rank, and says so in\n"
    "  a note.\n"
    "- A written field is always there. Logs of older builds may lack it: it is then 0, false or\n"
    "  empty.\n"
    "- Unknown fields and unknown events are ignored.\n"
    "- Files are a list of `name`, `bytes` and `digest` (XXH3-128); metrics map names to "
    "numbers, or to the text nan, inf or -inf.\n";

static const char *const parties[TD_PARTY_COUNT] = {
    [TD_PARTY_RANK] = "rank",      [TD_PARTY_LAUNCHER] = "launcher",
    [TD_PARTY_NODE] = "node",      [TD_PARTY_COORDINATOR] = "coordinator",
    [TD_PARTY_RUN] = "traind-run", [TD_PARTY_PEOPLE] = "people",
};
static const char *const types[] = {
    [TD_EVENT_INT] = "integer",   [TD_EVENT_BOOL] = "boolean", [TD_EVENT_TEXT] = "text",
    [TD_EVENT_OBJECT] = "object", [TD_EVENT_FILES] = "files",  [TD_EVENT_METRICS] = "metrics",
};
static const char *const needs[] = {
    [TD_EVENT_REQUIRED] = "required",
    [TD_EVENT_WRITTEN] = "written",
    [TD_EVENT_OPTIONAL] = "optional",
};

static td_status print_parties(uint32_t set, struct td_buf *out) {
    const char *comma = "";
    for (int p = 0; p < TD_PARTY_COUNT; p++) {
        if (!((set >> p) & 1)) continue;
        TD_TRY(td_buf_printf(out, "%s%s", comma, parties[p]));
        comma = ", ";
    }
    return TD_OK;
}

static td_status print_event(const struct td_event_row *row, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, "\n## %s\n\n%s\n\nWritten by: ", row->name, row->prose));
    TD_TRY(print_parties(row->writers, out));
    TD_TRY(td_buf_str(out, ". Read by: "));
    TD_TRY(print_parties(row->readers, out));
    TD_TRY(td_buf_str(out, ".\n"));
    if (row->first == row->past) return TD_OK;
    TD_TRY(td_buf_str(out, "\n| field | type | need | meaning |\n|---|---|---|---|\n"));
    for (size_t i = row->first; i < (size_t)row->past; i++) {
        const struct td_event_field *f = &td_event_fields[i];
        TD_TRY(td_buf_printf(out, "| `%s` | %s | %s | %s |\n", f->name, types[f->type],
                             needs[f->need], f->prose));
    }
    return TD_OK;
}

td_status td_events_page(struct td_buf *out) {
    TD_TRY(td_buf_str(out, intro));
    for (int k = TD_EVENT_UNKNOWN + 1; k < TD_EVENT_COUNT; k++) {
        TD_TRY(print_event(&td_event_rows[k], out));
    }
    return TD_OK;
}
