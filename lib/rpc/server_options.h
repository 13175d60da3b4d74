#ifndef TRAIND_LIB_RPC_SERVER_OPTIONS_H
#define TRAIND_LIB_RPC_SERVER_OPTIONS_H

// What a server is asked for when it is created (server.h).

#include "lib/rpc/call.h"
#include "lib/rpc/identity.h"

struct td_tls_guests;
struct td_tls_paths;

// Zero means the default.
struct td_rpc_server_options {
    const char *listen; // "HOST:PORT", port 0 picks one
    // Needed where listen is not loopback, unused where it is; NULL: loopback only.
    const struct td_tls_paths *tls;
    // With tls, may be NULL: rules for the certificates of clients (lib/tls/revoked.h), copied;
    // what they borrow outlives the server.
    const struct td_tls_guests *guests;
    // Judges a bearer token: TD_OK, or UNAUTHENTICATED / PERMISSION_DENIED, which is sent. row is
    // NULL for an unknown method. Compare with td_rpc_secret_equal. *out_identity: any number but
    // 0, which the call bears from then on (td_rpc_call_identity). Written also with
    // PERMISSION_DENIED, where the caller is known. Required.
    td_status (*authorize)(struct td_str token, const struct td_rpc_method *row, void *ctx,
                           uint64_t *out_identity);
    // The same for a call without a token over a connection that showed a certificate, which the CA
    // issued and which may be over, if guests excuse that. NULL: a certificate is no credential.
    td_status (*authorize_peer)(const struct td_peer_identity *peer,
                                const struct td_rpc_method *row, void *ctx, uint64_t *out_identity);
    // May be NULL. What a call ends with is known, once each: the answer, a refusal, or CANCELLED
    // of one that ended without. Not of a reader that was cut off. Must not end calls.
    void (*on_answered)(const struct td_rpc_call *call, td_status borrow_status, void *ctx);
    // May be NULL. Is there room for this call, which is none of an open row or one with own_calls?
    // Its row and identity are known. An error refuses it. *out_seat comes back with `leave` when
    // the call is over. With it max_calls is not used.
    td_status (*enter)(const struct td_rpc_call *call, void *ctx, void **out_seat);
    void (*leave)(const struct td_rpc_call *call, void *seat, void *ctx);
    void *ctx;                // theirs
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
    int64_t handshake_ns;         // from the accept to the end of the TLS handshake
    int64_t idle_ns;              // without a call, until a connection is closed
    int64_t check_ns;             // between two checks that the listener answers
    // What the people of this machine should know, for the log; may be NULL. Health already says
    // NOT_SERVING when the listener does not answer.
    void (*on_notice)(const char *text, void *ctx);
};

#endif
