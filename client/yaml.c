// A map is a block with a key a line, a list of maps has a dash each, any other list is on one
// line. A text is bare where no reader could take it for anything else, otherwise a JSON string,
// which YAML takes as it is, as it does JSON's numbers. Depth is bounded by the parser of JSON.
//
// Rejected: libyaml's emitter, which makes the client another home of libyaml for these lines.

#include "client/yaml.h"

#include <string.h>
#include <strings.h>

#include "lib/base/json.h"

enum { ARENA_BYTES = 64 << 20 };

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "relu", "/data/train.npy", "32-true" not: it could be a number to somebody.
static bool is_bare(const char *text, size_t len) {
    static const char *const words[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    if (!len || !(is_letter(text[0]) || text[0] == '/')) return false;
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (strlen(words[i]) == len && strncasecmp(text, words[i], len) == 0) return false;
    }
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];
        if (!is_letter(c) && !(c >= '0' && c <= '9') && (!c || !strchr("_-./", c))) return false;
    }
    return true;
}

static td_status add_text(const char *text, size_t len, struct td_buf *out) {
    if (is_bare(text, len)) return td_buf_append(out, text, len);
    return td_json_print_string(text, len, out);
}

static bool is_block(const struct td_json *v) {
    if (v->kind == TD_JSON_OBJECT) return v->n_children > 0;
    return v->kind == TD_JSON_ARRAY && v->first && v->first->kind == TD_JSON_OBJECT;
}

// On one line, maps within lists of lists included.
static td_status add_flow(const struct td_json *v, struct td_buf *out) {
    if (v->kind == TD_JSON_STRING) return add_text(v->u.string.data, v->u.string.len, out);
    if (v->kind != TD_JSON_ARRAY && v->kind != TD_JSON_OBJECT) return td_json_print(v, false, out);
    const bool is_map = v->kind == TD_JSON_OBJECT;
    TD_TRY(td_buf_str(out, is_map ? "{" : "["));
    for (const struct td_json *c = v->first; c; c = c->next) {
        if (c != v->first) TD_TRY(td_buf_str(out, ", "));
        if (is_map) TD_TRY(add_text(c->key, strlen(c->key), out));
        if (is_map) TD_TRY(td_buf_str(out, ": "));
        TD_TRY(add_flow(c, out));
    }
    return td_buf_str(out, is_map ? "}" : "]");
}

static td_status add_block(const struct td_json *v, int indent, bool is_begun, struct td_buf *out);

static td_status add_member(const struct td_json *c, int indent, struct td_buf *out) {
    TD_TRY(add_text(c->key, strlen(c->key), out));
    TD_TRY(td_buf_str(out, is_block(c) ? ":\n" : ": "));
    if (is_block(c)) return add_block(c, indent + 2, false, out);
    TD_TRY(add_flow(c, out));
    return td_buf_str(out, "\n");
}

// is_begun: something is on the first line already.
static td_status add_block(const struct td_json *v, int indent, bool is_begun, struct td_buf *out) {
    for (const struct td_json *c = v->first; c; c = c->next) {
        if (!is_begun) TD_TRY(td_buf_printf(out, "%*s", indent, ""));
        is_begun = false;
        if (v->kind == TD_JSON_OBJECT) {
            TD_TRY(add_member(c, indent, out));
            continue;
        }
        TD_TRY(td_buf_str(out, "- "));
        if (c->kind == TD_JSON_OBJECT && c->n_children) {
            TD_TRY(add_block(c, indent + 2, true, out));
            continue;
        }
        TD_TRY(add_flow(c, out));
        TD_TRY(td_buf_str(out, "\n"));
    }
    return TD_OK;
}

td_status td_yaml_of_json(const char *json, int indent, struct td_buf *out) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY(td_json_parse(arena, json, strlen(json), &v));
    if (is_block(v)) return add_block(v, indent, false, out);
    TD_TRY(td_buf_printf(out, "%*s", indent, ""));
    TD_TRY(add_flow(v, out));
    return td_buf_str(out, "\n");
}
