#ifndef TRAIND_LIB_RPC_ADDRESS_H
#define TRAIND_LIB_RPC_ADDRESS_H

// HOST:PORT as people write it, to what gRPC core takes. Only loopback passes: a bearer token in
// clear must not leave the machine, and lib/rpc has no TLS. No name is ever resolved; "localhost"
// is 127.0.0.1. Pure; any thread. Private to lib/rpc.

#include "lib/base/base.h"

struct td_rpc_address {
    char host[64]; // "127.0.0.1", "::1"
    uint16_t port;
};

// Errors: INVALID_ARGUMENT ADDRESS_INVALID; FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK.
TD_MUST_USE td_status td_rpc_address_parse(const char *text, struct td_rpc_address *out_address);
// "127.0.0.1:80", "[::1]:80"; out must hold 80 bytes.
void td_rpc_address_format(const struct td_rpc_address *a, char *out, size_t out_bytes);
// "ipv4:127.0.0.1:80": a target that needs no resolver.
void td_rpc_address_target(const struct td_rpc_address *a, char *out, size_t out_bytes);

#endif
