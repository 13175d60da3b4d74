#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_SPEC_TEXT_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_SPEC_TEXT_H

// The canonical spec of a job: as it is, or deflated. Pure; all zero is one that is not set.

#include "lib/base/base.h"

struct td_spec_text {
    char *text;   // NULL: deflated, or not set
    char *packed; // NULL: as it is, or not set
    size_t bytes; // of the text, without its NUL
    size_t packed_bytes;
};

void td_spec_text_finish(struct td_spec_text *t);
bool td_spec_text_is_set(const struct td_spec_text *t);
// Once.
TD_MUST_USE td_status td_spec_text_set(struct td_spec_text *t, const char *text);
// From now on `text` is NULL, unless the text is small, does not get smaller, or memory is short.
void td_spec_text_pack(struct td_spec_text *t);
// The whole text, whatever it is kept as: borrow_text is of t, or it is *out_inflated, which was
// NULL and is the caller's to free.
TD_MUST_USE td_status td_spec_text_read(const struct td_spec_text *t, char **out_inflated,
                                        const char **borrow_text);
size_t td_spec_text_kept(const struct td_spec_text *t); // bytes that it takes

#endif
