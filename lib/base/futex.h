#ifndef TRAIND_LIB_BASE_FUTEX_H
#define TRAIND_LIB_BASE_FUTEX_H

// Waiting for a word in memory that processes share. A wait may end early for no reason, so its
// caller reads the word again; it is bounded by ns, so a waker that dies is never waited for
// forever. Source: futex(2). Any thread.

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/base.h"
#include "lib/base/clock.h"

// Sleeps while *word is `seen`, ns at most.
static inline void td_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns) {
    struct timespec ts = {.tv_sec = ns / TD_NS_PER_S, .tv_nsec = ns % TD_NS_PER_S};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

static inline void td_futex_wake_all(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
