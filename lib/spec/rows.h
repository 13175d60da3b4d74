#ifndef TRAIND_LIB_SPEC_ROWS_H
#define TRAIND_LIB_SPEC_ROWS_H

// The spec's tables as a plugin's table of knobs looks to a client (Plugin of plugin.proto). They
// are what a person may set of a model or of data that is a part of traind. Types that plugins do
// not have are words too: "paths", "choice" (a map with one of the names, or the bare name),
// "layers". Constant data and a pure function; any thread.

#include <stdbool.h>
#include <stddef.h>

struct td_spec_row {
    const char *name, *type;
    double min, max;                              // both 0: no bound
    const char *unit, *fallback, *values, *prose; // NULL: none; no fallback: required
    char choices[128];                            // values may point here: do not copy the struct
};

// Row i of "model" "mlp"; false: there are not so many.
bool td_spec_row_at(const char *choice, const char *name, size_t i, struct td_spec_row *out_row);

#endif
