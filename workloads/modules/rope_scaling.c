// See the header. The key of the kind is rope_type, in older files type. Some files have all in
// rope_parameters, rope_theta among it, which is read elsewhere.

#include "workloads/modules/rope_scaling.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traind/knobs.h"
#include "workloads/modules/config_json.h"

static const char *const names[] = {"default", "linear", "dynamic", "llama3"};

static td_status read_kind(const struct td_json *map, const char *where, enum td_rope_kind *out) {
    const struct td_json *type = td_config_key(map, "rope_type");
    if (!type) type = td_config_key(map, "type");
    const char *name = type ? td_json_string(type, "no text") : "default";
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (enum td_rope_kind)i;
        return TD_OK;
    }
    return td_bad_spec("%s asks for rotary angles of rope_type '%.64s'; this model has default, "
                       "linear, dynamic and llama3",
                       where, name);
}

static td_status read_number(const struct td_json *map, const char *where, const char *key,
                             double least, double *out) {
    const struct td_json *v = td_config_key(map, key);
    const double x = v ? td_json_real(v, (double)NAN) : (double)NAN;
    if (x >= least && x <= 1e9) {
        *out = x;
        return TD_OK;
    }
    return td_bad_spec("%s.%s: expected a number from %g to 1e9, and it %s", where, key, least,
                       v ? "is none" : "is missing");
}

static td_status check_keys(const struct td_json *map, const char *where) {
    static const char *const known[] = {"rope_type",        "type",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "original_max_position_embeddings",
                                        "rope_theta"};
    for (const struct td_json *v = map->first; v; v = v->next) {
        bool is_known = false;
        for (size_t i = 0; i < TD_COUNTOF(known); i++) {
            is_known |= strcmp(known[i], v->key) == 0;
        }
        if (!is_known && v->kind != TD_JSON_NULL) {
            return td_bad_spec("%s.%.64s: unknown key", where, v->key);
        }
    }
    return TD_OK;
}

static td_status read_llama3(const struct td_json *map, const char *where,
                             struct td_rope_scaling *s) {
    double original = 0;
    TD_TRY(read_number(map, where, "low_freq_factor", 1e-6, &s->low));
    TD_TRY(read_number(map, where, "high_freq_factor", 1e-6, &s->high));
    TD_TRY(read_number(map, where, "original_max_position_embeddings", 1, &original));
    s->original = (int64_t)original;
    if (s->low < s->high) return TD_OK;
    return td_bad_spec("%s: high_freq_factor has to be above low_freq_factor", where);
}

td_status td_rope_read(const struct td_json *map, const char *where, struct td_rope_settings *out) {
    struct td_rope_settings s = {.kind = TD_ROPE_DEFAULT};
    if (map && map->kind != TD_JSON_NULL) {
        if (map->kind != TD_JSON_OBJECT) return td_bad_spec("%s: expected a map, or null", where);
        TD_TRY(check_keys(map, where));
        TD_TRY(read_kind(map, where, &s.kind));
    }
    if (s.kind != TD_ROPE_DEFAULT) TD_TRY(read_number(map, where, "factor", 1, &s.factor));
    if (s.kind == TD_ROPE_LINEAR || s.kind == TD_ROPE_LLAMA3) s.scaling.factor = s.factor;
    if (s.kind == TD_ROPE_LLAMA3) TD_TRY(read_llama3(map, where, &s.scaling));
    *out = s;
    return TD_OK;
}

bool td_rope_equal(const struct td_rope_settings *a, const struct td_rope_settings *b) {
    return a->kind == b->kind && a->factor == b->factor && a->scaling.low == b->scaling.low &&
           a->scaling.high == b->scaling.high && a->scaling.original == b->scaling.original;
}

void td_rope_print(const struct td_rope_settings *s, char out[TD_ROPE_TEXT]) {
    size_t n = (size_t)snprintf(out, TD_ROPE_TEXT, "null");
    if (s->kind == TD_ROPE_DEFAULT) return;
    n = (size_t)snprintf(out, TD_ROPE_TEXT, "{\"rope_type\": \"%s\", \"factor\": %.17g",
                         names[s->kind], s->factor);
    if (s->kind == TD_ROPE_LLAMA3) {
        n += (size_t)snprintf(out + n, TD_ROPE_TEXT - n,
                              ", \"low_freq_factor\": %.17g, \"high_freq_factor\": %.17g, "
                              "\"original_max_position_embeddings\": %" PRId64,
                              s->scaling.low, s->scaling.high, s->scaling.original);
    }
    snprintf(out + n, TD_ROPE_TEXT - n, "}");
}
