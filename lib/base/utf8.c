// See the header.

#include "lib/base/utf8.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/base.h"

size_t td_utf8_sequence(const void *data, size_t bytes) {
    const uint8_t *p = data;
    if (bytes == 0) return 0;
    if (p[0] < 0x80) return 1;
    uint8_t low = 0x80, high = 0xbf; // of the second byte
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] < 0xc2 || p[0] > 0xf4 || bytes < len) return 0;
    if (p[0] == 0xe0) low = 0xa0;  // overlong
    if (p[0] == 0xed) high = 0x9f; // surrogates
    if (p[0] == 0xf0) low = 0x90;  // overlong
    if (p[0] == 0xf4) high = 0x8f; // past U+10FFFF
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < len; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) return 0;
    }
    return len;
}

size_t td_utf8_prefix(const char *text, size_t bytes, int n, int *out_n) {
    size_t at = 0;
    *out_n = 0;
    while (at < bytes && *out_n < n) {
        at += TD_MAX(td_utf8_sequence(text + at, bytes - at), (size_t)1);
        ++*out_n;
    }
    return at;
}

bool td_utf8_valid(const void *data, size_t bytes) {
    const char *p = data;
    while (bytes > 0) {
        size_t n = td_utf8_sequence(p, bytes);
        if (n == 0) return false;
        p += n;
        bytes -= n;
    }
    return true;
}

void td_utf8_scrub(char *text) {
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = td_utf8_sequence(text, left);
        if (n > 0) continue;
        *text = '?';
        n = 1;
    }
}
