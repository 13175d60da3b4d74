#ifndef TRAIND_WORKLOADS_MODULES_ROPE_SCALING_H
#define TRAIND_WORKLOADS_MODULES_ROPE_SCALING_H

// The map rope_scaling of a model, as transformers has it: read from a knob or a config.json,
// printed, compared. Kinds: default, linear, dynamic and llama3. `dynamic` changes angles for rows
// longer than max_position_embeddings alone, and no row is longer here; so it computes what default
// does, and is kept for whoever reads config.json. Pure functions.

#include "lib/base/json.h"
#include "traind/graph.h"

enum td_rope_kind { TD_ROPE_DEFAULT, TD_ROPE_LINEAR, TD_ROPE_DYNAMIC, TD_ROPE_LLAMA3 };

struct td_rope_settings {
    enum td_rope_kind kind;
    double factor;
    struct td_rope_scaling scaling; // as op rope takes it
};

// map: NULL or null is default. where: the map's name in messages. INVALID_ARGUMENT, class
// bad_spec: a kind that is not known, a key that is missing, or a number out of range.
TD_MUST_USE td_status td_rope_read(const struct td_json *map, const char *where,
                                   struct td_rope_settings *out);
bool td_rope_equal(const struct td_rope_settings *a, const struct td_rope_settings *b);
enum { TD_ROPE_TEXT = 256 };
// "null", or the map as JSON.
void td_rope_print(const struct td_rope_settings *s, char out[TD_ROPE_TEXT]);

#endif
