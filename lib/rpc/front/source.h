#ifndef TRAIND_LIB_RPC_FRONT_SOURCE_H
#define TRAIND_LIB_RPC_FRONT_SOURCE_H

// Where a connection comes from: its name for people, and the source that the caps of the front
// count by. Pure. Private to lib/rpc.

#include <sys/socket.h>

#include "lib/base/base.h"
#include "lib/rpc/front/peers.h"

// An IPv4 address, an IPv6 /64, or loopback, which is one source whatever address of it a process
// binds.
struct td_source {
    sa_family_t family; // AF_UNSPEC: loopback
    uint8_t bytes[8];
};

struct td_source td_source_of(const struct sockaddr_storage *peer);
bool td_source_equal(const struct td_source *a, const struct td_source *b);
// "10.0.0.1:51000", "[fd00::1]:51000"
void td_source_name(const struct sockaddr_storage *peer, char out[TD_PEER_NAME_BYTES]);

#endif
