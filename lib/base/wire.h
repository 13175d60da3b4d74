#ifndef TRAIND_LIB_BASE_WIRE_H
#define TRAIND_LIB_BASE_WIRE_H

// The wire format of protobuf, read field by field where protobuf-c knows too little: the embedded
// descriptor set, and strings, of which it forgets the length. Events of TensorBoard are read so,
// too, as no proto of them is here. Bytes are borrowed, nothing is allocated, no nesting is
// followed: a caller that wants the inside of a field reads its bytes.
// Errors: INVALID_ARGUMENT with the offset from `base`.

#include "lib/base/base.h"

struct td_wire {
    const char *what; // for errors: "descriptor set"
    const char *base; // offset 0
    const char *at, *end;
};

struct td_wire_field {
    uint32_t number;
    uint32_t wire_type; // 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
    uint64_t varint;
    struct td_str bytes;
};

// bytes.data may be NULL where there are none: what protobuf-c makes of an empty field.
static inline struct td_wire td_wire_of(const char *what, const char *base, struct td_str bytes) {
    const char *end = bytes.len ? bytes.data + bytes.len : bytes.data;
    return (struct td_wire){what, base, bytes.data, end};
}
// What is at w->at is not what it should be.
TD_MUST_USE td_status td_wire_broken(const struct td_wire *w, const char *why);
// *out_more is false at the end.
TD_MUST_USE td_status td_wire_next(struct td_wire *w, struct td_wire_field *out_field,
                                   bool *out_more);

#endif
