#ifndef TRAIND_TYPES_H
#define TRAIND_TYPES_H

// The small vocabulary that every floor of traind shares: element types, shapes, spans of bytes,
// strings with a length, clocks, and the limits that keep every one of them bounded.
// Pure data: no ownership, no failure, any thread.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_MAX_DIMS = 8 };

// Element types. Names and sizes: dtypes.def.
enum td_dtype {
#define TD_DTYPE(ID, name, st_name, bytes) TD_##ID,
#include "traind/dtypes.def"
#undef TD_DTYPE
    TD_DTYPE_COUNT
};

const char *td_dtype_name(enum td_dtype t);        // "f32"
const char *td_dtype_safetensors(enum td_dtype t); // "F32"
size_t td_dtype_bytes(enum td_dtype t);

// A row-major shape. n_dims 0 is a scalar; a dimension may be 0.
struct td_shape {
    int32_t n_dims;
    int64_t dim[TD_MAX_DIMS];
};

bool td_shape_equal(const struct td_shape *a, const struct td_shape *b);
int64_t td_shape_elems(const struct td_shape *s); // product; shapes are checked where they enter
// For a shape that somebody else wrote: its bytes. False, and nothing is written, where a dimension
// is negative, or where those that are not 0 multiply to 2^63 bytes or more: a 0 among them hides
// no overflow.
bool td_shape_bytes(const struct td_shape *s, size_t elem_bytes, size_t *out_bytes);
// "(3, 4)", for messages; cut where out_bytes end.
void td_shape_print(const struct td_shape *s, char *out, size_t out_bytes);

// Borrowed bytes and strings.
struct td_span {
    void *data;
    size_t bytes;
};
struct td_str {
    const char *data; // not NUL-terminated
    size_t len;
};

// Clocks are types so that they cannot be mixed: mono for deadlines, real for display only.
struct td_mono {
    int64_t ns;
};
struct td_real {
    int64_t ns; // since 1970-01-01T00:00:00Z
};

#define TD_NS_PER_S  INT64_C(1000000000)
#define TD_NS_PER_MS INT64_C(1000000)

#ifdef __cplusplus
}
#endif
#endif
