// The two versions have the same messages on the wire, so one handler with v1's types serves both.
// A file is answered together with everything it imports, importers first, each once: what grpcurl
// and the C++ clients expect. One request is answered with one message; a client that sends without
// reading is pushed back by its own full queue.

#include "lib/rpc/reflection.h"

#include "grpc/reflection/v1/reflection.pb-c.h"
#include "lib/rpc/call.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/server.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

enum { MAX_FILES = 256, MAX_SERVICES = 256 };

static void send(struct td_rpc_call *call, const reflection_request *request,
                 reflection_response *response) {
    response->valid_host = request->host;
    response->original_request = td_unconst(request);
    if (td_rpc_call_send(call, &response->base) == TD_RPC_SEND_FULL) td_rpc_call_pause(call);
}

static void send_error(struct td_rpc_call *call, const reflection_request *request,
                       enum td_code code, const char *message) {
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = (int32_t)code;
    error.error_message = td_unconst(message);
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response.error_response = &error;
    send(call, request, &response);
}

static void send_services(struct td_rpc_call *call, const reflection_request *request,
                          const struct td_rpc_server *server) {
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse item[MAX_SERVICES];
    Grpc__Reflection__V1__ServiceResponse *items[MAX_SERVICES];
    const struct td_descriptor_set *set = td_rpc_server_borrow_descriptors(server);
    size_t n_all = TD_MIN(td_descriptor_set_n_services(set), (size_t)MAX_SERVICES);
    list.service = items;
    for (size_t i = 0; i < n_all; i++) {
        const char *name = td_descriptor_set_service(set, i);
        if (!td_rpc_server_has_service(server, name)) continue; // of another role
        size_t n = list.n_service++;
        grpc__reflection__v1__service_response__init(&item[n]);
        item[n].name = td_unconst(name);
        items[n] = &item[n];
    }
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response.list_services_response = &list;
    send(call, request, &response);
}

// The file and what it imports, breadth first. Returns how many.
static size_t gather(const struct td_descriptor_set *set, int file_idx, int *out_order) {
    bool seen[MAX_FILES] = {false};
    size_t n = 0;
    out_order[n++] = file_idx;
    seen[file_idx] = true;
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < td_descriptor_set_n_imports(set, out_order[at]); i++) {
            int import = td_descriptor_set_import(set, out_order[at], i);
            if (import < 0 || seen[import]) continue;
            seen[import] = true;
            out_order[n++] = import;
        }
    }
    return n;
}

static void send_file(struct td_rpc_call *call, const reflection_request *request,
                      const struct td_descriptor_set *set, int file_idx) {
    if (file_idx < 0) {
        send_error(call, request, TD_NOT_FOUND, "no such file or symbol here");
        return;
    }
    int order[MAX_FILES];
    ProtobufCBinaryData bytes[MAX_FILES];
    size_t n = gather(set, file_idx, order);
    for (size_t i = 0; i < n; i++) {
        struct td_str file = td_descriptor_set_file_bytes(set, order[i]);
        bytes[i] = (ProtobufCBinaryData){file.len, td_unconst(file.data)};
    }
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    files.file_descriptor_proto = bytes;
    files.n_file_descriptor_proto = n;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &files;
    send(call, request, &response);
}

static void on_call(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    (void)call;
    (void)request;
    (void)ctx;
}

static void on_message(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    const struct td_descriptor_set *set = td_rpc_server_borrow_descriptors(ctx);
    const reflection_request *r = (const void *)message;
    switch (r->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        send_services(call, r, ctx);
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        send_file(call, r, set, td_descriptor_set_file(set, r->file_by_filename));
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        send_file(call, r, set, td_descriptor_set_file_of(set, r->file_containing_symbol));
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        send_error(call, r, TD_NOT_FOUND, "proto3 has no extensions");
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST__NOT_SET:
    case _GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST__CASE_IS_INT_SIZE:
        break;
    }
    send_error(call, r, TD_INVALID_ARGUMENT, "the request asks for nothing");
}

static void on_half_close(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    td_rpc_call_finish(call, TD_OK);
}

static void on_writable(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    td_rpc_call_resume(call);
}

#define ROW(version, is_renamed)                                                                   \
    {                                                                                              \
        .service = "grpc.reflection." version ".ServerReflection",                                 \
        .method = "ServerReflectionInfo", .kind = TD_RPC_BIDI, .renamed = is_renamed,              \
        .request = &grpc__reflection__v1__server_reflection_request__descriptor,                   \
        .response = &grpc__reflection__v1__server_reflection_response__descriptor,                 \
        .on_call = on_call, .on_message = on_message, .on_half_close = on_half_close,              \
        .on_writable = on_writable,                                                                \
    }

static const struct td_rpc_method rows[] = {ROW("v1", false), ROW("v1alpha", true)};

td_status td_rpc_reflection_add(struct td_rpc_server *server) {
    return td_rpc_server_add(server, rows, TD_COUNTOF(rows), server);
}
