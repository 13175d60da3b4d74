#ifndef TRAIND_LIB_BASE_CLIP_H
#define TRAIND_LIB_BASE_CLIP_H

// Clip: text for people in a buffer of a fixed size. What does not fit is never left out unsaid: a
// text that is cut ends in "...", a list says how many more there are. Both stay whole characters.
//
// Not for keys, names and paths: a part of one is another one, so a caller without room for it
// fails.

#include <stdarg.h>

#include "lib/base/base.h"

// As snprintf. False: it was cut.
bool td_clip(char *out, size_t bytes, const char *fmt, ...) TD_PRINTF(3, 4);
bool td_clip_v(char *out, size_t bytes, const char *fmt, va_list ap);

// "a, b and 3 more". The text is whole after each call; once an item found no room, the later ones
// are only counted.
struct td_clip_list {
    char *text;
    size_t bytes; // of text; 64 or more
    const char *separator;
    size_t len; // of the items in text
    uint32_t n_left;
};
// text is the caller's, and outlives the list.
void td_clip_list_init(struct td_clip_list *l, char *text, size_t bytes, const char *separator);
void td_clip_list_add(struct td_clip_list *l, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
