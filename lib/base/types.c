// Element types and shapes: the functions of traind/types.h.
//
// Names and sizes come from dtypes.def alone, so the enum, the text forms and the byte counts
// cannot drift apart. Everything here is pure. A dtype outside the enum or a shape with an
// impossible number of dimensions is a bug of ours, because both are checked where they enter the
// process. So it is a TD_CHECK and not a status.

#include "traind/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/base.h"

static const struct dtype_row {
    const char *name;
    const char *safetensors;
    size_t bytes;
} dtype_rows[] = {
#define TD_DTYPE(ID, name, st_name, bytes) [TD_##ID] = {name, st_name, bytes},
#include "traind/dtypes.def"
#undef TD_DTYPE
};
_Static_assert(TD_COUNTOF(dtype_rows) == TD_DTYPE_COUNT, "one row per dtype");

static const struct dtype_row *row_of(enum td_dtype t) {
    TD_CHECK((size_t)t < TD_COUNTOF(dtype_rows));
    return &dtype_rows[t];
}

const char *td_dtype_name(enum td_dtype t) {
    return row_of(t)->name;
}

const char *td_dtype_safetensors(enum td_dtype t) {
    return row_of(t)->safetensors;
}

size_t td_dtype_bytes(enum td_dtype t) {
    return row_of(t)->bytes;
}

bool td_shape_equal(const struct td_shape *a, const struct td_shape *b) {
    return a->n_dims == b->n_dims &&
           memcmp(a->dim, b->dim, (size_t)a->n_dims * sizeof a->dim[0]) == 0;
}

int64_t td_shape_elems(const struct td_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++) {
        n *= s->dim[i];
    }
    return n;
}

bool td_shape_bytes(const struct td_shape *s, size_t elem_bytes, size_t *out_bytes) {
    size_t bytes = elem_bytes;
    bool is_empty = false;
    for (int i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 0) return false;
        is_empty |= s->dim[i] == 0;
        if (s->dim[i] && !td_size_mul(bytes, (size_t)s->dim[i], &bytes)) return false;
        if (bytes > INT64_MAX) return false;
    }
    *out_bytes = is_empty ? 0 : bytes;
    return true;
}

void td_shape_print(const struct td_shape *s, char *out, size_t out_bytes) {
    size_t len = (size_t)snprintf(out, out_bytes, "(");
    for (int i = 0; i < s->n_dims && len < out_bytes; i++) {
        len += (size_t)snprintf(out + len, out_bytes - len, "%s%" PRId64, i ? ", " : "", s->dim[i]);
    }
    if (len < out_bytes) snprintf(out + len, out_bytes - len, ")");
}
