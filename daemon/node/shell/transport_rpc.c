// The gRPC transport: one Session stream, dialled again whenever it ends. The back-off doubles from
// 0.1 to 5 s and falls back to the start once the coordinator has said something. Jitter keeps the
// nodes of a restarted coordinator from coming back in step. A stream that could be opened is a
// session at once: Register is the first message on it, and the coordinator's Registered says that
// it is really there.
//
// If it also says that it reads batches, what a turn of the loop sends goes as one message, at its
// end. What nobody waits for goes with the next message, or after a tenth of a second.

#include "daemon/node/shell/transport.h"

#include <string.h>

#include "lib/attempt/events.h"
#include "lib/base/clock.h"
#include "lib/base/rng.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"

#define BACKOFF_MIN_NS (100 * TD_NS_PER_MS)
#define BACKOFF_MAX_NS (5 * TD_NS_PER_S)

enum { td_dialled_magic = 0x54525043, BATCH_FIELD = 15 }; // of NodeMessage
static const int64_t patience_ns = 100 * TD_NS_PER_MS;

struct td_dialled {
    struct td_transport base;
    uint32_t magic;
    struct td_rpc_channel *channel;
    const struct td_transport_events *events;
    void *arg;
    struct td_rpc_stream *stream; // NULL: no session
    struct td_loop_timer *dial;
    struct td_loop_turn *turn;
    struct td_loop_timer *patience; // armed while something waits that could
    bool unsent;                    // something waits for the end of the turn
    int64_t backoff_ns;
    bool closing;
};

static struct td_dialled *self_of(struct td_transport *t) {
    return TD_CAST(td_dialled, (struct td_dialled *)(void *)t);
}

static void dial_later(struct td_dialled *t) {
    uint32_t random;
    td_random_bytes(&random, sizeof random);
    double share = 0.5 + 0.5 * (double)random / 4294967296.0;
    td_loop_timer_arm(t->dial, (int64_t)((double)t->backoff_ns * share));
    t->backoff_ns = TD_MIN(2 * t->backoff_ns, BACKOFF_MAX_NS);
}

static void take_one(struct td_dialled *t, const Traind__V1__CoordinatorMessage *m) {
    if (t->closing) return;
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED &&
        m->registered->batches) {
        td_rpc_stream_set_batch(t->stream, BATCH_FIELD);
    }
    t->events->on_message(m, t->arg);
}

static void on_message(struct td_rpc_stream *s, const ProtobufCMessage *message, void *arg) {
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    const Traind__V1__CoordinatorMessage *m = (const Traind__V1__CoordinatorMessage *)message;
    t->backoff_ns = BACKOFF_MIN_NS;
    if (!m->n_batch) take_one(t, m);
    for (size_t i = 0; i < m->n_batch; i++) {
        TD_AUTO(td_rpc_message) *one = NULL;
        td_status bad = td_rpc_message_decode(&traind__v1__coordinator_message__descriptor,
                                              m->batch[i].data, m->batch[i].len, &one);
        if (bad) { // what follows may build on it
            td_status_free(bad);
            td_rpc_stream_cancel(s);
            return;
        }
        take_one(t, (const Traind__V1__CoordinatorMessage *)td_rpc_message_get(one));
    }
}

static void on_writable(struct td_rpc_stream *s, void *arg) {
    (void)s;
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    if (!t->closing) t->events->on_writable(t->arg);
}

static void flush(void *arg) {
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    t->unsent = false;
    td_loop_timer_disarm(t->patience);
    if (t->stream) td_rpc_stream_flush(t->stream);
}

static void on_turn(void *arg) {
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    if (t->unsent) flush(t);
}

static void free_self(struct td_dialled *t) {
    td_loop_timer_destroy(t->dial);
    td_loop_timer_destroy(t->patience);
    td_loop_turn_destroy(t->turn);
    t->magic = 0;
    free(t);
}

static void on_done(struct td_rpc_stream *s, td_status take_status, void *arg) {
    (void)s;
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    t->stream = NULL;
    if (t->closing) {
        td_status_free(take_status);
        free_self(t);
        return;
    }
    t->events->on_down(take_status ? td_status_message(take_status) : "the coordinator ended it",
                       t->arg);
    td_status_free(take_status);
    dial_later(t);
}

static const struct td_rpc_stream_ops stream_ops = {
    .on_message = on_message,
    .on_writable = on_writable,
    .on_done = on_done,
};

static void dial(void *arg) {
    struct td_dialled *t = TD_CAST(td_dialled, arg);
    td_status failed = td_rpc_stream_open(t->channel, "/traind.v1.NodeService/Session",
                                          &traind__v1__coordinator_message__descriptor, 0,
                                          &stream_ops, t, &t->stream);
    if (failed) {
        t->events->on_down(td_status_message(failed), t->arg);
        td_status_free(failed);
        dial_later(t);
        return;
    }
    t->events->on_up(t->arg);
}

static void rpc_start(struct td_transport *base, const struct td_transport_events *events,
                      void *arg) {
    struct td_dialled *t = self_of(base);
    t->events = events;
    t->arg = arg;
    td_loop_timer_arm(t->dial, 0);
}

// An event log that says no more than that its launcher lives; its ranks are ready soon.
static bool only_launched(const Traind__V1__Segment *s) {
    const char *line = (const char *)s->data.data;
    return s->kind == TRAIND__V1__SEGMENT__KIND__EVENTS &&
           td_event_line_is(line, s->data.len, TD_EVENT_LAUNCHED) &&
           memchr(line, '\n', s->data.len) == line + s->data.len - 1;
}

// Nothing is decided by it, or a message that cannot wait follows.
static bool can_wait(const Traind__V1__NodeMessage *m) {
    return m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED ||
           m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE ||
           (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT && only_launched(m->segment));
}

static enum td_transport_send rpc_send(struct td_transport *base,
                                       const Traind__V1__NodeMessage *message) {
    struct td_dialled *t = self_of(base);
    if (!t->stream) return TD_TRANSPORT_REFUSED;
    if (!can_wait(message)) {
        t->unsent = true;
    } else if (!td_loop_timer_is_armed(t->patience)) {
        td_loop_timer_arm(t->patience, patience_ns);
    }
    switch (td_rpc_stream_send(t->stream, &message->base)) {
    case TD_RPC_SEND_MORE:
        return TD_TRANSPORT_MORE;
    case TD_RPC_SEND_FULL:
        return TD_TRANSPORT_FULL;
    case TD_RPC_SEND_REFUSED:
        return TD_TRANSPORT_REFUSED;
    }
    return TD_TRANSPORT_REFUSED;
}

static void rpc_reset(struct td_transport *base) {
    struct td_dialled *t = self_of(base);
    if (t->stream) td_rpc_stream_cancel(t->stream); // on_done dials again
}

static void rpc_destroy(struct td_transport *base) {
    if (!base) return;
    struct td_dialled *t = self_of(base);
    t->closing = true;
    if (t->stream) {
        td_rpc_stream_cancel(t->stream); // on_done frees, at the latest when the channel goes
        return;
    }
    free_self(t);
}

static const struct td_transport_ops ops = {
    .name = "rpc",
    .start = rpc_start,
    .send = rpc_send,
    .reset = rpc_reset,
    .destroy = rpc_destroy,
};

td_status td_transport_rpc_create(struct td_loop *loop, struct td_rpc_channel *channel,
                                  struct td_transport **out_transport) {
    struct td_dialled *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    t->base.ops = &ops;
    t->magic = td_dialled_magic;
    t->channel = channel;
    t->backoff_ns = BACKOFF_MIN_NS;
    td_status failed = td_loop_timer_create(loop, dial, t, &t->dial);
    if (!failed) failed = td_loop_timer_create(loop, flush, t, &t->patience);
    if (!failed) failed = td_loop_turn_create(loop, on_turn, t, &t->turn);
    if (failed) {
        free_self(t);
        return failed;
    }
    *out_transport = &t->base;
    return TD_OK;
}
