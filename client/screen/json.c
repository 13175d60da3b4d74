// Walks a message by its protobuf-c descriptor. The rules are proto3 JSON's: 64-bit integers are
// strings, enums are names, bytes are base64, maps are objects. Three are our own. Fields without
// presence are always printed, so that a script finds every key every time; messages are printed
// when set. And a text that is JSON itself is the value that it is, under the field's name without
// its end: spec_json is "spec", null where it is empty. protobuf-c forgets that a field is a map;
// the embedded descriptor set knows.
//
// Numbers have their shortest form that reads back equal (lib/base/json); non-finite doubles are
// the strings "NaN", "Infinity", "-Infinity". Values of metrics are the texts "nan", "inf" and
// "-inf" instead, as a program logs them. Rejected: reflection through the generated structs'
// names, which would need a table for each message.

#include "client/screen/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/descriptors.h"
#include "traind/v1/metric.pb-c.h"

struct printer {
    struct td_buf *out;
    bool indent;
    int depth;
    bool is_metric; // the reals that are being printed are values of metrics
    const struct td_descriptor_set *types;
};

static td_status print_message(struct printer *p, const ProtobufCMessage *m);

static td_status newline(struct printer *p) {
    if (!p->indent) return TD_OK;
    return td_buf_printf(p->out, "\n%*s", 2 * p->depth, "");
}

static td_status open_bracket(struct printer *p, const char *bracket) {
    p->depth++;
    return td_buf_str(p->out, bracket);
}

static td_status close_bracket(struct printer *p, const char *bracket, bool any) {
    p->depth--;
    if (any) TD_TRY(newline(p));
    return td_buf_str(p->out, bracket);
}

static td_status print_key(struct printer *p, const char *name, bool first) {
    if (!first) TD_TRY(td_buf_str(p->out, ","));
    TD_TRY(newline(p));
    TD_TRY(td_json_print_string(name, strlen(name), p->out));
    return td_buf_str(p->out, p->indent ? ": " : ":");
}

static td_status print_base64(struct printer *p, const uint8_t *data, size_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    TD_TRY(td_buf_str(p->out, "\""));
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)data[i] << 16;
        if (i + 1 < n) v |= (uint32_t)data[i + 1] << 8;
        if (i + 2 < n) v |= data[i + 2];
        char four[4] = {digit[v >> 18], digit[v >> 12 & 63], i + 1 < n ? digit[v >> 6 & 63] : '=',
                        i + 2 < n ? digit[v & 63] : '='};
        TD_TRY(td_buf_append(p->out, four, sizeof four));
    }
    return td_buf_str(p->out, "\"");
}

static td_status print_real(struct printer *p, double v) {
    if (p->is_metric) return td_json_print_value(v, p->out);
    if (isnan(v)) return td_buf_str(p->out, "\"NaN\"");
    if (isinf(v)) return td_buf_str(p->out, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return td_json_print_double(v, p->out);
}

static td_status print_enum(struct printer *p, const ProtobufCEnumDescriptor *type, int value) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    if (!v) return td_buf_printf(p->out, "%d", value);
    return td_buf_printf(p->out, "\"%s\"", v->name);
}

// member points at one value of the field's C type.
static td_status print_value(struct printer *p, const ProtobufCFieldDescriptor *f,
                             const void *member) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return td_buf_printf(p->out, "%" PRId32, *(const int32_t *)member);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return td_buf_printf(p->out, "%" PRIu32, *(const uint32_t *)member);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return td_buf_printf(p->out, "\"%" PRId64 "\"", *(const int64_t *)member);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return td_buf_printf(p->out, "\"%" PRIu64 "\"", *(const uint64_t *)member);
    case PROTOBUF_C_TYPE_FLOAT:
        return print_real(p, (double)*(const float *)member);
    case PROTOBUF_C_TYPE_DOUBLE:
        return print_real(p, *(const double *)member);
    case PROTOBUF_C_TYPE_BOOL:
        return td_buf_str(p->out, *(const protobuf_c_boolean *)member ? "true" : "false");
    case PROTOBUF_C_TYPE_ENUM:
        return print_enum(p, f->descriptor, *(const int *)member);
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)member;
        return td_json_print_string(text ? text : "", text ? strlen(text) : 0, p->out);
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *b = member;
        return print_base64(p, b->data, b->len);
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        return print_message(p, *(ProtobufCMessage *const *)member);
    }
    return td_fail(TD_INTERNAL, "field '%s' has the unknown type %d", f->name, (int)f->type);
}

static size_t value_bytes(const ProtobufCFieldDescriptor *f) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
        return 4;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    }
    return 0;
}

static bool is_map(const struct printer *p, const ProtobufCFieldDescriptor *f) {
    if (f->type != PROTOBUF_C_TYPE_MESSAGE) return false;
    const ProtobufCMessageDescriptor *type = f->descriptor;
    return td_descriptor_set_is_map_entry(p->types, type->name);
}

static td_status print_map(struct printer *p, ProtobufCMessage *const *entry, size_t n) {
    TD_TRY(open_bracket(p, "{"));
    for (size_t i = 0; i < n; i++) {
        const ProtobufCMessageDescriptor *type = entry[i]->descriptor;
        const char *at = (const char *)entry[i];
        const char *key = *(char *const *)(const void *)(at + type->fields[0].offset);
        TD_TRY(print_key(p, key ? key : "", i == 0));
        p->is_metric = true; // no map has other reals
        TD_TRY(print_value(p, &type->fields[1], at + type->fields[1].offset));
        p->is_metric = false;
    }
    return close_bracket(p, "}", n > 0);
}

static td_status print_repeated(struct printer *p, const ProtobufCFieldDescriptor *f,
                                const char *values, size_t n) {
    TD_TRY(open_bracket(p, "["));
    size_t bytes = value_bytes(f);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) TD_TRY(td_buf_str(p->out, ","));
        TD_TRY(newline(p));
        TD_TRY(print_value(p, f, values + i * bytes));
    }
    return close_bracket(p, "]", n > 0);
}

// ---- fields whose text is JSON ------------------------------------------------------------------
static const char json_end[] = "_json";

static bool is_json_text(const ProtobufCFieldDescriptor *f) {
    const size_t n = strlen(f->name), end = sizeof json_end - 1;
    return f->type == PROTOBUF_C_TYPE_STRING && n > end && !strcmp(f->name + n - end, json_end);
}

static td_status print_json_text(struct printer *p, const ProtobufCFieldDescriptor *f,
                                 const char *text, bool first) {
    enum { NAME_BYTES = 64, ARENA_BYTES = 64 << 20 };
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(f->name) + 1 - sizeof json_end), f->name);
    TD_TRY(print_key(p, name, first));
    if (!text || !*text) return td_buf_str(p->out, "null");
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY_CTX(td_json_parse(arena, text, strlen(text), &v), "%s of the answer", f->name);
    return td_json_print_at(v, p->indent, p->depth, p->out);
}

static td_status print_field(struct printer *p, const ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *f, bool *first) {
    const char *member = (const char *)m + f->offset;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
        const char *values = *(char *const *)(const void *)member;
        TD_TRY(print_key(p, f->name, *first));
        *first = false;
        if (is_map(p, f)) return print_map(p, (ProtobufCMessage *const *)(const void *)values, n);
        return print_repeated(p, f, values, n);
    }
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t which = *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset);
        if (which != f->id) return TD_OK;
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE && !*(void *const *)(const void *)member) {
        return TD_OK;
    }
    const bool is_first = *first;
    *first = false;
    if (is_json_text(f)) {
        return print_json_text(p, f, *(char *const *)(const void *)member, is_first);
    }
    TD_TRY(print_key(p, f->name, is_first));
    return print_value(p, f, member);
}

static td_status print_message(struct printer *p, const ProtobufCMessage *m) {
    TD_TRY(open_bracket(p, "{"));
    bool first = true;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        p->is_metric = m->descriptor == &traind__v1__metric_point__descriptor;
        TD_TRY(print_field(p, m, &m->descriptor->fields[i], &first));
    }
    p->is_metric = false;
    return close_bracket(p, "}", !first);
}

td_status td_message_json(const ProtobufCMessage *m, bool indent, struct td_buf *out) {
    TD_AUTO(td_descriptor_set) *types = NULL;
    struct td_str bytes = td_rpc_descriptors();
    TD_TRY(td_descriptor_set_create(bytes.data, bytes.len, &types));
    struct printer p = {.out = out, .indent = indent, .types = types};
    return print_message(&p, m);
}
