// Keys of a foreign config.json against what a module has; see config_json.h. Numbers are compared
// with a relative 1e-6, because some writers round 1e-5 to fp32 first.

#include "workloads/modules/config_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct td_json *td_config_key(const struct td_json *config, const char *key) {
    const struct td_json *v = td_json_get(config, key);
    return v && v->kind != TD_JSON_NULL ? v : NULL;
}

td_status td_config_differs(const struct td_json *v, const char *key, const char *found,
                            const char *wanted) {
    return td_bad_spec("config.json %s %s%s%.64s, the model has %s", v ? "says" : "leaves out", key,
                       v ? ": " : ", which is then ", found, wanted);
}

td_status td_config_number(const struct td_json *config, const char *key, double fallback,
                           double wanted) {
    char found[32] = "no number", ours[32];
    const struct td_json *v = td_config_key(config, key);
    double x = v ? td_json_real(v, (double)NAN) : fallback;
    if (fabs(x - wanted) <= 1e-6 * wanted) return TD_OK;
    if (!isnan(x)) snprintf(found, sizeof found, "%g", x);
    snprintf(ours, sizeof ours, "%g", wanted);
    return td_config_differs(v, key, found, ours);
}

td_status td_config_flag(const struct td_json *config, const char *key, bool fallback,
                         bool wanted) {
    static const char *const words[] = {"false", "true"};
    const struct td_json *v = td_config_key(config, key);
    bool is_flag = !v || v->kind == TD_JSON_BOOL, x = v ? td_json_bool(v, false) : fallback;
    if (is_flag && x == wanted) return TD_OK;
    return td_config_differs(v, key, is_flag ? words[x] : "neither true nor false", words[wanted]);
}

td_status td_config_word(const struct td_json *config, const char *key, const char *fallback,
                         const char *wanted) {
    const struct td_json *v = td_config_key(config, key);
    const char *x = v ? td_json_string(v, "no text") : fallback;
    return strcmp(x, wanted) == 0 ? TD_OK : td_config_differs(v, key, x, wanted);
}

static td_status join(td_status take_a, td_status take_b) {
    if (!take_a || !take_b) return take_a ? take_a : take_b;
    td_status both = td_bad_spec("%s; %s", td_status_message(take_a), td_status_message(take_b));
    td_status_free(take_a);
    td_status_free(take_b);
    return both;
}

td_status td_config_all(td_status *take_all, size_t n) {
    td_status all = TD_OK;
    for (size_t i = 0; i < n; i++) {
        all = join(all, take_all[i]);
    }
    return all;
}
