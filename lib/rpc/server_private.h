#ifndef TRAIND_LIB_RPC_SERVER_PRIVATE_H
#define TRAIND_LIB_RPC_SERVER_PRIVATE_H

// What server.c (listening, accepting, draining) and server_call.c below it (one call from
// credential to on_done) share. Loop's thread.

#include <grpc/grpc.h>

#include "lib/rpc/call.h"
#include "lib/rpc/outbox.h"
#include "lib/rpc/pump.h"
#include "lib/rpc/server_options.h"
#include "lib/rpc/wire_status.h"

struct td_descriptor_set;
struct td_front;
struct td_loop_timer;
struct td_map;
struct td_self_check;

// A row and its table's ctx, found by "/service/method".
struct td_rpc_route {
    const struct td_rpc_method *row;
    void *ctx;
    uint32_t n_own; // its calls now, if they are counted apart
};

// A place in which gRPC puts the next call.
struct td_rpc_accept {
    struct td_pump_tag tag;
    struct td_rpc_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

enum td_rpc_drain { TD_RPC_DRAIN_WAITING, TD_RPC_DRAIN_EXPIRED, TD_RPC_DRAINED };

enum { TD_RPC_N_ACCEPTS = 8, TD_RPC_MAX_ROUTES = 256 };

struct td_rpc_server {
    uint32_t magic;
    struct td_loop *loop;
    struct td_rpc_server_options options; // resolved; its strings are not kept
    struct td_pump *pump;
    grpc_server *grpc;
    grpc_server_credentials *plain; // gRPC asks for it with each descriptor
    struct td_front *front;
    struct td_self_check *check;
    bool started;
    bool serving; // what the owner says
    bool deaf;    // what the check of the listener says
    bool draining;
    bool stopped; // gRPC's server was asked to shut down
    uint64_t id_seed;
    uint64_t n_ids;
    struct td_map *routes; // path -> struct td_rpc_route
    struct td_descriptor_set *descriptors;
    struct td_rpc_call *calls; // open ones, newest first
    size_t n_calls;
    uint32_t n_admitted; // of n_calls: with a credential, but rows with own_calls
    uint32_t n_open;     // of n_calls: of open rows
    struct td_rpc_accept accepts[TD_RPC_N_ACCEPTS];
    struct td_pump_tag stop_tag;
    struct td_loop_timer *drain_timer;
    enum td_rpc_drain drain; // what the timer means
    void (*on_drained)(void *arg);
    void *drained_arg;
};

enum { td_rpc_server_magic = 0x74647273, td_rpc_call_magic = 0x74647263 };

// All of server_call.c. Takes the call out of an accept and leads it from there.
void td_rpc_call_begin(struct td_rpc_accept *accept);
// Ends it for draining: what is queued is dropped.
void td_rpc_call_drain(struct td_rpc_call *call);
// Ends a live one with a status: what is queued is dropped.
void td_rpc_call_cut(struct td_rpc_call *call, td_status take_status);
// Its handler learns that the server began or ceased to serve.
void td_rpc_call_serving(struct td_rpc_call *call);
struct td_rpc_call *td_rpc_call_next(struct td_rpc_call *call);
// Cancels what is open, and lets go of connections. So does the last call of a draining server.
void td_rpc_calls_cancel(struct td_rpc_server *server);

#endif
