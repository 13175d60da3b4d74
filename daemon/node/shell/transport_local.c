// The local transport: node and coordinator in one process. Messages are packed and unpacked as on
// the wire, so both sides run the same code as when they are apart; only gRPC is left out. The
// session comes up in the turn after start and lasts until reset or destroy. Nothing is ever full:
// the other side takes a message in the same call, bounded by what it accepts.

#include "daemon/node/shell/transport.h"
#include "lib/loop/loop.h"

enum { td_local_magic = 0x544c4f43, SEND_MAX = 1 << 20 };

struct td_local {
    struct td_transport base;
    uint32_t magic;
    struct td_transport_peer peer;
    const struct td_transport_events *events;
    void *arg;
    void *link; // NULL: no session
    struct td_loop_timer *dial;
};

static struct td_local *self_of(struct td_transport *t) {
    return TD_CAST(td_local, (struct td_local *)(void *)t);
}

static void to_node(const void *packed, size_t bytes, void *arg) {
    struct td_local *t = TD_CAST(td_local, arg);
    Traind__V1__CoordinatorMessage *m =
        traind__v1__coordinator_message__unpack(NULL, bytes, packed);
    if (!m) return; // our own coordinator packs what it sends; out of memory is a lost message
    t->events->on_message(m, t->arg);
    traind__v1__coordinator_message__free_unpacked(m, NULL);
}

static void dial(void *arg) {
    struct td_local *t = TD_CAST(td_local, arg);
    td_status failed = t->peer.attach(t->peer.ctx, to_node, t, &t->link);
    if (failed) {
        t->events->on_down(td_status_message(failed), t->arg);
        td_status_free(failed);
        td_loop_timer_arm(t->dial, TD_NS_PER_S);
        return;
    }
    t->events->on_up(t->arg);
}

static void local_start(struct td_transport *base, const struct td_transport_events *events,
                        void *arg) {
    struct td_local *t = self_of(base);
    t->events = events;
    t->arg = arg;
    td_loop_timer_arm(t->dial, 0);
}

static enum td_transport_send local_send(struct td_transport *base,
                                         const Traind__V1__NodeMessage *message) {
    struct td_local *t = self_of(base);
    size_t bytes = traind__v1__node_message__get_packed_size(message);
    if (!t->link || bytes > SEND_MAX) return TD_TRANSPORT_REFUSED;
    TD_AUTO_FREE uint8_t *packed = malloc(bytes ? bytes : 1);
    if (!packed) return TD_TRANSPORT_REFUSED;
    traind__v1__node_message__pack(message, packed);
    td_status failed = t->peer.send(t->link, packed, bytes);
    bool refused = failed != TD_OK;
    td_status_free(failed);
    return refused ? TD_TRANSPORT_REFUSED : TD_TRANSPORT_MORE;
}

static void hang_up(struct td_local *t) {
    if (t->link) t->peer.detach(t->link);
    t->link = NULL;
}

static void local_reset(struct td_transport *base) {
    struct td_local *t = self_of(base);
    hang_up(t);
    t->events->on_down("reset", t->arg);
    td_loop_timer_arm(t->dial, TD_NS_PER_S);
}

static void local_destroy(struct td_transport *base) {
    if (!base) return;
    struct td_local *t = self_of(base);
    hang_up(t);
    td_loop_timer_destroy(t->dial);
    t->magic = 0;
    free(t);
}

static const struct td_transport_ops ops = {
    .name = "local",
    .embedded = true,
    .start = local_start,
    .send = local_send,
    .reset = local_reset,
    .destroy = local_destroy,
};

td_status td_transport_local_create(struct td_loop *loop, const struct td_transport_peer *peer,
                                    struct td_transport **out_transport) {
    struct td_local *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    t->base.ops = &ops;
    t->magic = td_local_magic;
    t->peer = *peer;
    td_status failed = td_loop_timer_create(loop, dial, t, &t->dial);
    if (failed) {
        local_destroy(&t->base);
        return failed;
    }
    *out_transport = &t->base;
    return TD_OK;
}
