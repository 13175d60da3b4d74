#ifndef TRAIND_LIB_BASE_CLOCK_H
#define TRAIND_LIB_BASE_CLOCK_H

// Clocks. td_mono counts with CLOCK_BOOTTIME (deadlines survive suspend), td_real is for display.
// Pure cores never call these: they are handed `now`. Tests may fake both clocks of a process.

#include <pthread.h>
#include <time.h>

#include "lib/base/base.h"

struct td_mono td_mono_now(void);
struct td_real td_real_now(void);
// What the calling thread has computed for, which is never faked.
int64_t td_thread_cpu_ns(void);
// Fakes: ns < 0 switches back to the real clock. For tests only.
void td_clock_fake(int64_t mono_ns, int64_t real_ns);

static inline struct td_mono td_mono_add(struct td_mono t, int64_t ns) {
    return (struct td_mono){t.ns + ns};
}
// For threads that wait: a condition, and the time at which pthread_cond_timedwait on it gives up,
// ms from now. It counts as CLOCK_MONOTONIC does, and is not faked.
void td_clock_cond_init(pthread_cond_t *out_cond);
struct timespec td_clock_cond_after(int64_t ms);
// Joins a thread that ends within ms, which are counted so, too. False: it runs on.
bool td_clock_join(pthread_t thread, int64_t ms);
// 2026-11-21T04:05:06.789Z; out must hold 32 bytes.
void td_real_format(struct td_real t, char *out, size_t out_bytes);

#endif
