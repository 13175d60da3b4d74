// Collective `fault`: a decorator that breaks one call of one rank, to try what a job does then.
//
//   cc -shared -fPIC -o collective-fault.so fault.c $(pkg-config --cflags --libs traind)
//
// It hands every call on to the backend that ranks meet in, and counts them. At call number `call`
// of rank `rank` it does what `fault` says:
//
//   delay    waits delay_us first; with call 0 before every call
//   drop     does not make the call, and says that it went well: the rank is one call ahead
//   corrupt  makes the call, and flips the highest bit of every 64th byte of what it gave
//   kill     ends the process with SIGKILL
//
// A call that is started counts where it is started, and again where it is waited for. So one can
// break between the two. corrupt changes what such a call gave, in either. A wait is never dropped.
//
// All this in the first `attempts` attempts of a job. No build of traind has such code in it: a job
// has to name this file, and a daemon takes it from its --plugin-dirs alone. Groups of some ranks
// are not handed on, and the facts say so. Nor do ranks join twice: their calls have one order, in
// which they are counted.

#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "traind/collective.h"
#include "traind/plugin.h"

static const struct td_plugin_knob knobs[] = {
    {"fault", TD_PLUGIN_KNOB_ENUM, 0, 0, NULL, NULL, "delay|drop|corrupt|kill", "what happens"},
    {"call", TD_PLUGIN_KNOB_INT, 0, 1e15, "calls", "1", NULL,
     "at which call, from 1; 0: at every one (delay)"},
    {"rank", TD_PLUGIN_KNOB_INT, 0, 1023, NULL, "0", NULL, "of which rank"},
    {"delay_us", TD_PLUGIN_KNOB_INT, 0, 1e9, "microseconds", "1000", NULL, "how long delay waits"},
    {"attempts", TD_PLUGIN_KNOB_INT, 0, 1e6, "attempts", "0", NULL,
     "only in so many first attempts of a job; 0: in all"},
};

enum fault { FAULT_NONE, FAULT_DELAY, FAULT_DROP, FAULT_CORRUPT, FAULT_KILL };

// A call that was started.
struct td_collective_work {
    struct td_collective_work *inner; // of the backend inside; NULL: the call was dropped
    bool is_open;
    enum fault fault; // of the start
    void *out;
    size_t bytes;
};

struct td_collective {
    const struct td_collective_ops *ops; // of the backend inside
    struct td_collective *inner;
    enum fault fault; // of this rank in this attempt
    int64_t at_call, delay_us;
    int64_t n_calls;
    void *late_data; // of the bucket that is corrupted when the buckets are waited for; or NULL
    size_t late_bytes;
    struct td_collective_work work[TD_OPEN_CALLS_MAX];
};

// ---- life ---------------------------------------------------------------------------------------
static td_status fault_facts(struct td_collective_facts *out_facts) {
    out_facts->wraps = true;
    out_facts->calls = ((1u << TD_CALL_COUNT) - 1) & ~(1u << TD_CALL_GROUPS);
    return TD_OK;
}

static size_t fault_shared_bytes(int32_t world_size, size_t gradient_bytes) {
    (void)world_size, (void)gradient_bytes;
    return 0; // never asked: the backend inside is
}

static td_status read_knobs(struct td_collective *c, const struct td_collective_config *config) {
    static const char *const names[] = {"", "delay", "drop", "corrupt", "kill"};
    const char *fault;
    int64_t rank, attempts;
    TD_TRY(td_knob_text(config->knobs, "fault", &fault));
    TD_TRY(td_knob_int(config->knobs, "call", &c->at_call));
    TD_TRY(td_knob_int(config->knobs, "rank", &rank));
    TD_TRY(td_knob_int(config->knobs, "delay_us", &c->delay_us));
    TD_TRY(td_knob_int(config->knobs, "attempts", &attempts));
    if (!c->at_call && strcmp(fault, "delay") != 0) {
        return td_bad_spec("collective 'fault': call 0 means every call, which is for delay alone");
    }
    if (rank != config->rank || (attempts && config->attempt > attempts)) return TD_OK;
    for (int i = FAULT_DELAY; i <= FAULT_KILL; i++) {
        if (strcmp(names[i], fault) == 0) c->fault = (enum fault)i;
    }
    return TD_OK;
}

static td_status fault_join(const struct td_collective_config *config,
                            struct td_collective **out_c) {
    struct td_collective_config inside = *config;
    if (!config->inner) return td_fail(TD_INVALID_ARGUMENT, "'fault' wraps another collective");
    struct td_collective *c = (struct td_collective *)calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->ops = config->inner;
    inside.inner = NULL;
    inside.knobs = NULL;
    td_status s = read_knobs(c, config);
    if (!s) s = c->ops->join(&inside, &c->inner);
    if (s) {
        free(c);
        return s;
    }
    *out_c = c;
    return TD_OK;
}

static void fault_leave(struct td_collective *c) {
    if (!c) return;
    c->ops->leave(c->inner);
    free(c);
}

static td_status fault_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    return c->ops->gradients(c->inner, out_data, out_bytes);
}

static void fault_abort(struct td_collective *c) {
    c->ops->abort(c->inner);
}

// ---- the fault ----------------------------------------------------------------------------------
// Counts a call, and says what is to happen to it.
static enum fault next_call(struct td_collective *c) {
    const int64_t call = ++c->n_calls;
    if (!c->fault || (c->at_call && call != c->at_call)) return FAULT_NONE;
    if (c->fault == FAULT_KILL) raise(SIGKILL);
    if (c->fault == FAULT_DELAY) {
        const struct timespec delay = {(time_t)(c->delay_us / 1000000),
                                       (long)(c->delay_us % 1000000) * 1000};
        pselect(0, NULL, NULL, NULL, &delay, NULL); // a signal may cut it short
    }
    return c->fault;
}

static td_status corrupt(td_status s, enum fault fault, void *data, size_t bytes) {
    if (s || fault != FAULT_CORRUPT || !data) return s;
    for (size_t i = bytes < 4 ? bytes - 1 : 3; bytes && i < bytes; i += 64) { // sign of an fp32
        ((unsigned char *)data)[i] ^= 0x80;
    }
    return TD_OK;
}

// Makes a call that gives `bytes` at `data`, or not.
#define FAULTY(data, bytes, call)                                                                  \
    do {                                                                                           \
        const enum fault fault = next_call(c);                                                     \
        return fault == FAULT_DROP ? TD_OK : corrupt(c->ops->call, fault, data, bytes);            \
    } while (0)

#define BYTES(n, dtype) ((size_t)(n)*td_dtype_bytes(dtype))

static td_status fault_all_reduce(struct td_collective *c, void *data, int64_t n,
                                  enum td_dtype dtype, enum td_reduce_op op) {
    FAULTY(data, BYTES(n, dtype), all_reduce(c->inner, data, n, dtype, op));
}

// The sum need not be there before wait_buckets, so that is where one is corrupted.
static td_status fault_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b) {
    const enum fault fault = next_call(c);
    if (fault == FAULT_DROP) return TD_OK;
    if (fault == FAULT_CORRUPT) {
        c->late_data = td_bucket_host(b);
        c->late_bytes = BYTES(b->n, b->dtype);
    }
    return c->ops->all_reduce_bucket(c->inner, b);
}

static td_status fault_wait_buckets(struct td_collective *c) {
    td_status s = c->ops->wait_buckets ? c->ops->wait_buckets(c->inner) : TD_OK;
    s = corrupt(s, FAULT_CORRUPT, c->late_data, c->late_bytes);
    c->late_data = NULL;
    return s;
}

static td_status fault_all_gather(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    FAULTY(out, bytes, all_gather(c->inner, in, bytes, out));
}

static td_status fault_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    FAULTY(data, bytes, broadcast(c->inner, data, bytes, src));
}

static td_status fault_barrier(struct td_collective *c, const char *tag) {
    FAULTY(NULL, 0, barrier(c->inner, tag));
}

static td_status fault_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                              enum td_reduce_op op, int32_t dst) {
    FAULTY(data, BYTES(n, dtype), reduce(c->inner, data, n, dtype, op, dst));
}

static td_status fault_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                      enum td_dtype dtype, enum td_reduce_op op) {
    FAULTY(out, BYTES(n, dtype), reduce_scatter(c->inner, in, out, n, dtype, op));
}

static td_status fault_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                              int32_t dst) {
    FAULTY(out, bytes, gather(c->inner, in, bytes, out, dst));
}

static td_status fault_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                               int32_t src) {
    FAULTY(out, bytes, scatter(c->inner, in, bytes, out, src));
}

static td_status fault_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes,
                                         void *out, size_t out_bytes, size_t *counts) {
    FAULTY(out, bytes, all_gather_uneven(c->inner, in, bytes, out, out_bytes, counts));
}

static td_status fault_all_to_all(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    FAULTY(out, bytes, all_to_all(c->inner, in, bytes, out));
}

static td_status fault_send(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                            uint32_t tag) {
    FAULTY(NULL, 0, send(c->inner, data, bytes, dst, tag));
}

static td_status fault_recv(struct td_collective *c, void *data, size_t bytes, int32_t src,
                            uint32_t tag) {
    FAULTY(data, bytes, recv(c->inner, data, bytes, src, tag));
}

// ---- calls that are started ---------------------------------------------------------------------
static td_status fault_start(struct td_collective *c, const struct td_collective_start *call,
                             struct td_collective_work **out_work) {
    struct td_collective_work *k = NULL;
    for (int i = 0; i < TD_OPEN_CALLS_MAX && !k; i++) {
        if (!c->work[i].is_open) k = &c->work[i];
    }
    if (!k) return td_fail(TD_RESOURCE_EXHAUSTED, "start: wait for one of the open handles first");
    const enum fault fault = next_call(c);
    struct td_collective_work *inner = NULL;
    if (fault != FAULT_DROP) TD_TRY(c->ops->start(c->inner, call, &inner));
    const bool reduces = call->call == TD_ASYNC_ALL_REDUCE || call->call == TD_ASYNC_REDUCE_SCATTER;
    k->inner = inner;
    k->is_open = true;
    k->fault = fault;
    k->out = call->call == TD_ASYNC_BARRIER ? NULL : call->out;
    k->bytes = reduces ? BYTES(call->n, call->dtype) : call->bytes;
    *out_work = k;
    return TD_OK;
}

static struct td_collective_work *open_work(struct td_collective *c,
                                            const struct td_collective_work *work) {
    for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
        if (&c->work[i] == work && work->is_open) return &c->work[i];
    }
    return NULL;
}

static td_status fault_wait(struct td_collective *c, struct td_collective_work *work,
                            int64_t timeout_ns) {
    struct td_collective_work *k = open_work(c, work);
    if (!k) return td_fail(TD_INVALID_ARGUMENT, "wait: this is no open handle");
    enum fault fault = next_call(c);
    if (k->fault == FAULT_CORRUPT) fault = FAULT_CORRUPT;
    k->is_open = false;
    if (!k->inner) return TD_OK;
    return corrupt(c->ops->wait(c->inner, k->inner, timeout_ns), fault, k->out, k->bytes);
}

static td_status fault_test(struct td_collective *c, struct td_collective_work *work,
                            bool *out_done) {
    const struct td_collective_work *k = open_work(c, work);
    if (!k) return td_fail(TD_INVALID_ARGUMENT, "test: this is no open handle");
    *out_done = true;
    return k->inner ? c->ops->test(c->inner, k->inner, out_done) : TD_OK;
}

static void fault_set_deadline(struct td_collective *c,
                               const struct td_collective_deadline *deadline) {
    if (c->ops->set_deadline) c->ops->set_deadline(c->inner, deadline);
}

static const struct td_collective_ops ops = {
    .struct_bytes = sizeof ops,
    .facts = fault_facts,
    .shared_bytes = fault_shared_bytes,
    .join = fault_join,
    .leave = fault_leave,
    .abort = fault_abort,
    .set_deadline = fault_set_deadline,
    .gradients = fault_gradients,
    .all_reduce_bucket = fault_all_reduce_bucket,
    .wait_buckets = fault_wait_buckets,
    .all_reduce = fault_all_reduce,
    .all_gather = fault_all_gather,
    .broadcast = fault_broadcast,
    .barrier = fault_barrier,
    .reduce = fault_reduce,
    .reduce_scatter = fault_reduce_scatter,
    .gather = fault_gather,
    .scatter = fault_scatter,
    .all_gather_uneven = fault_all_gather_uneven,
    .all_to_all = fault_all_to_all,
    .send = fault_send,
    .recv = fault_recv,
    .start = fault_start,
    .wait = fault_wait,
    .test = fault_test,
};

TD_PLUGIN_WITH_KNOBS(COLLECTIVE, "fault", "wraps another, and breaks one call of one rank", &ops,
                     knobs)
