// See the header. Loop and thread meet at `lock`: the one that comes second frees.

#include "daemon/node/shell/disk_work.h"

#include <pthread.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/loop/loop.h"

struct td_disk_work {
    struct td_disk_work_calls calls;
    void *work, *owner;
    pthread_mutex_t lock;
    struct td_loop_wakeup *wakeup; // NULL: given up
    bool is_over;
};

static void free_work(struct td_disk_work *d) {
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static void *run(void *arg) {
    struct td_disk_work *d = arg;
    td_log_context("thread", "disk");
    d->calls.run(d->work);
    pthread_mutex_lock(&d->lock);
    d->is_over = true;
    const bool given_up = !d->wakeup;
    if (!given_up) td_loop_wakeup_send(d->wakeup);
    pthread_mutex_unlock(&d->lock);
    if (given_up) {
        d->calls.destroy(d->work);
        free_work(d);
    }
    return NULL;
}

static void on_wakeup(void *arg) {
    struct td_disk_work *d = arg;
    void (*on_over)(void *, void *) = d->calls.on_over;
    void *work = d->work, *owner = d->owner;
    pthread_mutex_lock(&d->lock); // the thread may be about to leave it
    pthread_mutex_unlock(&d->lock);
    td_loop_wakeup_destroy(d->wakeup);
    free_work(d);
    on_over(work, owner);
}

static td_status start(struct td_disk_work *d) {
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &detached, run, d);
    pthread_attr_destroy(&detached);
    if (rc == 0) return TD_OK;
    return td_fail(TD_RESOURCE_EXHAUSTED, "thread 'disk': %s", strerror(rc));
}

td_status td_disk_work_create(struct td_loop *loop, const struct td_disk_work_calls *calls,
                              void *work, void *owner, struct td_disk_work **out_work) {
    struct td_disk_work *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    *d = (struct td_disk_work){.calls = *calls, .work = work, .owner = owner};
    pthread_mutex_init(&d->lock, NULL);
    td_status s = td_loop_wakeup_create(loop, on_wakeup, d, &d->wakeup);
    if (!s) s = start(d);
    if (s) {
        td_loop_wakeup_destroy(d->wakeup);
        free_work(d);
        return s;
    }
    *out_work = d;
    return TD_OK;
}

void td_disk_work_destroy(struct td_disk_work *d) {
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    const bool is_over = d->is_over;
    td_loop_wakeup_destroy(td_steal(d->wakeup));
    pthread_mutex_unlock(&d->lock);
    if (!is_over) return; // the thread frees it
    d->calls.destroy(d->work);
    free_work(d);
}
