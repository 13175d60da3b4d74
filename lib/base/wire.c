// See the header. Groups (wire types 3 and 4) are of no message here and are refused.

#include "lib/base/wire.h"

td_status td_wire_broken(const struct td_wire *w, const char *why) {
    return td_fail(TD_INVALID_ARGUMENT, "%s: %s at offset %td", w->what, why, w->at - w->base);
}

static td_status read_varint(struct td_wire *w, uint64_t *out_value) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (w->at == w->end) return td_wire_broken(w, "ends inside a number");
        unsigned char c = (unsigned char)*w->at++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *out_value = v;
            return TD_OK;
        }
    }
    return td_wire_broken(w, "number of more than 64 bits");
}

static td_status skip(struct td_wire *w, uint64_t bytes) {
    if (bytes > (uint64_t)(w->end - w->at)) {
        return td_wire_broken(w, "field longer than what holds it");
    }
    w->at += bytes;
    return TD_OK;
}

td_status td_wire_next(struct td_wire *w, struct td_wire_field *out_field, bool *out_more) {
    *out_more = w->at != w->end;
    if (!*out_more) return TD_OK;
    struct td_wire_field f = {0};
    uint64_t key = 0, len = 0; // set by what succeeds, which gcc does not see
    TD_TRY(read_varint(w, &key));
    f.number = (uint32_t)(key >> 3);
    f.wire_type = key & 7;
    if (key >> 32 || f.number == 0) return td_wire_broken(w, "impossible field number");
    if (f.wire_type == 0) {
        TD_TRY(read_varint(w, &f.varint));
    } else if (f.wire_type == 1) {
        TD_TRY(skip(w, 8));
    } else if (f.wire_type == 5) {
        TD_TRY(skip(w, 4));
    } else if (f.wire_type == 2) {
        TD_TRY(read_varint(w, &len));
        f.bytes.data = w->at;
        TD_TRY(skip(w, len));
        f.bytes.len = (size_t)len;
    } else {
        return td_wire_broken(w, "unknown wire type");
    }
    *out_field = f;
    return TD_OK;
}
