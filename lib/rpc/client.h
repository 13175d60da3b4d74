#ifndef TRAIND_LIB_RPC_CLIENT_H
#define TRAIND_LIB_RPC_CLIENT_H

// gRPC client: a channel, unary calls, streams. Callbacks run on the loop's thread, never before
// the function that started them returned.
//
// A channel connects when first used and again by itself (back-off 0.1 to 2 s). A call made while
// it cannot connect fails with UNAVAILABLE UNREACHABLE, retrying is the caller's policy. The token
// travels as plain `authorization` metadata, therefore an address that is not loopback needs a CA,
// and is spoken to through gRPC's own TLS. The other end's certificate must be of that CA and have
// the host that is dialled; for 0.0.0.0, which is this machine, `localhost`. A server's error comes
// back as the td_status it was: code, message, reason, metadata (request_id among it), class, field
// violations.
//
// Every call ends exactly once: unary with its callback, a stream with on_done; cancel, deadline
// and channel_destroy included.

#include "lib/rpc/codec.h"
#include "lib/rpc/rpc.h"

struct td_loop;
struct td_rpc_channel;
struct td_rpc_stream;

// Zero means the default.
struct td_rpc_channel_options {
    const char *address;     // "HOST:PORT"
    const char *ca;          // file: the server's certificate must be of this CA; NULL: plain
    const char *certificate; // file: shown to the server, with the file of its key; NULL: none
    const char *key;
    const char *token;        // NULL sends none
    size_t max_message_bytes; // of one response
    size_t queue_bytes;       // per stream
    int64_t stall_ns;         // age of a send in flight at which the stream is cancelled
};

// Others than this machine are reached there. False for what is no address at all.
bool td_rpc_address_needs_tls(const char *address);
// Does not connect yet. Reads the files now. Errors: INVALID_ARGUMENT (address, token),
// FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK (no CA), td_fs_read's, RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_rpc_channel_create(struct td_loop *loop,
                                            const struct td_rpc_channel_options *options,
                                            struct td_rpc_channel **out_channel);
// The files hold something else now: they are read again, and calls from now on go over a new
// connection. Calls that are open go on over the old one, until the next reload at the latest.
// After an error everything is as it was. Errors as of create.
TD_MUST_USE td_status td_rpc_channel_reload(struct td_rpc_channel *channel);
// Ends open calls with CANCELLED; their callbacks are called. Not from such a callback.
void td_rpc_channel_destroy(struct td_rpc_channel *channel);
TD_DEFINE_AUTO(td_rpc_channel, td_rpc_channel_destroy);

// ---- unary ------------------------------------------------------------------------------------
// response is NULL exactly if take_status is not TD_OK, and dies when the callback returns.
typedef void td_rpc_unary_fn(td_status take_status, const ProtobufCMessage *response, void *arg);

// method: "/traind.v1.JobService/GetJob". timeout_ns > 0. An error here means that fn is not
// called. out_stream may be NULL; it serves td_rpc_stream_cancel until fn was called.
TD_MUST_USE td_status td_rpc_unary(struct td_rpc_channel *channel, const char *method,
                                   const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *response_type,
                                   int64_t timeout_ns, td_rpc_unary_fn *fn, void *arg,
                                   struct td_rpc_stream **out_stream);

// Runs the loop until the answer is there: for trainctl and tests, never inside a callback.
// out_response may be NULL.
TD_MUST_USE td_status td_rpc_unary_wait(struct td_rpc_channel *channel, const char *method,
                                        const ProtobufCMessage *request,
                                        const ProtobufCMessageDescriptor *response_type,
                                        int64_t timeout_ns, struct td_rpc_message **out_response);

// ---- streams ----------------------------------------------------------------------------------
struct td_rpc_stream_ops {
    // Required. message dies when the callback returns.
    void (*on_message)(struct td_rpc_stream *s, const ProtobufCMessage *message, void *arg);
    // May be NULL: after TD_RPC_SEND_FULL, half the queue is free again.
    void (*on_writable)(struct td_rpc_stream *s, void *arg);
    // Required, once, last. TD_OK: the server ended the stream well. s dies when it returns.
    void (*on_done)(struct td_rpc_stream *s, td_status take_status, void *arg);
};

// For server stream, client stream and bidi: open, send, half_close. timeout_ns 0: no deadline.
// ops is borrowed. The first send may follow at once.
TD_MUST_USE td_status td_rpc_stream_open(struct td_rpc_channel *channel, const char *method,
                                         const ProtobufCMessageDescriptor *response_type,
                                         int64_t timeout_ns, const struct td_rpc_stream_ops *ops,
                                         void *arg, struct td_rpc_stream **out_stream);
enum td_rpc_send td_rpc_stream_send(struct td_rpc_stream *s, const ProtobufCMessage *message);
// As td_rpc_call_set_batch: for a server that reads it.
void td_rpc_stream_set_batch(struct td_rpc_stream *s, uint32_t field);
void td_rpc_stream_flush(struct td_rpc_stream *s);
// After what is queued. Later sends are refused.
void td_rpc_stream_half_close(struct td_rpc_stream *s);
// on_done (or the unary callback) follows with CANCELLED, or with the status that was faster.
void td_rpc_stream_cancel(struct td_rpc_stream *s);

#endif
