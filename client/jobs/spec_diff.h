#ifndef TRAIND_CLIENT_JOBS_SPEC_DIFF_H
#define TRAIND_CLIENT_JOBS_SPEC_DIFF_H

// Spec diff: where specs do not all say the same, key by key. Maps are compared member by member,
// lists of maps item by item, everything else as one value.

#include "lib/base/json.h"

struct td_spec_difference {
    const char *key;              // "trainer.devices", "optimizers[1].lr"
    const struct td_json **value; // of each spec; NULL: it does not have the key
    struct td_spec_difference *next;
};

// In the order of the first spec, then what only later ones have, section by section. The trees (n,
// at least 2) are borrowed by the result, which is the arena's. *out_first is NULL when all are
// equal.
TD_MUST_USE td_status td_spec_diff(struct td_arena *arena, const struct td_json *const *spec,
                                   size_t n, struct td_spec_difference **out_first);

#endif
