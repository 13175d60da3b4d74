#ifndef TRAIND_LIB_RPC_DIAL_H
#define TRAIND_LIB_RPC_DIAL_H

// Where a client's channel leads and what it shows there: gRPC's channel is made of that, once at
// the start and again when the files were replaced. Loop's thread. Private to lib/rpc.

#include <grpc/grpc.h>

#include "lib/rpc/address.h"

// A server that says nothing for so long is asked by a PING, and has as long to answer: one whose
// host was lost is noticed within 10 s. Servers of ours take a PING twice as often.
enum { TD_RPC_KEEPALIVE_MS = 5000 };

struct td_rpc_dial {
    struct td_rpc_address address;
    char *text;                   // as it was given
    char *ca, *certificate, *key; // files; NULL: none
};

// All but address, which is the caller's to parse. finish frees it, also half-copied.
TD_MUST_USE td_status td_rpc_dial_copy(struct td_rpc_dial *d, const char *text, const char *ca,
                                       const char *certificate, const char *key);
void td_rpc_dial_finish(struct td_rpc_dial *d);
// Reads the files. Errors: FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK (no CA); td_fs_read's.
TD_MUST_USE td_status td_rpc_dial_open(const struct td_rpc_dial *d, size_t max_message_bytes,
                                       grpc_channel **out_channel);

#endif
