#ifndef TRAIND_LIB_RPC_CREDENTIAL_H
#define TRAIND_LIB_RPC_CREDENTIAL_H

// The credential of a call: one bearer token, or else the certificate of its connection. Whoever
// owns the server judges it (server_options.h). Private to lib/rpc; the home loop's thread.

#include <grpc/grpc.h>

#include "lib/rpc/call.h"
#include "lib/rpc/identity.h"

struct td_rpc_server_options;

// row: NULL for an unknown method; one that is open needs no credential. *out_identity is the
// owner's to write. UNAUTHENTICATED TOKEN_INVALID: there is none; else what the owner says.
TD_MUST_USE td_status td_rpc_authorize(const struct td_rpc_server_options *o,
                                       const struct td_rpc_method *row,
                                       const grpc_metadata_array *metadata,
                                       const struct td_peer_identity *certificate,
                                       uint64_t *out_identity);
// Of a call whose connection is over, whatever credential it brought: UNAUTHENTICATED
// CONNECTION_OVER.
TD_MUST_USE td_status td_rpc_connection_over(void);

#endif
