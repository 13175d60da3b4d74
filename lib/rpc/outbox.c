// A singly linked queue of packed messages with a byte count and a lazy timer.
//
// Full and writable have a gap between them. It is full at max_bytes, and writable again at half of
// that, so that a fast sender is woken for a batch and not for each message. One message may go
// over the bound, because its size is known only once it is packed; none is taken while it is full.
// The timer is armed by a send that finds it idle, and looks at the age of whatever is in flight
// then.

#include "lib/rpc/outbox.h"

#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/rpc/buffer.h"

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

static void free_in_flight(struct td_outbox *o) {
    while (o->in_flight) {
        struct td_outbox_item *item = o->in_flight;
        o->in_flight = item->next;
        o->bytes -= item->bytes;
        free_item(item);
    }
    if (o->joined) grpc_byte_buffer_destroy(o->joined);
    o->joined = NULL;
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
    free_in_flight(o);
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

void td_outbox_hurry(struct td_outbox *o, int64_t stall_ns) {
    if (stall_ns >= o->stall_ns) return;
    o->stall_ns = stall_ns;
    if (o->in_flight && o->timer) td_loop_timer_arm(o->timer, stall_ns);
}

// Key and length of a field of bytes, as protobuf writes them.
static grpc_slice field_header(uint32_t field, size_t bytes) {
    uint8_t text[2 * 10];
    size_t n = 0;
    uint64_t words[] = {(uint64_t)field << 3 | 2, bytes};
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        for (; words[i] >= 0x80; words[i] >>= 7) {
            text[n++] = (uint8_t)(words[i] | 0x80);
        }
        text[n++] = (uint8_t)words[i];
    }
    return grpc_slice_from_copied_buffer((const char *)text, n);
}

// All that is in flight as one message, without copies of what it holds.
static grpc_byte_buffer *join(const struct td_outbox *o) {
    grpc_slice slices[2 * TD_OUTBOX_JOINED];
    size_t n = 0;
    for (const struct td_outbox_item *i = o->in_flight; i; i = i->next) {
        const grpc_slice *body = &i->buffer->data.raw.slice_buffer.slices[0];
        slices[n++] = field_header(o->batch_field, GRPC_SLICE_LENGTH(*body));
        slices[n++] = *body;
    }
    grpc_byte_buffer *joined = grpc_raw_byte_buffer_create(slices, n);
    for (size_t i = 0; i < n; i += 2) {
        grpc_slice_unref(slices[i]);
    }
    return joined;
}

grpc_byte_buffer *td_outbox_begin(struct td_outbox *o) {
    TD_CHECK(o->head && !o->in_flight);
    struct td_outbox_item *last = o->head;
    size_t n = 1, bytes = last->bytes;
    while (o->batch_field && last->next && n < TD_OUTBOX_JOINED &&
           bytes + last->next->bytes <= TD_OUTBOX_JOINED_BYTES) {
        last = last->next;
        bytes += last->bytes;
        n++;
    }
    o->in_flight = o->head;
    o->head = last->next;
    if (!o->head) o->tail = &o->head;
    last->next = NULL;
    if (o->on_stall) o->sent_at = td_mono_now();
    watch_age(o);
    if (n > 1) o->joined = join(o);
    return n > 1 ? o->joined : o->in_flight->buffer;
}

bool td_outbox_end(struct td_outbox *o) {
    free_in_flight(o);
    if (!o->full || o->bytes > o->max_bytes / 2) return false;
    o->full = false;
    return true;
}
