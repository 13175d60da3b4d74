#ifndef TRAIND_LIB_SPEC_LANGUAGE_H
#define TRAIND_LIB_SPEC_LANGUAGE_H

// Language: what plans are written in, as one digest. Who writes a plan has another build than who
// reads it, where they are on different machines. A reader refuses a key, a type or a value that it
// does not know, so a node that reads another language than its coordinator writes would fail each
// job. It says which one at registration, and is refused there, with both versions.
//
// The digest is over the rows of knobs.def: sections, keys, types, kinds of job, ranges and values.
// Defaults, units and prose are left out: a canonical spec has each key with its value. Rejected: a
// number that people raise with each row. It would be forgotten.
// Pure, any thread.

#include "lib/base/digest.h"

struct td_knob;
struct td_section;

void td_spec_language(char out_hex[TD_DIGEST_HEX]);
// The same of other rows.
void td_spec_language_of(const struct td_section *sections, size_t n_sections,
                         const struct td_knob *knobs, size_t n_knobs, char out_hex[TD_DIGEST_HEX]);

#endif
