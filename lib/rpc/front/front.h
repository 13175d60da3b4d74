#ifndef TRAIND_LIB_RPC_FRONT_FRONT_H
#define TRAIND_LIB_RPC_FRONT_FRONT_H

// The front of a server: a thread of its own that listens, accepts, and carries every connection's
// bytes between its socket and gRPC (relay.h). So neither a busy daemon nor a flood keeps the other
// from its work.
//
// Caps: connections in all, per source (an IPv4 address, an IPv6 /64, or loopback), and strangers.
// These have shown no good credential yet; a source may have half of them. Where its own cap is
// reached the oldest stranger of that source makes room for the newcomer. Else it is the oldest of
// the source that has the most (peer_slots.h). With no stranger there the newcomer is refused. So
// neither idle connections nor a flood of new ones keeps anybody out who brings a credential, while
// its own source has fewer strangers than the flood's.
// Whoever is refused, cut or replaced gets a GOAWAY that says why, and the owner of the server a
// notice. Connections that are counted apart (peers.h) are in none of these numbers.
//
// A listener that others than this machine reach speaks TLS alone. Until its handshake is over a
// connection is a stranger that gRPC knows nothing of, and a deadline ends it. Certificates that
// were replaced hold from the next connection on. Two weeks before the end of the one in use there
// is a notice a day.
//
// Threads: everything here is for the home loop's thread; hand_over runs in the front's. Private to
// lib/rpc.
//
// The room, in reading order, all of it private to lib/rpc:
//
//   listener.h     the listening socket, and what happens without descriptors
//   front_tls.h    its certificates, and a word before they end
//   notices.h      what the front says to people, a line at a time
//   source.h       where a connection comes from
//   peer_slots.h   connections by source, and which gives way where there are too many
//   hello.h        the TLS handshake of one connection
//   relay.h        its bytes between its socket and gRPC
//   h2_guard.h     what frames it may carry, and how many
//   peers.h        whose connection gRPC's "fd:N" is
//   self_check.h   does our own listener still answer?
//   port_holder.h  who listens on a port that is taken

#include "lib/rpc/front/peers.h"
#include "lib/rpc/rpc.h"

struct td_front;
struct td_tls_guests;
struct td_tls_paths;

struct td_front_options {
    const char *listen;
    uint32_t max_connections;
    uint32_t max_apart;
    uint32_t max_per_source;
    uint32_t max_strangers;
    uint32_t max_streams; // per connection
    int64_t first_request_ns;
    int64_t stall_ns;
    const struct td_tls_paths *tls;     // NULL: loopback only
    const struct td_tls_guests *guests; // may be NULL
    int64_t handshake_ns;
    // Gives gRPC its end of a connection. In the front's thread.
    void (*hand_over)(int take_fd, void *ctx);
    // Something that the people of this machine should know; at most once in a while per kind.
    void (*on_notice)(const char *text, void *ctx);
    void *ctx;
};

// Binds and listens; nobody is accepted before start. Errors: td_listener_open's;
// FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK: there are no certificates for it;
// td_tls_context_create's.
TD_MUST_USE td_status td_front_create(struct td_loop *home, const struct td_front_options *o,
                                      struct td_front **out_front);
TD_MUST_USE td_status td_front_start(struct td_front *f);
const char *td_front_address(const struct td_front *f); // "127.0.0.1:41234"
// The connections' identities.
struct td_peers *td_front_borrow_peers(struct td_front *f);

// Everybody has to come through TLS.
bool td_front_has_tls(const struct td_front *f);

// Any thread.
struct td_rpc_connections td_front_counts(const struct td_front *f);
// When its certificate ends, in seconds since 1970; INT64_MAX: it has none.
int64_t td_front_certificate_until_s(const struct td_front *f);

// Closes the listening socket, soon. Connections go on.
void td_front_stop_listening(struct td_front *f);
// From now on no client can hold up gRPC's end of its connection.
void td_front_let_go(struct td_front *f);
// Ends the thread; hand_over is not called any more, and every connection is closed.
void td_front_destroy(struct td_front *f);
TD_DEFINE_AUTO(td_front, td_front_destroy);

#endif
