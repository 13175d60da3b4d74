// Decoding under a budget, and the walk that checks every string. It goes over the bytes, not over
// the message, because protobuf-c ends a string with a NUL and forgets how long it was. One with a
// NUL inside would mean one thing to the sender and another here.
//
// The arena's `free` does nothing: what protobuf-c gives back while it unpacks (its slabs of
// scanned fields) stays until the message goes, and counts. That is what the factor in codec.h
// allows for.

#include "lib/rpc/codec.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/utf8.h"
#include "lib/base/wire.h"

enum { MAX_NESTING = 16 };

struct td_rpc_message {
    struct td_arena *arena;
    ProtobufCMessage *message;
};

struct budget {
    struct td_arena *arena;
    bool exhausted;
};

static void *budget_alloc(void *data, size_t bytes) {
    struct budget *b = data;
    void *p = td_arena_alloc(b->arena, bytes);
    if (!p) b->exhausted = true;
    return p;
}

static void budget_free(void *data, void *p) {
    (void)data;
    (void)p;
}

// ---- strings ----------------------------------------------------------------------------------

// Where a walk is: enough to name the field at fault.
struct trail {
    const struct trail *up;
    const char *name;
};

static void print_trail(const struct trail *t, char *out, size_t out_bytes) {
    char tail[256] = "";
    for (; t; t = t->up) {
        char joined[256];
        snprintf(joined, sizeof joined, tail[0] ? "%.100s.%.150s" : "%.100s%.150s", t->name, tail);
        memcpy(tail, joined, sizeof tail);
    }
    snprintf(out, out_bytes, "%s", tail);
}

static td_status refuse_text(const struct trail *here, const char *why) {
    char path[256];
    print_trail(here, path, sizeof path);
    td_status s = td_fail(TD_INVALID_ARGUMENT, "field '%s' of the message %s", path, why);
    return td_status_with_field(s, path, "%s", why);
}

static td_status check_text(struct td_str text, const struct trail *here) {
    if (!text.len) return TD_OK;
    if (memchr(text.data, '\0', text.len)) return refuse_text(here, "has a NUL character");
    return td_utf8_valid(text.data, text.len) ? TD_OK : refuse_text(here, "is not UTF-8");
}

// Along the types, which are known not to nest for ever. What the type does not know is skipped.
static td_status check_strings(const ProtobufCMessageDescriptor *type, struct td_str bytes,
                               const struct trail *up) {
    struct td_wire w = td_wire_of(type->name, bytes.data, bytes);
    struct td_wire_field field;
    bool more;
    for (;;) {
        TD_TRY(td_wire_next(&w, &field, &more));
        if (!more) return TD_OK;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(type, field.number);
        if (!f || field.wire_type != 2) continue;
        struct trail here = {up, f->name};
        if (f->type == PROTOBUF_C_TYPE_STRING) TD_TRY(check_text(field.bytes, &here));
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            TD_TRY(check_strings(f->descriptor, field.bytes, &here));
        }
    }
}

// ---- messages ---------------------------------------------------------------------------------

static size_t budget_bytes(size_t wire_bytes) {
    if (wire_bytes > TD_RPC_DECODE_MAX_BYTES / TD_RPC_DECODE_FACTOR) return TD_RPC_DECODE_MAX_BYTES;
    return TD_MIN(wire_bytes * TD_RPC_DECODE_FACTOR + TD_RPC_DECODE_BASE, TD_RPC_DECODE_MAX_BYTES);
}

td_status td_rpc_message_decode(const ProtobufCMessageDescriptor *type, const void *data,
                                size_t bytes, struct td_rpc_message **out_message) {
    TD_AUTO(td_rpc_message) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    TD_TRY(td_arena_create(budget_bytes(bytes), &self->arena));
    struct budget budget = {.arena = self->arena};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    self->message = protobuf_c_message_unpack(type, &allocator, bytes, data);
    if (budget.exhausted) {
        return td_status_with_reason(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "message of %zu bytes (%s) needs more than %zu bytes of memory when decoded; "
                    "split it",
                    bytes, type->name, budget_bytes(bytes)),
            "MESSAGE_TOO_LARGE");
    }
    if (!self->message) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT, "the %zu bytes received are no %s", bytes, type->name),
            "MALFORMED_MESSAGE");
    }
    TD_TRY(td_status_with_reason(check_strings(type, (struct td_str){data, bytes}, NULL),
                                 "MALFORMED_MESSAGE"));
    *out_message = td_steal(self);
    return TD_OK;
}

void td_rpc_message_destroy(struct td_rpc_message *m) {
    if (!m) return;
    td_arena_destroy(m->arena);
    free(m);
}

const ProtobufCMessage *td_rpc_message_get(const struct td_rpc_message *m) {
    return m->message;
}

// ---- types ------------------------------------------------------------------------------------

static td_status check_type(const ProtobufCMessageDescriptor *type, int depth) {
    if (depth > MAX_NESTING) {
        return td_fail(TD_INTERNAL,
                       "message type nests deeper than %d or contains itself (at %s): the decoder "
                       "would follow a stranger's nesting without a limit",
                       MAX_NESTING, type->name);
    }
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type != PROTOBUF_C_TYPE_MESSAGE) continue;
        TD_TRY(check_type(type->fields[i].descriptor, depth + 1));
    }
    return TD_OK;
}

td_status td_rpc_type_check(const ProtobufCMessageDescriptor *type) {
    return check_type(type, 1);
}
