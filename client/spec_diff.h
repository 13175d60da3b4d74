#ifndef TRAIND_CLIENT_SPEC_DIFF_H
#define TRAIND_CLIENT_SPEC_DIFF_H

// Spec diff: where two specs say something else, key by key. Maps are compared member by member,
// lists of maps item by item, everything else as one value.

#include "lib/base/json.h"

struct td_spec_difference {
    const char *key;                    // "trainer.devices", "optimizers[1].lr"
    const struct td_json *left, *right; // NULL: that spec does not have the key
    struct td_spec_difference *next;
};

// In the order of the left spec, then what only the right one has, section by section. Both trees
// are borrowed by the result, which is the arena's. *out_first is NULL when they are equal.
TD_MUST_USE td_status td_spec_diff(struct td_arena *arena, const struct td_json *left,
                                   const struct td_json *right,
                                   struct td_spec_difference **out_first);

#endif
