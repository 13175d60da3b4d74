#ifndef TRAIND_LIB_RPC_HEALTH_H
#define TRAIND_LIB_RPC_HEALTH_H

// grpc.health.v1 of a server: Check, Watch, List. Check and Watch are open to everyone, so that
// probes need no credential; List wants one, because it shows names. There is room for a Check
// whatever else is open.
//
// A table like any other, added by the one who makes the server. It shows what the server says
// (td_rpc_server_is_serving) of each service of its table, and of "", which stands for the whole
// server. Unknown names: NOT_FOUND for Check, SERVICE_UNKNOWN on the (open) stream for Watch. A
// watcher gets the latest state, never a history. Loop's thread.

#include "lib/rpc/rpc.h"

struct td_rpc_server;

// Errors: td_rpc_server_add's.
TD_MUST_USE td_status td_rpc_health_add(struct td_rpc_server *server);

#endif
