// The event loop: loop.h by means of libevent, and the list of posts in front of an eventfd.
//
// Posts form a stack that producers push onto with a compare-and-swap. The owner takes the whole
// stack at once and reverses it, so that posts of one thread keep their order. Only the push that
// found the stack empty writes the eventfd: a burst costs one wake-up. The eventfd is read before
// the stack is taken, so a push that comes in between wakes the loop again, needlessly but safely.
//
// Every watch counts in n_live; a loop that is destroyed under a live watch is a bug of its owner.

#include "lib/loop/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>

enum { td_loop_magic = 0x74646c70 };

// What waits for the loop. It stays where it is until it ran.
struct task {
    struct task *next;
    td_loop_fn *run;
    void *arg;
};

struct td_loop {
    uint32_t magic;
    struct event_base *base;
    struct event *wake;
    int wake_fd;
    size_t n_live;
    struct td_loop_turn *turns;
    _Atomic(struct task *) posted;
    _Atomic(const char *) owner;
    atomic_bool stop;
};

struct td_loop_fd {
    struct td_loop *loop;
    struct event *event;
    td_loop_fd_fn *fn;
    void *arg;
};

struct td_loop_timer {
    struct td_loop *loop;
    struct event *event;
    bool armed;
    td_loop_fn *fn;
    void *arg;
};

struct td_loop_signal {
    struct td_loop *loop;
    struct event *event;
    td_loop_fn *fn;
    void *arg;
};

struct td_loop_wakeup {
    struct task task;
    struct td_loop *loop;
    _Atomic bool sent;
    bool destroyed; // freed when it has run
    td_loop_fn *fn;
    void *arg;
};

struct td_loop_turn {
    struct td_loop_turn *next;
    struct td_loop *loop;
    td_loop_fn *fn;
    void *arg;
};

// Its address is the name of a thread.
static _Thread_local char thread_self;

static struct timeval timeval_of(int64_t ns) {
    if (ns < 0) ns = 0;
    int64_t us = ns / 1000 + (ns % 1000 != 0); // never early
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

// ---- posts ------------------------------------------------------------------------------------

static void wake_loop(struct td_loop *loop) {
    uint64_t one = 1;
    ssize_t n = write(loop->wake_fd, &one, sizeof one);
    TD_CHECK(n == sizeof one || errno == EAGAIN); // EAGAIN: the counter is full, so it is awake
}

static void post(struct td_loop *loop, struct task *task) {
    struct task *head = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        task->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->posted, &head, task,
                                                    memory_order_release, memory_order_relaxed));
    if (!head) wake_loop(loop);
}

struct heap_task {
    struct task task;
    td_loop_fn *fn;
    void *arg;
};

static void run_heap_task(void *arg) {
    struct heap_task own = *(struct heap_task *)arg;
    free(arg);
    own.fn(own.arg);
}

td_status td_loop_post(struct td_loop *loop, td_loop_fn *fn, void *arg) {
    struct heap_task *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    t->fn = fn;
    t->arg = arg;
    t->task.run = run_heap_task;
    t->task.arg = t;
    post(loop, &t->task);
    return TD_OK;
}

// Acquires, so that fn sees what was put down before a send that found `sent` true.
static void run_wakeup(void *arg) {
    struct td_loop_wakeup *w = arg;
    atomic_exchange_explicit(&w->sent, false, memory_order_acq_rel);
    if (w->destroyed) {
        free(w);
    } else {
        w->fn(w->arg); // may destroy w
    }
}

td_status td_loop_wakeup_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                                struct td_loop_wakeup **out_wakeup) {
    TD_ON_LOOP(loop);
    struct td_loop_wakeup *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    *w = (struct td_loop_wakeup){.loop = loop, .fn = fn, .arg = arg};
    w->task = (struct task){.run = run_wakeup, .arg = w};
    loop->n_live++;
    *out_wakeup = w;
    return TD_OK;
}

void td_loop_wakeup_send(struct td_loop_wakeup *wakeup) {
    if (atomic_exchange_explicit(&wakeup->sent, true, memory_order_acq_rel)) return;
    post(wakeup->loop, &wakeup->task);
}

void td_loop_wakeup_destroy(struct td_loop_wakeup *wakeup) {
    if (!wakeup) return;
    TD_ON_LOOP(wakeup->loop);
    wakeup->loop->n_live--;
    wakeup->destroyed = true;
    if (!atomic_load_explicit(&wakeup->sent, memory_order_acquire)) free(wakeup);
}

static bool run_posted(struct td_loop *loop) {
    struct task *stack = atomic_exchange_explicit(&loop->posted, NULL, memory_order_acquire);
    struct task *queue = NULL;
    while (stack) {
        struct task *next = stack->next;
        stack->next = queue;
        queue = stack;
        stack = next;
    }
    bool any = queue;
    while (queue) {
        struct task *task = queue;
        queue = task->next; // the task may free or post itself
        task->run(task->arg);
    }
    return any;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    struct td_loop *loop = TD_CAST(td_loop, arg);
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; // EAGAIN: somebody else's wake-up was counted already
    (void)what;
    run_posted(loop);
}

// ---- the end of a turn ------------------------------------------------------------------------

td_status td_loop_turn_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                              struct td_loop_turn **out_turn) {
    TD_ON_LOOP(loop);
    struct td_loop_turn *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    *t = (struct td_loop_turn){.next = loop->turns, .loop = loop, .fn = fn, .arg = arg};
    loop->turns = t;
    loop->n_live++;
    *out_turn = t;
    return TD_OK;
}

void td_loop_turn_destroy(struct td_loop_turn *turn) {
    if (!turn) return;
    TD_ON_LOOP(turn->loop);
    struct td_loop_turn **at = &turn->loop->turns;
    while (*at != turn) {
        at = &(*at)->next;
    }
    *at = turn->next;
    turn->loop->n_live--;
    free(turn);
}

static void end_turn(struct td_loop *loop) {
    for (struct td_loop_turn *t = loop->turns; t; t = t->next) {
        t->fn(t->arg);
    }
}

// ---- the loop ---------------------------------------------------------------------------------

// Libraries do not log; what matters of it comes back as a status.
static void drop_log(int severity, const char *message) {
    (void)severity;
    (void)message;
}

static td_status open_base(struct td_loop *self) {
    event_set_log_callback(drop_log);
    struct event_config *config = event_config_new();
    if (!config) return td_fail_oom();
    // Timers by timerfd: the coarse clock would fire up to 4 ms early.
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV |
                                      EVENT_BASE_FLAG_PRECISE_TIMER);
    self->base = event_base_new_with_config(config);
    event_config_free(config);
    if (!self->base) return td_fail(TD_RESOURCE_EXHAUSTED, "create event loop: no epoll instance");
    return TD_OK;
}

td_status td_loop_create(struct td_loop **out_loop) {
    TD_AUTO(td_loop) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_loop_magic;
    self->wake_fd = -1;
    atomic_store(&self->owner, &thread_self);
    TD_TRY(open_base(self));
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->wake_fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "create event loop");
    self->wake = event_new(self->base, self->wake_fd, EV_READ | EV_PERSIST, on_wake, self);
    if (!self->wake) return td_fail_oom();
    if (event_add(self->wake, NULL)) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "create event loop: watch eventfd");
    }
    *out_loop = td_steal(self);
    return TD_OK;
}

void td_loop_destroy(struct td_loop *loop) {
    if (!loop) return;
    atomic_store(&loop->owner, &thread_self);
    while (run_posted(loop)) {}
    TD_CHECK(loop->n_live == 0);
    if (loop->wake) event_free(loop->wake);
    if (loop->base) event_base_free(loop->base);
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    loop->magic = 0;
    free(loop);
}

bool td_loop_is_owner(const struct td_loop *loop) {
    return atomic_load_explicit(&loop->owner, memory_order_relaxed) == &thread_self;
}

static td_status turn(struct td_loop *loop) {
    // 0: ran; 1 would mean nothing is watched, but the eventfd always is.
    if (event_base_loop(loop->base, EVLOOP_ONCE) != 0) {
        return td_fail_errno(TD_INTERNAL, "event loop stopped: epoll failed");
    }
    end_turn(loop);
    return TD_OK;
}

td_status td_loop_run(struct td_loop *loop) {
    atomic_store(&loop->owner, &thread_self);
    end_turn(loop);
    while (!atomic_exchange(&loop->stop, false)) {
        TD_TRY(turn(loop));
    }
    return TD_OK;
}

static void set_true(void *arg) {
    *(bool *)arg = true;
}

td_status td_loop_run_until(struct td_loop *loop, const bool *done, int64_t timeout_ns) {
    atomic_store(&loop->owner, &thread_self);
    bool expired = false;
    TD_AUTO(td_loop_timer) *timer = NULL;
    TD_TRY(td_loop_timer_create(loop, set_true, &expired, &timer));
    td_loop_timer_arm(timer, timeout_ns);
    end_turn(loop);
    while (!*done) {
        if (expired) return td_fail(TD_DEADLINE_EXCEEDED, "not done in time");
        if (atomic_exchange(&loop->stop, false)) return td_fail(TD_CANCELLED, "stopped");
        TD_TRY(turn(loop));
    }
    return TD_OK;
}

td_status td_loop_run_for(struct td_loop *loop, const bool *done, int64_t ns) {
    static const bool never = false;
    td_status s = td_loop_run_until(loop, done ? done : &never, ns);
    if (td_status_code(s) != TD_DEADLINE_EXCEEDED) return s;
    td_status_free(s);
    return TD_OK;
}

void td_loop_stop(struct td_loop *loop) {
    atomic_store(&loop->stop, true);
    wake_loop(loop);
}

// ---- descriptors ------------------------------------------------------------------------------

static void on_fd(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    struct td_loop_fd *w = arg;
    w->fn(fd, w->arg);
}

td_status td_loop_fd_create(struct td_loop *loop, int fd, int flags, td_loop_fd_fn *fn, void *arg,
                            struct td_loop_fd **out_fd) {
    TD_ON_LOOP(loop);
    TD_AUTO(td_loop_fd) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    *self = (struct td_loop_fd){.loop = loop, .fn = fn, .arg = arg};
    loop->n_live++;
    int what = EV_PERSIST | (flags & TD_LOOP_FD_WRITE ? EV_WRITE : EV_READ);
    if (flags & TD_LOOP_FD_EDGE) what |= EV_ET;
    self->event = event_new(loop->base, fd, (short)what, on_fd, self);
    if (!self->event) return td_fail_oom();
    if (event_add(self->event, NULL)) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "watch descriptor %d", fd);
    }
    *out_fd = td_steal(self);
    return TD_OK;
}

void td_loop_fd_destroy(struct td_loop_fd *watch) {
    if (!watch) return;
    TD_ON_LOOP(watch->loop);
    if (watch->event) event_free(watch->event);
    watch->loop->n_live--;
    free(watch);
}

// ---- timers -----------------------------------------------------------------------------------

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct td_loop_timer *t = arg;
    t->armed = false;
    t->fn(t->arg); // may destroy t
}

td_status td_loop_timer_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                               struct td_loop_timer **out_timer) {
    TD_ON_LOOP(loop);
    TD_AUTO(td_loop_timer) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    *self = (struct td_loop_timer){.loop = loop, .fn = fn, .arg = arg};
    loop->n_live++;
    self->event = evtimer_new(loop->base, on_timer, self);
    if (!self->event) return td_fail_oom();
    *out_timer = td_steal(self);
    return TD_OK;
}

void td_loop_timer_arm(struct td_loop_timer *timer, int64_t after_ns) {
    TD_ON_LOOP(timer->loop);
    struct timeval tv = timeval_of(after_ns);
    timer->armed = true;
    TD_CHECK(evtimer_add(timer->event, &tv) == 0); // fails only without memory for the timer heap
}

void td_loop_timer_disarm(struct td_loop_timer *timer) {
    TD_ON_LOOP(timer->loop);
    evtimer_del(timer->event);
    timer->armed = false;
}

bool td_loop_timer_is_armed(const struct td_loop_timer *timer) {
    return timer->armed;
}

void td_loop_timer_destroy(struct td_loop_timer *timer) {
    if (!timer) return;
    TD_ON_LOOP(timer->loop);
    if (timer->event) event_free(timer->event);
    timer->loop->n_live--;
    free(timer);
}

// ---- signals ----------------------------------------------------------------------------------

static void on_signal(evutil_socket_t signo, short what, void *arg) {
    (void)signo;
    (void)what;
    struct td_loop_signal *s = arg;
    s->fn(s->arg);
}

td_status td_loop_signal_create(struct td_loop *loop, int signo, td_loop_fn *fn, void *arg,
                                struct td_loop_signal **out_signal) {
    TD_ON_LOOP(loop);
    TD_AUTO(td_loop_signal) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    *self = (struct td_loop_signal){.loop = loop, .fn = fn, .arg = arg};
    loop->n_live++;
    self->event = evsignal_new(loop->base, signo, on_signal, self);
    if (!self->event) return td_fail_oom();
    if (evsignal_add(self->event, NULL)) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "watch signal %d", signo);
    }
    *out_signal = td_steal(self);
    return TD_OK;
}

void td_loop_signal_destroy(struct td_loop_signal *signal) {
    if (!signal) return;
    TD_ON_LOOP(signal->loop);
    if (signal->event) event_free(signal->event);
    signal->loop->n_live--;
    free(signal);
}
