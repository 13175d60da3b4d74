#ifndef TRAIND_DAEMON_NODE_SHELL_TRANSPORT_H
#define TRAIND_DAEMON_NODE_SHELL_TRANSPORT_H

// Transport: how a node's messages reach its coordinator. Two implementations:
//
//   transport_local.c   coordinator in the same process: packed messages over td_coordinator_link,
//                       handed over through two functions that main gives (the folders never
//                       include each other)
//   transport_rpc.c     NodeService/Session over gRPC, redialled with back-off 0.1 to 5 s, jittered
//
// Both are message based, ordered, at most once per session: what was sent before a session broke
// may be lost, and the next session starts with Register. Callbacks come from the loop, never from
// inside one of these functions. Loop thread only.

#include "lib/base/base.h"
#include "traind/v1/node.pb-c.h"

struct td_loop;
struct td_transport;

struct td_transport_events {
    // A session is up; nothing of an earlier one will come any more. Send Register now.
    void (*on_up)(void *arg);
    // message dies when the callback returns.
    void (*on_message)(const Traind__V1__CoordinatorMessage *message, void *arg);
    // The session is over; `why` is for the log. on_up follows after a back-off.
    void (*on_down)(const char *why, void *arg);
    // After TD_TRANSPORT_FULL: there is room again.
    void (*on_writable)(void *arg);
};

enum td_transport_send {
    TD_TRANSPORT_MORE,
    TD_TRANSPORT_FULL,    // accepted; wait for on_writable before sending bulk
    TD_TRANSPORT_REFUSED, // not accepted: full already, or no session
};

struct td_transport_ops {
    const char *name; // "local", "rpc"
    bool embedded;    // shares the coordinator's process
    void (*start)(struct td_transport *t, const struct td_transport_events *events, void *arg);
    enum td_transport_send (*send)(struct td_transport *t, const Traind__V1__NodeMessage *message);
    // The session cannot be trusted any more (a protocol error): drop it, dial again.
    void (*reset)(struct td_transport *t);
    void (*destroy)(struct td_transport *t);
};
struct td_transport {
    const struct td_transport_ops *ops;
};

// The local transport's other end, given by main: two functions in front of coordinator.h's link.
struct td_transport_peer {
    // Opens a session; to_node is called from the loop with packed CoordinatorMessages.
    td_status (*attach)(void *ctx, void (*to_node)(const void *packed, size_t bytes, void *arg),
                        void *arg, void **out_link);
    td_status (*send)(void *link, const void *packed, size_t bytes);
    void (*detach)(void *link);
    void *ctx;
};
TD_MUST_USE td_status td_transport_local_create(struct td_loop *loop,
                                                const struct td_transport_peer *peer,
                                                struct td_transport **out_transport);

// The channel is opened by the caller and outlives the transport: bulk streams share it.
struct td_rpc_channel;
TD_MUST_USE td_status td_transport_rpc_create(struct td_loop *loop, struct td_rpc_channel *channel,
                                              struct td_transport **out_transport);

#endif
