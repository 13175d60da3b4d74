// Clocks: the only place that asks the kernel for the time.
//
// Deadlines use CLOCK_BOOTTIME. A laptop that sleeps for an hour has really lost that hour. All
// processes of a node agree on that clock, so monotonic times may cross process borders on one
// machine. Fakes are process-wide atomics, so any thread may read a clock while a test moves it.
// Failure is impossible by the interface: the clocks exist since Linux 2.6.39.

#include "lib/base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static _Atomic int64_t fake_mono_ns = -1;
static _Atomic int64_t fake_real_ns = -1;

static int64_t read_clock(clockid_t id) {
    struct timespec ts;
    TD_CHECK(clock_gettime(id, &ts) == 0);
    return (int64_t)ts.tv_sec * TD_NS_PER_S + ts.tv_nsec;
}

struct td_mono td_mono_now(void) {
    int64_t fake = atomic_load_explicit(&fake_mono_ns, memory_order_relaxed);
    return (struct td_mono){fake >= 0 ? fake : read_clock(CLOCK_BOOTTIME)};
}

struct td_real td_real_now(void) {
    int64_t fake = atomic_load_explicit(&fake_real_ns, memory_order_relaxed);
    return (struct td_real){fake >= 0 ? fake : read_clock(CLOCK_REALTIME)};
}

int64_t td_thread_cpu_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void td_clock_fake(int64_t mono_ns, int64_t real_ns) {
    atomic_store(&fake_mono_ns, mono_ns);
    atomic_store(&fake_real_ns, real_ns);
}

void td_clock_cond_init(pthread_cond_t *out_cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(out_cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec td_clock_cond_after(int64_t ms) {
    int64_t ns = read_clock(CLOCK_MONOTONIC) + ms * TD_NS_PER_MS;
    return (struct timespec){.tv_sec = ns / TD_NS_PER_S, .tv_nsec = ns % TD_NS_PER_S};
}

bool td_clock_join(pthread_t thread, int64_t ms) {
#ifdef __SANITIZE_THREAD__ // it does not know pthread_clockjoin_np, after which all looks like a
                           // race
    int64_t ns = read_clock(CLOCK_REALTIME) + ms * TD_NS_PER_MS;
    struct timespec until = {.tv_sec = ns / TD_NS_PER_S, .tv_nsec = ns % TD_NS_PER_S};
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
#else
    struct timespec until = td_clock_cond_after(ms);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
#endif
}

void td_real_format(struct td_real t, char *out, size_t out_bytes) {
    int64_t s = t.ns / TD_NS_PER_S, ns = t.ns % TD_NS_PER_S;
    if (ns < 0) {
        s--;
        ns += TD_NS_PER_S;
    }
    struct tm tm;
    time_t seconds = (time_t)s;
    TD_CHECK(gmtime_r(&seconds, &tm));
    snprintf(out, out_bytes, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ns / TD_NS_PER_MS));
}
