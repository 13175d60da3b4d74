#ifndef TRAIND_LIB_RPC_CODEC_H
#define TRAIND_LIB_RPC_CODEC_H

// protobuf-c messages from and to bytes that a stranger may have written.
//
// protobuf-c trusts its input more than a daemon can: it allocates what the bytes ask for, takes
// any bytes for a string, and follows nesting without a limit. So a decoded message lives in one
// arena with a budget of TD_RPC_DECODE_FACTOR times its wire size plus a little. Its strings are
// checked to be UTF-8 without NUL. Types are checked once, when a method table is added, not to be
// recursive (td_rpc_type_check). No thread of its own; a message belongs to one thread. Rejected: a
// custom allocator that counts live bytes; one arena frees at once and is less code.

#include "lib/rpc/rpc.h"

#define TD_RPC_DECODE_FACTOR    16
#define TD_RPC_DECODE_BASE      ((size_t)64 << 10)
#define TD_RPC_DECODE_MAX_BYTES ((size_t)32 << 20)

struct td_rpc_message;

// Errors: INVALID_ARGUMENT MALFORMED_MESSAGE (not this type, or a string is no text: then with
// its field path), RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE (over the budget).
TD_MUST_USE td_status td_rpc_message_decode(const ProtobufCMessageDescriptor *type,
                                            const void *data, size_t bytes,
                                            struct td_rpc_message **out_message);
void td_rpc_message_destroy(struct td_rpc_message *m);
TD_DEFINE_AUTO(td_rpc_message, td_rpc_message_destroy);
// Dies with m. Of the type asked for; never NULL.
const ProtobufCMessage *td_rpc_message_get(const struct td_rpc_message *m);

// INTERNAL if the type contains itself or nests deeper than 16.
TD_MUST_USE td_status td_rpc_type_check(const ProtobufCMessageDescriptor *type);

#endif
