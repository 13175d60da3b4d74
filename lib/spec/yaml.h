#ifndef TRAIND_LIB_SPEC_YAML_H
#define TRAIND_LIB_SPEC_YAML_H

// YAML -> tree, through libyaml (its only home of reading is yaml.c).

#include "lib/spec/check.h"

// Reads one document. Everything wrong becomes violations of c; NULL when there is no tree to go on
// with. With override_idx >= 0 the text is the value of that override: lines are -(idx + 1), and an
// empty text is null instead of an error. io_nodes counts values over several calls.
struct td_json *td_yaml_read(struct td_check *c, const char *text, size_t len, int override_idx,
                             size_t *io_nodes);

#endif
