// Fuzz entry of what lib/rpc reads from strangers: messages of every shape in the protos, the
// details of a status, a descriptor set. An error has one of the codes that the wire promises; a
// message that decodes packs again; a status that decodes is encoded again within its bound. Run by
// tests/unit/fuzz/messages/test_fuzz_rpc.c; or clang -fsanitize=fuzzer,address with the library.

#include "tests/fuzz/fuzz.h"

#include "google/protobuf/any.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "lib/rpc/codec.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/wire_status.h"
#include "traind/v1/job.pb-c.h"
#include "traind/v1/node.pb-c.h"

static const ProtobufCMessageDescriptor *const fuzzed_types[] = {
    &traind__v1__job__descriptor,
    &traind__v1__create_job_request__descriptor,
    &traind__v1__node_message__descriptor,
    &traind__v1__coordinator_message__descriptor,
    &traind__v1__shard_chunk__descriptor,
    &grpc__health__v1__health_list_response__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
    &google__rpc__status__descriptor,
};

static void expect(bool x) {
    if (!x) abort();
}

static void try_message(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size) {
    TD_AUTO(td_rpc_message) *m = NULL;
    td_status s = td_rpc_message_decode(type, data, size, &m);
    if (s) {
        enum td_code code = td_status_code(s);
        expect(code == TD_INVALID_ARGUMENT || code == TD_RESOURCE_EXHAUSTED);
        expect(*td_status_reason(s));
        td_status_free(s);
        return;
    }
    const ProtobufCMessage *message = td_rpc_message_get(m);
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(bytes ? bytes : 1);
    expect(packed && protobuf_c_message_pack(message, packed) == bytes);
    free(packed);
}

static void try_status(const uint8_t *data, size_t size) {
    struct td_str details = {(const char *)data, size};
    td_status s = td_wire_status_decode(3, (struct td_str){"text", 4}, details);
    expect(td_status_code(s) == TD_INVALID_ARGUMENT);
    struct td_wire_status w;
    td_wire_status_encode(s, "0123456789abcdef", &w);
    expect(w.details_bytes <= TD_WIRE_DETAILS_BYTES);
    td_wire_status_finish(&w);
}

static void try_descriptor_set(const uint8_t *data, size_t size) {
    TD_AUTO(td_descriptor_set) *set = NULL;
    td_status s = td_descriptor_set_create(data, size, &set);
    expect(!s || *td_status_message(s));
    td_status_free(s);
    if (!set) return;
    for (size_t i = 0; i < td_descriptor_set_n_services(set); i++) {
        expect(td_descriptor_set_file_of(set, td_descriptor_set_service(set, i)) >= 0);
    }
    for (int f = 0; (size_t)f < td_descriptor_set_n_files(set); f++) {
        for (size_t i = 0; i < td_descriptor_set_n_imports(set, f); i++) {
            expect(td_descriptor_set_import(set, f, i) < (int)td_descriptor_set_n_files(set));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (size_t i = 0; i < TD_COUNTOF(fuzzed_types); i++) {
        try_message(fuzzed_types[i], data, size);
    }
    try_status(data, size);
    try_descriptor_set(data, size);
    return 0;
}
