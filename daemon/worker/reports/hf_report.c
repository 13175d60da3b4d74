// See the header. Names and texts are remembered by their digests: what a hostile rank can do with
// two that are equal is to lose a point of its own.

#include "daemon/worker/reports/hf_report.h"

#include <math.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/json.h"

enum { NUMBER_BYTES = 64, NAMES_AT_FIRST = 32, PERCENT_AT_END = 100 };

void td_hf_said_finish(struct td_hf_said *said) {
    free(said->name);
    *said = (struct td_hf_said){0};
}

// ---- numbers ------------------------------------------------------------------------------------
// As str() of Python writes an int, a float or a bool.
static bool read_value(const char *text, double *out_value) {
    static const struct {
        const char *text;
        double value;
    } words[] = {{"nan", (double)NAN},
                 {"inf", (double)INFINITY},
                 {"-inf", -(double)INFINITY},
                 {"True", 1},
                 {"False", 0}};
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (strcmp(text, words[i].text) != 0) continue;
        *out_value = words[i].value;
        return true;
    }
    const size_t len = strspn(text, "0123456789+-.eE");
    char *end;
    if (len == 0 || len >= NUMBER_BYTES || text[len]) return false;
    const double v = strtod(text, &end);
    if (*end || !isfinite(v)) return false;
    *out_value = v;
    return true;
}

static bool read_count(const char *text, int64_t *out_count) {
    double v;
    if (!read_value(text, &v) || !(v >= 0 && v <= INT32_MAX)) return false;
    *out_count = (int64_t)v;
    return true;
}

static bool read_epoch(const char *text, double *out_epoch) {
    double v;
    if (!read_value(text, &v) || !(v >= 0 && v <= INT32_MAX)) return false;
    *out_epoch = v;
    return true;
}

// ---- what was said before -----------------------------------------------------------------------
static struct td_hf_said_name *find(struct td_hf_said *said, uint64_t name) {
    for (size_t i = 0; i < said->n; i++) {
        const size_t at = (said->last + 1 + i) % said->n;
        if (said->name[at].name != name) continue;
        said->last = at;
        return &said->name[at];
    }
    return NULL;
}

// Room for one more; false: there is none.
static bool grow(struct td_hf_said *said) {
    if (said->n < said->cap) return true;
    if (said->cap == TD_HF_NAMES) return false;
    const size_t cap = said->cap ? said->cap * 2 : NAMES_AT_FIRST;
    struct td_hf_said_name *more = td_realloc(said->name, cap * sizeof *more);
    if (!more) return false;
    said->name = more;
    said->cap = cap;
    return true;
}

static bool is_new(struct td_hf_said *said, const char *name, const char *text) {
    const uint64_t name_is = td_xxh3_64(name, strlen(name));
    const uint64_t text_is = td_xxh3_64(text, strlen(text));
    struct td_hf_said_name *known = find(said, name_is);
    if (known && known->text == text_is) return false;
    if (known) {
        known->text = text_is;
    } else if (grow(said)) {
        said->last = said->n;
        said->name[said->n++] = (struct td_hf_said_name){name_is, text_is};
    }
    return true;
}

// ---- the body -----------------------------------------------------------------------------------
static void count_odd(struct td_hf_report *r, const char *name, const char *text) {
    r->n_odd++;
    if (r->odd_name) return;
    r->odd_name = name ? name : "";
    r->odd_text = text ? text : "";
}

static void take_entry(struct td_hf_said *said, struct td_hf_report *r, const struct td_json *v) {
    const char *name = td_json_string(td_json_get(v, "name"), NULL);
    const char *text = td_json_string(td_json_get(v, "value"), NULL);
    double value;
    bool taken = name && text;
    if (!taken) {
        count_odd(r, name, text);
        return;
    }
    if (strcmp(name, "current_step") == 0) {
        taken = read_count(text, &r->step);
    } else if (strcmp(name, "total_steps") == 0) {
        taken = read_count(text, &r->total_steps);
    } else if (strcmp(name, "current_epoch") == 0) {
        taken = read_epoch(text, &r->epoch);
    } else if ((taken = read_value(text, &value)) && is_new(said, name, text)) {
        r->value[r->n_values++] = (struct td_hf_value){name, value};
    }
    if (!taken) count_odd(r, name, text);
}

// The steps that the report does not say itself.
static void place(struct td_hf_said *said, struct td_hf_report *r, int64_t percent) {
    if (r->total_steps >= 0) said->total_steps = r->total_steps;
    const bool ends = r->step < 0 && percent >= PERCENT_AT_END;
    if (ends && said->total_steps > 0) r->step = said->total_steps;
    if (r->step >= 0) said->step = r->step;
    r->value_step = ends || said->step == 0 ? said->step : said->step - 1;
}

td_status td_hf_report_read(struct td_hf_said *said, struct td_arena *arena, const char *body,
                            size_t bytes, struct td_hf_report *out_report) {
    struct td_hf_report r = {.step = -1, .total_steps = -1, .epoch = -1};
    struct td_json *root;
    TD_TRY(td_json_parse(arena, body, bytes, &root));
    const struct td_json *status = td_json_get(root, "trainerStatus");
    const struct td_json *metrics = td_json_get(status, "metrics");
    if (root->kind != TD_JSON_OBJECT || !status || status->kind != TD_JSON_OBJECT) {
        return td_fail(TD_INVALID_ARGUMENT, "a report is an object with an object `trainerStatus`");
    }
    if (metrics && metrics->kind != TD_JSON_ARRAY) {
        return td_fail(TD_INVALID_ARGUMENT, "`metrics` of a report is a list");
    }
    if (metrics) {
        r.value = td_arena_array(arena, metrics->n_children + 1, sizeof *r.value);
        if (!r.value) return td_fail_oom();
    }
    for (const struct td_json *v = metrics ? metrics->first : NULL; v; v = v->next) {
        take_entry(said, &r, v);
    }
    place(said, &r, td_json_int(td_json_get(status, "progressPercentage"), 0));
    *out_report = r;
    return TD_OK;
}
