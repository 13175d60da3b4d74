// UTF-8 by its definition (RFC 3629): no overlong forms, no surrogates, nothing past U+10FFFF. The
// second byte's range depends on the first; the others are 80 to BF.

#include "lib/base/printable.h"

#include <string.h>

// Of a character that begins with this byte; 0: none does. *out_low, *out_high: its second byte.
static size_t length_of(unsigned char c, unsigned char *out_low, unsigned char *out_high) {
    *out_low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : c == 0xc2 ? 0xa0 : 0x80; // C2 80-9F is C1
    *out_high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

// How many bytes from the start fit a character of n.
static size_t fitting(const unsigned char *p, size_t bytes, size_t n, unsigned char low,
                      unsigned char high) {
    size_t i = 1;
    for (; i < n && i < bytes; i++) {
        if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xbf)) break;
    }
    return i;
}

size_t td_printable_bytes(const char *text, size_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low, high;
    if (bytes == 0 || p[0] < 0x20 || p[0] == 0x7f) return 0;
    size_t n = length_of(p[0], &low, &high);
    return n && fitting(p, bytes, n, low, high) == n ? n : 0;
}

bool td_printable_is_begun(const char *text, size_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low, high;
    if (bytes == 0) return false;
    size_t n = length_of(p[0], &low, &high);
    return bytes < n && fitting(p, bytes, n, low, high) == bytes;
}

td_status td_printable_add(struct td_buf *out, const char *text, size_t bytes, const char *kept) {
    for (size_t at = 0; at < bytes;) {
        size_t n = td_printable_bytes(text + at, bytes - at);
        if (n == 0 && text[at] && strchr(kept, text[at])) n = 1;
        if (n == 0) {
            TD_TRY(td_buf_printf(out, "\\x%02x", (unsigned)(unsigned char)text[at]));
        } else {
            TD_TRY(td_buf_append(out, text + at, n));
        }
        at += TD_MAX(n, (size_t)1);
    }
    return TD_OK;
}
