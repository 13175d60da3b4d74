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
// Bounds: messages (4 MiB), decoded memory (codec.h), queue per stream (1 MiB). Calls: 1024, or as
// the owner's `enter` says; beside them open ones (128) and those of rows with own_calls. Of
// connections, their number: 1024; 768 per source, 256 without a credential; those with calls of
// rows with own_calls apart. Of each connection: the first request (10 s), the time without calls
// (10 min), streams (100). In time: a send (30 s: then the reader is cut off), a unary call without
// a deadline (30 s). Errors leave as code + message + google.rpc.Status with one
// ErrorInfo{reason, domain "traind", metadata} and BadRequest fields; each answer bears
// `x-request-id`. Only a message over twice the limit gets a bare RESOURCE_EXHAUSTED from gRPC
// itself, which has not read it. To say more, all of it would have to be taken in first.
//
// Rejected: registered methods of gRPC core (its answers to unknown methods would come before the
// credential), and threads per call.

#include "lib/rpc/call.h"
#include "lib/rpc/server_options.h"

struct td_descriptor_set;
struct td_loop;
struct td_rpc_server;

// Binds the address; its table is empty. Calls are answered from start on.
// Errors: INVALID_ARGUMENT (address), FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK (no certificates),
// FAILED_PRECONDITION (certificates that cannot be used), UNAVAILABLE ADDRESS_IN_USE,
// RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_rpc_server_create(struct td_loop *loop,
                                           const struct td_rpc_server_options *options,
                                           struct td_rpc_server **out_server);
// Ends every call (on_done is called), closes everything. Not from a callback of this server.
void td_rpc_server_destroy(struct td_rpc_server *server);
TD_DEFINE_AUTO(td_rpc_server, td_rpc_server_destroy);

// Before start. Checks each row against the embedded descriptor set (service, method, kind, types)
// and its types against recursion. INTERNAL names the first row that differs. health.h and
// reflection.h have tables for any server.
TD_MUST_USE td_status td_rpc_server_add(struct td_rpc_server *server,
                                        const struct td_rpc_method *rows, size_t n_rows, void *ctx);
// Once. RESOURCE_EXHAUSTED: no thread.
TD_MUST_USE td_status td_rpc_server_start(struct td_rpc_server *server);
// "127.0.0.1:41234"; dies with the server.
const char *td_rpc_server_address(const struct td_rpc_server *server);
// Whether the whole server serves, as its owner says; not before it is said. One whose own listener
// does not answer (self_check.h) does not until it does, whatever is set here, nor does one that
// drains.
void td_rpc_server_set_serving(struct td_rpc_server *server, bool serving);
bool td_rpc_server_is_serving(const struct td_rpc_server *server);
// Is there a row of that service?
bool td_rpc_server_has_service(const struct td_rpc_server *server, const char *service);
// The embedded one; dies with the server.
const struct td_descriptor_set *
td_rpc_server_borrow_descriptors(const struct td_rpc_server *server);
// What became of connections.
struct td_rpc_connections td_rpc_server_connections(const struct td_rpc_server *server);
// When the certificate of its listener ends, in seconds since 1970; INT64_MAX: it speaks no TLS.
int64_t td_rpc_server_certificate_until_s(const struct td_rpc_server *server);
// Calls being served now.
size_t td_rpc_server_n_calls(const struct td_rpc_server *server);

// Ends each call of that identity but `except` (NULL: none): what is queued for it is dropped, and
// it gets the status that `why` makes. identity is not 0.
void td_rpc_server_end_calls(struct td_rpc_server *server, uint64_t identity,
                             const struct td_rpc_call *except, td_status (*why)(void *arg),
                             void *arg);

// Refuses new connections and calls, serves no more, lets calls end by themselves; those still
// open after timeout_ns get UNAVAILABLE DRAINING. on_drained comes once, from the loop, soon after
// the last call ended; then destroy. Once per server.
void td_rpc_server_drain(struct td_rpc_server *server, int64_t timeout_ns,
                         void (*on_drained)(void *arg), void *arg);

#endif
