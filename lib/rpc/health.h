#ifndef TRAIND_LIB_RPC_HEALTH_H
#define TRAIND_LIB_RPC_HEALTH_H

// grpc.health.v1 of a server: Check, Watch, List. Check and Watch are open to everyone, so that
// probes need no credential; List wants one, because it shows names. There is room for a Check
// whatever else is open.
//
// A service of the server's table is known from its td_rpc_server_add on, with NOT_SERVING; ""
// stands for the whole server. Unknown names: NOT_FOUND for Check, SERVICE_UNKNOWN on the (open)
// stream for Watch. A watcher gets the latest state, never a history. Loop's thread.

#include "lib/rpc/rpc.h"

struct td_rpc_server;

// Of all services at once. A server whose own listener does not answer (self_check.h) shows
// NOT_SERVING until it does, whatever is set here.
void td_rpc_health_set_all(struct td_rpc_server *server, bool serving);
// What the whole server shows.
bool td_rpc_health_is_serving(const struct td_rpc_server *server);

#endif
