// Plain scalars of YAML 1.2's core schema: which text is a number, a truth value, nothing.
//
// 1.2 and not 1.1: "no", "on" and "12:30" stay text, 1e-3 is a number. Numbers are matched by the
// schema's patterns first and only then handed to libc, so "0x1p3", "infinity" or "1_000" stay text
// whatever libc would take. What is no text keeps its letters, too (`written`): 007 is 7 to a knob
// that wants a number, and "007" to one that wants text. Pure.

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/spec/check.h"

static bool is_one_of(const char *s, const char *a, const char *b, const char *c) {
    return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0;
}

static size_t digits(const char *s) {
    return strspn(s, "0123456789");
}

// [-+]? [0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+ ; sets the base and where the digits begin.
static bool matches_int(const char *s, int *out_base, size_t *out_skip) {
    if (s[0] == '0' && (s[1] == 'o' || s[1] == 'x')) {
        *out_base = s[1] == 'x' ? 16 : 8;
        *out_skip = 2;
        const char *set = s[1] == 'x' ? "0123456789abcdefABCDEF" : "01234567";
        return s[2] && s[2 + strspn(s + 2, set)] == '\0';
    }
    *out_base = 10;
    *out_skip = 0;
    size_t sign = *s == '-' || *s == '+';
    return s[sign] && s[sign + digits(s + sign)] == '\0';
}

// [-+]? ( \.[0-9]+ | [0-9]+(\.[0-9]*)? ) ([eE][-+]?[0-9]+)?
static bool matches_float(const char *s) {
    s += *s == '-' || *s == '+';
    size_t whole = digits(s);
    s += whole;
    if (*s == '.') {
        size_t fraction = digits(++s);
        if (whole + fraction == 0) return false;
        s += fraction;
    } else if (whole == 0) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        if (digits(s) == 0) return false;
        s += digits(s);
    }
    return *s == '\0';
}

static bool special_float(const char *s, double *out_value) {
    if (is_one_of(s, ".nan", ".NaN", ".NAN")) {
        *out_value = NAN;
        return true;
    }
    bool is_negative = *s == '-';
    if (!is_one_of(s + (*s == '-' || *s == '+'), ".inf", ".Inf", ".INF")) return false;
    *out_value = is_negative ? -INFINITY : INFINITY;
    return true;
}

static struct td_json *text_of(struct td_arena *a, const char *s, size_t len) {
    struct td_json *v = td_json_new(a, TD_JSON_STRING);
    if (v) v->u.string = (struct td_str){s, len};
    return v;
}

static struct td_json *resolve(struct td_arena *a, const char *s, size_t len) {
    int base;
    size_t skip;
    double real;
    bool is_word = isalpha((unsigned char)*s); // no number begins with a letter
    if (len == 0 || strcmp(s, "~") == 0 || (is_word && is_one_of(s, "null", "Null", "NULL"))) {
        return td_json_new(a, TD_JSON_NULL);
    }
    if (is_word && is_one_of(s, "true", "True", "TRUE")) return td_json_new_bool(a, true);
    if (is_word && is_one_of(s, "false", "False", "FALSE")) return td_json_new_bool(a, false);
    if (is_word) return text_of(a, s, len);
    if (matches_int(s, &base, &skip)) {
        errno = 0;
        int64_t integer = strtoll(s + skip, NULL, base);
        if (errno == 0) return td_json_new_int(a, integer);
        return td_json_new_real(a, base == 10 ? strtod(s, NULL) : INFINITY);
    }
    if (matches_float(s)) return td_json_new_real(a, strtod(s, NULL));
    if (special_float(s, &real)) return td_json_new_real(a, real);
    return text_of(a, s, len);
}

struct td_json *td_scalar_resolve(struct td_arena *a, const char *text, size_t len) {
    const char *s = td_arena_strndup(a, text, len);
    struct td_json *v = s ? resolve(a, s, len) : NULL;
    if (v && v->kind != TD_JSON_STRING && len) v->u.written = s;
    return v;
}

const struct td_json *td_check_as_text(struct td_check *c, const struct td_json *v) {
    const bool has_no_text = v->kind == TD_JSON_ARRAY || v->kind == TD_JSON_OBJECT;
    if (v->kind == TD_JSON_STRING) return v;
    if (has_no_text || (!v->u.written && v->kind != TD_JSON_INT)) return NULL;
    const char *text = v->u.written;
    if (!text) text = td_arena_printf(c->arena, "%lld", (long long)v->u.integer);
    struct td_json *made = text ? td_json_new_string(c->arena, text) : NULL;
    if (td_check_oom(c, made)) return NULL;
    made->line = v->line;
    return made;
}

const char *td_check_text_hint(const struct td_json *v) {
    const bool is_scalar =
        v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL || v->kind == TD_JSON_BOOL;
    return is_scalar ? "put it in quotes to make it text" : NULL;
}
