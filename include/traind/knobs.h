#ifndef TRAIND_KNOBS_H
#define TRAIND_KNOBS_H

// Knobs: what a person may set of a plugin, as the plugin declares it and as it reads it.
//
// A plugin puts a table of struct td_plugin_knob into its descriptor (TD_PLUGIN_WITH_KNOBS of
// plugin.h). Before open() is called the values of the job spec are checked against the table.
// Unknown keys, types and ranges are errors that the person sees. A knob that was not given has its
// fallback. So open() finds every knob of its table, and has only to check what no single
// row can say.
//
// The values are an opaque tree; the functions below read one knob of it by name.
// Thread: any; nothing here changes the tree.
// Ownership: the tree, and each text read from it, is borrowed until open() returns: copy what is
// kept.
// Errors: FAILED_PRECONDITION (class user_code) names a knob that the table has not, or that is of
// another type: a mistake of the plugin. out is written only on success. So a reader has no
// defaults of its own; the functions with _or take what null stands for, and nothing else.

#include "traind/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_json; // the values of a plugin's knobs

enum td_plugin_knob_type {
    TD_PLUGIN_KNOB_BOOL,
    TD_PLUGIN_KNOB_INT,
    TD_PLUGIN_KNOB_REAL,
    TD_PLUGIN_KNOB_TEXT,  // without control characters
    TD_PLUGIN_KNOB_ENUM,  // one of a few names
    TD_PLUGIN_KNOB_INTS,  // list
    TD_PLUGIN_KNOB_REALS, // list
    TD_PLUGIN_KNOB_PATH,  // absolute for the plugin; a spec may have it relative
    TD_PLUGIN_KNOB_TYPE_COUNT,
};
// "int"; "unknown" for a number outside the enum.
const char *td_plugin_knob_type_name(enum td_plugin_knob_type type);

enum { TD_PLUGIN_KNOBS_MAX = 64 }; // of one plugin

// One row. A list's rules are those of each of its numbers.
struct td_plugin_knob {
    const char *name; // a letter, then letters, digits and '_'; at most 31 bytes
    enum td_plugin_knob_type type;
    // INT, INTS, REAL, REALS: the least and the greatest value. TEXT, PATH: the greatest length in
    // bytes is max. Both 0: any number; 4095 bytes.
    double min, max;
    const char *unit;     // "pixels"; NULL: none
    const char *fallback; // as written in a spec: "3", "[1, 2]", "relu"; "null": may be left out
                          // and is not set then (td_knob_is_set); NULL: must be given
    const char *values;   // ENUM: "relu|gelu". INTS, REALS: how many, "2..64"; NULL: up to 4096
    const char *prose;    // one line for the person who sets it
};

// False: the knob is null, or there is none of that name.
bool td_knob_is_set(const struct td_json *knobs, const char *name);

TD_MUST_USE td_status td_knob_bool(const struct td_json *knobs, const char *name, bool *out_value);
TD_MUST_USE td_status td_knob_bool_or(const struct td_json *knobs, const char *name, bool if_null,
                                      bool *out_value);
TD_MUST_USE td_status td_knob_int(const struct td_json *knobs, const char *name,
                                  int64_t *out_value);
TD_MUST_USE td_status td_knob_int_or(const struct td_json *knobs, const char *name, int64_t if_null,
                                     int64_t *out_value);
// An integer is taken, too.
TD_MUST_USE td_status td_knob_real(const struct td_json *knobs, const char *name,
                                   double *out_value);
TD_MUST_USE td_status td_knob_real_or(const struct td_json *knobs, const char *name, double if_null,
                                      double *out_value);
// TEXT, ENUM, PATH. Borrowed, NUL-terminated.
TD_MUST_USE td_status td_knob_text(const struct td_json *knobs, const char *name,
                                   const char **out_text);
TD_MUST_USE td_status td_knob_text_or(const struct td_json *knobs, const char *name,
                                      const char *if_null, const char **out_text);
// Lists: at most `most` numbers are written to out; a longer list is an error.
TD_MUST_USE td_status td_knob_ints(const struct td_json *knobs, const char *name, size_t most,
                                   int64_t *out, size_t *out_n);
TD_MUST_USE td_status td_knob_reals(const struct td_json *knobs, const char *name, size_t most,
                                    double *out, size_t *out_n);

#ifdef __cplusplus
}
#endif
#endif
