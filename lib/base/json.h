#ifndef TRAIND_LIB_BASE_JSON_H
#define TRAIND_LIB_BASE_JSON_H

// One tree for structured text: job specs (from YAML), plans, manifests, safetensors headers.
//
// Nodes live in an arena and are plain structs: readers walk them directly. Object members keep
// their order. `line` is the source line (of a job spec; 0 when unknown), so that errors can name
// it.
// Parsing JSON is jansson's work (the only home of jansson): duplicate keys, NaN, trailing bytes
// and depth past 64 are refused; integers outside int64 are refused. Printing is our own and
// canonical: shortest round-trip doubles, no spaces (or 2-space indent), so a digest of it is
// stable.

#include "lib/base/arena.h"
#include "lib/base/buf.h"

enum td_json_kind {
    TD_JSON_NULL,
    TD_JSON_BOOL,
    TD_JSON_INT,
    TD_JSON_REAL,
    TD_JSON_STRING,
    TD_JSON_ARRAY,
    TD_JSON_OBJECT,
};

struct td_json {
    enum td_json_kind kind;
    int line;
    union {
        struct {
            union {
                bool boolean;
                int64_t integer;
                double real;
            };
            const char *written; // "007", a plain scalar of YAML as it is in the text; or NULL
        };
        struct td_str string; // NUL-terminated too
    } u;
    const char *key;       // of a member of an object, else NULL
    struct td_json *first; // children of array or object, in order
    struct td_json *last;
    struct td_json *next; // sibling
    size_t n_children;
};

TD_MUST_USE td_status td_json_parse(struct td_arena *a, const char *text, size_t len,
                                    struct td_json **out_root);

// A text that a person wrote: its bounds, and what is wrong with it.
struct td_json_source {
    int max_depth;
    size_t max_values, max_members, max_bytes; // members of an object, bytes of a key or string
    size_t n_values;                           // in and out: of several texts
    int line;                                  // out, with `fault`: where that is; 0: unknown
    char fault[192];                           // out: "": nothing is wrong
};

// The same within these bounds. Every node has its line, a member that of its key.
// Errors: INVALID_ARGUMENT, and io_source has the words and the line apart.
TD_MUST_USE td_status td_json_read(struct td_arena *a, const char *text, size_t len,
                                   struct td_json_source *io_source, struct td_json **out_root);

TD_MUST_USE td_status td_json_print(const struct td_json *v, bool indent, struct td_buf *out);
// The same as a value of a text that has so many brackets open.
TD_MUST_USE td_status td_json_print_at(const struct td_json *v, bool indent, int depth,
                                       struct td_buf *out);
// Appends text as a JSON string literal, quotes included; control characters (C0, DEL, C1) escaped.
TD_MUST_USE td_status td_json_print_string(const char *text, size_t len, struct td_buf *out);
// Appends the shortest form that reads back equal; non-finite values become null.
TD_MUST_USE td_status td_json_print_double(double v, struct td_buf *out);
// The same of a measured value, which may be the text "nan", "inf" or "-inf".
TD_MUST_USE td_status td_json_print_value(double v, struct td_buf *out);

// Readers; NULL-safe: a NULL node is absent.
struct td_json *td_json_get(const struct td_json *object, const char *key);   // NULL: absent
struct td_json *td_json_path(const struct td_json *root, const char *dotted); // "trainer.devices"
const char *td_json_string(const struct td_json *v, const char *fallback);
int64_t td_json_int(const struct td_json *v, int64_t fallback);
double td_json_real(const struct td_json *v, double fallback); // accepts INT
bool td_json_bool(const struct td_json *v, bool fallback);
// A measured value: a number, one of the three texts, or null, which is NaN (older builds wrote all
// three so). False: it is none of these, or absent.
bool td_json_value(const struct td_json *v, double *out_value);
// Would both print the same? Neither is NULL; members count in their order.
bool td_json_equal(const struct td_json *a, const struct td_json *b);

// Builders; NULL when the arena is full (check once at the end: they pass NULL through).
struct td_json *td_json_new(struct td_arena *a, enum td_json_kind kind);
struct td_json *td_json_new_string(struct td_arena *a, const char *s);
struct td_json *td_json_new_int(struct td_arena *a, int64_t v);
struct td_json *td_json_new_real(struct td_arena *a, double v);
struct td_json *td_json_new_value(struct td_arena *a, double v);
struct td_json *td_json_new_bool(struct td_arena *a, bool v);
struct td_json *td_json_copy(struct td_arena *a, const struct td_json *v);
// Appends; returns false if anything was NULL or memory is out. set replaces a member of that name.
bool td_json_push(struct td_json *array, struct td_json *v);
bool td_json_set(struct td_arena *a, struct td_json *object, const char *key, struct td_json *v);

#endif
