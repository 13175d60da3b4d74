#ifndef TRAIND_LIB_RPC_SERVER_H
#define TRAIND_LIB_RPC_SERVER_H

// gRPC server: a table of methods, and calls whose handlers run on the loop's thread.
//
// Order of a call: credential, then method, then message. Nothing of an unauthenticated call is
// read or decoded, and it cannot tell a known method from an unknown one. Only rows marked `open`
// (the health check) skip the credential.
//
// Lifetime of a call: on_call comes first, on_done last, each exactly once; on_done also when
// the client cancels, the deadline passes, the connection breaks or the server is destroyed. A
// handler answers now or later, from the loop: td_rpc_call_reply or td_rpc_call_finish, once. The
// pointer is good until on_done returned; whoever may answer later than that holds a reference
// (td_rpc_call_ref), and answering a call that is over does nothing.
//
// The server accepts connections itself and guards their framing (front.h); gRPC gets one end of a
// socket pair. It names a connection only by that descriptor; peers.h knows whose it is.
//
// Bounds: messages (4 MiB), decoded memory (codec.h), queue per stream (1 MiB), calls (1024),
// beside them open ones (128) and those of rows with own_calls. Of connections: their number (1024;
// 768 per source, 256 without a credential; those with calls of rows with own_calls apart), the
// first request (10 s), the time without calls (10 min), streams (100). In time: a send (30 s: then
// the reader is cut off), a unary call without a deadline (30 s). Errors leave as code + message +
// google.rpc.Status with one ErrorInfo{reason, domain "traind", metadata} and BadRequest fields;
// each answer bears `x-request-id`. Only a message over twice the limit gets a bare
// RESOURCE_EXHAUSTED from gRPC itself, which has not read it. To say more, all of it would have to
// be taken in first.
//
// Rejected: registered methods of gRPC core (its answers to unknown methods would come before the
// credential), and threads per call.

#include "lib/rpc/rpc.h"

struct td_loop;
struct td_rpc_call;
struct td_rpc_server;

// One row of the table. `ctx` is what td_rpc_server_add was given. Rows are borrowed: static const.
struct td_rpc_method {
    const char *service; // "traind.v1.JobService"
    const char *method;  // "GetJob"
    enum td_rpc_kind kind;
    bool open; // needs no credential
    // 0: it is one of the server's max_calls. Else its calls are counted apart, up to this number,
    // and take no room from the others.
    uint32_t own_calls;
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
    // May be NULL. The call is over; free what the user pointer holds.
    void (*on_done)(struct td_rpc_call *call, void *ctx);
};

// Zero means the default.
struct td_rpc_server_options {
    const char *listen; // "HOST:PORT", port 0 picks one; loopback, see address.h
    // Judges a bearer token: TD_OK, or UNAUTHENTICATED / PERMISSION_DENIED, which is sent. row is
    // NULL for an unknown method. Compare with td_rpc_secret_equal. Required.
    td_status (*authorize)(struct td_str token, const struct td_rpc_method *row, void *ctx);
    void *ctx;                // authorize's
    size_t max_message_bytes; // of one request
    size_t queue_bytes;       // per stream
    int64_t stall_ns;         // age of a send in flight at which its reader is cut off
    int64_t deadline_ns;      // for unary calls that bring none
    uint32_t max_calls; // with a credential, but rows with own_calls; more get RESOURCE_EXHAUSTED
                        // LIMIT_CALLS
    uint32_t max_open_calls; // of rows that are open to everyone, in all; the same
    uint32_t max_streams;    // per connection
    // Connections (front.h): in all, per source, and without a credential so far.
    uint32_t max_connections, max_per_source, max_strangers;
    uint32_t max_own_connections; // beside them: with calls of rows with own_calls; 0: counted in
    int64_t first_request_ns;     // from the accept to a whole first request
    int64_t idle_ns;              // without a call, until a connection is closed
    int64_t check_ns;             // between two checks that the listener answers
    // What the people of this machine should know, for the log; may be NULL. Health already says
    // NOT_SERVING when the listener does not answer.
    void (*on_notice)(const char *text, void *ctx);
};

// Binds the address; health and reflection are in its table. Calls are answered from start on.
// Errors: INVALID_ARGUMENT (address), FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK, UNAVAILABLE
// ADDRESS_IN_USE, RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_rpc_server_create(struct td_loop *loop,
                                           const struct td_rpc_server_options *options,
                                           struct td_rpc_server **out_server);
// Ends every call (on_done is called), closes everything. Not from a callback of this server.
void td_rpc_server_destroy(struct td_rpc_server *server);
TD_DEFINE_AUTO(td_rpc_server, td_rpc_server_destroy);

// Before start. Checks each row against the embedded descriptor set (service, method, kind, types)
// and its types against recursion. INTERNAL names the first row that differs.
TD_MUST_USE td_status td_rpc_server_add(struct td_rpc_server *server,
                                        const struct td_rpc_method *rows, size_t n_rows, void *ctx);
// Once. RESOURCE_EXHAUSTED: no thread.
TD_MUST_USE td_status td_rpc_server_start(struct td_rpc_server *server);
// "127.0.0.1:41234"; dies with the server.
const char *td_rpc_server_address(const struct td_rpc_server *server);
// Calls being served now.
size_t td_rpc_server_n_calls(const struct td_rpc_server *server);

// Refuses new connections and calls, says NOT_SERVING, lets calls end by themselves; those still
// open after timeout_ns get UNAVAILABLE DRAINING. on_drained comes once, from the loop, soon after
// the last call ended; then destroy. Once per server.
void td_rpc_server_drain(struct td_rpc_server *server, int64_t timeout_ns,
                         void (*on_drained)(void *arg), void *arg);

// ---- a call -----------------------------------------------------------------------------------
// Unary and client stream: the response, and OK. A response over the size limit becomes
// RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE. The message is packed now, not referred to afterwards.
void td_rpc_call_reply(struct td_rpc_call *call, const ProtobufCMessage *response);
// Server stream and bidi. A message over the size limit ends the call with an error.
enum td_rpc_send td_rpc_call_send(struct td_rpc_call *call, const ProtobufCMessage *message);
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
// False once it was answered, cancelled or done: work for it may stop.
bool td_rpc_call_is_live(const struct td_rpc_call *call);
// Unary and server stream: the request; NULL otherwise. Dies with the call.
const ProtobufCMessage *td_rpc_call_request(const struct td_rpc_call *call);
void td_rpc_call_set_user(struct td_rpc_call *call, void *user);
void *td_rpc_call_user(const struct td_rpc_call *call);

#endif
