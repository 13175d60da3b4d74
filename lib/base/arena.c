// Region allocator: a list of zeroed blocks, each twice as large as the one before.
//
// The maximum counts the blocks' usable bytes, so the memory of an arena can never pass it by
// more than the block headers. Only the newest block is allocated from; what is left in older ones
// is given up, at most half of the arena. Rejected: freeing single objects, which would make it a
// heap. One thread. Failure is NULL and leaves the arena usable.

#include "lib/base/arena.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_BLOCK = 4096, LARGEST_GROWTH = 1 << 20, ALIGNMENT = 16 };

struct block {
    struct block *older;
    size_t cap;
    size_t used;
    _Alignas(ALIGNMENT) char data[];
};

struct td_arena {
    struct block *newest;
    size_t max_bytes;
    size_t cap; // of all blocks
    size_t used;
};

static bool add_block(struct td_arena *a, size_t needed) {
    size_t left = a->max_bytes - a->cap;
    if (needed > left) return false;
    size_t wanted = a->newest ? TD_MIN(a->newest->cap * 2, (size_t)LARGEST_GROWTH) : FIRST_BLOCK;
    size_t cap = TD_MIN(TD_MAX(wanted, needed), left);
    struct block *b = cap <= SIZE_MAX - sizeof *b ? td_calloc(1, sizeof *b + cap) : NULL;
    if (!b) return false;
    b->cap = cap;
    b->older = a->newest;
    a->newest = b;
    a->cap += cap;
    return true;
}

td_status td_arena_create(size_t max_bytes, struct td_arena **out_arena) {
    struct td_arena *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->max_bytes = max_bytes;
    *out_arena = a;
    return TD_OK;
}

void td_arena_destroy(struct td_arena *a) {
    if (!a) return;
    for (struct block *b = a->newest; b;) {
        struct block *older = b->older;
        free(b);
        b = older;
    }
    free(a);
}

void *td_arena_alloc(struct td_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    size_t size = td_align_up(TD_MAX(bytes, 1), ALIGNMENT);
    if (!a->newest || size > a->newest->cap - a->newest->used) {
        if (!add_block(a, size)) return NULL;
    }
    void *p = a->newest->data + a->newest->used;
    a->newest->used += size;
    a->used += size;
    return p;
}

void *td_arena_array(struct td_arena *a, size_t n, size_t bytes) {
    size_t total;
    return td_size_mul(n, bytes, &total) ? td_arena_alloc(a, total) : NULL;
}

char *td_arena_strndup(struct td_arena *a, const char *s, size_t len) {
    char *copy = len < SIZE_MAX ? td_arena_alloc(a, len + 1) : NULL;
    if (copy && len > 0) memcpy(copy, s, len);
    return copy;
}

char *td_arena_strdup(struct td_arena *a, const char *s) {
    return td_arena_strndup(a, s, strlen(s));
}

char *td_arena_printf(struct td_arena *a, const char *fmt, ...) {
    char small[128]; // most texts; a longer one is printed again
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof small) return td_arena_strndup(a, small, (size_t)n);
    char *text = n < 0 ? NULL : td_arena_alloc(a, (size_t)n + 1);
    if (!text) return NULL;
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

void td_arena_reset(struct td_arena *a) {
    a->used = 0;
    if (!a->newest) return;
    while (a->newest->older) {
        struct block *older = a->newest->older;
        free(a->newest);
        a->newest = older;
    }
    memset(a->newest->data, 0, a->newest->used);
    a->newest->used = 0;
    a->cap = a->newest->cap;
}
