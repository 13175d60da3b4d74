// Byte buffers, and a small text helper that needs no buffer: edit distance.
//
// Memory grows by doubling, clipped to max_bytes plus the uncounted NUL. An append that does not
// fit changes nothing, so a caller may drop the message, cut it or push back. One owner, one
// thread.

#include "lib/base/buf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CAP = 64, EDIT_MAX = 63 };

void td_buf_init(struct td_buf *b, size_t max_bytes) {
    TD_CHECK(max_bytes < SIZE_MAX);
    *b = (struct td_buf){.max_bytes = max_bytes};
}

void td_buf_finish(struct td_buf *b) {
    if (!b) return;
    free(b->data);
    *b = (struct td_buf){.max_bytes = b->max_bytes};
}

void td_buf_clear(struct td_buf *b) {
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

td_status td_buf_reserve(struct td_buf *b, size_t more_bytes) {
    if (more_bytes > b->max_bytes - b->len) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "buffer holds at most %zu bytes: %zu are in it, %zu more do not fit",
                       b->max_bytes, b->len, more_bytes);
    }
    size_t needed = b->len + more_bytes + 1;
    if (needed <= b->cap) return TD_OK;
    size_t doubled = b->cap > b->max_bytes / 2 ? b->max_bytes + 1 : b->cap * 2;
    size_t cap = TD_MIN(TD_MAX(TD_MAX(needed, doubled), (size_t)FIRST_CAP), b->max_bytes + 1);
    char *data = td_realloc(b->data, cap);
    if (!data) return td_fail_oom();
    data[b->len] = '\0';
    b->data = data;
    b->cap = cap;
    return TD_OK;
}

td_status td_buf_append(struct td_buf *b, const void *data, size_t bytes) {
    TD_TRY(td_buf_reserve(b, bytes));
    if (bytes > 0) memcpy(b->data + b->len, data, bytes);
    b->len += bytes;
    b->data[b->len] = '\0';
    return TD_OK;
}

td_status td_buf_str(struct td_buf *b, const char *text) {
    return td_buf_append(b, text, strlen(text));
}

td_status td_buf_printf(struct td_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    size_t room = b->data ? b->cap - b->len : 0; // its NUL included
    int n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, ap);
    va_end(ap);
    TD_CHECK(n >= 0);
    if ((size_t)n >= room) { // only now its size is known
        if (room) b->data[b->len] = '\0';
        TD_TRY(td_buf_reserve(b, (size_t)n));
        va_start(ap, fmt);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    b->len += (size_t)n;
    return TD_OK;
}

td_status td_buf_u32le(struct td_buf *b, uint32_t v) {
    uint8_t bytes[4];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    return td_buf_append(b, bytes, sizeof bytes);
}

td_status td_buf_u64le(struct td_buf *b, uint64_t v) {
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    return td_buf_append(b, bytes, sizeof bytes);
}

void td_buf_consume(struct td_buf *b, size_t n) {
    TD_CHECK(n <= b->len);
    if (n == 0) return;
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1);
}

const char *td_buf_cstr(struct td_buf *b) {
    return b->data ? b->data : "";
}

char *td_buf_take_cstr(struct td_buf *b) {
    char *text = b->data ? b->data : td_strdup("");
    *b = (struct td_buf){.max_bytes = b->max_bytes};
    return text;
}

int td_edit_distance(const char *a, const char *b, int max) {
    size_t n_a = strnlen(a, EDIT_MAX + 1), n_b = strnlen(b, EDIT_MAX + 1);
    if (n_a > EDIT_MAX || n_b > EDIT_MAX) return max + 1;
    int row[EDIT_MAX + 1]; // distances from a's prefix to each prefix of b
    for (size_t j = 0; j <= n_b; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = TD_MIN(change, TD_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return TD_MIN(row[n_b], max + 1);
}

bool td_alike(const char *a, size_t a_len, const char *b, size_t b_len) {
    for (size_t i = 0, j = 0;; i++, j++) {
        while (i < a_len && strchr("-_ ", a[i])) {
            i++;
        }
        while (j < b_len && strchr("-_ ", b[j])) {
            j++;
        }
        if (i >= a_len || j >= b_len) return i >= a_len && j >= b_len;
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j])) return false;
    }
}

enum { NEAREST_LONGEST = 64, NEAREST_MAX = 3 };

void td_nearest_init(struct td_nearest *n, const char *wanted) {
    size_t len = strlen(wanted);
    int near_enough = len > NEAREST_LONGEST ? 0 : TD_MIN(1 + (int)len / 3, NEAREST_MAX);
    *n = (struct td_nearest){.wanted = wanted, .distance = near_enough + 1};
}

void td_nearest_offer(struct td_nearest *n, const char *candidate) {
    const bool is_alike = td_alike(n->wanted, strlen(n->wanted), candidate, strlen(candidate));
    int distance = is_alike ? 0 : td_edit_distance(n->wanted, candidate, NEAREST_MAX);
    if (distance >= n->distance) return;
    n->best = candidate;
    n->distance = distance;
}
