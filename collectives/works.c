// Calls that were started: a table of handles, a queue of them and a thread (see works.h).
//
// The lock is held for the table alone, never while a call is made. A handle is an address in the
// table, so one that is not open is found out without reading what it points to.

#include "collectives/works.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "collectives/collectives.h"
#include "lib/base/clock.h"

enum work_state { WORK_FREE, WORK_QUEUED, WORK_DONE };

struct td_collective_work {
    enum work_state state;
    struct td_collective_start call;
    td_status result; // of one that is done
};

struct td_works {
    struct td_collective *c;
    const struct td_works_ops *ops;
    pthread_t thread;
    bool has_started; // the thread
    pthread_mutex_t lock;
    pthread_cond_t wake; // to the thread: there is something to do, or the end
    pthread_cond_t done; // from the thread: a call is done
    bool ends;
    uint64_t n_started, n_done; // n_done: also the place in the queue of the next to make
    struct td_collective_work *queue[TD_OPEN_CALLS_MAX];
    struct td_collective_work work[TD_OPEN_CALLS_MAX];
};

static _Thread_local const struct td_works *works_of_this_thread;

static void *works_main(void *arg) {
    struct td_works *w = arg;
    works_of_this_thread = w;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n_done == w->n_started && !w->ends) {
            pthread_cond_wait(&w->wake, &w->lock);
        }
        if (w->n_done == w->n_started) break;
        struct td_collective_work *k = w->queue[w->n_done % TD_OPEN_CALLS_MAX];
        pthread_mutex_unlock(&w->lock);
        td_status s = w->ops->make(w->c, &k->call);
        pthread_mutex_lock(&w->lock);
        k->result = s;
        k->state = WORK_DONE;
        w->n_done++;
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// ---- life --------------------------------------------------------------------------------------
static td_status start_thread(struct td_works *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&w->thread, NULL, works_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errno) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the thread of started calls");
    w->has_started = true;
    return TD_OK;
}

td_status td_works_create(struct td_collective *c, const struct td_works_ops *ops,
                          struct td_works **out_works) {
    struct td_works *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    w->c = c;
    w->ops = ops;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &attr);
    pthread_cond_init(&w->done, &attr);
    pthread_condattr_destroy(&attr);
    td_status s = ops->has_thread ? start_thread(w) : TD_OK;
    if (s) {
        td_works_destroy(w);
        return s;
    }
    *out_works = w;
    return TD_OK;
}

void td_works_destroy(struct td_works *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    const bool is_busy = w->n_done != w->n_started;
    w->ends = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (is_busy) w->ops->abort(w->c);
    if (w->has_started) pthread_join(w->thread, NULL);
    for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
        td_status_free(w->work[i].result);
    }
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// ---- handles -----------------------------------------------------------------------------------
td_status td_works_start(struct td_works *w, const struct td_collective_start *call,
                         struct td_collective_work **out_work) {
    struct td_collective_work *k = NULL;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < TD_OPEN_CALLS_MAX && !k; i++) {
        if (w->work[i].state == WORK_FREE) k = &w->work[i];
    }
    if (k) {
        *k = (struct td_collective_work){.state = WORK_QUEUED, .call = *call};
        w->queue[w->n_started++ % TD_OPEN_CALLS_MAX] = k;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    if (!k) return td_collective_fail_too_many_handles(call);
    if (!w->ops->has_thread) {
        k->result = w->ops->make(w->c, &k->call);
        k->state = WORK_DONE;
        w->n_done++;
    }
    *out_work = k;
    return TD_OK;
}

// In the table and open; the lock is held.
static struct td_collective_work *open_work(struct td_works *w,
                                            const struct td_collective_work *k) {
    for (int i = 0; w && i < TD_OPEN_CALLS_MAX; i++) {
        if (&w->work[i] == k) return k->state == WORK_FREE ? NULL : &w->work[i];
    }
    return NULL;
}

// The end of a wait of so many ns from now.
static struct timespec end_after(int64_t ns) {
    const int64_t now = td_mono_now().ns;
    const int64_t end = TD_MAX(ns, (int64_t)0) > INT64_MAX - now ? INT64_MAX : now + TD_MAX(ns, 0);
    return (struct timespec){.tv_sec = end / TD_NS_PER_S, .tv_nsec = end % TD_NS_PER_S};
}

td_status td_works_wait(struct td_works *w, struct td_collective_work *work, int64_t timeout_ns,
                        bool *out_late) {
    *out_late = false;
    if (!w) return td_collective_fail_foreign_handle("wait");
    const struct timespec end = end_after(timeout_ns);
    pthread_mutex_lock(&w->lock);
    struct td_collective_work *k = open_work(w, work);
    while (k && k->state == WORK_QUEUED) {
        if (*out_late) {
            pthread_cond_wait(&w->done, &w->lock); // an aborted group is left at once
        } else if (pthread_cond_timedwait(&w->done, &w->lock, &end) == ETIMEDOUT &&
                   k->state == WORK_QUEUED) {
            *out_late = true;
            pthread_mutex_unlock(&w->lock);
            w->ops->abort(w->c);
            pthread_mutex_lock(&w->lock);
        }
    }
    td_status s = k ? k->result : td_collective_fail_foreign_handle("wait");
    if (k) *k = (struct td_collective_work){.state = WORK_FREE};
    pthread_mutex_unlock(&w->lock);
    return s;
}

td_status td_works_test(struct td_works *w, const struct td_collective_work *work, bool *out_done) {
    if (!w) return td_collective_fail_foreign_handle("test");
    pthread_mutex_lock(&w->lock);
    const struct td_collective_work *k = open_work(w, work);
    const bool is_open = k != NULL;
    if (is_open) *out_done = k->state == WORK_DONE;
    pthread_mutex_unlock(&w->lock);
    return is_open ? TD_OK : td_collective_fail_foreign_handle("test");
}

void td_works_settle(struct td_works *w) {
    if (!w || works_of_this_thread == w) return;
    pthread_mutex_lock(&w->lock);
    while (w->n_done != w->n_started) {
        pthread_cond_wait(&w->done, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

int td_works_open(struct td_works *w) {
    int n = 0;
    if (!w) return 0;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
        n += w->work[i].state != WORK_FREE;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}
