#ifndef TRAIND_LIB_RPC_SERVER_PRIVATE_H
#define TRAIND_LIB_RPC_SERVER_PRIVATE_H

// What server.c (listening, accepting, draining) and server_call.c (one call from credential to
// on_done) know of each other, and of health.c and reflection.c, which are tables like any other.
// Loop's thread.

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
struct td_rpc_health;
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
    bool draining;
    bool stopped; // gRPC's server was asked to shut down
    uint64_t id_seed;
    uint64_t n_ids;
    struct td_map *routes; // path -> struct td_rpc_route
    struct td_descriptor_set *descriptors;
    struct td_rpc_health *health;
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

// server.c: adds rows without comparing types; reflection v1alpha is v1 under another name.
TD_MUST_USE td_status td_rpc_server_add_rows(struct td_rpc_server *server,
                                             const struct td_rpc_method *rows, size_t n_rows,
                                             void *ctx, bool compare_types);
// server.c: a call ended.
void td_rpc_server_call_ended(struct td_rpc_server *server);

// server_call.c: takes the call out of an accept and leads it from there.
void td_rpc_call_begin(struct td_rpc_accept *accept);
// server_call.c: ends it for draining: what is queued is dropped.
void td_rpc_call_drain(struct td_rpc_call *call);
// server_call.c: ends a live one with a status: what is queued is dropped.
void td_rpc_call_cut(struct td_rpc_call *call, td_status take_status);
struct td_rpc_call *td_rpc_call_next(struct td_rpc_call *call);

// health.c, reflection.c
TD_MUST_USE td_status td_rpc_health_create(struct td_rpc_server *server,
                                           struct td_rpc_health **out_health);
void td_rpc_health_destroy(struct td_rpc_health *health);
// Its own listener does not answer, or answers again.
void td_rpc_health_set_deaf(struct td_rpc_server *server, bool deaf);
void td_rpc_health_know(struct td_rpc_server *server, const char *service);
bool td_rpc_health_knows(const struct td_rpc_server *server, const char *service);
TD_MUST_USE td_status td_rpc_reflection_add(struct td_rpc_server *server);

#endif
