#ifndef TRAIND_LIB_SPEC_PLUGIN_KNOBS_H
#define TRAIND_LIB_SPEC_PLUGIN_KNOBS_H

// Knobs of a plugin: a map of a spec against the table that a plugin declares (traind/knobs.h),
// with the same checks and words as rows of knobs.def. The result is canonical: every knob, in the
// order of the table, with its resolved value; to check it again changes nothing.
//
// The table is one that td_plugin_check (lib/plugin/registry.h) took. Everything lives in the
// arena. Pure functions, any thread.

#include "lib/base/json.h"
#include "traind/knobs.h"

struct td_check;

// `path` is where the map is in the spec, "model.knobs". given: NULL, or null: no knob is given.
// paths_from: of the spec, where relative paths begin; NULL: none is taken.
// Errors: all at once, INVALID_ARGUMENT (SPEC_INVALID, class bad_spec), as of td_spec_parse.
TD_MUST_USE td_status td_spec_plugin_knobs(struct td_arena *a, const char *path,
                                           const struct td_plugin_knob *knobs, size_t n_knobs,
                                           const struct td_json *given,
                                           const struct td_json *paths_from,
                                           struct td_json **out_knobs);

// The same within a run of checks (lib/spec/check.h). Notes what is wrong, and returns the map as
// far as it is right; NULL: `given` is no map, or memory is out.
struct td_json *td_check_plugin_knobs(struct td_check *c, const char *path,
                                      const struct td_plugin_knob *knobs, size_t n_knobs,
                                      const struct td_json *given);

#endif
