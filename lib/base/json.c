// JSON: the reader is jansson's, the tree and the printer are ours.
//
// jansson checks syntax, UTF-8, duplicate keys and number ranges; its tree is then copied into the
// caller's arena and freed. Copying costs little and leaves one tree type for JSON and YAML, plain
// enough to walk by hand. jansson gives no lines of values. Where they are asked for, the text is
// walked beside the tree, token by token; it is known to be valid by then. A caller bounds the text
// that it hands in; jansson's own memory is at most some 40 times that, and gone on return. NUL
// inside a string is refused, so that every string may be read as a C string.
//
// The printer is canonical: members in their order, shortest round-trip numbers, a real always
// with '.' or an exponent (it reads back as a real), bytes that are not UTF-8 as U+FFFD.

#include "lib/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "lib/base/utf8.h"

enum { DEPTH_MAX = 64, INDENT = 2 };

// Debian's static jansson mentions `stdin`, which a shared object cannot take from libc without
// position-independent code; libtraind.so is linked with --defsym=stdin=td_no_stdin instead.
// Nothing reads it: json_loadf is never called.
void *td_no_stdin;

// ---- reading ------------------------------------------------------------------------------------
struct reader {
    struct td_arena *a;
    struct td_json_source *source; // NULL: nobody asks for lines, and the bounds are our own
    const char *at, *end;          // in the text, beside the tree; with a source
    int line;
};

#define FAULT(r, ...)                                                                              \
    do {                                                                                           \
        (r)->source->line = (r)->line;                                                             \
        snprintf((r)->source->fault, sizeof(r)->source->fault, __VA_ARGS__);                       \
        return td_fail(TD_INVALID_ARGUMENT, "JSON line %d: %s", (r)->line, (r)->source->fault);    \
    } while (0)

// The text is one that jansson took, so that these need not doubt it.
static void skip_space(struct reader *r) {
    for (; r->at < r->end && strchr(" \t\r\n", *r->at); r->at++) {
        r->line += *r->at == '\n';
    }
}

static void skip_mark(struct reader *r) { // one of []{}:, and the blanks after it
    if (r->at < r->end) r->at++;
    skip_space(r);
}

static void skip_string(struct reader *r) {
    for (r->at++; r->at < r->end && *r->at != '"'; r->at++) {
        r->at += *r->at == '\\';
    }
    skip_mark(r);
}

static void skip_scalar(struct reader *r, const json_t *from) {
    if (json_is_string(from)) {
        skip_string(r);
        return;
    }
    while (r->at < r->end && !strchr(",]} \t\r\n", *r->at)) {
        r->at++;
    }
    skip_space(r);
}

static td_status check_bounds(struct reader *r, json_t *from, int depth) {
    struct td_json_source *s = r->source;
    if (++s->n_values > s->max_values) FAULT(r, "more than %zu values", s->max_values);
    if (json_is_string(from) && json_string_length(from) > s->max_bytes) {
        FAULT(r, "a value of %zu bytes; at most %zu", json_string_length(from), s->max_bytes);
    }
    if ((json_is_array(from) || json_is_object(from)) && depth >= s->max_depth) {
        FAULT(r, "nested deeper than %d levels", s->max_depth);
    }
    if (json_object_size(from) > s->max_members) {
        FAULT(r, "a map of more than %zu keys", s->max_members);
    }
    return TD_OK;
}

static td_status convert(struct reader *r, json_t *from, int depth, struct td_json **out);

static td_status convert_member(struct reader *r, const char *key, json_t *value, int depth,
                                struct td_json *to) {
    struct td_json *child;
    const int line = r->line;
    if (r->source && strlen(key) > r->source->max_bytes) {
        FAULT(r, "a key of %zu bytes", strlen(key));
    }
    if (r->source) {
        skip_string(r);
        skip_mark(r);
    }
    TD_TRY(convert(r, value, depth + 1, &child));
    if (r->source && *r->at == ',') skip_mark(r);
    child->line = line; // its value may begin lines below
    child->key = td_arena_strdup(r->a, key);
    if (!child->key) return td_fail_oom();
    TD_CHECK(td_json_push(to, child));
    return TD_OK;
}

static td_status convert_children(struct reader *r, json_t *from, int depth, struct td_json *to) {
    if (depth >= DEPTH_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "JSON is nested deeper than %d levels", DEPTH_MAX);
    }
    if (r->source) skip_mark(r);
    for (size_t i = 0; json_is_array(from) && i < json_array_size(from); i++) {
        struct td_json *child;
        TD_TRY(convert(r, json_array_get(from, i), depth + 1, &child));
        if (r->source && *r->at == ',') skip_mark(r);
        TD_CHECK(td_json_push(to, child));
    }
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value) { // in the order of the text
        TD_TRY(convert_member(r, key, value, depth, to));
    }
    if (r->source) skip_mark(r);
    return TD_OK;
}

static td_status convert(struct reader *r, json_t *from, int depth, struct td_json **out) {
    static const enum td_json_kind kinds[] = {
        [JSON_OBJECT] = TD_JSON_OBJECT, [JSON_ARRAY] = TD_JSON_ARRAY,
        [JSON_STRING] = TD_JSON_STRING, [JSON_INTEGER] = TD_JSON_INT,
        [JSON_REAL] = TD_JSON_REAL,     [JSON_TRUE] = TD_JSON_BOOL,
        [JSON_FALSE] = TD_JSON_BOOL,    [JSON_NULL] = TD_JSON_NULL,
    };
    if (r->source) TD_TRY(check_bounds(r, from, depth));
    struct td_json *v = td_json_new(r->a, kinds[json_typeof(from)]);
    if (!v) return td_fail_oom();
    v->line = r->line;
    switch (v->kind) {
    case TD_JSON_NULL:
        break;
    case TD_JSON_BOOL:
        v->u.boolean = json_is_true(from);
        break;
    case TD_JSON_INT:
        v->u.integer = json_integer_value(from);
        break;
    case TD_JSON_REAL:
        v->u.real = json_real_value(from);
        break;
    case TD_JSON_STRING:
        v->u.string.len = json_string_length(from);
        v->u.string.data = td_arena_strndup(r->a, json_string_value(from), v->u.string.len);
        if (!v->u.string.data) return td_fail_oom();
        break;
    case TD_JSON_ARRAY:
    case TD_JSON_OBJECT:
        TD_TRY(convert_children(r, from, depth, v));
        *out = v;
        return TD_OK;
    }
    if (r->source) skip_scalar(r, from);
    *out = v;
    return TD_OK;
}

static td_status parse(struct reader *r, const char *text, size_t len, struct td_json **out_root) {
    json_error_t error;
    json_t *tree = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!tree && json_error_code(&error) == json_error_out_of_memory) return td_fail_oom();
    if (!tree && r->source) {
        r->line = error.line;
        FAULT(r, "column %d: %s", error.column, error.text);
    }
    if (!tree) {
        return td_fail(TD_INVALID_ARGUMENT, "JSON line %d column %d: %s", error.line, error.column,
                       error.text);
    }
    struct td_json *root = NULL;
    td_status s = convert(r, tree, 0, &root);
    json_decref(tree);
    TD_TRY(s);
    *out_root = root;
    return TD_OK;
}

td_status td_json_parse(struct td_arena *a, const char *text, size_t len,
                        struct td_json **out_root) {
    return parse(&(struct reader){.a = a}, text, len, out_root);
}

td_status td_json_read(struct td_arena *a, const char *text, size_t len,
                       struct td_json_source *io_source, struct td_json **out_root) {
    struct reader r = {.a = a, .source = io_source, .at = text, .end = text + len, .line = 1};
    io_source->line = 0;
    io_source->fault[0] = '\0';
    skip_space(&r);
    return parse(&r, text, len, out_root);
}

// ---- printing -----------------------------------------------------------------------------------
// How many bytes at the start of text are written as they are, and of one byte each.
static size_t plain_bytes(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\') {
        n++;
    }
    return n;
}

// C0, DEL and C1, which a terminal obeys. C1 is U+0080 to U+009F: two bytes of UTF-8.
static bool is_control(unsigned code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

// The character of a valid sequence of one or two bytes; of longer ones any that is no control.
static unsigned short_code(const char *text, size_t n) {
    const unsigned char *b = (const unsigned char *)text;
    if (n == 1) return b[0];
    return n == 2 ? (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu) : 0xffff;
}

td_status td_json_print_string(const char *text, size_t len, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "\""));
    for (size_t i = 0; i < len;) {
        size_t plain = plain_bytes(text + i, len - i);
        TD_TRY(td_buf_append(out, text + i, plain));
        i += plain;
        if (i == len) break;
        size_t n = td_utf8_sequence(text + i, len - i);
        unsigned char c = (unsigned char)text[i];
        const char *found = c ? strchr("\bb\ff\nn\rr\tt", c) : NULL;
        if (n == 0) {
            TD_TRY(td_buf_str(out, "\xef\xbf\xbd"));
        } else if (c == '"' || c == '\\') {
            TD_TRY(td_buf_printf(out, "\\%c", c));
        } else if (c < 0x20 && found) {
            TD_TRY(td_buf_printf(out, "\\%c", found[1]));
        } else if (is_control(short_code(text + i, n))) {
            TD_TRY(td_buf_printf(out, "\\u%04x", short_code(text + i, n)));
        } else {
            TD_TRY(td_buf_append(out, text + i, n));
        }
        i += TD_MAX(n, 1);
    }
    return td_buf_str(out, "\"");
}

// Prints with as few of the digits as read back the same; false: more are needed.
static bool has_digits(double v, int least, int most, char text[40]) {
    for (int digits = least; digits <= most; digits++) {
        snprintf(text, 40, "%.*g", digits, v);
        if (strtod(text, NULL) == v) return true;
    }
    return false;
}

td_status td_json_print_double(double v, struct td_buf *out) {
    if (!isfinite(v)) return td_buf_str(out, "null");
    char text[40];
    // People write few digits. Any double of at most 15 survives, so that a longer one has 16
    // or 17.
    if (!has_digits(v, 1, 3, text)) {
        int least = has_digits(v, 15, 15, text) ? 4 : 16;
        (void)has_digits(v, least, 17, text);
    }
    TD_TRY(td_buf_str(out, text));
    return strpbrk(text, ".e") ? TD_OK : td_buf_str(out, ".0");
}

// NULL: it is a number.
static const char *text_of(double v) {
    if (isnan(v)) return "nan";
    return isinf(v) ? v < 0 ? "-inf" : "inf" : NULL;
}

td_status td_json_print_value(double v, struct td_buf *out) {
    const char *text = text_of(v);
    return text ? td_json_print_string(text, strlen(text), out) : td_json_print_double(v, out);
}

static td_status print_break(bool indent, int depth, struct td_buf *out) {
    if (!indent) return TD_OK;
    TD_TRY(td_buf_str(out, "\n"));
    for (int i = 0; i < depth; i++) {
        TD_TRY(td_buf_append(out, "  ", INDENT));
    }
    return TD_OK;
}

static td_status print_children(const struct td_json *v, bool indent, int depth,
                                struct td_buf *out) {
    bool is_object = v->kind == TD_JSON_OBJECT;
    TD_TRY(td_buf_str(out, is_object ? "{" : "["));
    for (const struct td_json *child = v->first; child; child = child->next) {
        TD_TRY(print_break(indent, depth + 1, out));
        if (is_object) {
            TD_TRY(td_json_print_string(child->key, strlen(child->key), out));
            TD_TRY(td_buf_str(out, indent ? ": " : ":"));
        }
        TD_TRY(td_json_print_at(child, indent, depth + 1, out));
        if (child->next) TD_TRY(td_buf_str(out, ","));
    }
    if (v->first) TD_TRY(print_break(indent, depth, out));
    return td_buf_str(out, is_object ? "}" : "]");
}

td_status td_json_print_at(const struct td_json *v, bool indent, int depth, struct td_buf *out) {
    switch (v->kind) {
    case TD_JSON_NULL:
        return td_buf_str(out, "null");
    case TD_JSON_BOOL:
        return td_buf_str(out, v->u.boolean ? "true" : "false");
    case TD_JSON_INT:
        return td_buf_printf(out, "%lld", (long long)v->u.integer);
    case TD_JSON_REAL:
        return td_json_print_double(v->u.real, out);
    case TD_JSON_STRING:
        return td_json_print_string(v->u.string.data, v->u.string.len, out);
    case TD_JSON_ARRAY:
    case TD_JSON_OBJECT:
        return print_children(v, indent, depth, out);
    }
    return td_fail(TD_INTERNAL, "JSON node has kind %d", (int)v->kind);
}

td_status td_json_print(const struct td_json *v, bool indent, struct td_buf *out) {
    return td_json_print_at(v, indent, 0, out);
}

// ---- readers ------------------------------------------------------------------------------------
static struct td_json *get_n(const struct td_json *object, const char *key, size_t len) {
    if (!object || object->kind != TD_JSON_OBJECT) return NULL;
    for (struct td_json *child = object->first; child; child = child->next) {
        if (len && child->key[0] != key[0]) continue; // most differ in it
        if (strncmp(child->key, key, len) == 0 && child->key[len] == '\0') return child;
    }
    return NULL;
}

struct td_json *td_json_get(const struct td_json *object, const char *key) {
    return get_n(object, key, strlen(key));
}

struct td_json *td_json_path(const struct td_json *root, const char *dotted) {
    for (;;) {
        size_t len = strcspn(dotted, ".");
        struct td_json *child = get_n(root, dotted, len);
        if (!child || dotted[len] == '\0') return child;
        root = child;
        dotted += len + 1;
    }
}

const char *td_json_string(const struct td_json *v, const char *fallback) {
    return v && v->kind == TD_JSON_STRING ? v->u.string.data : fallback;
}

int64_t td_json_int(const struct td_json *v, int64_t fallback) {
    return v && v->kind == TD_JSON_INT ? v->u.integer : fallback;
}

double td_json_real(const struct td_json *v, double fallback) {
    if (v && v->kind == TD_JSON_INT) return (double)v->u.integer;
    return v && v->kind == TD_JSON_REAL ? v->u.real : fallback;
}

bool td_json_bool(const struct td_json *v, bool fallback) {
    return v && v->kind == TD_JSON_BOOL ? v->u.boolean : fallback;
}

bool td_json_value(const struct td_json *v, double *out_value) {
    static const double odd[] = {(double)NAN, INFINITY, -INFINITY};
    if (!v) return false;
    bool is = v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL || v->kind == TD_JSON_NULL;
    if (is) *out_value = td_json_real(v, (double)NAN);
    for (size_t i = 0; i < TD_COUNTOF(odd) && v->kind == TD_JSON_STRING && !is; i++) {
        is = strcmp(v->u.string.data, text_of(odd[i])) == 0;
        if (is) *out_value = odd[i];
    }
    return is;
}

bool td_json_equal(const struct td_json *a, const struct td_json *b) {
    const struct td_json *x = a->first, *y = b->first;
    if (a->kind != b->kind || a->n_children != b->n_children) return false;
    for (; x; x = x->next, y = y->next) {
        if ((x->key && strcmp(x->key, y->key) != 0) || !td_json_equal(x, y)) return false;
    }
    switch (a->kind) {
    case TD_JSON_NULL:
    case TD_JSON_ARRAY:
    case TD_JSON_OBJECT:
        break;
    case TD_JSON_BOOL:
        return a->u.boolean == b->u.boolean;
    case TD_JSON_INT:
        return a->u.integer == b->u.integer;
    case TD_JSON_REAL: // -0 is not 0
        return memcmp(&a->u.real, &b->u.real, sizeof a->u.real) == 0;
    case TD_JSON_STRING:
        return strcmp(a->u.string.data, b->u.string.data) == 0;
    }
    return true;
}

// ---- builders -----------------------------------------------------------------------------------
struct td_json *td_json_new(struct td_arena *a, enum td_json_kind kind) {
    struct td_json *v = td_arena_alloc(a, sizeof *v);
    if (!v) return NULL;
    v->kind = kind;
    if (kind == TD_JSON_STRING) v->u.string.data = "";
    return v;
}

struct td_json *td_json_new_string(struct td_arena *a, const char *s) {
    struct td_json *v = s ? td_json_new(a, TD_JSON_STRING) : NULL;
    char *copy = v ? td_arena_strdup(a, s) : NULL;
    if (!copy) return NULL;
    v->u.string = (struct td_str){copy, strlen(copy)};
    return v;
}

struct td_json *td_json_new_int(struct td_arena *a, int64_t i) {
    struct td_json *v = td_json_new(a, TD_JSON_INT);
    if (v) v->u.integer = i;
    return v;
}

struct td_json *td_json_new_real(struct td_arena *a, double d) {
    struct td_json *v = td_json_new(a, TD_JSON_REAL);
    if (v) v->u.real = d;
    return v;
}

struct td_json *td_json_new_value(struct td_arena *a, double v) {
    const char *text = text_of(v);
    return text ? td_json_new_string(a, text) : td_json_new_real(a, v);
}

struct td_json *td_json_new_bool(struct td_arena *a, bool b) {
    struct td_json *v = td_json_new(a, TD_JSON_BOOL);
    if (v) v->u.boolean = b;
    return v;
}

struct td_json *td_json_copy(struct td_arena *a, const struct td_json *v) {
    struct td_json *copy = v ? td_json_new(a, v->kind) : NULL;
    if (!copy) return NULL;
    copy->line = v->line;
    copy->u = v->u;
    if (v->kind == TD_JSON_STRING) {
        copy->u.string.data = td_arena_strndup(a, v->u.string.data, v->u.string.len);
        if (!copy->u.string.data) return NULL;
    } else if (v->u.written) {
        copy->u.written = td_arena_strdup(a, v->u.written);
        if (!copy->u.written) return NULL;
    }
    for (const struct td_json *child = v->first; child; child = child->next) {
        struct td_json *c = td_json_copy(a, child);
        bool has_key = v->kind == TD_JSON_OBJECT;
        if (c && has_key) c->key = td_arena_strdup(a, child->key);
        if (!c || (has_key && !c->key)) return NULL;
        TD_CHECK(td_json_push(copy, c)); // keys of an object differ already
    }
    return copy;
}

bool td_json_push(struct td_json *parent, struct td_json *v) {
    if (!parent || !v) return false;
    TD_CHECK(parent->kind == TD_JSON_ARRAY || (parent->kind == TD_JSON_OBJECT && v->key));
    v->next = NULL;
    if (parent->last) {
        parent->last->next = v;
    } else {
        parent->first = v;
    }
    parent->last = v;
    parent->n_children++;
    return true;
}

bool td_json_set(struct td_arena *a, struct td_json *object, const char *key, struct td_json *v) {
    if (!object || !v) return false;
    TD_CHECK(object->kind == TD_JSON_OBJECT);
    struct td_json *before = NULL;
    for (struct td_json *child = object->first; child; before = child, child = child->next) {
        if (child->key[0] != key[0] || strcmp(child->key, key) != 0) continue;
        v->key = child->key;
        v->next = child->next;
        if (before) before->next = v;
        if (object->first == child) object->first = v;
        if (object->last == child) object->last = v;
        return true;
    }
    v->key = td_arena_strdup(a, key);
    return v->key && td_json_push(object, v);
}
