#ifndef TRAIND_LIB_RPC_OUTBOX_H
#define TRAIND_LIB_RPC_OUTBOX_H

// What a stream still has to send: one buffer in flight and a queue after it, bounded in bytes.
//
// gRPC completes a send when the peer's flow control has taken it. A peer that reads slowly lets
// the queue fill up, which is reported to the sender. One that stops reading keeps a send in
// flight, and when that is stall_ns old, on_stall is called once. The timer runs only while
// something is in flight and is not touched per message: when it fires too early, it is set to what
// is left. Loop's thread. Private to lib/rpc.
//
// In batches: where the type has a field `repeated bytes` that takes messages of the same type,
// what waits goes as one message, up to TD_OUTBOX_JOINED of them and TD_OUTBOX_JOINED_BYTES. A
// message that waits alone goes as it is.

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>

#include "lib/rpc/rpc.h"

enum { TD_OUTBOX_JOINED = 128, TD_OUTBOX_JOINED_BYTES = 1 << 20 };

struct td_loop;
struct td_loop_timer;
struct td_outbox_item;

struct td_outbox {
    struct td_loop *loop;
    size_t max_bytes;
    int64_t stall_ns;
    void (*on_stall)(void *owner);
    void *owner;
    struct td_outbox_item *head;
    struct td_outbox_item **tail;
    struct td_outbox_item *in_flight; // one, or those that were joined
    grpc_byte_buffer *joined;         // what they were joined to
    uint32_t batch_field;             // 0: not in batches
    size_t bytes;                     // queued and in flight
    bool full;
    struct td_mono sent_at;
    struct td_loop_timer *timer;
};

void td_outbox_init(struct td_outbox *o, struct td_loop *loop, size_t max_bytes, int64_t stall_ns,
                    void (*on_stall)(void *owner), void *owner);
void td_outbox_finish(struct td_outbox *o);
// Packs and queues. TD_OK with *out_send REFUSED: the queue was full before. An error: the message
// is too large, or no memory.
TD_MUST_USE td_status td_outbox_push(struct td_outbox *o, const ProtobufCMessage *m,
                                     size_t max_message_bytes, enum td_rpc_send *out_send);
bool td_outbox_is_empty(const struct td_outbox *o); // nothing queued; something may be in flight
bool td_outbox_has_one(const struct td_outbox *o);
// The next buffer, now in flight; it stays the outbox's.
grpc_byte_buffer *td_outbox_begin(struct td_outbox *o);
// The send in flight is over. True: it was full, and half is free again.
bool td_outbox_end(struct td_outbox *o);
// From now on a send may be no older than this.
void td_outbox_hurry(struct td_outbox *o, int64_t stall_ns);
// Forgets what is queued.
void td_outbox_discard(struct td_outbox *o);

#endif
