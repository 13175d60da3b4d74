#ifndef TRAIND_LIB_RPC_DESCRIPTOR_SET_H
#define TRAIND_LIB_RPC_DESCRIPTOR_SET_H

// Reader of a serialized google.protobuf.FileDescriptorSet: what protobuf-c leaves out of its own
// descriptors. It knows files, services with the streaming flags of their methods, messages with
// the map_entry option, enums. For reflection, for checking method tables, and for printing maps
// as JSON objects.
//
// A bounded wire reader of its own, not generated code: descriptor.proto is recursive, and nesting
// here is cut at 16. At most 256 files and 4096 symbols. It refers to the caller's bytes, which
// must outlive it. Immutable once made: any thread.

#include "lib/base/base.h"

struct td_descriptor_set;

struct td_descriptor_method {
    struct td_str input; // "traind.v1.GetJobRequest"
    struct td_str output;
    bool client_streaming;
    bool server_streaming;
};

// INVALID_ARGUMENT names the offset at which the bytes stop making sense.
TD_MUST_USE td_status td_descriptor_set_create(const void *borrowed_data, size_t bytes,
                                               struct td_descriptor_set **out_set);
void td_descriptor_set_destroy(struct td_descriptor_set *set);
TD_DEFINE_AUTO(td_descriptor_set, td_descriptor_set_destroy);

size_t td_descriptor_set_n_services(const struct td_descriptor_set *set);
const char *td_descriptor_set_service(const struct td_descriptor_set *set, size_t i);
// False: no such method.
bool td_descriptor_set_method(const struct td_descriptor_set *set, const char *service,
                              const char *method, struct td_descriptor_method *out_method);
// True for the entry messages that the compiler makes of map<,> fields.
bool td_descriptor_set_is_map_entry(const struct td_descriptor_set *set, const char *message);

// Files: an index, or -1. A symbol is the full name of a service, method, message or enum.
size_t td_descriptor_set_n_files(const struct td_descriptor_set *set);
int td_descriptor_set_file(const struct td_descriptor_set *set, const char *file_name);
int td_descriptor_set_file_of(const struct td_descriptor_set *set, const char *symbol);
// The serialized FileDescriptorProto.
struct td_str td_descriptor_set_file_bytes(const struct td_descriptor_set *set, int file_idx);
size_t td_descriptor_set_n_imports(const struct td_descriptor_set *set, int file_idx);
int td_descriptor_set_import(const struct td_descriptor_set *set, int file_idx, size_t i);

#endif
