#ifndef TRAIND_LIB_RPC_FRONT_RELAY_H
#define TRAIND_LIB_RPC_FRONT_RELAY_H

// Carries the bytes of one connection between the client's socket and the socket pair whose other
// end gRPC has, through the guard (h2_guard.h), in both directions.
//
// Bounds: per direction at most TD_RELAY_SCRATCH bytes wait for a peer that does not take them, and
// nothing more is read until it did; idle, a relay holds no buffer. A client has to send a whole
// header block within first_request_ns, and to take something of what waits for it every stall_ns.
//
// End: when gRPC has closed its side, everything it sent is passed on and on_end comes, once, from
// the loop; then destroy. A client that ends, or is cut, is closed at once, gRPC sees the end of
// the stream and closes in turn, and what it still sends is dropped. Cut connections get a GOAWAY
// that says why where one can be put in. Private to lib/rpc; the thread of its loop.

#include "lib/base/base.h"
#include "lib/rpc/front/h2_guard.h"

struct td_loop;
struct td_relay;
struct td_tls_session;

enum { TD_RELAY_SCRATCH = 256 << 10 };

struct td_relay_options {
    uint8_t *scratch; // TD_RELAY_SCRATCH bytes that the relays of a loop share
    int64_t first_request_ns;
    int64_t stall_ns;
    // The connection was cut by its own fault; or a client of TLS went before it had sent anything,
    // its end neither (reason TLS_UNUSED). on_end follows later. May be NULL.
    void (*on_cut)(td_status take_why, void *owner);
    void (*on_end)(void *owner);
    // How many of the client's bytes may be read at once now that so many of its requests were
    // passed to gRPC; 0: none, ask again soon. Nobody is held for longer than first_request_ns.
    // NULL: any number.
    size_t (*may_read)(uint32_t n_requests, void *owner);
    void *owner;
    // NULL: the client's bytes are plain. Else its handshake is over, and it is the relay's from
    // success on.
    struct td_tls_session *take_tls;
};

// Both descriptors are non-blocking; they are the relay's from success on.
TD_MUST_USE td_status td_relay_create(struct td_loop *loop, const struct td_relay_options *options,
                                      int take_client_fd, int take_grpc_fd,
                                      struct td_relay **out_relay);
void td_relay_destroy(struct td_relay *relay);
TD_DEFINE_AUTO(td_relay, td_relay_destroy);

// Requests that were passed to gRPC so far.
uint32_t td_relay_n_requests(const struct td_relay *relay);
// Ends the client's side now, with a reason that it may read.
void td_relay_cut(struct td_relay *relay, enum td_h2_error code, const char *text);
// From now on a client that takes nothing does not hold up gRPC: bytes for it are dropped.
void td_relay_let_go(struct td_relay *relay);

#endif
