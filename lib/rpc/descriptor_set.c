// Reads a FileDescriptorSet in one pass over its bytes.
//
// Field numbers are those of google/protobuf/descriptor.proto:
//   FileDescriptorSet       1 file
//   FileDescriptorProto     1 name  2 package  3 dependency  4 message  5 enum  6 service
//   DescriptorProto         1 name  3 nested  4 enum  7 options (MessageOptions 7 map_entry)
//   EnumDescriptorProto     1 name
//   ServiceDescriptorProto  1 name  2 method
//   MethodDescriptorProto   1 name  2 input  3 output  5 client streaming  6 server streaming
// Everything else is stepped over. A field inside is always within the bytes of the one around it.

#include "lib/rpc/descriptor_set.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/map.h"
#include "lib/base/wire.h"

enum {
    MAX_FILES = 256,
    MAX_SERVICES = 256,
    MAX_SYMBOLS = 4096,
    MAX_IMPORTS = 64,
    MAX_NESTING = 16,
    MAX_SET_BYTES = 4 << 20,
    MAX_MEMORY_BYTES = 8 << 20,
};

struct file {
    struct td_str bytes;
    struct td_str imports[MAX_IMPORTS];
    size_t n_imports;
};

struct symbol {
    int file_idx;
    bool is_map_entry;
    bool is_method;
    struct td_descriptor_method method;
};

struct file_ref {
    int idx;
};

struct td_descriptor_set {
    const char *data;
    struct td_arena *arena;
    struct td_map *files;   // name -> struct file_ref
    struct td_map *symbols; // full name -> struct symbol
    struct file *file[MAX_FILES];
    size_t n_files;
    const char *service[MAX_SERVICES];
    size_t n_services;
};

static struct td_wire reader_of(const struct td_descriptor_set *set, struct td_str bytes) {
    return td_wire_of("descriptor set", set->data, bytes);
}

// The first field with this number, as bytes; empty if there is none.
static td_status find_bytes(const struct td_descriptor_set *set, struct td_str in, uint32_t number,
                            struct td_str *out_bytes) {
    struct td_wire r = reader_of(set, in);
    struct td_wire_field f;
    bool more;
    *out_bytes = (struct td_str){"", 0};
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.number != number || f.wire_type != 2) continue;
        *out_bytes = f.bytes;
        return TD_OK;
    }
}

// ---- symbols ----------------------------------------------------------------------------------

static td_status add_symbol(struct td_descriptor_set *set, struct td_str scope, struct td_str name,
                            struct symbol **out_symbol, struct td_str *out_full) {
    struct td_wire at = reader_of(set, name);
    if (name.len == 0 || name.len > 256 || scope.len > 1024) return td_wire_broken(&at, "bad name");
    char *full = scope.len ? td_arena_printf(set->arena, "%.*s.%.*s", (int)scope.len, scope.data,
                                             (int)name.len, name.data)
                           : td_arena_strndup(set->arena, name.data, name.len);
    struct symbol *symbol = td_arena_alloc(set->arena, sizeof *symbol);
    if (!full || !symbol) return td_fail_oom();
    symbol->file_idx = (int)set->n_files - 1;
    TD_TRY(td_map_put(set->symbols, full, symbol, NULL));
    *out_symbol = symbol;
    *out_full = (struct td_str){full, strlen(full)};
    return TD_OK;
}

static td_status read_enum(struct td_descriptor_set *set, struct td_str scope,
                           struct td_str bytes) {
    struct td_str name, full;
    struct symbol *symbol;
    TD_TRY(find_bytes(set, bytes, 1, &name));
    return add_symbol(set, scope, name, &symbol, &full);
}

static td_status read_message_options(struct td_descriptor_set *set, struct td_str bytes,
                                      struct symbol *symbol) {
    struct td_wire r = reader_of(set, bytes);
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.number == 7 && f.wire_type == 0) symbol->is_map_entry = f.varint != 0;
    }
}

static td_status read_message(struct td_descriptor_set *set, struct td_str scope,
                              struct td_str bytes, int depth) {
    struct td_wire r = reader_of(set, bytes);
    if (depth > MAX_NESTING) return td_wire_broken(&r, "messages nested too deep");
    struct td_str name, full;
    struct symbol *symbol;
    TD_TRY(find_bytes(set, bytes, 1, &name));
    TD_TRY(add_symbol(set, scope, name, &symbol, &full));
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.wire_type != 2) continue;
        if (f.number == 3) TD_TRY(read_message(set, full, f.bytes, depth + 1));
        if (f.number == 4) TD_TRY(read_enum(set, full, f.bytes));
        if (f.number == 7) TD_TRY(read_message_options(set, f.bytes, symbol));
    }
}

static struct td_str without_dot(struct td_str name) {
    if (name.len && name.data[0] == '.') return (struct td_str){name.data + 1, name.len - 1};
    return name;
}

static td_status read_method(struct td_descriptor_set *set, struct td_str scope,
                             struct td_str bytes) {
    struct td_str name, full;
    struct symbol *symbol;
    TD_TRY(find_bytes(set, bytes, 1, &name));
    TD_TRY(add_symbol(set, scope, name, &symbol, &full));
    symbol->is_method = true;
    struct td_wire r = reader_of(set, bytes);
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.wire_type == 2 && f.number == 2) symbol->method.input = without_dot(f.bytes);
        if (f.wire_type == 2 && f.number == 3) symbol->method.output = without_dot(f.bytes);
        if (f.wire_type == 0 && f.number == 5) symbol->method.client_streaming = f.varint != 0;
        if (f.wire_type == 0 && f.number == 6) symbol->method.server_streaming = f.varint != 0;
    }
}

static td_status read_service(struct td_descriptor_set *set, struct td_str scope,
                              struct td_str bytes) {
    struct td_str name, full;
    struct symbol *symbol;
    struct td_wire r = reader_of(set, bytes);
    TD_TRY(find_bytes(set, bytes, 1, &name));
    TD_TRY(add_symbol(set, scope, name, &symbol, &full));
    if (set->n_services == MAX_SERVICES) return td_wire_broken(&r, "too many services");
    set->service[set->n_services++] = full.data;
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.wire_type == 2 && f.number == 2) TD_TRY(read_method(set, full, f.bytes));
    }
}

// ---- files ------------------------------------------------------------------------------------

static td_status add_file(struct td_descriptor_set *set, struct td_str bytes, struct td_str name) {
    struct td_wire r = reader_of(set, bytes);
    if (set->n_files == MAX_FILES) return td_wire_broken(&r, "too many files");
    struct file *file = td_arena_alloc(set->arena, sizeof *file);
    struct file_ref *ref = td_arena_alloc(set->arena, sizeof *ref);
    char *key = td_arena_strndup(set->arena, name.data, name.len);
    if (!file || !ref || !key) return td_fail_oom();
    file->bytes = bytes;
    ref->idx = (int)set->n_files;
    set->file[set->n_files++] = file;
    return td_map_put(set->files, key, ref, NULL);
}

static td_status read_file(struct td_descriptor_set *set, struct td_str bytes) {
    struct td_str name, package;
    TD_TRY(find_bytes(set, bytes, 1, &name));
    TD_TRY(find_bytes(set, bytes, 2, &package));
    TD_TRY(add_file(set, bytes, name));
    struct file *file = set->file[set->n_files - 1];
    struct td_wire r = reader_of(set, bytes);
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.wire_type != 2) continue;
        if (f.number == 3) {
            if (file->n_imports == MAX_IMPORTS) return td_wire_broken(&r, "too many imports");
            file->imports[file->n_imports++] = f.bytes;
        }
        if (f.number == 4) TD_TRY(read_message(set, package, f.bytes, 1));
        if (f.number == 5) TD_TRY(read_enum(set, package, f.bytes));
        if (f.number == 6) TD_TRY(read_service(set, package, f.bytes));
    }
}

static td_status read_set(struct td_descriptor_set *set, struct td_str bytes) {
    struct td_wire r = reader_of(set, bytes);
    if (bytes.len > MAX_SET_BYTES) return td_wire_broken(&r, "more than 4 MiB");
    struct td_wire_field f;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&r, &f, &more));
        if (!more) return TD_OK;
        if (f.number == 1 && f.wire_type == 2) TD_TRY(read_file(set, f.bytes));
    }
}

td_status td_descriptor_set_create(const void *borrowed_data, size_t bytes,
                                   struct td_descriptor_set **out_set) {
    TD_AUTO(td_descriptor_set) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->data = borrowed_data;
    TD_TRY(td_arena_create(MAX_MEMORY_BYTES, &self->arena));
    TD_TRY(td_map_create(MAX_FILES, &self->files));
    TD_TRY(td_map_create(MAX_SYMBOLS, &self->symbols));
    TD_TRY(read_set(self, (struct td_str){borrowed_data, bytes}));
    *out_set = td_steal(self);
    return TD_OK;
}

void td_descriptor_set_destroy(struct td_descriptor_set *set) {
    if (!set) return;
    td_map_destroy(set->symbols);
    td_map_destroy(set->files);
    td_arena_destroy(set->arena);
    free(set);
}

// ---- answers ----------------------------------------------------------------------------------

size_t td_descriptor_set_n_services(const struct td_descriptor_set *set) {
    return set->n_services;
}

const char *td_descriptor_set_service(const struct td_descriptor_set *set, size_t i) {
    TD_CHECK(i < set->n_services);
    return set->service[i];
}

bool td_descriptor_set_method(const struct td_descriptor_set *set, const char *service,
                              const char *method, struct td_descriptor_method *out_method) {
    char full[512];
    int n = snprintf(full, sizeof full, "%s.%s", service, method);
    if (n < 0 || (size_t)n >= sizeof full) return false;
    const struct symbol *symbol = td_map_get(set->symbols, full);
    if (!symbol || !symbol->is_method) return false;
    *out_method = symbol->method;
    return true;
}

bool td_descriptor_set_is_map_entry(const struct td_descriptor_set *set, const char *message) {
    const struct symbol *symbol = td_map_get(set->symbols, message);
    return symbol && symbol->is_map_entry;
}

size_t td_descriptor_set_n_files(const struct td_descriptor_set *set) {
    return set->n_files;
}

int td_descriptor_set_file(const struct td_descriptor_set *set, const char *file_name) {
    const struct file_ref *ref = td_map_get(set->files, file_name);
    return ref ? ref->idx : -1;
}

int td_descriptor_set_file_of(const struct td_descriptor_set *set, const char *symbol) {
    const struct symbol *found = td_map_get(set->symbols, symbol);
    return found ? found->file_idx : -1;
}

static const struct file *file_at(const struct td_descriptor_set *set, int file_idx) {
    TD_CHECK(file_idx >= 0 && (size_t)file_idx < set->n_files);
    return set->file[file_idx];
}

struct td_str td_descriptor_set_file_bytes(const struct td_descriptor_set *set, int file_idx) {
    return file_at(set, file_idx)->bytes;
}

size_t td_descriptor_set_n_imports(const struct td_descriptor_set *set, int file_idx) {
    return file_at(set, file_idx)->n_imports;
}

int td_descriptor_set_import(const struct td_descriptor_set *set, int file_idx, size_t i) {
    const struct file *file = file_at(set, file_idx);
    TD_CHECK(i < file->n_imports);
    char name[512];
    if (file->imports[i].len >= sizeof name) return -1;
    memcpy(name, file->imports[i].data, file->imports[i].len);
    name[file->imports[i].len] = 0;
    return td_descriptor_set_file(set, name);
}
