// gRPC's waits, by the monotonic clock. abseil, on which gRPC 1.51 waits, gives the kernel an
// absolute time of CLOCK_REALTIME. Set back by an hour, that clock makes each wait under way an
// hour longer, and with it the next try to connect. The linker gives the system calls of all that
// is linked in to this function (--wrap in the Makefile). It turns such a wait into one by
// CLOCK_MONOTONIC. A build whose gRPC is a shared library has none of it.
//
// Any thread; errno is the kernel's. Rejected: a timer that notices when the clock was set, since
// gRPC has no call that makes it look at its timers again.

#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static int64_t ns_of(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static int64_t now_ns(clockid_t id) {
    struct timespec t = {0};
    (void)clock_gettime(id, &t);
    return ns_of(&t);
}

static int64_t plus(int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return INT64_MAX;
    return sum < 0 ? 0 : sum;
}

long __wrap_syscall(long number, ...) {
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    const struct timespec *until = (const struct timespec *)a[3]; // NULL: for ever
    const int is_wait = number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
                        (a[1] & FUTEX_CLOCK_REALTIME) && until;
    if (!is_wait) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const int64_t left_ns = ns_of(until) - now_ns(CLOCK_REALTIME);
    const int64_t at_ns = plus(now_ns(CLOCK_MONOTONIC), left_ns);
    const struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    return __real_syscall(number, a[0], a[1] & ~(long)FUTEX_CLOCK_REALTIME, a[2], &at, a[4], a[5]);
}
