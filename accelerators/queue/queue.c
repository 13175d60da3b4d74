// One lock, and one condition for both directions: a step of training uses them a few times.

#include "accelerators/queue/queue.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>

#include "lib/base/base.h"
#include "lib/base/clock.h"

struct td_queue {
    const char *name;
    uint32_t capacity;
    td_queue_task_fn *fn;
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; // holds what follows
    pthread_cond_t changed;
    td_ticket queued, done;
    td_ticket failed_at; // 0: nothing failed
    td_status failed;    // NULL once it is reported
    bool ends;
};

// An end of a wait on the queue's condition.
static struct timespec after(int64_t ns) {
    struct timespec t = td_clock_cond_after(0);
    t.tv_sec += ns / TD_NS_PER_S;
    t.tv_nsec += ns % TD_NS_PER_S;
    t.tv_sec += t.tv_nsec / TD_NS_PER_S;
    t.tv_nsec %= TD_NS_PER_S;
    return t;
}

// A task whose own deadline passed (of a sum over ranks) failed; who waits for it would take that
// code for his own deadline, and wait again.
static td_status as_failure(td_status s) {
    if (td_status_code(s) != TD_DEADLINE_EXCEEDED) return s;
    const char *key, *value;
    td_status f =
        td_status_with_class(td_fail(TD_ABORTED, "%s", td_status_message(s)), td_status_class(s));
    f = td_status_with_reason(f, td_status_reason(s));
    for (size_t i = 0; i < td_status_n_meta(s); i++) {
        td_status_meta(s, i, &key, &value);
        f = td_status_with_meta(f, key, "%s", value);
    }
    td_status_free(s);
    return f;
}

static void *serve(void *arg) {
    struct td_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->done == q->queued && !q->ends) {
            pthread_cond_wait(&q->changed, &q->lock);
        }
        if (q->done == q->queued) break;
        const td_ticket ticket = q->done + 1;
        const bool runs = !q->failed_at;
        pthread_mutex_unlock(&q->lock);
        td_status s = runs ? as_failure(q->fn(q->arg, ticket)) : TD_OK;
        pthread_mutex_lock(&q->lock);
        if (s) {
            q->failed = s;
            q->failed_at = ticket;
        }
        q->done = ticket;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

td_status td_queue_create(const char *name, uint32_t capacity, td_queue_task_fn *fn, void *arg,
                          struct td_queue **out_queue) {
    TD_CHECK(capacity > 0);
    struct td_queue *q = td_calloc(1, sizeof *q);
    if (!q) return td_fail_oom();
    q->name = name;
    q->capacity = capacity;
    q->fn = fn;
    q->arg = arg;
    td_clock_cond_init(&q->changed);
    pthread_mutex_init(&q->lock, NULL);
    sigset_t all, before; // signals belong to the training thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&q->thread, NULL, serve, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        free(q);
        errno = error;
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the thread of %s", name);
    }
    *out_queue = q;
    return TD_OK;
}

void td_queue_destroy(struct td_queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    td_status_free(q->failed);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

td_ticket td_queue_next(const struct td_queue *q) {
    return q->queued + 1; // which only the thread that adds changes
}

td_status td_queue_add(struct td_queue *q) {
    pthread_mutex_lock(&q->lock);
    const bool full = q->queued - q->done == q->capacity;
    if (!full) {
        q->queued++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    if (!full) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "%s has %" PRIu32 " runs queued; wait for one", q->name,
                   q->capacity);
}

// Of a failure at or before this ticket; the lock is held.
static td_status take_failure(struct td_queue *q, td_ticket ticket) {
    if (!q->failed_at || q->failed_at > ticket) return TD_OK;
    if (q->failed) return td_steal(q->failed);
    return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                        "%s failed in run %" PRIu64 ", which was reported before",
                                        q->name, q->failed_at),
                                TD_CLASS_DEVICE);
}

td_status td_queue_wait(struct td_queue *q, td_ticket ticket, int64_t timeout_ns) {
    const struct timespec until = after(timeout_ns);
    pthread_mutex_lock(&q->lock);
    int late = 0;
    while (q->done < ticket && !late) {
        late = pthread_cond_timedwait(&q->changed, &q->lock, &until);
    }
    td_status s = q->done >= ticket
                      ? take_failure(q, ticket)
                      : td_fail(TD_DEADLINE_EXCEEDED, "run %" PRIu64 " of %s is not done yet",
                                ticket, q->name);
    pthread_mutex_unlock(&q->lock);
    return s;
}

void td_queue_rest(struct td_queue *q, int64_t ns) {
    const struct timespec until = after(ns);
    pthread_mutex_lock(&q->lock);
    int late = 0;
    while (ns && !q->ends && !late) {
        late = pthread_cond_timedwait(&q->changed, &q->lock, &until);
    }
    pthread_mutex_unlock(&q->lock);
}

bool td_queue_is_here(const struct td_queue *q) {
    return pthread_equal(pthread_self(), q->thread) != 0;
}
