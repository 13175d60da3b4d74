#ifndef TRAIND_LIB_RPC_IDENTITY_H
#define TRAIND_LIB_RPC_IDENTITY_H

// Who a connection's certificate says that it is, for whoever judges its calls.

#include "lib/tls/tls.h"

// All "" and 0 for a connection that showed none.
struct td_peer_identity {
    char name[TD_TLS_NAME_BYTES]; // of a node: its id
    char serial[TD_TLS_SERIAL_BYTES];
    int64_t valid_until_s; // since 1970; it may be over (td_tls_guests)
};

#endif
