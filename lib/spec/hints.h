#ifndef TRAIND_LIB_SPEC_HINTS_H
#define TRAIND_LIB_SPEC_HINTS_H

// Words of other systems, for "did you mean": the rows of hints.def. Constant data and pure
// functions.

#include "lib/spec/knobs.h"

struct td_hint {
    const char *where; // of a name: its choice, or the key of its knob; NULL: it is of a key
    const char *meant; // the name, or the path of the key
    const char *typed; // "a|b"
};
extern const struct td_hint td_hints[];
extern const size_t td_n_hints;

// Both look for what `text` is called here; NULL: no row has it. Of a key the rows are looked at
// from *io_at on, which is 0 at first: what is meant may not be a key of this kind of job.
const char *td_hint_key(const char *text, size_t *io_at);
const char *td_hint_name(const char *where, const char *text);
// The part after the last '.', if that begins with a letter: AdamW of torch.optim.AdamW.
const char *td_hint_bare(const char *text);

#endif
