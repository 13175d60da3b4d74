// Failing checks and failing allocations.
//
// td_check_failed is where a process of ours dies of its own bug. It writes one line on descriptor
// 2, by write(2) because the heap and stdio may be what is broken. Then it aborts (a worker's fatal
// handler and the launcher keep the rest).
//
// The allocators are libc's with a counter in front: TD_FAIL_ALLOC=n in the environment, or
// td_alloc_fail_at(n) in a test, makes the n-th call from then on answer NULL once. It is always
// compiled in, so that what is tested is what is shipped; the cost is one relaxed load per call.
// Threads: any. Rejected: interposing malloc, which would fail the test framework's own calls.

#include "lib/base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { FAIL_UNREAD = -1, FAIL_OFF = 0 };

// How many calls until one fails; FAIL_OFF: none; FAIL_UNREAD: the environment was not asked yet.
static _Atomic int64_t fail_in = FAIL_UNREAD;

void td_check_failed(const char *expr, const char *file, int line) {
    char text[512];
    int n = snprintf(text, sizeof text, "traind: check failed: %s at %s:%d (a bug of traind)\n",
                     expr, file, line);
    size_t len = n < 0 ? 0 : TD_MIN((size_t)n, sizeof text - 1);
    if (write(STDERR_FILENO, text, len) < 0) { /* nobody is left to say it to */
    }
    abort();
}

static int64_t read_environment(void) {
    const char *text = getenv("TD_FAIL_ALLOC"); // a test's switch, not a knob
    int64_t n = text ? strtoll(text, NULL, 10) : FAIL_OFF;
    if (n < 0) n = FAIL_OFF;
    int64_t expected = FAIL_UNREAD;
    atomic_compare_exchange_strong(&fail_in, &expected, n);
    return atomic_load(&fail_in);
}

void td_alloc_fail_at(int64_t n) {
    TD_CHECK(n >= 0);
    atomic_store(&fail_in, n);
}

static bool must_fail(void) {
    int64_t n = atomic_load_explicit(&fail_in, memory_order_relaxed);
    if (n == FAIL_UNREAD) n = read_environment();
    while (n > FAIL_OFF) {
        if (atomic_compare_exchange_weak(&fail_in, &n, n - 1)) return n == 1;
    }
    return false;
}

void *td_calloc(size_t n, size_t bytes) {
    size_t total; // checked here: the sanitizers' calloc aborts on overflow instead of answering
    return must_fail() || !td_size_mul(n, bytes, &total) ? NULL : calloc(1, total);
}

void *td_realloc(void *p, size_t bytes) {
    return must_fail() ? NULL : realloc(p, bytes);
}

char *td_strdup(const char *s) {
    return must_fail() ? NULL : strdup(s);
}
