#ifndef TRAIND_LIB_SPEC_KNOBS_H
#define TRAIND_LIB_SPEC_KNOBS_H

// The knob tables in C: rows of knobs.def as structs, and the questions asked about them.
// Constant data and pure functions; private to lib/spec.

#include "lib/base/json.h"
#include "lib/spec/bounds.h"

enum td_knob_type {
    TD_KNOB_BOOL,
    TD_KNOB_INT,
    TD_KNOB_INT_OR_AUTO,
    TD_KNOB_INT_OR_BOOL,  // canonical: false is 0, true is 1
    TD_KNOB_INT_BY_EPOCH, // an integer, or a map from an epoch to the integer from there on
    TD_KNOB_REAL,
    TD_KNOB_AMOUNT,   // a count (integer) or a fraction (real)
    TD_KNOB_DURATION, // seconds or "DD:HH:MM:SS"; canonical: integer seconds
    TD_KNOB_ENUM,
    TD_KNOB_ENUM_OR_PLUGIN, // a name, or a map of the ITEM section with the row's key
    TD_KNOB_NAME,           // of a job
    TD_KNOB_PLUGIN,         // name of a plugin
    TD_KNOB_TEXT,
    TD_KNOB_PATH,
    TD_KNOB_ENUMS,   // list of distinct names
    TD_KNOB_INTS,    // list
    TD_KNOB_REALS,   // list
    TD_KNOB_PATHS,   // list
    TD_KNOB_TEXTS,   // list
    TD_KNOB_CHOICE,  // a map with a name of an ITEM section, or the bare name
    TD_KNOB_CHOICES, // list of maps, each with a name of an ITEM section, or the bare name
    TD_KNOB_MAPS,    // list of maps, each with the knobs of an ENTRY section
    TD_KNOB_MAP,     // one such map
    TD_KNOB_OBJECT,  // anything, kept as it is
    TD_KNOB_LABELS,  // a map of texts (lib/job/labels.h); canonical: by key
    TD_KNOB_TYPE_COUNT,
};

// Kinds of job that have a key. OWN: those that run what is the submitter's own; SAVED: those whose
// checkpoints traind keeps.
enum td_knob_kinds {
    TD_KNOB_OF_TRAIN,
    TD_KNOB_OF_ALL,
    TD_KNOB_OF_OWN,
    TD_KNOB_OF_SAVED,
    TD_KNOB_OF_COMMAND,
};

struct td_knob {
    const char *section; // key of the section table: "trainer", "model.mlp"
    const char *key;
    enum td_knob_type type;
    bool is_plan_only;
    bool is_output;        // PATH: the job writes it
    bool is_of_job;        // PATH: a relative one is of the job's directory, and stays relative
    enum td_knob_kinds of; // kinds of job that have it
    const char *fallback;  // YAML text; NULL: required
    double min, max;
    const char *unit;   // or NULL
    const char *values; // see knobs.def
    const char *prose;
};

enum td_section_kind {
    TD_SECTION_ROOT,
    TD_SECTION_PLAIN,
    TD_SECTION_CHOICE,
    TD_SECTION_VARIANT,
    TD_SECTION_PLAN,
    TD_SECTION_ITEM,
    TD_SECTION_ENTRY,
};

struct td_section {
    const char *path;
    enum td_section_kind kind;
    const char *fallback;
    const char *prose;
    const char *example; // YAML of a spec's top level, whole lines; or NULL
    size_t first_knob;   // of its rows; the next section's follow them
};

struct td_later {
    const char *section, *key, *what;
};

extern const struct td_knob td_knobs[];
extern const size_t td_n_knobs;
extern const struct td_section td_sections[];
extern const size_t td_n_sections;
extern const struct td_later td_laters[];
extern const size_t td_n_laters;

const struct td_knob *td_knob_find(const char *section, const char *key);
const struct td_section *td_section_find(const char *path);
// The rows of a section, in their order: from the result up to *out_end.
const struct td_knob *td_section_knobs(const struct td_section *s, const struct td_knob **out_end);
// The row of a key, or NULL.
const struct td_knob *td_section_knob(const struct td_section *s, const char *key);
bool td_knob_nullable(const struct td_knob *k);
// The part of a VARIANT's path after "<choice>." if it belongs to choice, else NULL.
const char *td_section_variant_of(const struct td_section *s, const char *choice);
// Why a key that users of Lightning try is not taken; NULL: not one of those.
const char *td_knob_later(const char *section, const char *key);

// One name of an ENUM's `values`; next starts at k->values and returns NULL after the last.
struct td_knob_choice {
    struct td_str name;
    struct td_str alias;   // len 0: none
    struct td_str instead; // of a later one: what to do; len 0: nothing to say
    bool is_later;
};
const char *td_knob_next_choice(const char *at, struct td_knob_choice *out_choice);
// Bounds of a list's length, from `values`.
void td_knob_items(const struct td_knob *k, size_t *out_min, size_t *out_max);
// The ENTRY or ITEM section of the maps of a list, or of one map.
const char *td_knob_entry_section(const struct td_knob *k);
bool td_knob_is_bytes(const struct td_knob *k); // takes 4GiB, too
bool td_knob_max_exclusive(const struct td_knob *k);
// "an integer from 1 to 1024, or auto": what a row accepts, for errors and for the reference.
// NULL when the arena is full.
const char *td_knob_expects(struct td_arena *a, const struct td_knob *k);
// The same for one item of a list.
const char *td_knob_expects_item(struct td_arena *a, const struct td_knob *k);

#endif
