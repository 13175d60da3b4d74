// See the header. Room for "... and 4294967295 more" is kept free after the items of a list.

#include "lib/base/clip.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/utf8.h"

enum { REST_BYTES = 32 };

bool td_clip_v(char *out, size_t bytes, const char *fmt, va_list ap) {
    int n = vsnprintf(out, bytes, fmt, ap);
    if (n >= 0 && (size_t)n < bytes) return true;
    size_t room = bytes > 4 ? bytes - 4 : 0, len = 0;
    for (size_t k; (k = td_utf8_sequence(out + len, strlen(out + len))) > 0 && len + k <= room;) {
        len += k;
    }
    if (len < room && room - len > 3) len = room; // bytes that are no UTF-8: nothing to keep whole
    snprintf(out + len, bytes - len, "...");
    return false;
}

bool td_clip(char *out, size_t bytes, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool whole = td_clip_v(out, bytes, fmt, ap);
    va_end(ap);
    return whole;
}

void td_clip_list_init(struct td_clip_list *l, char *text, size_t bytes, const char *separator) {
    TD_CHECK(bytes >= 2 * REST_BYTES);
    *l = (struct td_clip_list){.text = text, .bytes = bytes, .separator = separator};
    *text = '\0';
}

void td_clip_list_add(struct td_clip_list *l, const char *fmt, ...) {
    size_t room = l->bytes - REST_BYTES, gap = l->len ? strlen(l->separator) : 0;
    bool first = l->len == 0 && l->n_left == 0, fits = false;
    if (l->n_left == 0 && l->len + gap < room) {
        va_list ap;
        va_start(ap, fmt);
        fits = td_clip_v(l->text + l->len + gap, room - l->len - gap, fmt, ap);
        va_end(ap);
        if (fits || first) memcpy(l->text + l->len, l->separator, gap);
    }
    if (fits || first) {
        l->len += gap + strlen(l->text + l->len + gap);
        return;
    }
    snprintf(l->text + l->len, l->bytes - l->len, " and %u more", ++l->n_left);
}
