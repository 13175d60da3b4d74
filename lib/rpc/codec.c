// Decoding under a budget, and the walk that checks every string.
//
// The arena's `free` does nothing: what protobuf-c gives back while it unpacks (its slabs of
// scanned fields) stays until the message goes, and counts. That is what the factor in codec.h
// allows for.

#include "lib/rpc/codec.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/buf.h"

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

// Where a walk stands: enough to name the field at fault.
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

static td_status check_strings(const ProtobufCMessage *m, const struct trail *up);

static td_status check_value(const ProtobufCFieldDescriptor *f, const void *value,
                             const struct trail *here) {
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *sub = *(ProtobufCMessage *const *)value;
        return sub ? check_strings(sub, here) : TD_OK;
    }
    const char *text = *(char *const *)value;
    if (!text || td_utf8_valid(text, strlen(text))) return TD_OK;
    char path[256];
    print_trail(here, path, sizeof path);
    td_status s = td_fail(TD_INVALID_ARGUMENT, "field '%s' of the message is not UTF-8", path);
    s = td_status_with_reason(s, "MALFORMED_MESSAGE");
    return td_status_with_field(s, path, "not UTF-8");
}

static bool is_present(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
    if (!(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) return true;
    uint32_t chosen;
    memcpy(&chosen, (const char *)m + f->quantifier_offset, sizeof chosen);
    return chosen == f->id;
}

static td_status check_field(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                             const struct trail *here) {
    const char *member = (const char *)m + f->offset;
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        return is_present(m, f) ? check_value(f, member, here) : TD_OK;
    }
    size_t n;
    memcpy(&n, (const char *)m + f->quantifier_offset, sizeof n);
    const char *items = n ? *(char *const *)(const void *)member : NULL;
    for (size_t i = 0; i < n; i++)
        TD_TRY(check_value(f, items + i * sizeof(void *), here));
    return TD_OK;
}

static td_status check_strings(const ProtobufCMessage *m, const struct trail *up) {
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        TD_TRY(check_field(m, f, &(struct trail){up, f->name}));
    }
    return TD_OK;
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
    TD_TRY(check_strings(self->message, NULL));
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
