#ifndef TRAIND_LIB_BASE_ARENA_H
#define TRAIND_LIB_BASE_ARENA_H

// Region allocator: many small things that die together (a parsed spec, a graph, a request).
// Blocks grow geometrically up to max_bytes in all; past it allocation answers NULL. Memory is
// zeroed and 16-byte aligned. One thread. A NULL answer is turned into td_fail_oom by the caller.

#include "lib/base/base.h"

struct td_arena;
TD_MUST_USE td_status td_arena_create(size_t max_bytes, struct td_arena **out_arena);
void td_arena_destroy(struct td_arena *a);
TD_DEFINE_AUTO(td_arena, td_arena_destroy);
void *td_arena_alloc(struct td_arena *a, size_t bytes);
void *td_arena_array(struct td_arena *a, size_t n, size_t bytes); // overflow: NULL
char *td_arena_strndup(struct td_arena *a, const char *s, size_t len);
char *td_arena_strdup(struct td_arena *a, const char *s);
char *td_arena_printf(struct td_arena *a, const char *fmt, ...) TD_PRINTF(2, 3);
// Frees everything allocated, keeps the first block.
void td_arena_reset(struct td_arena *a);

#endif
