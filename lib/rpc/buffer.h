#ifndef TRAIND_LIB_RPC_BUFFER_H
#define TRAIND_LIB_RPC_BUFFER_H

// Messages in gRPC's byte buffers. gRPC drains a buffer when it sends it, so each message gets one
// of its own and it is never sent twice. Private to lib/rpc; no state.

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>

#include "lib/rpc/codec.h"

// RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE over max_bytes.
TD_MUST_USE td_status td_rpc_buffer_pack(const ProtobufCMessage *m, size_t max_bytes,
                                         grpc_byte_buffer **out_buffer, size_t *out_bytes);
// The errors of td_rpc_message_decode, MESSAGE_TOO_LARGE over max_bytes, UNIMPLEMENTED
// COMPRESSION_UNSUPPORTED for a compressed one. Consumes the buffer.
TD_MUST_USE td_status td_rpc_buffer_decode(const ProtobufCMessageDescriptor *type,
                                           grpc_byte_buffer *take_buffer, size_t max_bytes,
                                           struct td_rpc_message **out_message);

static inline struct td_str td_str_of_slice(const grpc_slice *s) {
    return (struct td_str){(const char *)GRPC_SLICE_START_PTR(*s), GRPC_SLICE_LENGTH(*s)};
}
// The value of the only metadata element with this key; {NULL, 0} if there is none or several.
struct td_str td_rpc_metadata_get(const grpc_metadata_array *metadata, const char *key);

#endif
