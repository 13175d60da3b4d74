#ifndef TRAIND_LIB_RPC_FRONT_PEERS_H
#define TRAIND_LIB_RPC_FRONT_PEERS_H

// Who is at the other end of "fd:N", which is all that gRPC says of a connection that was handed to
// it as a descriptor.
//
// The kernel gives a number out again as soon as it is closed, while gRPC may still hold calls of
// the connection that had it before. So numbers are chosen here, from a range above those that a
// process gets by itself, the one that was free for longest first. A number is used again only when
// no call of its last connection can come any more. That is so when every request that was passed
// to gRPC has become a call, or when gRPC held no waiting call since (the fence below). A new
// connection thus never inherits another's identity, and no call is ever taken for a later
// connection's.
//
// The fence serves requests that never become calls (refused, reset, broken). Calls wait inside
// gRPC only while every accept that is armed is used up, and each that the loop serves brings the
// next at once. Some moments without any, one after the other, mean that none waited; so does a
// count above all that could have waited.
//
// Some connections are counted apart, up to a number of their own, so that they take no room from
// the others. They are those with a call of a row with own_calls (server.h), which are nodes'. One
// above that number stays what it was, a stranger as a rule.
//
// Threads: take, free and the questions belong to the front's thread; create, destroy and begin to
// the home loop's. What they share is written before a number is handed to gRPC, or atomic. Private
// to lib/rpc.

#include "lib/rpc/identity.h"

struct td_loop;
struct td_peers;

enum { TD_PEER_NAME_BYTES = 64 };

struct td_peers_options {
    uint32_t n_wanted;    // connections at a time
    uint32_t n_apart;     // beside them, those that are counted apart
    uint32_t max_waiting; // calls per connection that can wait inside gRPC
    // From the home loop: numbers may have become free.
    void (*on_fenced)(void *ctx);
    void *ctx;
};

TD_MUST_USE td_status td_peers_create(struct td_loop *home, const struct td_peers_options *o,
                                      struct td_peers **out_peers);
void td_peers_destroy(struct td_peers *p);
TD_DEFINE_AUTO(td_peers, td_peers_destroy);
// Connections at a time, and those apart: fewer than wanted where the limit of descriptors leaves
// no more. Those apart then have at most half.
uint32_t td_peers_capacity(const struct td_peers *p);
uint32_t td_peers_capacity_apart(const struct td_peers *p);

// ---- the front's thread -------------------------------------------------------------------------
// Moves fd to a number of the range, and remembers its name. UNAVAILABLE: no number is free, wait
// for on_fenced or a td_peers_free. RESOURCE_EXHAUSTED: the kernel has no descriptor.
TD_MUST_USE td_status td_peers_take(struct td_peers *p, int take_fd, const char *name,
                                    int *out_number);
// The certificate that it showed; before gRPC is given the number.
void td_peers_identify(struct td_peers *p, int number, const struct td_peer_identity *identity);
// Its connection is over: n_requests of it were passed to gRPC.
void td_peers_free(struct td_peers *p, int number, uint32_t n_requests);
bool td_peers_is_trusted(const struct td_peers *p, int number);
// Of its requests, those that have become calls.
uint32_t td_peers_n_begun(const struct td_peers *p, int number);
bool td_peers_is_apart(const struct td_peers *p, int number);

// ---- the home loop's thread ---------------------------------------------------------------------
enum td_peer_call {
    TD_PEER_STRANGER, // without a good credential
    TD_PEER_TRUSTED,
    TD_PEER_APART, // trusted, of a row with own_calls
};
// A call of this connection begins. Once for each call that gRPC brings: it may be the last thing
// that the number waits for. The name is "unknown" for a number of no connection.
void td_peers_begin(struct td_peers *p, int number, enum td_peer_call kind,
                    char out_name[TD_PEER_NAME_BYTES]);
// Before td_peers_begin of a call of that number. All "" for a number of no connection.
struct td_peer_identity td_peers_identity(struct td_peers *p, int number);
// Before td_peers_begin of a call of that number, too: is its connection over? True for a number of
// no connection. Nobody waits for the answer to such a call, and whoever sent it may not be the one
// who has the number next.
bool td_peers_is_over(struct td_peers *p, int number);

#endif
