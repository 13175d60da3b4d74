#ifndef TRAIND_LIB_BASE_BUF_H
#define TRAIND_LIB_BASE_BUF_H

// Byte buffer that states its maximum when it is made; appending past it is RESOURCE_EXHAUSTED
// and leaves the contents as they were. One owner, one thread. The contents are always followed by
// a NUL that is not counted, so text can be read as a C string.

#include "lib/base/base.h"

struct td_buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max_bytes;
};

// init makes an empty buffer without allocating; finish frees and may be repeated.
void td_buf_init(struct td_buf *b, size_t max_bytes);
void td_buf_finish(struct td_buf *b);
void td_buf_clear(struct td_buf *b); // keeps the memory
TD_MUST_USE td_status td_buf_reserve(struct td_buf *b, size_t more_bytes);
TD_MUST_USE td_status td_buf_append(struct td_buf *b, const void *data, size_t bytes);
TD_MUST_USE td_status td_buf_str(struct td_buf *b, const char *text);
TD_MUST_USE td_status td_buf_printf(struct td_buf *b, const char *fmt, ...) TD_PRINTF(2, 3);
TD_MUST_USE td_status td_buf_u32le(struct td_buf *b, uint32_t v);
TD_MUST_USE td_status td_buf_u64le(struct td_buf *b, uint64_t v);
// Removes the first n bytes.
void td_buf_consume(struct td_buf *b, size_t n);
// "" if empty; dies with the next change.
const char *td_buf_cstr(struct td_buf *b);
// The caller's to free; the buffer is empty afterwards.
char *td_buf_take_cstr(struct td_buf *b);

static inline void td_buf_auto(struct td_buf *b) {
    td_buf_finish(b);
}
#define TD_AUTO_BUF __attribute__((cleanup(td_buf_auto))) struct td_buf

// Levenshtein distance cut at max+1: for "did you mean". Texts over 63 bytes count as far away.
int td_edit_distance(const char *a, const char *b, int max);

// The same but for case, '-', '_' and blanks?
bool td_alike(const char *a, size_t a_len, const char *b, size_t b_len);

// Collects candidates and keeps the nearest that is near enough to be what was meant. One that is
// alike is the nearest of all.
struct td_nearest {
    const char *wanted;
    const char *best; // NULL: nothing near
    int distance;
};
void td_nearest_init(struct td_nearest *n, const char *wanted);
void td_nearest_offer(struct td_nearest *n, const char *candidate);

#endif
