// libgomp reads how long to spin from the environment, once. It spins less (100 rounds) while it
// has more threads than the process has cores, and that is the one handle there is at run time. A
// second team, of a thread that does nothing but hold it, is made when spinning shall end. It is
// ended when spinning may go on. Its threads sleep. Another OpenMP runtime would not notice, which
// costs nothing.
//
// Rejected: the share of CPU time in the time that passes (a stretch of one thread's work looks the
// same as a stolen core). Rejected, too: OMP_WAIT_POLICY=passive for all (a third slower alone).

#include "accelerators/cpu/spin.h"

#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>

struct td_spin {
    struct td_spin_state state;
    bool held; // the second team is there
    pthread_t holder;
    sem_t ready, end;
};

static void *hold(void *arg) {
    struct td_spin *s = arg;
#pragma omp parallel num_threads(2)
    {
        if (omp_get_thread_num() == 0) sem_post(&s->ready);
    }
    while (sem_wait(&s->end) != 0) {}
    return NULL;
}

// What cannot be started is left: spinning is slow at worst.
static void apply(struct td_spin *s) {
    if (s->held == s->state.shares) return;
    if (s->held) {
        sem_post(&s->end);
        pthread_join(s->holder, NULL);
        s->held = false;
        return;
    }
    sigset_t all, before; // signals belong to the training thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->held = pthread_create(&s->holder, NULL, hold, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (s->held && sem_wait(&s->ready) != 0) {}
}

td_status td_spin_create(struct td_spin **out_spin) {
    struct td_spin *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    sem_init(&s->ready, 0, 0);
    sem_init(&s->end, 0, 0);
    *out_spin = s;
    return TD_OK;
}

void td_spin_destroy(struct td_spin *s) {
    if (!s) return;
    s->state.shares = false;
    apply(s);
    sem_destroy(&s->ready);
    sem_destroy(&s->end);
    free(s);
}

void td_spin_watch(struct td_spin *s, int64_t now_ns) {
    if (!td_spin_due(&s->state, now_ns)) return;
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    td_spin_judge(&s->state, now_ns, usage.ru_nivcsw);
    apply(s);
}
