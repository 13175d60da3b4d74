#ifndef TRAIND_LIB_RPC_CALL_H
#define TRAIND_LIB_RPC_CALL_H

// A call as its handlers see it, and the row of a table that names them. server.h says when each is
// called and how long a call lives. Loop's thread.

#include "lib/rpc/rpc.h"

struct td_peer_identity;
struct td_rpc_call;

// One row of the table. `ctx` is what td_rpc_server_add was given. Rows are borrowed: static const.
struct td_rpc_method {
    const char *service; // "traind.v1.JobService"
    const char *method;  // "GetJob"
    enum td_rpc_kind kind;
    bool open; // needs no credential
    // For the server's authorize and on_answered, in their own numbers; nothing else reads them.
    uint32_t role; // that a caller needs; 0: any credential will do
    uint32_t also; // another that will do; 0: none. Its handler judges what is shown to whom
    bool changes;  // a call of it changes something
    // 0: it is one of the server's max_calls. Else its calls are counted apart, up to this number,
    // and take no room from the others.
    uint32_t own_calls;
    // With own_calls: above that number the oldest of them ends instead, so that there is room for
    // a newcomer at all times.
    bool yields;
    // Its proto calls the types by other names; on the wire they are these.
    bool renamed;
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response;
    // Required. Unary and server stream: request is the message, it lives as long as the call.
    // Client stream and bidi: request is NULL; set the user pointer here.
    void (*on_call)(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx);
    // Client stream and bidi: required. message dies when the callback returns.
    void (*on_message)(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx);
    // Client stream and bidi: required. The client has sent its last message, whole. Not called
    // when the stream broke.
    void (*on_half_close)(struct td_rpc_call *call, void *ctx);
    // Server stream and bidi, may be NULL: after TD_RPC_SEND_FULL, half the queue is free again.
    void (*on_writable)(struct td_rpc_call *call, void *ctx);
    // May be NULL. After on_call: the server began or ceased to serve (td_rpc_server_is_serving).
    void (*on_serving)(struct td_rpc_call *call, void *ctx);
    // May be NULL. The call is over; free what the user pointer holds.
    void (*on_done)(struct td_rpc_call *call, void *ctx);
};

// Unary and client stream: the response, and OK. A response over the size limit becomes
// RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE. The message is packed now, not referred to afterwards.
void td_rpc_call_reply(struct td_rpc_call *call, const ProtobufCMessage *response);
// Server stream and bidi. A message over the size limit ends the call with an error.
enum td_rpc_send td_rpc_call_send(struct td_rpc_call *call, const ProtobufCMessage *message);
// From now on several responses may go as one: the response's field of this number is `repeated
// bytes` and takes packed responses in their order. What is sent waits until flush, or until a send
// that is in flight is over, and goes with all that waits then. Only for a client that reads it.
void td_rpc_call_set_batch(struct td_rpc_call *call, uint32_t field);
void td_rpc_call_flush(struct td_rpc_call *call);
// Ends the call after what is queued. TD_OK only for streams whose responses were sent.
void td_rpc_call_finish(struct td_rpc_call *call, td_status take_status);

// Client stream and bidi: while paused no message is read, and the sender is pushed back. A message
// that is on its way already is still delivered. Pausing nests not.
void td_rpc_call_pause(struct td_rpc_call *call);
void td_rpc_call_resume(struct td_rpc_call *call);

void td_rpc_call_ref(struct td_rpc_call *call);
void td_rpc_call_unref(struct td_rpc_call *call);

// Address of the client, "127.0.0.1:51000".
const char *td_rpc_call_peer(const struct td_rpc_call *call);
// Whose call it is: the number that authorize gave; 0 of one that was refused, or of an open row.
uint64_t td_rpc_call_identity(const struct td_rpc_call *call);
// What its connection showed (identity.h); dies with the call.
const struct td_peer_identity *td_rpc_call_certificate(const struct td_rpc_call *call);
// Its row, also of one that authorize refused; NULL: there is no such method.
const struct td_rpc_method *td_rpc_call_row(const struct td_rpc_call *call);
// What it is about, for whoever keeps a log of calls: printable text, cut at 63 bytes; "": nothing
// said so far. Set by handlers, before they answer.
void td_rpc_call_set_object(struct td_rpc_call *call, const char *object);
const char *td_rpc_call_object(const struct td_rpc_call *call);
// For the same: what it did is written there already.
void td_rpc_call_set_logged(struct td_rpc_call *call);
bool td_rpc_call_is_logged(const struct td_rpc_call *call);
// False once it was answered, cancelled or done: work for it may stop.
bool td_rpc_call_is_live(const struct td_rpc_call *call);
// Unary and server stream: the request; NULL otherwise. Dies with the call.
const ProtobufCMessage *td_rpc_call_request(const struct td_rpc_call *call);
void td_rpc_call_set_user(struct td_rpc_call *call, void *user);
void *td_rpc_call_user(const struct td_rpc_call *call);

#endif
