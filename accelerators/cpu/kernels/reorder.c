// Reorder: an image in one layout becomes the same image in another; contract in reorder.h.
//
// Work is split by strips of a block's channels of one image. From plain, or to plain, a strip is
// transposed; between the others its rows are copied. The bytes are moved, never computed with.

#include "accelerators/cpu/kernels/reorder.h"

#include <string.h>

#include "accelerators/cpu/kernels/shuffle.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/parallel.h"

struct reorder_arg {
    const struct td_reorder *r;
    const char *from;
    char *to;
};

// y (cols, rows) = transpose of x (rows, cols). Rows of x and y are x_row and y_row elements apart.
// It goes by tiles of eight by eight in three rounds, each of which interleaves the rows of both
// halves. The last tile overlaps the one before; what is smaller than a tile goes element by
// element.
#define TRANSPOSE(name, type)                                                                      \
    typedef type name##_row __attribute__((vector_size(8 * sizeof(type))));                        \
    static void name(const type *x, int64_t x_row, int64_t rows, int64_t cols, type *y,            \
                     int64_t y_row) {                                                              \
        bool tiles = rows >= 8 && cols >= 8;                                                       \
        for (int64_t i = 0; i < rows && !tiles; i++) {                                             \
            for (int64_t j = 0; j < cols; j++) {                                                   \
                y[j * y_row + i] = x[i * x_row + j];                                               \
            }                                                                                      \
        }                                                                                          \
        for (int64_t i = 0; i < rows && tiles; i += 8) {                                           \
            int64_t top = TD_MIN(i, rows - 8);                                                     \
            for (int64_t j = 0; j < cols; j += 8) {                                                \
                int64_t left = TD_MIN(j, cols - 8);                                                \
                name##_row a[8], b[8];                                                             \
                for (int k = 0; k < 8; k++) {                                                      \
                    memcpy(&a[k], x + (top + k) * x_row + left, sizeof *a);                        \
                }                                                                                  \
                TD_INTERLEAVE(a, b);                                                               \
                TD_INTERLEAVE(b, a);                                                               \
                TD_INTERLEAVE(a, b);                                                               \
                for (int k = 0; k < 8; k++) {                                                      \
                    memcpy(y + (left + k) * y_row + top, &b[k], sizeof *b);                        \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
TRANSPOSE(transpose_1, uint8_t)
TRANSPOSE(transpose_2, uint16_t)
TRANSPOSE(transpose_4, uint32_t)
TRANSPOSE(transpose_8, uint64_t)

static void transpose(const void *x, int64_t x_row, int64_t rows, int64_t cols, void *y,
                      int64_t y_row, size_t elem_bytes) {
    if (elem_bytes == 1) transpose_1(x, x_row, rows, cols, y, y_row);
    if (elem_bytes == 2) transpose_2(x, x_row, rows, cols, y, y_row);
    if (elem_bytes == 4) transpose_4(x, x_row, rows, cols, y, y_row);
    if (elem_bytes == 8) transpose_8(x, x_row, rows, cols, y, y_row);
}

// Places of so many bytes, so far apart. Whole strips have a size that the compiler knows: a call
// of memcpy for each took a quarter of the time.
static void move(const char *from, int64_t from_step, int64_t places, int64_t bytes, char *to,
                 int64_t to_step) {
    enum { F32 = TD_LAYOUT_LANES * 4, BF16 = TD_LAYOUT_LANES * 2 };
    for (int64_t p = 0; p < places; p++, from += from_step, to += to_step) {
        if (bytes == F32) {
            memcpy(to, from, F32);
        } else if (bytes == BF16) {
            memcpy(to, from, BF16);
        } else {
            memcpy(to, from, (size_t)bytes);
        }
    }
}

// Where the strip that begins with channel c of image n begins.
static int64_t strip_at(const struct td_shape *s, int64_t lanes, int64_t n, int64_t c) {
    int64_t places = s->dim[2] * s->dim[3];
    return n * s->dim[1] * places + c / lanes * lanes * places + c % lanes;
}

// Strips [begin, end) of at most TD_LAYOUT_LANES channels of one image. In plain order a strip is a
// matrix (channels, places), in the others (places, channels).
static void reorder_range(const void *arg, int64_t begin, int64_t end) {
    const struct reorder_arg *a = arg;
    const struct td_shape *s = &a->r->shape;
    int64_t channels = s->dim[1], places = s->dim[2] * s->dim[3];
    int64_t strips = (channels + TD_LAYOUT_LANES - 1) / TD_LAYOUT_LANES;
    int64_t from_lanes = td_layout_lanes(a->r->from, channels, TD_LAYOUT_LANES);
    int64_t to_lanes = td_layout_lanes(a->r->to, channels, TD_LAYOUT_LANES);
    int64_t bytes = (int64_t)a->r->elem_bytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / strips, c = i % strips * TD_LAYOUT_LANES;
        int64_t width = TD_MIN(channels - c, (int64_t)TD_LAYOUT_LANES);
        const char *from = a->from + strip_at(s, from_lanes, n, c) * bytes;
        char *to = a->to + strip_at(s, to_lanes, n, c) * bytes;
        if (a->r->from == TD_LAYOUT_PLAIN) {
            transpose(from, places, width, places, to, to_lanes, a->r->elem_bytes);
        } else if (a->r->to == TD_LAYOUT_PLAIN) {
            transpose(from, from_lanes, places, width, to, places, a->r->elem_bytes);
        }
        bool both = a->r->from != TD_LAYOUT_PLAIN && a->r->to != TD_LAYOUT_PLAIN;
        if (both) move(from, from_lanes * bytes, places, width * bytes, to, to_lanes * bytes);
    }
}

void td_reorder_run(const struct td_reorder *r, int32_t n_threads, const void *from, void *to) {
    struct reorder_arg a = {r, from, to};
    int64_t strips = (r->shape.dim[1] + TD_LAYOUT_LANES - 1) / TD_LAYOUT_LANES;
    td_parallel_units(n_threads, r->shape.dim[0] * strips, td_shape_elems(&r->shape), reorder_range,
                      &a);
}
