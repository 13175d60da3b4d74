#ifndef TRAIND_LIB_SPEC_REFUSED_H
#define TRAIND_LIB_SPEC_REFUSED_H

// The table of refused combinations (refused.def) in C, and its check. Constant data and pure
// functions; private to lib/spec and its tests.

#include "lib/spec/check.h"

struct td_refused {
    const char *key, *is;
    const char *beside, *beside_is; // NULL: it is refused beside anything
    const char *why;
    bool by_plan; // the texts are words; no spec is checked against it
};

extern const struct td_refused td_refused_rows[];
extern const size_t td_n_refused_rows;

// Does a value fit a row's `is`? v NULL: the key was refused before, and fits nothing.
bool td_refused_fits(const struct td_json *v, const char *is);
// Notes a violation for each row that a canonical tree fits. Before defaults that depend on other
// knobs are resolved: what nobody wrote refuses nothing.
void td_check_refused(struct td_check *c, const struct td_json *canonical);
// The table as Markdown, for the reference.
TD_MUST_USE td_status td_refused_print(struct td_buf *out);

#endif
