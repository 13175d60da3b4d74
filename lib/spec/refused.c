// One pass over the rows: both sides are looked up by path, and compared with words. A `*` of a key
// leads into each child.

#include "lib/spec/refused.h"

#include <stdlib.h>
#include <string.h>

#define ROW(key, is, beside, beside_is, why, by_plan) {key, is, beside, beside_is, why, by_plan},
#define TD_REFUSED(...)                               ROW(__VA_ARGS__, false)
#define TD_REFUSED_BY_PLAN(...)                       ROW(__VA_ARGS__, true)
const struct td_refused td_refused_rows[] = {
#include "lib/spec/refused.def"
};
const size_t td_n_refused_rows = TD_COUNTOF(td_refused_rows);

// A word, or that of a map which a word picks; "": it is none.
static const char *word_of(const struct td_json *v) {
    return td_json_string(v, td_json_string(td_json_get(v, "name"), ""));
}

static bool is_set(const struct td_json *v) {
    const char *word = word_of(v);
    if (v->kind == TD_JSON_NULL || strcmp(word, "none") == 0) return false;
    return v->kind == TD_JSON_ARRAY ? v->n_children > 0 : true;
}

static bool number_fits(double v, const char *is) {
    const bool is_bound = *is == '>';
    char *end;
    const double said = strtod(is + is_bound, &end);
    if (end == is + is_bound || *end) return false;
    return is_bound ? v > said : !(v < said || v > said);
}

bool td_refused_fits(const struct td_json *v, const char *is) {
    if (!v) return false;
    if (strcmp(is, "set") == 0) return is_set(v);
    if (strcmp(is, "null") == 0) return v->kind == TD_JSON_NULL;
    if (v->kind == TD_JSON_BOOL) return strcmp(is, v->u.boolean ? "true" : "false") == 0;
    if (v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL) {
        return number_fits(td_json_real(v, 0), is);
    }
    const char *word = word_of(v);
    if (*is != '!') return strcmp(word, is) == 0;
    return *word && strcmp(word, is + 1) != 0 && strcmp(word, "auto") != 0;
}

// What a key has, or a section that is a choice, where nobody says anything.
static const struct td_json *default_of(struct td_check *c, const char *path) {
    const struct td_section *choice = td_section_find(path);
    if (choice) {
        const char *usual = choice->fallback ? choice->fallback : TD_CHECK_IDLE_OPTIMIZER;
        const struct td_json *name = td_json_new_string(c->arena, usual);
        return td_check_oom(c, name) ? NULL : td_check_choice(c, path, path, name);
    }
    const char *dot = strrchr(path, '.');
    const char *section = td_arena_strndup(c->arena, path, dot ? (size_t)(dot - path) : 0);
    if (td_check_oom(c, section)) return NULL;
    const struct td_knob *k = td_knob_find(section, dot ? dot + 1 : path);
    TD_CHECK(k && k->fallback);
    return td_check_default(c, k);
}

static bool fits(struct td_check *c, const char *path, const struct td_json *v, const char *is) {
    if (!v || strcmp(is, "given") != 0) return td_refused_fits(v, is);
    const struct td_json *usual = default_of(c, path);
    return usual && !td_json_equal(v, usual);
}

// "3", "power_sgd", "set": a value in a message.
static const char *show(struct td_check *c, const struct td_json *v, const char *is) {
    if (v->kind == TD_JSON_INT) {
        const char *text = td_arena_printf(c->arena, "%lld", (long long)v->u.integer);
        return td_check_oom(c, text) ? is : text;
    }
    const char *word = word_of(v);
    return *is == '!' && *word ? td_check_show(c->arena, word, strlen(word), 64) : is;
}

static void check_value(struct td_check *c, const struct td_refused *row, const char *path,
                        const struct td_json *v, const struct td_json *other) {
    if (!fits(c, path, v, row->is)) return;
    if (!row->beside) {
        td_check_violation(c, path, v->line, "is %s: %s", show(c, v, row->is), row->why);
        return;
    }
    const bool plain = strcmp(row->beside_is, "set") == 0;
    td_check_violation(c, path, v->line, "is %s beside %s%s%s: %s", show(c, v, row->is),
                       row->beside, plain ? "" : " ", plain ? "" : show(c, other, row->beside_is),
                       row->why);
}

// The children of v, at path, which the rest of a row's key leads to.
static void check_each(struct td_check *c, const struct td_refused *row, const char *path,
                       const struct td_json *v, const char *rest, const struct td_json *other) {
    const size_t len = strcspn(rest, ".");
    size_t i = 0;
    for (const struct td_json *child = v->first; child; child = child->next, i++) {
        const char *key = child->key;
        const bool is_named = key && strncmp(key, rest, len) == 0 && !key[len];
        if (*rest != '*' && !is_named) continue;
        const char *at =
            key ? td_check_path(c, path, key) : td_arena_printf(c->arena, "%s[%zu]", path, i);
        if (td_check_oom(c, at)) return;
        if (rest[len]) {
            check_each(c, row, at, child, rest + len + 1, other);
        } else {
            check_value(c, row, at, child, other);
        }
    }
}

void td_check_refused(struct td_check *c, const struct td_json *canonical) {
    for (size_t i = 0; i < td_n_refused_rows; i++) {
        const struct td_refused *row = &td_refused_rows[i];
        if (row->by_plan) continue;
        const struct td_json *other = row->beside ? td_json_path(canonical, row->beside) : NULL;
        if (row->beside && !fits(c, row->beside, other, row->beside_is)) continue;
        check_each(c, row, "", canonical, row->key, other);
    }
}

// ---- for people ---------------------------------------------------------------------------------
static td_status print_rows(struct td_buf *out, bool by_plan) {
    TD_TRY(td_buf_str(out, "\n| key | is | beside | is | why |\n|---|---|---|---|---|\n"));
    for (size_t i = 0; i < td_n_refused_rows; i++) {
        const struct td_refused *r = &td_refused_rows[i];
        if (r->by_plan != by_plan) continue;
        const char *tick = r->beside ? "`" : "";
        TD_TRY(td_buf_printf(out, "| `%s` | %s | %s%s%s | %s | %s |\n", r->key, r->is, tick,
                             r->beside ? r->beside : "anything", tick,
                             r->beside ? r->beside_is : "", r->why));
    }
    return TD_OK;
}

td_status td_refused_print(struct td_buf *out) {
    TD_TRY(td_buf_str(out,
                      "\n## Combinations that are refused\n\n"
                      "Each key alone takes more than it takes beside another one. A spec with one "
                      "of these\nis refused, with the reason: `>1` is any number above 1, `set` "
                      "anything but null or none,\n`given` anything but the default, `!x` anything "
                      "but x and auto. A `*` in a key is each key of\na section, or each item of "
                      "a list.\n"));
    TD_TRY(print_rows(out, false));
    TD_TRY(td_buf_str(out, "\nThese depend on what plugins say of themselves, or on how many ranks "
                           "there are. The plan of a job\nrefuses them, on the node.\n"));
    return print_rows(out, true);
}
