// See the header.

#include "engine/train/checkpoint/early_stop_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put(struct td_arena *a, struct td_json *o, const char *key, struct td_json *v) {
    (void)td_json_set(a, o, key, v);
}

void td_early_stop_put(struct td_arena *a, struct td_json *root, const struct td_early_stop *s) {
    if (!*s->monitor) return;
    struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
    put(a, root, "early_stopping", o);
    put(a, o, "monitor", td_json_new_string(a, s->monitor));
    put(a, o, "mode", td_json_new_string(a, s->larger_is_better ? "max" : "min"));
    if (s->has_best) put(a, o, "best", td_json_new_value(a, s->best));
    if (s->has_value) put(a, o, "value", td_json_new_value(a, s->value));
    put(a, o, "wait", td_json_new_int(a, s->wait));
    put(a, o, "decided", td_json_new_bool(a, s->decided));
    put(a, o, "revocable", td_json_new_bool(a, s->revocable));
}

// False: it is there, and no value.
static bool read_number(const struct td_json *v, bool *out_has, double *out) {
    *out_has = v != NULL;
    return !v || td_json_value(v, out);
}

bool td_early_stop_get(const struct td_json *root, struct td_early_stop *s) {
    const struct td_json *o = td_json_get(root, "early_stopping");
    *s = (struct td_early_stop){0};
    if (!o) return true;
    const char *monitor = td_json_string(td_json_get(o, "monitor"), "");
    const char *mode = td_json_string(td_json_get(o, "mode"), "");
    s->larger_is_better = strcmp(mode, "max") == 0;
    s->wait = td_json_int(td_json_get(o, "wait"), -1);
    s->decided = td_json_bool(td_json_get(o, "decided"), false);
    s->revocable = td_json_bool(td_json_get(o, "revocable"), false);
    const int len = snprintf(s->monitor, sizeof s->monitor, "%s", monitor);
    return len > 0 && (size_t)len < sizeof s->monitor && s->wait >= 0 &&
           (s->larger_is_better || strcmp(mode, "min") == 0) &&
           read_number(td_json_get(o, "best"), &s->has_best, &s->best) && !isnan(s->best) &&
           read_number(td_json_get(o, "value"), &s->has_value, &s->value);
}
