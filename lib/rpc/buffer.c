// Messages in and out of gRPC's byte buffers, with as few copies as it allows.
//
// Packing goes straight into the slice that is sent; decoding reads the received slice in place
// when there is one only, which is the common case, and joins several otherwise. The limit of a
// message is checked before it is packed and before it is decoded. A compressed buffer is refused:
// decompression is switched off, because a few KiB may stand for GiB.

#include "lib/rpc/buffer.h"

#include <string.h>

#include <grpc/byte_buffer_reader.h>

td_status td_rpc_buffer_pack(const ProtobufCMessage *m, size_t max_bytes,
                             grpc_byte_buffer **out_buffer, size_t *out_bytes) {
    size_t bytes = protobuf_c_message_get_packed_size(m);
    if (bytes > max_bytes) {
        return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                             "message %s of %zu bytes is over the limit of %zu",
                                             m->descriptor->name, bytes, max_bytes),
                                     "MESSAGE_TOO_LARGE");
    }
    grpc_slice slice = grpc_slice_malloc(bytes);
    protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(slice));
    *out_buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    *out_bytes = bytes;
    return TD_OK;
}

static td_status check_buffer(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer,
                              size_t max_bytes) {
    if (buffer->data.raw.compression != GRPC_COMPRESS_NONE) {
        return td_status_with_reason(
            td_fail(TD_UNIMPLEMENTED, "compressed messages are not read; send %s uncompressed",
                    type->name),
            "COMPRESSION_UNSUPPORTED");
    }
    size_t bytes = grpc_byte_buffer_length(buffer);
    if (bytes <= max_bytes) return TD_OK;
    return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                         "message %s of %zu bytes is over the limit of %zu",
                                         type->name, bytes, max_bytes),
                                 "MESSAGE_TOO_LARGE");
}

static td_status decode_slices(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer,
                               struct td_rpc_message **out_message) {
    const grpc_slice_buffer *slices = &buffer->data.raw.slice_buffer;
    if (slices->count == 1) {
        struct td_str one = td_str_of_slice(&slices->slices[0]);
        return td_rpc_message_decode(type, one.data, one.len, out_message);
    }
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer)) {
        return td_fail(TD_INTERNAL, "gRPC cannot read the buffer that it received");
    }
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    struct td_str whole = td_str_of_slice(&all);
    td_status s = td_rpc_message_decode(type, whole.data, whole.len, out_message);
    grpc_slice_unref(all);
    return s;
}

td_status td_rpc_buffer_decode(const ProtobufCMessageDescriptor *type,
                               grpc_byte_buffer *take_buffer, size_t max_bytes,
                               struct td_rpc_message **out_message) {
    td_status s = check_buffer(type, take_buffer, max_bytes);
    if (!s) s = decode_slices(type, take_buffer, out_message);
    grpc_byte_buffer_destroy(take_buffer);
    return s;
}

struct td_str td_rpc_metadata_get(const grpc_metadata_array *metadata, const char *key) {
    struct td_str found = {NULL, 0};
    size_t key_len = strlen(key);
    for (size_t i = 0; i < metadata->count; i++) {
        struct td_str k = td_str_of_slice(&metadata->metadata[i].key);
        if (k.len != key_len || memcmp(k.data, key, key_len) != 0) continue;
        if (found.data) return (struct td_str){NULL, 0};
        found = td_str_of_slice(&metadata->metadata[i].value);
    }
    return found;
}
