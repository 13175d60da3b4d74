// Winograd's F(2x2, 3x3); contract in winograd.h.
//
// The result is cut into tiles of 2x2, each made of 4x4 of the image. Weights are transformed once
// a run, to 16 matrices (c,o). Then each thread takes some tiles at a time. Their 4x4 become 16
// matrices (tiles,c), these are multiplied by the weights' in its caches (tile.h), and the products
// (tiles,o) become 2x2 each. Transforms are vectors of a block's channels. What of a tile is
// outside the image is zero, what is outside the result is not written.
// Rejected: F(4x4, 3x3), which multiplies half as much again less and loses two more digits.

#include "accelerators/cpu/kernels/matmul/winograd.h"

#include <string.h>

#include "accelerators/cpu/kernels/matmul/tile.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/parallel.h"

enum { POINTS = 16, SIDE = 4, STEP = 2, TAPS = 9, LANES = TD_LAYOUT_LANES, PANEL = TD_TILE_PANEL };
// Tiles at a time: many share what is read of the weights, few channels leave room in the cache.
enum { FEW_TILES = 48, MANY_TILES = 96, FEW_CHANNELS = 256 };

typedef float lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float panel __attribute__((vector_size(PANEL * 4), aligned(4), may_alias));

struct sizes {
    int64_t high, wide, tiles;        // tiles of an image, of all
    int64_t at_once, columns;         // tiles of a chunk; o in whole panels
    size_t weights, images, products; // floats of the scratch, the last two of a thread
};

static int64_t round_up(int64_t n, int64_t by) {
    return (n + by - 1) / by * by;
}

static struct sizes sizes_of(const struct td_winograd *p) {
    struct sizes s = {.high = (p->out_h + STEP - 1) / STEP, .wide = (p->out_w + STEP - 1) / STEP};
    s.tiles = p->n * s.high * s.wide;
    int64_t most = p->c + p->o <= FEW_CHANNELS ? FEW_TILES : MANY_TILES;
    int64_t share = (s.tiles + p->n_threads - 1) / p->n_threads;
    s.at_once = round_up(TD_MIN(most, share), TD_TILE_M);
    s.columns = round_up(p->o, PANEL);
    s.weights = (size_t)(POINTS * p->c * s.columns);
    s.images = (size_t)(POINTS * s.at_once * p->c);
    s.products = (size_t)(POINTS * s.at_once * s.columns);
    return s;
}

size_t td_winograd_scratch_bytes(const struct td_winograd *p) {
    struct sizes s = sizes_of(p);
    return (s.weights + (size_t)p->n_threads * (s.images + s.products)) * sizeof(float);
}

struct run {
    const struct td_winograd *p;
    const float *x, *weights, *bias;
    float *y, *u, *buffer; // u: transformed weights; buffer: the threads'
    struct sizes s;
};

// ---- weights ------------------------------------------------------------------------------------
// Taps of channel c of the input and PANEL channels of the output from o on, a row a tap.
static void gather_taps(const struct run *r, int64_t c, int64_t o, float taps[TAPS][PANEL]) {
    const struct td_winograd *p = r->p;
    const int64_t width = TD_MIN(p->o - o, (int64_t)PANEL);
    if (width < PANEL) memset(taps, 0, TAPS * PANEL * sizeof(float));
    for (int64_t j = 0; j < width; j++) {
        // A gradient reads the forward weights with both pairs of sides exchanged.
        const float *w = r->weights + (p->gradient ? c * p->o + o + j : (o + j) * p->c + c) * TAPS;
        for (int t = 0; t < TAPS; t++) {
            taps[t][j] = w[p->gradient ? TAPS - 1 - t : t];
        }
    }
}

// u = G taps G^T, a panel's width of it.
static void transform_taps(float taps[TAPS][PANEL], float *u, int64_t u_point) {
    panel g[3][3], rows[SIDE][3];
    memcpy(g, taps, sizeof g);
    for (int j = 0; j < 3; j++) {
        panel outer = g[0][j] + g[2][j];
        rows[0][j] = g[0][j];
        rows[1][j] = 0.5f * (outer + g[1][j]);
        rows[2][j] = 0.5f * (outer - g[1][j]);
        rows[3][j] = g[2][j];
    }
    for (int i = 0; i < SIDE; i++, u += SIDE * u_point) {
        panel outer = rows[i][0] + rows[i][2];
        *(panel *)u = rows[i][0];
        *(panel *)(u + u_point) = 0.5f * (outer + rows[i][1]);
        *(panel *)(u + 2 * u_point) = 0.5f * (outer - rows[i][1]);
        *(panel *)(u + 3 * u_point) = rows[i][2];
    }
}

// Panels [begin, end) of the weights.
static void weights_range(const void *arg, int64_t begin, int64_t end) {
    const struct run *r = arg;
    const int64_t c_all = r->p->c, point = c_all * r->s.columns;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t c = 0; c < c_all; c++) {
            float taps[TAPS][PANEL];
            gather_taps(r, c, i * PANEL, taps);
            transform_taps(taps, r->u + (i * c_all + c) * PANEL, point);
        }
    }
}

// ---- images -------------------------------------------------------------------------------------
// A tile's place: which image, and where its 4x4 begins there, which may be outside.
struct place {
    int64_t n, row, col; // of the result
};

static struct place place_of(const struct run *r, int64_t tile) {
    const int64_t of_image = r->s.high * r->s.wide, t = tile % of_image;
    return (struct place){tile / of_image, t / r->s.wide * STEP, t % r->s.wide * STEP};
}

// The 4x4 of a block of channels; outside of the image: zero.
static void load_tile(const struct td_winograd *p, const float *x, int64_t row, int64_t col,
                      lanes d[SIDE][SIDE]) {
    bool whole = row >= 0 && col >= 0 && row + SIDE <= p->h && col + SIDE <= p->w;
    for (int64_t i = 0; i < SIDE; i++) {
        for (int64_t j = 0; j < SIDE; j++) {
            int64_t y = row + i, z = col + j;
            bool inside = whole || (y >= 0 && y < p->h && z >= 0 && z < p->w);
            d[i][j] = inside ? *(const lanes *)(x + (y * p->w + z) * LANES) : (lanes){0};
        }
    }
}

// v = B^T d B.
static void transform_tile(lanes d[SIDE][SIDE], float *v, int64_t v_point) {
    lanes t[SIDE][SIDE];
    for (int j = 0; j < SIDE; j++) {
        t[0][j] = d[0][j] - d[2][j];
        t[1][j] = d[1][j] + d[2][j];
        t[2][j] = d[2][j] - d[1][j];
        t[3][j] = d[1][j] - d[3][j];
    }
    for (int i = 0; i < SIDE; i++, v += SIDE * v_point) {
        *(lanes *)v = t[i][0] - t[i][2];
        *(lanes *)(v + v_point) = t[i][1] + t[i][2];
        *(lanes *)(v + 2 * v_point) = t[i][2] - t[i][1];
        *(lanes *)(v + 3 * v_point) = t[i][1] - t[i][3];
    }
}

static void transform_images(const struct run *r, int64_t first, int64_t n, float *v) {
    const struct td_winograd *p = r->p;
    const int64_t point = r->s.at_once * p->c, block = p->h * p->w * LANES;
    for (int64_t i = 0; i < n; i++) {
        struct place at = place_of(r, first + i);
        const float *x = r->x + at.n * p->c * p->h * p->w;
        for (int64_t c = 0; c < p->c; c += LANES, x += block) {
            lanes d[SIDE][SIDE];
            load_tile(p, x, at.row - p->pad[0], at.col - p->pad[1], d);
            transform_tile(d, v + i * p->c + c, point);
        }
    }
}

// ---- results ------------------------------------------------------------------------------------
// y = A^T m A.
static void transform_product(const float *m, int64_t m_point, lanes y[STEP][STEP]) {
    lanes t[STEP][SIDE];
    for (int j = 0; j < SIDE; j++) {
        lanes a = *(const lanes *)(m + j * m_point), b = *(const lanes *)(m + (4 + j) * m_point);
        lanes c = *(const lanes *)(m + (8 + j) * m_point);
        lanes d = *(const lanes *)(m + (12 + j) * m_point);
        t[0][j] = a + b + c;
        t[1][j] = b - c - d;
    }
    for (int i = 0; i < STEP; i++) {
        y[i][0] = t[i][0] + t[i][1] + t[i][2];
        y[i][1] = t[i][1] - t[i][2] - t[i][3];
    }
}

static void write_results(const struct run *r, int64_t first, int64_t n, const float *m) {
    const struct td_winograd *p = r->p;
    const int64_t point = r->s.at_once * r->s.columns, block = p->out_h * p->out_w * LANES;
    for (int64_t i = 0; i < n; i++) {
        struct place at = place_of(r, first + i);
        float *y = r->y + at.n * p->o * p->out_h * p->out_w;
        const int64_t rows = TD_MIN(p->out_h - at.row, (int64_t)STEP);
        const int64_t cols = TD_MIN(p->out_w - at.col, (int64_t)STEP);
        for (int64_t o = 0; o < p->o; o += LANES, y += block) {
            lanes out[STEP][STEP], bias = {0};
            transform_product(m + i * r->s.columns + o, point, out);
            if (r->bias) bias = *(const lanes *)(r->bias + o);
            for (int64_t j = 0; j < rows; j++) {
                float *row = y + ((at.row + j) * p->out_w + at.col) * LANES;
                for (int64_t k = 0; k < cols; k++) {
                    *(lanes *)(row + k * LANES) = out[j][k] + bias;
                }
            }
        }
    }
}

// ---- all of it ----------------------------------------------------------------------------------
static void multiply(const struct run *r, int64_t n, const float *v, float *m) {
    const int64_t c = r->p->c;
    for (int64_t i = 0; i < POINTS; i++) {
        struct td_tile t = {
            .m = round_up(n, TD_TILE_M),
            .n = r->s.columns,
            .k = c,
            .a = v + i * r->s.at_once * c,
            .a_row = c,
            .a_col = 1,
            .b = r->u + i * c * r->s.columns,
            .b_row = PANEL,
            .b_panel = c * PANEL,
            .c = m + i * r->s.at_once * r->s.columns,
            .c_row = r->s.columns,
        };
        td_tile_product(&t);
    }
}

// Turns [begin, end).
static void chunks_range(const void *arg, int64_t begin, int64_t end) {
    const struct run *r = arg;
    const int64_t own = (int64_t)(r->s.images + r->s.products);
    float *v = r->buffer + td_parallel_index() * own, *m = v + r->s.images;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i * r->s.at_once, n = TD_MIN(r->s.tiles - first, r->s.at_once);
        transform_images(r, first, n, v);
        multiply(r, n, v, m);
        write_results(r, first, n, m);
    }
}

void td_winograd_run(const struct td_winograd *p, const float *x, const float *weights,
                     const float *bias, float *y, void *scratch) {
    struct run r = {.p = p, .x = x, .weights = weights, .bias = bias, .y = y, .u = scratch};
    r.s = sizes_of(p);
    r.buffer = r.u + r.s.weights;
    td_parallel_units(p->n_threads, r.s.columns / PANEL, (int64_t)r.s.weights, weights_range, &r);
    const int64_t chunks = (r.s.tiles + r.s.at_once - 1) / r.s.at_once;
    td_parallel_units(p->n_threads, chunks, chunks * (int64_t)(r.s.images + r.s.products),
                      chunks_range, &r);
}
