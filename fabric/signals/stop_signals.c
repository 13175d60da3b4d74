// The thread lives as long as the process: it holds nothing but a small stack, and to end it would
// need a signal of its own. The lock is between it and the end of the page.

#include "fabric/signals/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { STACK_BYTES = 64 << 10 };

// Schedulers use different signals for the same wish; all are treated alike. But SIGUSR1 is Slurm's
// warning that the limit is near: save, and go on.
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR2, SIGUSR1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct td_rank_page *asked; // under lock; NULL: there is no rank

// The first asks for a stop with a checkpoint, a second Ctrl-C does without.
static void ask(int sig) {
    pthread_mutex_lock(&lock);
    int32_t none = TD_STOP_NONE;
    if (asked && sig == SIGUSR1) {
        atomic_fetch_add(&asked->checkpoint_request, 1);
    } else if (asked && !atomic_compare_exchange_strong(&asked->stop, &none, TD_STOP_CHECKPOINT) &&
               sig == SIGINT) {
        atomic_store(&asked->stop, TD_STOP_NOW);
    }
    pthread_mutex_unlock(&lock);
}

static void *wait_loop(void *arg) {
    const sigset_t *set = arg;
    int sig;
    while (sigwait(set, &sig) == 0) {
        ask(sig);
    }
    return NULL;
}

static td_status start_thread(sigset_t *set) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, wait_loop, set);
    pthread_attr_destroy(&attr);
    if (rc == 0) return TD_OK;
    return td_fail(TD_RESOURCE_EXHAUSTED, "thread of the stop signals: %s", strerror(rc));
}

td_status td_stop_signals_start(struct td_rank_page *page) {
    static sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < TD_COUNTOF(signals); i++) {
        sigaddset(&set, signals[i]);
    }
    int rc = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (rc != 0) return td_fail(TD_INTERNAL, "block the stop signals: %s", strerror(rc));
    asked = page;
    return start_thread(&set);
}

void td_stop_signals_finish(void) {
    pthread_mutex_lock(&lock);
    asked = NULL;
    pthread_mutex_unlock(&lock);
}
