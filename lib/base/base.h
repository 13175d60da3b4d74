#ifndef TRAIND_LIB_BASE_BASE_H
#define TRAIND_LIB_BASE_BASE_H

// lib/base: what every binary of traind is built on. Bounded memory, status, log, clocks, files,
// processes, frames, JSON, digests. It knows no message, no socket loop and no device.
// This header holds the language helpers of CONVENTIONS.md: ownership, checks, magic, sizes. The
// rest, in reading order:
//   utf8.h          which bytes are text
//   status.c        td_status of traind/status.h: the record of an error
//   types.c         element types and shapes of traind/types.h
//   log.h           log lines on stderr
//   clock.h         the two clocks
//   machine/        what differs from machine to machine; processes, ports, interfaces
//   cpu_level.h     which instructions this process uses
//   arena.h         many small things that are freed together
//   buf.h           a byte buffer with a maximum
//   clip.h          text for people in a buffer of a fixed size
//   printable.h     text of strangers on its way to a terminal
//   map.h           strings to pointers, in order of insertion
//   json.h          one tree for structured text
//   files/          files that appear whole and durable, or not at all; what a person named
//   wire.h          fields of protobuf messages, where protobuf-c is not there or knows too little
//   digest.h        XXH3 digests
//   futex.h         waits for a word in shared memory
//   ring.h          one producer, one consumer, perhaps of two processes
//   frame.h         length-prefixed frames over a byte stream
//   rng.h           random numbers, the same bits everywhere; rng_loops.h: its loops
//   floats/         tensors of all float types, converted and summed

#include <stdlib.h>
#include <unistd.h>

#include "traind/status.h"
#include "traind/types.h"

// ---- ownership -------------------------------------------------------------------------------
// TD_DEFINE_AUTO(td_x, td_x_destroy) once beside struct td_x; then TD_AUTO(td_x) *x = ...;
#define TD_DEFINE_AUTO(type, destroy_fn)                                                           \
    static inline void type##_auto(struct type **p) {                                              \
        destroy_fn(*p);                                                                            \
    }                                                                                              \
    struct td_semicolon_
#define TD_AUTO(type) __attribute__((cleanup(type##_auto))) struct type

static inline void td_auto_free(void *p) {
    free(*(void **)p);
}
static inline void td_auto_close(int *fd) {
    if (*fd >= 0) close(*fd);
}
static inline void td_auto_status(td_status *s) {
    td_status_free(*s);
}
#define TD_AUTO_FREE   __attribute__((cleanup(td_auto_free)))
#define TD_AUTO_CLOSE  __attribute__((cleanup(td_auto_close)))
#define TD_AUTO_STATUS __attribute__((cleanup(td_auto_status)))

// Takes a pointer (or descriptor) out of a scope's hands.
#define td_steal(p)                                                                                \
    __extension__({                                                                                \
        __typeof__(p) td_steal_ = (p);                                                             \
        (p) = NULL;                                                                                \
        td_steal_;                                                                                 \
    })
static inline int td_steal_fd(int *fd) {
    int v = *fd;
    *fd = -1;
    return v;
}

// ---- checks ----------------------------------------------------------------------------------
// TD_CHECK: our own code is wrong. Always on; prints one line and aborts. Never for input.
_Noreturn void td_check_failed(const char *expr, const char *file, int line);
#define TD_CHECK(x)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(x), 0)) td_check_failed(#x, __FILE__, __LINE__);                    \
    } while (0)
#ifdef TD_DEBUG
#define TD_DCHECK(x) TD_CHECK(x)
#else
#define TD_DCHECK(x) ((void)0)
#endif

// A pointer that crossed a void *: non-NULL, and its member `magic` is <type>_magic.
#define TD_CAST(type, p)                                                                           \
    __extension__({                                                                                \
        struct type *td_cast_ = (p);                                                               \
        TD_CHECK(td_cast_ && td_cast_->magic == type##_magic);                                     \
        td_cast_;                                                                                  \
    })

// For an interface of others that takes a plain pointer and only reads through it (a message of
// protobuf-c, argv, a handle of oneDNN). This is the one place where const is cast away.
static inline void *td_unconst(const void *p) {
    return (void *)(uintptr_t)p;
}

// ---- sizes -----------------------------------------------------------------------------------
#define TD_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))
#define TD_MIN(a, b)  ((a) < (b) ? (a) : (b))
#define TD_MAX(a, b)  ((a) > (b) ? (a) : (b))

// false on overflow; out is written only on success.
static inline bool td_size_mul(size_t a, size_t b, size_t *out_bytes) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out_bytes = r;
    return true;
}
static inline size_t td_align_up(size_t n, size_t align) {
    return (n + align - 1) & ~(align - 1);
}

// ---- allocation ------------------------------------------------------------------------------
// calloc and friends that honour TD_FAIL_ALLOC=n (the n-th call of this process fails): every
// constructor of traind is tested by failing each of its allocations in turn. NULL when out.
void *td_calloc(size_t n, size_t bytes);
void *td_realloc(void *p, size_t bytes);
char *td_strdup(const char *s);
// For tests: the n-th call from now on fails, once; 0 switches it off (and TD_FAIL_ALLOC too).
void td_alloc_fail_at(int64_t n);

#endif
