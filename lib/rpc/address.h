#ifndef TRAIND_LIB_RPC_ADDRESS_H
#define TRAIND_LIB_RPC_ADDRESS_H

// HOST:PORT as people write it, to what gRPC core takes, and how far it reaches. What reaches
// further than loopback goes through TLS: a bearer token in clear must not leave the machine. So a
// name is resolved by gRPC alone, whose TLS then asks the other end for that name; "localhost" is
// 127.0.0.1. Pure; any thread. Private to lib/rpc.

#include "lib/base/base.h"

enum td_rpc_reach { TD_RPC_LOOPBACK, TD_RPC_NETWORK, TD_RPC_NAME };
enum { TD_RPC_ADDRESS_BYTES = 264, TD_RPC_TARGET_BYTES = 272 };

struct td_rpc_address {
    char host[254]; // "127.0.0.1", "::1", "coordinator.example"
    uint16_t port;
    enum td_rpc_reach reach;
};

// Errors: INVALID_ARGUMENT ADDRESS_INVALID.
TD_MUST_USE td_status td_rpc_address_parse(const char *text, struct td_rpc_address *out_address);
// "127.0.0.1:80", "[::1]:80"; TD_RPC_ADDRESS_BYTES hold any, 80 what is no name.
void td_rpc_address_format(const struct td_rpc_address *a, char *out, size_t out_bytes);
// "ipv4:127.0.0.1:80", "dns:///name:80"; TD_RPC_TARGET_BYTES hold any.
void td_rpc_address_target(const struct td_rpc_address *a, char *out, size_t out_bytes);
// 0.0.0.0 or ::, which means every address of this machine.
bool td_rpc_address_is_any(const struct td_rpc_address *a);

#endif
