#ifndef TRAIND_TESTS_UNIT_BASE_FILES_LOCK_HOLDER_H
#define TRAIND_TESTS_UNIT_BASE_FILES_LOCK_HOLDER_H

// Somebody who holds a lock until another one waits for it in the kernel: a thread that then closes
// the holder's descriptor.

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/unit/test.h"

struct lock_ender {
    int let_go; // closed when somebody waits
    ino_t inode;
    bool awaited;
    pthread_t thread;
};

// Whether somebody waits in flock for a file: a line "1: -> FLOCK ... <device>:<inode> ...".
static inline bool lock_is_awaited(ino_t inode) {
    char line[256], end[32];
    snprintf(end, sizeof end, ":%llu ", (unsigned long long)inode);
    FILE *locks = fopen("/proc/locks", "re");
    bool found = false;
    while (locks && fgets(line, sizeof line, locks)) {
        found |= strstr(line, "-> FLOCK") && strstr(line, end);
    }
    if (locks) fclose(locks);
    return found;
}

// Until somebody does, for half of the time that a test waits.
static inline bool lock_await_waiter(ino_t inode) {
    const struct td_mono end = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS / 2);
    bool awaited;
    while (!(awaited = lock_is_awaited(inode)) && td_mono_now().ns < end.ns) {
        sched_yield();
    }
    return awaited;
}

static inline void *lock_end_holder(void *arg) {
    struct lock_ender *e = arg;
    e->awaited = lock_await_waiter(e->inode);
    close(e->let_go);
    return NULL;
}

static inline void lock_ender_begin(struct lock_ender *e, const char *path, int let_go) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *e = (struct lock_ender){.let_go = let_go, .inode = st.st_ino};
    assert_int_equal(pthread_create(&e->thread, NULL, lock_end_holder, e), 0);
}

// Was the lock waited for, and not only tried again?
static inline bool lock_ender_finish(struct lock_ender *e) {
    pthread_join(e->thread, NULL);
    return e->awaited;
}

#endif
