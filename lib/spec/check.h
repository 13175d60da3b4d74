#ifndef TRAIND_LIB_SPEC_CHECK_H
#define TRAIND_LIB_SPEC_CHECK_H

// One checking run over one document: where it allocates, which flags hold, and everything wrong
// that was found so far. Readers and checkers add violations and go on; at the end the run becomes
// one status with all of them. Private to lib/spec. One thread.

#include "lib/job/kind.h"
#include "lib/spec/knobs.h"

struct td_spec_place;

#define TD_CHECK_IDLE_OPTIMIZER "sgd" // what a plan names where the job needs no `optimizer`

enum { TD_CHECK_SHOWN = 64 }; // violations kept with text: as many as a status carries

struct td_violation {
    const char *where;
    const char *text;
};

struct td_check {
    struct td_arena *arena;
    int flags;                   // enum td_spec_validate_flags
    const char *what;            // "job spec", "plan": for messages
    const char *const *said_by;  // for each override its name; NULL: it is a number
    struct td_spec_place *place; // of relative paths; NULL: none is taken
    enum td_job_kind kind;
    bool has_loose_texts; // some knob of a plugin may be a relative path; its table is not here
    struct td_violation shown[TD_CHECK_SHOWN];
    size_t n_violations; // all of them
    bool is_oom;
};

void td_check_init(struct td_check *c, struct td_arena *a, int flags);
// Notes something wrong at a dotted path ("" = the document). line > 0: a line of the text;
// line < 0: override number -line; 0: unknown.
void td_check_violation(struct td_check *c, const char *path, int line, const char *fmt, ...)
    TD_PRINTF(4, 5);
// True once memory ran out; the text of later violations does not matter then.
bool td_check_oom(struct td_check *c, const void *allocated);
// TD_OK if nothing was wrong.
TD_MUST_USE td_status td_check_result(struct td_check *c);
// The run is worth going on with: there is memory.
static inline bool td_check_wants_text(const struct td_check *c) {
    return c->n_violations < TD_CHECK_SHOWN;
}

// Text fit to be shown: control characters as '?', cut at max_bytes with "...". Never NULL.
const char *td_check_show(struct td_arena *a, const char *text, size_t len, size_t max_bytes);
// "text 'abc'", "3", "a list of 2": what a value is, for "found ...". Never NULL.
const char *td_check_describe(struct td_arena *a, const struct td_json *v);
// "trainer" + "devices" -> "trainer.devices"; an empty section gives the key alone. Never NULL.
const char *td_check_path(struct td_check *c, const char *section, const char *key);

// What a value is where text is wanted: a string itself, a plain scalar of YAML as it is written,
// and of JSON's numbers an integer by its digits. NULL: it is none of these, or memory is out
// (noted).
const struct td_json *td_check_as_text(struct td_check *c, const struct td_json *v);
// What to do about a value that is none of them; NULL: nothing to say.
const char *td_check_text_hint(const struct td_json *v);
// Checks a value against its row. Returns the canonical node (new, with v's line), or NULL after
// noting what is wrong.
struct td_json *td_check_value(struct td_check *c, const struct td_knob *k, const char *path,
                               const struct td_json *v);
// A map with the knobs of an ENTRY section.
struct td_json *td_check_entry(struct td_check *c, const char *section, const char *path,
                               const struct td_json *v);
// The row's default as a canonical node; NULL when memory is out. The row must have one.
struct td_json *td_check_default(struct td_check *c, const struct td_knob *k);
// An item of a list that is a choice of its own: a map with a name that picks a VARIANT of
// `choice`, or the bare name. Returns the canonical map, as far as it is right; NULL if it is
// neither.
struct td_json *td_check_choice(struct td_check *c, const char *choice, const char *path,
                                const struct td_json *v);
// Sections, knobs and defaults: any tree -> canonical tree, as far as it is right (rules included).
struct td_json *td_check_document(struct td_check *c, const struct td_json *root);
// What no single row can say: resolves defaults that depend on other knobs, notes contradictions.
void td_check_rules(struct td_check *c, struct td_json *canonical);

// What kinds command and program have: a program, and names of variables that are free.
void td_check_command(struct td_check *c, struct td_json *canonical);

// A plain scalar of YAML 1.2's core schema: null, bool, int (also 0x, 0o), float, else string.
// An integer outside int64 becomes a real. What is no string keeps its text as `written`. NULL when
// memory is out.
struct td_json *td_scalar_resolve(struct td_arena *a, const char *text, size_t len);

#endif
