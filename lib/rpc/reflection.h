#ifndef TRAIND_LIB_RPC_REFLECTION_H
#define TRAIND_LIB_RPC_REFLECTION_H

// grpc.reflection.v1 and v1alpha of a server, from the embedded descriptor set: a table like any
// other, added by the one who makes the server. It needs a credential, because it shows names:
// those of the services in the server's table. Loop's thread.

#include "lib/rpc/rpc.h"

struct td_rpc_server;

// Errors: td_rpc_server_add's.
TD_MUST_USE td_status td_rpc_reflection_add(struct td_rpc_server *server);

#endif
