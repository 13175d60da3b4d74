// The thread, its list of events, and gRPC's own start and end.
//
// The list is the same kind of stack as the loop's posts: pushed by the thread, taken whole by the
// loop, which the push that finds it empty wakes up.

#include "lib/rpc/pump.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <grpc/support/log.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { td_pump_magic = 0x74647075, JOIN_MS = 60000 };

struct td_pump {
    uint32_t magic;
    grpc_completion_queue *queue;
    pthread_t thread;
    bool started;
    bool closed;
    struct td_loop_wakeup *wakeup;
    _Atomic(struct td_pump_tag *) events;
    // gRPC orders what the loop wrote before it handed a tag over; the thread sanitizer does not
    // see into gRPC, so the same edge is drawn here.
    _Atomic uint64_t handed_over;
};

static void run_events(struct td_pump *p) {
    struct td_pump_tag *stack = atomic_exchange_explicit(&p->events, NULL, memory_order_acquire);
    struct td_pump_tag *queue = NULL;
    while (stack) {
        struct td_pump_tag *next = stack->next;
        stack->next = queue;
        queue = stack;
        stack = next;
    }
    while (queue) {
        struct td_pump_tag *tag = queue;
        queue = tag->next; // done may free the tag or start it again
        tag->done(tag, tag->ok);
    }
}

static void on_wakeup(void *arg) {
    run_events(TD_CAST(td_pump, arg));
}

static void push(struct td_pump *p, struct td_pump_tag *tag) {
    struct td_pump_tag *head = atomic_load_explicit(&p->events, memory_order_relaxed);
    do {
        tag->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&p->events, &head, tag, memory_order_release,
                                                    memory_order_relaxed));
    // An event in the list means that the loop has not taken it yet, but will.
    if (!head) td_loop_wakeup_send(p->wakeup);
}

static void *run_thread(void *arg) {
    struct td_pump *p = arg;
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(p->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (ev.type != GRPC_OP_COMPLETE) continue;
        struct td_pump_tag *tag = ev.tag;
        (void)atomic_load_explicit(&p->handed_over, memory_order_acquire);
        tag->ok = ev.success;
        push(p, tag);
    }
}

// gRPC's own lines are for people who debug gRPC.
static void drop_log(gpr_log_func_args *args) {
    if (args->severity < GPR_LOG_SEVERITY_ERROR) return;
    td_log_debug("grpc: %s", args->message);
}

static td_status start_thread(struct td_pump *self) {
    int err = pthread_create(&self->thread, NULL, run_thread, self);
    if (err) {
        errno = err;
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the gRPC thread");
    }
    self->started = true;
    return TD_OK;
}

td_status td_pump_create(struct td_loop *loop, struct td_pump **out_pump) {
    TD_AUTO(td_pump) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_pump_magic;
    TD_TRY(td_loop_wakeup_create(loop, on_wakeup, self, &self->wakeup));
    // gRPC's threads and ours must not take the process's signals: they belong to the loop.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    gpr_set_log_function(drop_log);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    grpc_init();
    self->queue = grpc_completion_queue_create_for_next(NULL);
    td_status s = start_thread(self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s) return s;
    *out_pump = td_steal(self);
    return TD_OK;
}

void td_pump_close(struct td_pump *pump) {
    if (pump->closed) return;
    pump->closed = true;
    grpc_completion_queue_shutdown(pump->queue);
    if (!pump->started) return;
    // A batch that never comes back is a bug of ours (a call not cancelled), not an input.
    TD_CHECK(td_clock_join(pump->thread, JOIN_MS));
    run_events(pump);
}

void td_pump_destroy(struct td_pump *pump) {
    if (!pump) return;
    if (pump->queue) {
        td_pump_close(pump);
        grpc_completion_queue_destroy(pump->queue);
        grpc_shutdown();
    }
    td_loop_wakeup_destroy(pump->wakeup);
    pump->magic = 0;
    free(pump);
}

grpc_completion_queue *td_pump_queue(struct td_pump *pump) {
    atomic_fetch_add_explicit(&pump->handed_over, 1, memory_order_release);
    return pump->queue;
}

bool td_pump_is_closed(const struct td_pump *pump) {
    return pump->closed;
}

bool td_pump_start(struct td_pump *pump, grpc_call *call, const grpc_op *ops, size_t n_ops,
                   struct td_pump_tag *tag) {
    if (pump->closed) return false;
    atomic_fetch_add_explicit(&pump->handed_over, 1, memory_order_release);
    TD_CHECK(grpc_call_start_batch(call, ops, n_ops, tag, NULL) == GRPC_CALL_OK);
    return true;
}
