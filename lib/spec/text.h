#ifndef TRAIND_LIB_SPEC_TEXT_H
#define TRAIND_LIB_SPEC_TEXT_H

// Text -> tree, whichever language it is in. A document that begins as JSON does, `{"` or `{}` with
// any blanks, is JSON, and read as such. The value of an override is JSON if it is valid JSON from
// `{`, `[` or `"` on. All else is YAML. A byte order mark is skipped.
//
// Rejected: to try JSON first and YAML where it fails. A comma too many would turn JSON's texts
// into those of YAML, or the message about it into one about YAML.

#include "lib/spec/check.h"

// Reads one document; see td_yaml_read.
struct td_json *td_text_read(struct td_check *c, const char *text, size_t len, int override_idx,
                             size_t *io_nodes);

#endif
