// A singly linked queue of packed messages with a byte count and a lazy timer.
//
// Full and writable have a gap between them: it is full at max_bytes, and writable again at half of
// that, so that a fast sender is woken for a batch and not for each message. One message may go
// over the bound, because its size is known only once it is packed; none is taken while it is full.
// The timer is armed by a send that finds it idle, and looks at the age of whatever is in flight
// then.

#include "lib/rpc/outbox.h"

#include "lib/base/clock.h"
#include "lib/rpc/buffer.h"
#include "lib/rpc/loop.h"

struct td_outbox_item {
    struct td_outbox_item *next;
    grpc_byte_buffer *buffer;
    size_t bytes;
};

static void free_item(struct td_outbox_item *item) {
    if (!item) return;
    if (item->buffer) grpc_byte_buffer_destroy(item->buffer);
    free(item);
}

void td_outbox_init(struct td_outbox *o, struct td_loop *loop, size_t max_bytes, int64_t stall_ns,
                    void (*on_stall)(void *owner), void *owner) {
    *o = (struct td_outbox){.loop = loop,
                            .max_bytes = max_bytes,
                            .stall_ns = stall_ns,
                            .on_stall = on_stall,
                            .owner = owner};
    o->tail = &o->head;
}

void td_outbox_discard(struct td_outbox *o) {
    while (o->head) {
        struct td_outbox_item *item = o->head;
        o->head = item->next;
        o->bytes -= item->bytes;
        free_item(item);
    }
    o->tail = &o->head;
}

void td_outbox_finish(struct td_outbox *o) {
    td_outbox_discard(o);
    free_item(o->in_flight);
    o->in_flight = NULL;
    td_loop_timer_destroy(o->timer);
    o->timer = NULL;
}

td_status td_outbox_push(struct td_outbox *o, const ProtobufCMessage *m, size_t max_message_bytes,
                         enum td_rpc_send *out_send) {
    if (o->full) {
        *out_send = TD_RPC_SEND_REFUSED;
        return TD_OK;
    }
    struct td_outbox_item *item = td_calloc(1, sizeof *item);
    if (!item) return td_fail_oom();
    td_status s = td_rpc_buffer_pack(m, max_message_bytes, &item->buffer, &item->bytes);
    if (s) {
        free_item(item);
        return s;
    }
    item->bytes += sizeof *item; // empty messages count too
    *o->tail = item;
    o->tail = &item->next;
    o->bytes += item->bytes;
    o->full = o->bytes >= o->max_bytes;
    *out_send = o->full ? TD_RPC_SEND_FULL : TD_RPC_SEND_MORE;
    return TD_OK;
}

bool td_outbox_is_empty(const struct td_outbox *o) {
    return !o->head;
}

bool td_outbox_has_one(const struct td_outbox *o) {
    return o->head && !o->head->next;
}

static void on_timer(void *arg) {
    struct td_outbox *o = arg;
    if (!o->in_flight) return;
    int64_t age_ns = td_mono_now().ns - o->sent_at.ns;
    if (age_ns >= o->stall_ns) {
        o->on_stall(o->owner);
    } else {
        td_loop_timer_arm(o->timer, o->stall_ns - age_ns);
    }
}

static void watch_age(struct td_outbox *o) {
    if (!o->on_stall) return;
    if (!o->timer) {
        td_status s = td_loop_timer_create(o->loop, on_timer, o, &o->timer);
        if (s) { // without memory for a timer the next send tries again
            td_status_free(s);
            return;
        }
    }
    if (!td_loop_timer_is_armed(o->timer)) td_loop_timer_arm(o->timer, o->stall_ns);
}

grpc_byte_buffer *td_outbox_begin(struct td_outbox *o) {
    TD_CHECK(o->head && !o->in_flight);
    struct td_outbox_item *item = o->head;
    o->head = item->next;
    if (!o->head) o->tail = &o->head;
    item->next = NULL;
    o->in_flight = item;
    if (o->on_stall) o->sent_at = td_mono_now();
    watch_age(o);
    return item->buffer;
}

bool td_outbox_end(struct td_outbox *o) {
    if (o->in_flight) o->bytes -= o->in_flight->bytes;
    free_item(o->in_flight);
    o->in_flight = NULL;
    if (!o->full || o->bytes > o->max_bytes / 2) return false;
    o->full = false;
    return true;
}
