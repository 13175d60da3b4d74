// A mutex, two condition variables and one job slot. The thread has the training's priority. Its
// jobs want little of a core (engine/train/checkpoint/shard.c), and a writer that gives way takes
// no less of it in the end, but keeps the snapshot several times as long.

#include "engine/train/events/background.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "lib/base/clock.h"

#define TICK_NS (50 * TD_NS_PER_MS)

struct td_background {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake; // to the thread: a job came, or stop
    pthread_cond_t idle; // to the training thread: the job ended
    td_background_fn job;
    void *job_arg;
    bool stop;
    td_background_fn tick;
    void *tick_arg;
};

static struct timespec after(int64_t ns) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t sum = t.tv_nsec + ns;
    t.tv_sec += sum / TD_NS_PER_S;
    t.tv_nsec = sum % TD_NS_PER_S;
    return t;
}

static void *background_main(void *arg) {
    struct td_background *b = arg;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!b->job && !b->stop) {
            struct timespec until = after(TICK_NS);
            if (!b->tick) {
                pthread_cond_wait(&b->wake, &b->lock);
            } else if (pthread_cond_timedwait(&b->wake, &b->lock, &until) == ETIMEDOUT) {
                break;
            }
        }
        td_background_fn job = b->job;
        bool stop = b->stop && !job;
        pthread_mutex_unlock(&b->lock);
        if (job) job(b->job_arg);
        if (b->tick) b->tick(b->tick_arg);
        pthread_mutex_lock(&b->lock);
        if (job) {
            b->job = NULL;
            pthread_cond_broadcast(&b->idle);
        }
        if (stop) break;
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

td_status td_background_create(td_background_fn tick, void *tick_arg,
                               struct td_background **out_background) {
    TD_AUTO(td_background) *b = td_calloc(1, sizeof *b);
    if (!b) return td_fail_oom();
    b->tick = tick;
    b->tick_arg = tick_arg;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->wake, &attr);
    pthread_cond_init(&b->idle, &attr);
    pthread_condattr_destroy(&attr);
    // Signals belong to the training thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&b->thread, NULL, background_main, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        errno = rc;
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the background thread");
    }
    b->started = true;
    *out_background = td_steal(b);
    return TD_OK;
}

void td_background_destroy(struct td_background *b) {
    if (!b) return;
    if (b->started) {
        pthread_mutex_lock(&b->lock);
        b->stop = true;
        pthread_cond_broadcast(&b->wake);
        pthread_mutex_unlock(&b->lock);
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->idle);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

bool td_background_submit(struct td_background *b, td_background_fn job, void *arg) {
    pthread_mutex_lock(&b->lock);
    bool taken = !b->job && !b->stop;
    if (taken) {
        b->job = job;
        b->job_arg = arg;
        pthread_cond_broadcast(&b->wake);
    }
    pthread_mutex_unlock(&b->lock);
    return taken;
}

bool td_background_busy(struct td_background *b) {
    pthread_mutex_lock(&b->lock);
    bool busy = b->job != NULL;
    pthread_mutex_unlock(&b->lock);
    return busy;
}

td_status td_background_wait(struct td_background *b, int64_t timeout_ns) {
    struct timespec until = after(timeout_ns);
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    while (b->job && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&b->idle, &b->lock, &until);
    }
    bool busy = b->job != NULL;
    pthread_mutex_unlock(&b->lock);
    if (busy) {
        return td_fail(TD_DEADLINE_EXCEEDED,
                       "the background thread is still writing after %lld s; the disk may be stuck",
                       (long long)(timeout_ns / TD_NS_PER_S));
    }
    return TD_OK;
}
