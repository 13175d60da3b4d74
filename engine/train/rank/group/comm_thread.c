// A queue of bucket numbers, a mutex and two condition variables (see comm_thread.h). The lock is
// held for the queue alone, never while a bucket is reduced.

#include "engine/train/rank/group/comm_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

struct td_comm_thread {
    td_comm_fn fn;
    void *arg;
    pthread_t thread;
    bool has_started;
    pthread_mutex_t lock;
    pthread_cond_t wake; // to the thread: there is something to do, or the end
    pthread_cond_t idle; // from the thread: all is done
    bool ends;
    bool is_last_posted;         // the queue's last is for whoever waits
    uint32_t n_posted, n_done;   // since the last wait
    bool has_failed;             // one of them, since then: the rest is not begun
    td_status failed;            // its error, until somebody has it
    uint32_t n_buckets, queue[]; // (n_buckets)
};

// How many of the queue the thread itself makes.
static uint32_t its_own(const struct td_comm_thread *t) {
    return t->n_posted - (t->is_last_posted ? 1 : 0);
}

// Makes the next of the queue. The lock is held before and after, not meanwhile.
static void make_next(struct td_comm_thread *t) {
    const uint32_t index = t->queue[t->n_done];
    td_status s = TD_OK;
    if (!t->has_failed) {
        pthread_mutex_unlock(&t->lock);
        s = t->fn(t->arg, index);
        pthread_mutex_lock(&t->lock);
    }
    if (s) {
        t->has_failed = true;
        t->failed = s;
    }
    t->n_done++;
}

static void *comm_main(void *arg) {
    struct td_comm_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->n_done >= its_own(t) && !t->ends) {
            pthread_cond_wait(&t->wake, &t->lock);
        }
        if (t->n_done >= its_own(t)) break;
        make_next(t);
        if (t->n_done >= its_own(t)) pthread_cond_signal(&t->idle);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

td_status td_comm_thread_create(uint32_t n_buckets, td_comm_fn fn, void *arg,
                                struct td_comm_thread **out_thread) {
    struct td_comm_thread *t = td_calloc(1, sizeof *t + n_buckets * sizeof t->queue[0]);
    if (!t) return td_fail_oom();
    t->fn = fn;
    t->arg = arg;
    t->n_buckets = n_buckets;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->idle, NULL);
    sigset_t all, before; // signals belong to the training thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&t->thread, NULL, comm_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errno) {
        td_status s = td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the communication thread");
        td_comm_thread_destroy(t);
        return s;
    }
    t->has_started = true;
    *out_thread = t;
    return TD_OK;
}

void td_comm_thread_destroy(struct td_comm_thread *t) {
    if (!t) return;
    if (t->has_started) {
        pthread_mutex_lock(&t->lock);
        t->ends = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    td_status_free(t->failed);
    pthread_cond_destroy(&t->idle);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

td_status td_comm_thread_post(struct td_comm_thread *t, uint32_t index, bool is_last) {
    pthread_mutex_lock(&t->lock);
    TD_CHECK(t->n_posted < t->n_buckets && !t->is_last_posted);
    td_status s = td_steal(t->failed);
    if (!s) {
        t->queue[t->n_posted++] = index;
        t->is_last_posted = is_last;
        if (!is_last) pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

bool td_comm_thread_is_idle(struct td_comm_thread *t) {
    if (!t) return true;
    pthread_mutex_lock(&t->lock);
    const bool is_idle = !t->n_posted;
    pthread_mutex_unlock(&t->lock);
    return is_idle;
}

td_status td_comm_thread_wait(struct td_comm_thread *t) {
    if (!t) return TD_OK;
    pthread_mutex_lock(&t->lock);
    while (t->n_done < its_own(t)) {
        pthread_cond_wait(&t->idle, &t->lock);
    }
    if (t->n_done < t->n_posted) make_next(t);
    td_status s = td_steal(t->failed);
    t->has_failed = false;
    t->n_posted = t->n_done = 0;
    t->is_last_posted = false;
    pthread_mutex_unlock(&t->lock);
    return s;
}
