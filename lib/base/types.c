// Element types and shapes: the functions of traind/types.h.
//
// Names and sizes come from dtypes.def alone, so the enum, the text forms and the byte counts
// cannot drift apart. Everything here is pure. A dtype outside the enum or a shape with an
// impossible number of dimensions is a bug of ours (both are checked where they enter the process),
// so it is a TD_CHECK and not a status.

#include "traind/types.h"

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

struct td_shape td_shape_of(int n_dims, const int64_t *dim) {
    TD_CHECK(n_dims >= 0 && n_dims <= TD_MAX_DIMS);
    struct td_shape s = {.n_dims = n_dims};
    if (n_dims > 0) memcpy(s.dim, dim, (size_t)n_dims * sizeof *dim);
    return s;
}

bool td_shape_equal(const struct td_shape *a, const struct td_shape *b) {
    return a->n_dims == b->n_dims &&
           memcmp(a->dim, b->dim, (size_t)a->n_dims * sizeof a->dim[0]) == 0;
}

int64_t td_shape_elems(const struct td_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++)
        n *= s->dim[i];
    return n;
}
