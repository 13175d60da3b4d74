// A queue, a mutex and two condition variables (see comm_thread.h). The lock is held for the queue
// alone, never while a sum is made. The queue begins again when all of it was waited for.

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
    pthread_cond_t done; // from the thread: one more is done
    bool ends;
    bool is_last_posted; // the queue's last is left to wait or drain
    uint32_t n_sums, n_posted, n_done, n_waited;
    bool has_failed;  // one of the queue: the rest is not begun
    td_status failed; // its error, until a call has returned it
    struct item {
        const struct td_sum *sum;
        bool waited;
    } queue[]; // (n_sums)
};

// How many of the queue the thread itself makes.
static uint32_t its_own(const struct td_comm_thread *t) {
    return t->n_posted - (t->is_last_posted ? 1 : 0);
}

// Makes the next of the queue. The lock is held before and after, not meanwhile.
static void make_next(struct td_comm_thread *t) {
    const struct td_sum *sum = t->queue[t->n_done].sum;
    td_status s = TD_OK;
    if (!t->has_failed) {
        pthread_mutex_unlock(&t->lock);
        s = t->fn(t->arg, sum);
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
        pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

td_status td_comm_thread_create(uint32_t n_sums, td_comm_fn fn, void *arg,
                                struct td_comm_thread **out_thread) {
    struct td_comm_thread *t = td_calloc(1, sizeof *t + n_sums * sizeof t->queue[0]);
    if (!t) return td_fail_oom();
    t->fn = fn;
    t->arg = arg;
    t->n_sums = n_sums;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
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
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

td_status td_comm_thread_post(struct td_comm_thread *t, const struct td_sum *sum, bool is_last) {
    pthread_mutex_lock(&t->lock);
    TD_CHECK(t->n_posted < t->n_sums);
    td_status s = td_steal(t->failed);
    if (!s) {
        t->queue[t->n_posted++] = (struct item){.sum = sum};
        t->is_last_posted = is_last;
        if (t->n_done < its_own(t)) pthread_cond_signal(&t->wake);
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

// The first n of the queue are done. The lock is held before and after.
static void make_first(struct td_comm_thread *t, uint32_t n) {
    while (t->n_done < n) {
        if (t->n_done < its_own(t)) {
            pthread_cond_wait(&t->done, &t->lock);
        } else {
            make_next(t);
        }
    }
}

static void begin_again(struct td_comm_thread *t) {
    t->has_failed = t->is_last_posted = false;
    t->n_posted = t->n_done = t->n_waited = 0;
}

static td_status end_failed(struct td_comm_thread *t) {
    make_first(t, t->n_posted);
    begin_again(t);
    return td_steal(t->failed);
}

static void wait_for(struct td_comm_thread *t, const struct td_sum *sum) {
    uint32_t i = 0;
    while (i < t->n_posted && t->queue[i].sum != sum) {
        i++;
    }
    TD_CHECK(i < t->n_posted && !t->queue[i].waited);
    make_first(t, i + 1);
    t->queue[i].waited = true;
    t->n_waited++;
}

td_status td_comm_thread_wait(struct td_comm_thread *t, const struct td_sum *sum) {
    td_status s = TD_OK;
    if (!t) return TD_OK;
    pthread_mutex_lock(&t->lock);
    wait_for(t, sum);
    if (t->has_failed) {
        s = end_failed(t);
    } else if (t->n_waited == t->n_posted) {
        begin_again(t);
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

td_status td_comm_thread_drain(struct td_comm_thread *t) {
    td_status s = TD_OK;
    if (!t) return TD_OK;
    pthread_mutex_lock(&t->lock);
    make_first(t, t->n_posted);
    if (t->has_failed) s = end_failed(t);
    pthread_mutex_unlock(&t->lock);
    return s;
}
