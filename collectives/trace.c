// A decorator that writes down the calls of the backend inside, as a Chrome trace.
//
// There is one file a rank and attempt (lib/base/files/trace_file.h),
// trace-a<attempt>-rank<rank>.json. A group that ranks joined beside the first has its own, with
// -group<number> before the dot. The pid of an event is the rank, its tid is 0 or the number of a
// group of some ranks. An event is the time from call to return; a call on a device may only have
// queued its work by then.
//
// It is flushed after a barrier and after a call that failed; that of a group without barriers at
// its end alone. A trace that cannot be written ends the attempt: who asked for one would otherwise
// look at half of it. Rejected: one file for all ranks, in which lines of several writers would
// have to be kept apart.
//
// Thread: that of the calls (collectives.h); abort is not written down.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/reduce.h"
#include "lib/base/files/files.h"
#include "lib/base/files/trace_file.h"

// A call that was started: the handle of the backend inside, and what the trace calls it.
struct td_collective_work {
    struct td_collective_work *inner; // NULL: free
    size_t bytes;
    int dtype, op, call;
};

struct td_collective {
    const struct td_collective_ops *ops; // of the backend inside
    struct td_collective *inner;
    struct td_collective *whole; // itself, or that of all ranks
    struct td_collective *next;  // groups of the whole, to free what is left
    int32_t rank, number;        // of a group: from 1
    struct td_collective_work work[TD_OPEN_CALLS_MAX];
    // of the whole alone
    int32_t n_groups; // ever made
    struct td_trace_file *file;
};

struct event {
    const char *name;
    struct td_mono start;
    size_t bytes; // of this rank's part
    int dtype;    // -1: bytes
    int op;       // -1: none
};

// ---- the file -----------------------------------------------------------------------------------
static td_status add_line(struct td_collective *c, const struct event *e, enum td_code code) {
    const struct td_trace_event event = {.category = "collective",
                                         .name = e->name,
                                         .start = e->start,
                                         .end = td_mono_now(),
                                         .process = c->rank,
                                         .thread = c->number};
    char args[200], dtype[40] = "", op[40] = "", error[64] = "";
    if (e->dtype >= 0) {
        snprintf(dtype, sizeof dtype, ",\"dtype\":\"%s\"", td_dtype_name((enum td_dtype)e->dtype));
    }
    if (e->op >= 0) {
        snprintf(op, sizeof op, ",\"op\":\"%s\"", td_reduce_op_name((enum td_reduce_op)e->op));
    }
    if (code) snprintf(error, sizeof error, ",\"error\":\"%s\"", td_code_name(code));
    snprintf(args, sizeof args, "\"bytes\":%zu%s%s%s", e->bytes, dtype, op, error);
    return td_trace_file_add(c->whole->file, &event, args);
}

// What the call gave; where that is well, what the trace did.
static td_status record(struct td_collective *c, struct event e, td_status s) {
    td_status written = add_line(c, &e, td_status_code(s));
    if (!written && s) written = td_trace_file_flush(c->whole->file);
    if (!s) return td_status_with_class(written, TD_CLASS_BAD_SPEC);
    td_status_free(written);
    return s;
}

static td_status open_file(struct td_collective *c, const struct td_collective_config *config) {
    const char *dir;
    char path[TD_FS_PATH_BYTES], group[24] = "";
    int64_t max_events;
    if (config->group) snprintf(group, sizeof group, "-group%d", config->group);
    TD_TRY(td_knob_text(config->knobs, "dir", &dir));
    TD_TRY(td_knob_int(config->knobs, "max_events", &max_events));
    TD_TRY(
        td_fs_path(path, "%s/trace-a%d-rank%d%s.json", dir, config->attempt, config->rank, group));
    return td_status_with_class(td_status_context(td_trace_file_create(path, max_events, &c->file),
                                                  "trainer.collective.dir"),
                                TD_CLASS_BAD_SPEC);
}

// ---- life ---------------------------------------------------------------------------------------
static td_status trace_facts(struct td_collective_facts *out_facts) {
    TD_TRY(td_collective_host_facts(out_facts));
    out_facts->wraps = true;
    return TD_OK;
}

static size_t trace_shared_bytes(int32_t world_size, size_t gradient_bytes) {
    (void)world_size, (void)gradient_bytes;
    return 0;
}

static void trace_leave(struct td_collective *c) {
    if (!c || c->whole != c) return; // a group goes by group_destroy, or with the whole
    for (struct td_collective *g = c->next, *after; g; g = after) {
        after = g->next;
        free(g);
    }
    if (c->ops) c->ops->leave(c->inner);
    td_trace_file_destroy(c->file);
    free(c);
}

static td_status trace_join(const struct td_collective_config *config,
                            struct td_collective **out_c) {
    TD_TRY(td_collective_check_config(config));
    if (!config->inner) {
        return td_fail(TD_INVALID_ARGUMENT, "the collective 'trace' wraps another; none was given");
    }
    struct td_collective *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->whole = c;
    c->rank = config->rank;
    struct td_collective_config inside = *config;
    inside.inner = NULL;
    inside.knobs = NULL;
    td_status s = open_file(c, config);
    if (!s) s = config->inner->join(&inside, &c->inner);
    if (!s) c->ops = config->inner;
    if (s) {
        trace_leave(c);
        return s;
    }
    *out_c = c;
    return TD_OK;
}

static td_status trace_gradients(struct td_collective *c, void **out_data, size_t *out_bytes) {
    return c->ops->gradients(c->inner, out_data, out_bytes);
}

static void trace_abort(struct td_collective *c) {
    c->ops->abort(c->inner);
}

// ---- the calls ----------------------------------------------------------------------------------
// The event first: its time has to be read before the call is made.
#define TRACED(name, bytes, dtype, op, ...)                                                        \
    do {                                                                                           \
        const struct event e = {name, td_mono_now(), bytes, dtype, op};                            \
        return record(c, e, c->ops->__VA_ARGS__);                                                  \
    } while (0)

static size_t bytes_of(int64_t n, enum td_dtype dtype) {
    return n > 0 && (size_t)dtype < TD_DTYPE_COUNT ? (size_t)n * td_dtype_bytes(dtype) : 0;
}

static int known(enum td_dtype dtype) {
    return (size_t)dtype < TD_DTYPE_COUNT ? (int)dtype : -1;
}

static td_status trace_all_reduce(struct td_collective *c, void *data, int64_t n,
                                  enum td_dtype dtype, enum td_reduce_op op) {
    TRACED("all_reduce", bytes_of(n, dtype), known(dtype), (int)op,
           all_reduce(c->inner, data, n, dtype, op));
}

static td_status trace_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b) {
    TRACED("all_reduce_bucket", bytes_of(b->n, b->dtype), known(b->dtype), TD_REDUCE_MEAN,
           all_reduce_bucket(c->inner, b));
}

static td_status trace_wait_buckets(struct td_collective *c) {
    if (!c->ops->wait_buckets) return TD_OK;
    TRACED("wait_buckets", 0, -1, -1, wait_buckets(c->inner));
}

static td_status trace_all_gather(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    TRACED("all_gather", bytes, -1, -1, all_gather(c->inner, in, bytes, out));
}

static td_status trace_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    TRACED("broadcast", bytes, -1, -1, broadcast(c->inner, data, bytes, src));
}

static td_status trace_barrier(struct td_collective *c, const char *tag) {
    const struct event e = {"barrier", td_mono_now(), 0, -1, -1};
    TD_TRY(record(c, e, c->ops->barrier(c->inner, tag)));
    return td_status_with_class(td_trace_file_flush(c->whole->file), TD_CLASS_BAD_SPEC);
}

static td_status trace_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                              enum td_reduce_op op, int32_t dst) {
    TRACED("reduce", bytes_of(n, dtype), known(dtype), (int)op,
           reduce(c->inner, data, n, dtype, op, dst));
}

static td_status trace_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                      enum td_dtype dtype, enum td_reduce_op op) {
    TRACED("reduce_scatter", bytes_of(n, dtype), known(dtype), (int)op,
           reduce_scatter(c->inner, in, out, n, dtype, op));
}

static td_status trace_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                              int32_t dst) {
    TRACED("gather", bytes, -1, -1, gather(c->inner, in, bytes, out, dst));
}

static td_status trace_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                               int32_t src) {
    TRACED("scatter", bytes, -1, -1, scatter(c->inner, in, bytes, out, src));
}

static td_status trace_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes,
                                         void *out, size_t out_bytes, size_t *counts) {
    TRACED("all_gather_uneven", bytes, -1, -1,
           all_gather_uneven(c->inner, in, bytes, out, out_bytes, counts));
}

static td_status trace_all_to_all(struct td_collective *c, const void *in, size_t bytes,
                                  void *out) {
    TRACED("all_to_all", bytes, -1, -1, all_to_all(c->inner, in, bytes, out));
}

static td_status trace_send(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                            uint32_t tag) {
    TRACED("send", bytes, -1, -1, send(c->inner, data, bytes, dst, tag));
}

static td_status trace_recv(struct td_collective *c, void *data, size_t bytes, int32_t src,
                            uint32_t tag) {
    TRACED("recv", bytes, -1, -1, recv(c->inner, data, bytes, src, tag));
}

// ---- groups -------------------------------------------------------------------------------------
static td_status trace_group_create(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                                    struct td_collective **out_group) {
    const struct event e = {"group_create", td_mono_now(), 0, -1, -1};
    struct td_collective *inner = NULL, *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    td_status s = record(c, e, c->ops->group_create(c->inner, ranks, n_ranks, &inner));
    if (s || !inner) {
        free(g);
        if (!s) *out_group = NULL;
        return s;
    }
    g->ops = c->ops;
    g->inner = inner;
    g->whole = c->whole;
    g->rank = c->rank;
    g->number = ++c->whole->n_groups;
    g->next = c->next;
    c->next = g;
    *out_group = g;
    return TD_OK;
}

static td_status trace_group_destroy(struct td_collective *c, struct td_collective *group) {
    if (!group) return TD_OK;
    struct td_collective **at = &c->next;
    while (*at && *at != group) {
        at = &(*at)->next;
    }
    if (!*at) return td_collective_fail_foreign_group();
    const struct event e = {"group_destroy", td_mono_now(), 0, -1, -1};
    TD_TRY(record(c, e, c->ops->group_destroy(c->inner, group->inner)));
    *at = group->next;
    free(group);
    return TD_OK;
}

// ---- calls that are started: an event of the start, and one of the wait -------------------------
static const char *const started[][2] = {
    [TD_ASYNC_ALL_REDUCE] = {"start all_reduce", "wait all_reduce"},
    [TD_ASYNC_REDUCE_SCATTER] = {"start reduce_scatter", "wait reduce_scatter"},
    [TD_ASYNC_ALL_GATHER] = {"start all_gather", "wait all_gather"},
    [TD_ASYNC_BROADCAST] = {"start broadcast", "wait broadcast"},
    [TD_ASYNC_BARRIER] = {"start barrier", "wait barrier"},
};
_Static_assert(TD_COUNTOF(started) == TD_ASYNC_COUNT, "a name per call");

static td_status trace_start(struct td_collective *c, const struct td_collective_start *call,
                             struct td_collective_work **out_work) {
    struct td_collective_work *k = NULL;
    TD_TRY(td_collective_check_start(call, TD_COLLECTIVE_MAX_WORLD));
    for (int i = 0; i < TD_OPEN_CALLS_MAX && !k; i++) {
        if (!c->work[i].inner) k = &c->work[i];
    }
    if (!k) return td_collective_fail_too_many_handles(call);
    const bool reduces = call->call == TD_ASYNC_ALL_REDUCE || call->call == TD_ASYNC_REDUCE_SCATTER;
    const bool moves = call->call == TD_ASYNC_ALL_GATHER || call->call == TD_ASYNC_BROADCAST;
    const size_t bytes = reduces ? bytes_of(call->n, call->dtype) : moves ? call->bytes : 0;
    const struct event e = {started[call->call][0], td_mono_now(), bytes,
                            reduces ? (int)call->dtype : -1, reduces ? (int)call->op : -1};
    struct td_collective_work *inner = NULL;
    TD_TRY(record(c, e, c->ops->start(c->inner, call, &inner)));
    *k = (struct td_collective_work){inner, bytes, e.dtype, e.op, (int)call->call};
    *out_work = k;
    return TD_OK;
}

static struct td_collective_work *open_work(struct td_collective *c,
                                            const struct td_collective_work *work) {
    for (int i = 0; i < TD_OPEN_CALLS_MAX; i++) {
        if (&c->work[i] == work) return work->inner ? &c->work[i] : NULL;
    }
    return NULL;
}

static td_status trace_wait(struct td_collective *c, struct td_collective_work *work,
                            int64_t timeout_ns) {
    struct td_collective_work *k = open_work(c, work);
    if (!k) return td_collective_fail_foreign_handle("wait");
    const struct td_collective_work was = *k;
    k->inner = NULL;
    TRACED(started[was.call][1], was.bytes, was.dtype, was.op,
           wait(c->inner, was.inner, timeout_ns));
}

static td_status trace_test(struct td_collective *c, struct td_collective_work *work,
                            bool *out_done) {
    const struct td_collective_work *k = open_work(c, work);
    if (!k) return td_collective_fail_foreign_handle("test");
    return c->ops->test(c->inner, k->inner, out_done);
}

static void trace_set_deadline(struct td_collective *c,
                               const struct td_collective_deadline *deadline) {
    if (c->ops->set_deadline) c->ops->set_deadline(c->inner, deadline);
}

static const struct td_collective_ops trace_ops = {
    .struct_bytes = sizeof(struct td_collective_ops),
    .facts = trace_facts,
    .shared_bytes = trace_shared_bytes,
    .join = trace_join,
    .leave = trace_leave,
    .gradients = trace_gradients,
    .all_reduce = trace_all_reduce,
    .all_reduce_bucket = trace_all_reduce_bucket,
    .wait_buckets = trace_wait_buckets,
    .all_gather = trace_all_gather,
    .broadcast = trace_broadcast,
    .barrier = trace_barrier,
    .abort = trace_abort,
    .reduce = trace_reduce,
    .reduce_scatter = trace_reduce_scatter,
    .gather = trace_gather,
    .scatter = trace_scatter,
    .all_gather_uneven = trace_all_gather_uneven,
    .all_to_all = trace_all_to_all,
    .send = trace_send,
    .recv = trace_recv,
    .group_create = trace_group_create,
    .group_destroy = trace_group_destroy,
    .start = trace_start,
    .wait = trace_wait,
    .test = trace_test,
    .set_deadline = trace_set_deadline,
};

const struct td_plugin_desc td_collective_trace = TD_PLUGIN_DESC(
    COLLECTIVE, "trace", "wraps another, and writes down its calls as a Chrome trace", &trace_ops);
