// See the header. Numbers of fields are those of TensorFlow's protos. Event: 1 wall_time, 2 step,
// 5 summary. Summary: 1 value. Its Value: 1 tag, 2 simple_value, 8 tensor, 9 metadata. Metadata: 1
// plugin_data, of which 1 is plugin_name. TensorProto: 1 dtype, 2 tensor_shape, 4 tensor_content.
// Its fields of numbers are in the table below. Of a shape 2 is a dimension, and 3 says that
// nothing is known of them.

#include "daemon/worker/reports/board_event.h"

#include <string.h>

#include "lib/base/floats/half.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // protobuf's kinds of fields

// ---- numbers ------------------------------------------------------------------------------------
enum kind { KIND_NONE, KIND_F16, KIND_BF16, KIND_F32, KIND_F64, KIND_SIGNED, KIND_UNSIGNED };

// By DataType: how its numbers are, in tensor_content and in a field of their own.
static const struct number {
    enum kind kind;
    uint32_t bytes, field;
} numbers[] = {
    [1] = {KIND_F32, 4, 5},        // DT_FLOAT, float_val
    [2] = {KIND_F64, 8, 6},        // DT_DOUBLE, double_val
    [3] = {KIND_SIGNED, 4, 7},     // DT_INT32, int_val, as all shorter ones
    [4] = {KIND_UNSIGNED, 1, 7},   // DT_UINT8
    [5] = {KIND_SIGNED, 2, 7},     // DT_INT16
    [6] = {KIND_SIGNED, 1, 7},     // DT_INT8
    [9] = {KIND_SIGNED, 8, 10},    // DT_INT64, int64_val
    [10] = {KIND_UNSIGNED, 1, 11}, // DT_BOOL, bool_val
    [14] = {KIND_BF16, 2, 13},     // DT_BFLOAT16, half_val
    [17] = {KIND_UNSIGNED, 2, 7},  // DT_UINT16
    [19] = {KIND_F16, 2, 13},      // DT_HALF, half_val
    [22] = {KIND_UNSIGNED, 4, 16}, // DT_UINT32, uint32_val
    [23] = {KIND_UNSIGNED, 8, 17}, // DT_UINT64, uint64_val
};

static uint64_t little(const char *p, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = bytes; i-- > 0;) {
        v = v << 8 | (unsigned char)p[i];
    }
    return v;
}

static double double_of(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// A field that td_wire_next has just passed over has its number in its last bytes.
static uint64_t fixed_of(const struct td_wire *w, const struct td_wire_field *f) {
    const size_t bytes = f->wire_type == FIXED32 ? 4 : 8;
    return little(w->at - bytes, bytes);
}

static double value_of(const struct number *n, uint64_t bits) {
    const unsigned unused = 64 - 8 * n->bytes;
    switch (n->kind) {
    case KIND_F16:
        return (double)td_f32_of_f16((uint16_t)bits);
    case KIND_BF16:
        return (double)td_f32_of_bf16((uint16_t)bits);
    case KIND_F32:
        return (double)td_f32_of_bits((uint32_t)bits);
    case KIND_F64:
        return double_of(bits);
    case KIND_SIGNED:
        return (double)((int64_t)(bits << unused) >> unused);
    case KIND_UNSIGNED:
    case KIND_NONE:
        break;
    }
    return (double)(bits << unused >> unused);
}

// ---- tensors ------------------------------------------------------------------------------------
// Its fields, as far as one number needs them.
struct tensor {
    uint64_t dtype;
    bool has_shape; // more than one number, or an unknown count
    bool has_content;
    struct td_str content;
    uint64_t bits[18]; // by field: the last number there
    uint32_t fields;   // that are there, a bit each
};

static td_status read_shape(struct td_str shape, struct tensor *t) {
    struct td_wire w = td_wire_of("a shape", shape.data, shape);
    struct td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        t->has_shape |= f.number == 2 || (f.number == 3 && f.varint);
    }
}

// Several numbers in one field: the first counts.
static td_status read_packed(struct td_str list, uint32_t field, struct tensor *t) {
    const size_t bytes = field == 5 ? 4 : field == 6 ? 8 : 0;
    if (list.len == 0 || (bytes && list.len < bytes)) return TD_OK;
    t->fields |= 1u << field;
    if (bytes) {
        t->bits[field] = little(list.data, bytes);
        return TD_OK;
    }
    t->bits[field] = 0;
    for (size_t i = 0; i < list.len && i < 10; i++) {
        const unsigned char byte = (unsigned char)list.data[i];
        if (i < 9 || byte <= 1) t->bits[field] |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "a number of a tensor has no end");
}

static td_status read_tensor(struct td_str bytes, struct tensor *t) {
    struct td_wire w = td_wire_of("a tensor", bytes.data, bytes);
    struct td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        if (f.number == 1 && f.wire_type == VARINT) {
            t->dtype = f.varint;
        } else if (f.number == 2 && f.wire_type == BYTES) {
            TD_TRY(read_shape(f.bytes, t));
        } else if (f.number == 4 && f.wire_type == BYTES) {
            t->has_content = f.bytes.len > 0;
            t->content = f.bytes;
        } else if (f.number < TD_COUNTOF(t->bits) && f.wire_type == BYTES) {
            TD_TRY(read_packed(f.bytes, f.number, t));
        } else if (f.number < TD_COUNTOF(t->bits)) {
            t->bits[f.number] = f.wire_type == VARINT ? f.varint : fixed_of(&w, &f);
            t->fields |= 1u << f.number;
        }
    }
}

// Without a number it is 0, as protobuf has it.
static bool is_scalar(const struct tensor *t, double *out_value) {
    if (t->dtype >= TD_COUNTOF(numbers) || t->has_shape) return false;
    const struct number *n = &numbers[t->dtype];
    if (n->kind == KIND_NONE || (t->has_content && t->content.len != n->bytes)) return false;
    uint64_t bits = t->fields & 1u << n->field ? t->bits[n->field] : 0;
    if (t->has_content) bits = little(t->content.data, n->bytes);
    *out_value = value_of(n, bits);
    return true;
}

// ---- values -------------------------------------------------------------------------------------
// The bytes of a field; without them empty.
static td_status find_bytes(struct td_str in, uint32_t number, struct td_str *out) {
    struct td_wire w = td_wire_of("metadata", in.data, in);
    struct td_wire_field f;
    *out = (struct td_str){0};
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) return TD_OK;
        if (f.number == number && f.wire_type == BYTES) *out = f.bytes;
    }
}

static td_status read_plugin(struct td_str metadata, bool *out_is_ours) {
    static const char scalars[] = "scalars";
    struct td_str plugin, name;
    TD_TRY(find_bytes(metadata, 1, &plugin));
    TD_TRY(find_bytes(plugin, 1, &name));
    *out_is_ours = name.len == 0 || (name.len == sizeof scalars - 1 &&
                                     memcmp(name.data, scalars, sizeof scalars - 1) == 0);
    return TD_OK;
}

static td_status read_value(struct td_str value, struct td_board_scalar *out, bool *out_is) {
    struct td_wire w = td_wire_of("a value", value.data, value);
    struct td_wire_field f;
    struct td_board_scalar scalar = {0};
    struct tensor tensor = {0};
    bool is_simple = false, has_tensor = false, is_ours = true;
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) break;
        if (f.number == 1 && f.wire_type == BYTES) {
            scalar.tag = f.bytes;
        } else if (f.number == 2 && f.wire_type == FIXED32) {
            is_simple = true;
            scalar.value = (double)td_f32_of_bits((uint32_t)fixed_of(&w, &f));
        } else if (f.number == 8 && f.wire_type == BYTES) {
            has_tensor = true;
            TD_TRY(read_tensor(f.bytes, &tensor));
        } else if (f.number == 9 && f.wire_type == BYTES) {
            TD_TRY(read_plugin(f.bytes, &is_ours));
        }
    }
    *out_is = is_simple || (has_tensor && is_ours && is_scalar(&tensor, &scalar.value));
    *out = scalar;
    return TD_OK;
}

td_status td_board_event_next(struct td_board_event *e, struct td_board_scalar *out_scalar,
                              bool *out_more) {
    struct td_wire_field f;
    struct td_board_scalar scalar;
    for (bool more, is = false;;) {
        TD_TRY(td_wire_next(&e->values, &f, &more));
        if (more && f.number == 1 && f.wire_type == BYTES) {
            TD_TRY(read_value(f.bytes, &scalar, &is));
        }
        if (more && !is) continue;
        if (more) *out_scalar = scalar;
        *out_more = more;
        return TD_OK;
    }
}

td_status td_board_event_read(struct td_str bytes, struct td_board_event *out_event) {
    struct td_wire w = td_wire_of("an event", bytes.data, bytes);
    struct td_board_event e = {0};
    struct td_wire_field f;
    struct td_str summary = {0};
    for (bool more;;) {
        TD_TRY(td_wire_next(&w, &f, &more));
        if (!more) break;
        if (f.number == 1 && f.wire_type == FIXED64) e.wall_time = double_of(fixed_of(&w, &f));
        if (f.number == 2 && f.wire_type == VARINT) e.step = (int64_t)f.varint;
        if (f.number == 5 && f.wire_type == BYTES) summary = f.bytes;
    }
    e.values = td_wire_of("a summary", summary.data, summary);
    *out_event = e;
    return TD_OK;
}
