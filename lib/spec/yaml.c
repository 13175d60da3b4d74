// The YAML reader: libyaml's events become our tree.
//
// Only what a job spec needs is taken: maps with text keys, lists, scalars. Anchors, aliases, tags
// and merge keys are refused where they are, so a document is never larger than its text (no
// "billion laughs"). One document is all there may be. Text is checked before libyaml sees it:
// size, UTF-8, no control characters. Depth, nodes, keys of a map and bytes of a scalar are bounded
// while reading; libyaml itself holds at most a few copies of the text. A duplicate key is noted
// and reading goes on, anything else ends it: after a syntax error lines mean little.
//
// Rejected: libyaml's document API (builds its own tree first, and expands nothing, but without
// bounds). JSON is not read here, though most of it is YAML. libyaml knows YAML 1.1, which takes
// U+0085 for a blank. Escapes of two UTF-16 halves and a line break before a colon are errors
// there.

#include "lib/spec/yaml.h"

#include <string.h>

#include <yaml.h>

#include "lib/base/utf8.h"

struct reader {
    struct td_check *c;
    const char *text;
    size_t len;
    int override_idx; // -1: the document itself
    size_t *io_nodes;
    yaml_parser_t parser;
    const char *keys[TD_SPEC_MAX_DEPTH + 1]; // on the way down; NULL in a list
};

static int line_at(const struct reader *r, yaml_mark_t mark) {
    return r->override_idx >= 0 ? -(r->override_idx + 1) : (int)TD_MIN(mark.line, 1 << 24) + 1;
}

#define STOP(r, mark, ...)                                                                         \
    do {                                                                                           \
        td_check_violation((r)->c, "", line_at(r, mark), __VA_ARGS__);                             \
        return NULL;                                                                               \
    } while (0)

// ---- text ---------------------------------------------------------------------------------------
// Line (from 0) of the first byte that no text has; false if there is none.
static bool find_binary(const char *text, size_t len, size_t *out_line, unsigned *out_byte) {
    size_t line = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)text[i];
        line += ch == '\n';
        if ((ch < 0x20 && !strchr("\t\n\r", ch)) || ch == 0 || ch == 0x7f) {
            *out_line = line;
            *out_byte = ch;
            return true;
        }
    }
    return false;
}

static bool is_readable(const struct reader *r) {
    yaml_mark_t mark = {0};
    unsigned byte;
    if (find_binary(r->text, r->len, &mark.line, &byte)) {
        td_check_violation(r->c, "", line_at(r, mark),
                           "not text: byte 0x%02x; a %s is YAML or JSON in UTF-8", byte,
                           r->c->what);
        return false;
    }
    if (!td_utf8_valid(r->text, r->len)) {
        td_check_violation(r->c, "", 0, "not UTF-8; a %s is YAML or JSON in UTF-8", r->c->what);
        return false;
    }
    return true;
}

// True if the line that the mark is on is indented with a tab: libyaml's own words do not say so.
static bool has_tab_indent(const struct reader *r, yaml_mark_t mark) {
    const char *at = r->text, *end = r->text + r->len;
    for (size_t line = 0; line < mark.line && at; line++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at) at++;
    }
    while (at && at < end && *at == ' ') {
        at++;
    }
    return at && at < end && *at == '\t';
}

// ---- events -------------------------------------------------------------------------------------
// The next event is the caller's to delete; false after noting a syntax error.
static bool next(struct reader *r, yaml_event_t *out_event) {
    if (yaml_parser_parse(&r->parser, out_event)) return true;
    yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) {
        r->c->is_oom = true;
        return false;
    }
    yaml_mark_t mark = p->error == YAML_READER_ERROR ? p->mark : p->problem_mark;
    bool has_tab = has_tab_indent(r, mark);
    td_check_violation(r->c, "", line_at(r, mark), "column %zu: %s%s", mark.column + 1,
                       p->problem ? p->problem : "this is not YAML",
                       has_tab ? "; the line begins with a tab, indent with spaces" : "");
    return false;
}

static void event_auto(yaml_event_t *e) {
    yaml_event_delete(e);
}
#define AUTO_EVENT __attribute__((cleanup(event_auto))) yaml_event_t

static const char *what_is_refused(const yaml_event_t *e) {
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return "an alias (*name)";
    case YAML_SCALAR_EVENT:
        return e->data.scalar.anchor ? "an anchor (&name)" : e->data.scalar.tag ? "a tag" : NULL;
    case YAML_SEQUENCE_START_EVENT:
        return e->data.sequence_start.anchor ? "an anchor (&name)"
               : e->data.sequence_start.tag  ? "a tag"
                                             : NULL;
    case YAML_MAPPING_START_EVENT:
        return e->data.mapping_start.anchor ? "an anchor (&name)"
               : e->data.mapping_start.tag  ? "a tag"
                                            : NULL;
    default:
        return NULL;
    }
}

// ---- values -------------------------------------------------------------------------------------
static struct td_json *read_value(struct reader *r, const yaml_event_t *e, int depth);

static struct td_json *read_scalar(struct reader *r, const yaml_event_t *e) {
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    if (len > TD_SPEC_MAX_SCALAR) {
        STOP(r, e->start_mark, "a value of %zu bytes; at most %d", len, TD_SPEC_MAX_SCALAR);
    }
    if (memchr(text, '\0', len)) STOP(r, e->start_mark, "a text with a NUL character in it");
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        return td_scalar_resolve(r->c->arena, text, len);
    }
    struct td_json *v = td_json_new(r->c->arena, TD_JSON_STRING);
    const char *copy = td_arena_strndup(r->c->arena, text, len);
    if (!v || !copy) return NULL;
    v->u.string = (struct td_str){copy, len};
    return v;
}

static struct td_json *read_list(struct reader *r, int depth) {
    struct td_json *list = td_json_new(r->c->arena, TD_JSON_ARRAY);
    r->keys[depth] = NULL;
    while (list) {
        AUTO_EVENT e;
        if (!next(r, &e)) return NULL;
        if (e.type == YAML_SEQUENCE_END_EVENT) break;
        if (!td_json_push(list, read_value(r, &e, depth))) return NULL;
    }
    return list;
}

// A copy of the key in the arena; NULL after noting why it is none.
static const char *read_key(struct reader *r, const yaml_event_t *e) {
    const char *refused = what_is_refused(e);
    if (refused) STOP(r, e->start_mark, "%s is not taken; write the value out", refused);
    if (e->type != YAML_SCALAR_EVENT) STOP(r, e->start_mark, "a key must be text");
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    if (len > TD_SPEC_MAX_SCALAR || memchr(text, '\0', len)) {
        STOP(r, e->start_mark, "a key of %zu bytes, or with a NUL in it", len);
    }
    if (strcmp(text, "<<") == 0 && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        STOP(r, e->start_mark, "a merge key (<<) is not taken; write the keys out");
    }
    const char *key = td_arena_strndup(r->c->arena, text, len);
    td_check_oom(r->c, key);
    return key;
}

static const char *path_to(struct reader *r, int depth) {
    const char *path = "";
    for (int i = 1; i <= depth; i++) {
        if (r->keys[i]) path = td_check_path(r->c, path, r->keys[i]);
    }
    return path;
}

static bool add_member(struct reader *r, struct td_json *map, int depth, struct td_json *v,
                       yaml_mark_t mark) {
    const char *key = r->keys[depth];
    const struct td_json *before = td_json_get(map, key);
    if (before) {
        td_check_violation(r->c, path_to(r, depth), line_at(r, mark),
                           "this key is already on line %d", before->line);
        return true;
    }
    // Point at the key: its value may begin lines below.
    v->line = line_at(r, mark);
    v->key = key;
    return td_json_push(map, v);
}

static struct td_json *read_map(struct reader *r, int depth) {
    struct td_json *map = td_json_new(r->c->arena, TD_JSON_OBJECT);
    while (map) {
        AUTO_EVENT e;
        if (!next(r, &e)) return NULL;
        if (e.type == YAML_MAPPING_END_EVENT) break;
        const char *key = read_key(r, &e);
        if (!key) return NULL;
        if (map->n_children >= TD_SPEC_MAX_KEYS) {
            STOP(r, e.start_mark, "a map of more than %d keys", TD_SPEC_MAX_KEYS);
        }
        r->keys[depth] = key;
        AUTO_EVENT value;
        if (!next(r, &value)) return NULL;
        struct td_json *v = read_value(r, &value, depth);
        if (!v || !add_member(r, map, depth, v, e.start_mark)) return NULL;
    }
    return map;
}

static struct td_json *read_value(struct reader *r, const yaml_event_t *e, int depth) {
    const char *refused = what_is_refused(e);
    if (refused) STOP(r, e->start_mark, "%s is not taken; write the value out", refused);
    if (++*r->io_nodes > TD_SPEC_MAX_NODES) {
        STOP(r, e->start_mark, "more than %d values", TD_SPEC_MAX_NODES);
    }
    bool is_scalar = e->type == YAML_SCALAR_EVENT;
    if (!is_scalar && depth >= TD_SPEC_MAX_DEPTH) {
        STOP(r, e->start_mark, "nested deeper than %d levels", TD_SPEC_MAX_DEPTH);
    }
    size_t n_before = r->c->n_violations;
    struct td_json *v = is_scalar                              ? read_scalar(r, e)
                        : e->type == YAML_SEQUENCE_START_EVENT ? read_list(r, depth + 1)
                                                               : read_map(r, depth + 1);
    if (v) {
        v->line = line_at(r, e->start_mark);
    } else if (r->c->n_violations == n_before) {
        r->c->is_oom = true; // nothing was wrong with the text
    }
    return v;
}

// ---- the document -----------------------------------------------------------------------------
// Leaves the stream after the one document; NULL after noting what is wrong.
static struct td_json *read_document(struct reader *r) {
    AUTO_EVENT stream, start, root, end, after;
    memset(&start, 0, sizeof start);
    memset(&root, 0, sizeof root);
    memset(&end, 0, sizeof end);
    memset(&after, 0, sizeof after);
    if (!next(r, &stream) || !next(r, &start)) return NULL;
    if (start.type == YAML_STREAM_END_EVENT) {
        if (r->override_idx >= 0) return td_json_new(r->c->arena, TD_JSON_NULL);
        td_check_violation(r->c, "", 0, "the %s is empty", r->c->what);
        return NULL;
    }
    if (start.data.document_start.tag_directives.start !=
        start.data.document_start.tag_directives.end) {
        STOP(r, start.start_mark, "a %%TAG directive is not taken");
    }
    if (!next(r, &root)) return NULL;
    struct td_json *v = read_value(r, &root, 0);
    if (!v || !next(r, &end) || !next(r, &after)) return NULL;
    if (after.type != YAML_STREAM_END_EVENT) {
        STOP(r, after.start_mark, "a second document begins here; a %s is one", r->c->what);
    }
    return v;
}

struct td_json *td_yaml_read(struct td_check *c, const char *text, size_t len, int override_idx,
                             size_t *io_nodes) {
    struct reader r = {c, text, len, override_idx, io_nodes, {0}, {NULL}};
    if (!is_readable(&r)) return NULL;
    if (!yaml_parser_initialize(&r.parser)) {
        c->is_oom = true;
        return NULL;
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    struct td_json *root = read_document(&r);
    yaml_parser_delete(&r.parser);
    return root;
}
