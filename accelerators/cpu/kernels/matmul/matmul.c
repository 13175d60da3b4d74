// Matrix products by blocks, after Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", ACM TOMS 34(3), 2008; contract in matmul.h.
//
// The result is cut into one rectangle a thread; each thread packs what it needs for its own and
// waits for nobody. A rectangle is computed by blocks of columns (block_n), of the inner dimension
// (BLOCK_K) and of rows (BLOCK_M). A panel of b (BLOCK_K x PANEL) stays in the first cache, a block
// of a (BLOCK_M x BLOCK_K) in the second. The innermost tile is MR rows by PANEL columns of y. It
// is held in registers, as vectors that the compiler maps to the level's own. It is 6x16 with 16
// registers of 8 floats, 12x32 with 32 registers of 16.
//
// A block of a is widened or copied first, so that its rows are together; transposed ones become
// panels of MR rows. Results of 16 bits are summed in scratch and rounded when they are
// complete. Rejected: threads that pack together, which need a barrier for each block.

#include "accelerators/cpu/kernels/matmul/matmul.h"

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/matmul/panels.h"
#include "accelerators/cpu/kernels/matmul/tile.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/base.h"

#if defined(__AVX512F__)
enum { LANES = 16, MR = 12, NV = 2, PARTS = 1, BLOCK_K = 192 };
#elif defined(__AVX2__)
enum { LANES = 8, MR = 6, NV = 2, PARTS = 1, BLOCK_K = 256 };
#else
enum { LANES = 4, MR = 4, NV = 2, PARTS = 2, BLOCK_K = 256 };
#endif
enum { PART = LANES * NV, PANEL = PART * PARTS, BLOCK_M = 10 * MR, MOST_BLOCK_N = 1024 };
// Multiplications that are worth a thread of their own.
static const double PAYS = 128 << 10;

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// ---- a tile -------------------------------------------------------------------------------------
// Where a tile of y goes, and what happens to it on the way.
struct tile {
    float *y;
    int64_t y_row;
    const float *bias; // of these columns, or NULL
    bool add, relu;
};

static inline __attribute__((always_inline)) vec relu_of(vec x) {
    typedef int32_t mask __attribute__((vector_size(LANES * 4)));
    mask negative = x < 0; // NaN is not, and stays
    return (vec)(~negative & (mask)x);
}

// rows x PART of y. Element (i,p) of a is a[i * a_row + p * a_col].
static inline __attribute__((always_inline)) void tile_of(const int rows, int64_t k, const float *a,
                                                          int64_t a_row, int64_t a_col,
                                                          const float *b, const struct tile *t) {
    vec sum[MR][NV];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < NV; j++) {
            sum[i][j] = (vec){0};
        }
    }
    for (int64_t p = 0; p < k; p++, b += PANEL) {
        vec row[NV];
        for (int j = 0; j < NV; j++) {
            row[j] = *(const vec *)(b + j * LANES);
        }
        for (int i = 0; i < rows; i++) {
            float x = a[i * a_row + p * a_col];
            for (int j = 0; j < NV; j++) {
                sum[i][j] += row[j] * x;
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < NV; j++) {
            vec *y = (vec *)(t->y + i * t->y_row + j * LANES), s = sum[i][j];
            if (t->add) s += *y;
            if (t->bias) s += *(const vec *)(t->bias + j * LANES);
            *y = t->relu ? relu_of(s) : s;
        }
    }
}

typedef void tile_fn(int64_t k, const float *a, int64_t a_row, const float *b,
                     const struct tile *t);
#define TILE(ROWS)                                                                                 \
    static void rows_##ROWS(int64_t k, const float *a, int64_t a_row, const float *b,              \
                            const struct tile *t) {                                                \
        tile_of(TD_MIN(ROWS, MR), k, a, a_row, 1, b, t);                                           \
    }                                                                                              \
    static void panel_##ROWS(int64_t k, const float *a, int64_t a_row, const float *b,             \
                             const struct tile *t) {                                               \
        (void)a_row;                                                                               \
        tile_of(TD_MIN(ROWS, MR), k, a, 1, MR, b, t);                                              \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
static tile_fn *const of_rows[] = {NULL,   rows_1, rows_2, rows_3,  rows_4,  rows_5, rows_6,
                                   rows_7, rows_8, rows_9, rows_10, rows_11, rows_12};
static tile_fn *const of_panels[] = {NULL,     panel_1,  panel_2, panel_3, panel_4,
                                     panel_5,  panel_6,  panel_7, panel_8, panel_9,
                                     panel_10, panel_11, panel_12};
_Static_assert(MR < sizeof of_rows / sizeof *of_rows, "a function for each number of rows");

// ---- how work is split --------------------------------------------------------------------------
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// Rectangles of y: high times wide of them, of so many rows and columns, the last ones less.
struct grid {
    int64_t high, wide, rows, cols;
};

static struct grid grid_of(const struct td_matmul *p) {
    int64_t tiles_m = ceil_div(p->m, MR), tiles_n = ceil_div(p->n, PANEL);
    double pays = TD_MAX(1.0, (double)p->m * (double)p->n * (double)p->k / PAYS);
    int64_t threads = (int64_t)TD_MIN((double)p->n_threads, pays), best_cost = INT64_MAX;
    struct grid best = {1, 1, tiles_m * MR, tiles_n * PANEL};
    for (int64_t high = 1; high <= threads; high++) {
        int64_t wide = threads / high;
        int64_t rows = ceil_div(tiles_m, high) * MR, cols = ceil_div(tiles_n, wide) * PANEL;
        int64_t cost = rows * cols + 8 * (rows + cols); // to multiply, and to bring operands
        if (cost >= best_cost) continue;
        best_cost = cost;
        best = (struct grid){ceil_div(p->m, rows), ceil_div(p->n, cols), rows, cols};
    }
    return best;
}

// The inner dimension in even blocks.
static int64_t block_k_of(int64_t k) {
    return ceil_div(k, ceil_div(k, BLOCK_K));
}

// Columns at a time: what limits memory, where b is packed or a result summed in scratch.
static int64_t block_n_of(const struct td_matmul *p, int64_t cols) {
    bool bounded = !p->packed_b || p->y_type != TD_F32;
    return bounded ? TD_MIN(cols, (int64_t)MOST_BLOCK_N) : cols;
}

// Is a read where it is? Its rows are far apart there, so a block that meets many panels is
// copied.
static bool reads_a(const struct td_matmul *p) {
    enum { FEW_PANELS = 4 };
    return p->a_type == TD_F32 && !p->trans_a && p->n <= FEW_PANELS * PANEL;
}

// A thread's scratch: blocks of a, of b, the sums, bias, and a tile at a border.
struct buffers {
    size_t a, b, sum, bias, edge, row, bytes;
};

static size_t take(size_t *at, int64_t floats) {
    size_t here = *at;
    *at += td_align_up((size_t)floats * sizeof(float), 64);
    return here;
}

static struct buffers buffer_of(const struct td_matmul *p, const struct grid *g) {
    struct buffers r = {0};
    int64_t block_k = block_k_of(p->k), block_n = block_n_of(p, g->cols);
    r.a = take(&r.bytes, reads_a(p) ? 0 : BLOCK_M * block_k);
    r.b = take(&r.bytes, p->packed_b ? 0 : block_k * block_n);
    r.sum = take(&r.bytes, p->y_type == TD_F32 ? 0 : g->rows * block_n);
    r.bias = take(&r.bytes, g->cols);
    r.edge = take(&r.bytes, MR * PANEL);
    r.row = take(&r.bytes, TD_MAX((int64_t)MOST_BLOCK_N, (int64_t)BLOCK_M));
    return r;
}

size_t td_matmul_scratch_bytes(const struct td_matmul *p) {
    struct grid g = grid_of(p);
    return buffer_of(p, &g).bytes * (size_t)(g.high * g.wide);
}

// ---- one thread's rectangle ---------------------------------------------------------------------
struct part {
    const struct td_matmul *p;
    const void *a, *b;
    void *y;
    float *buffer_a, *buffer_b, *sum, *bias, *edge, *row;
    bool has_bias;
    int64_t row0, rows, col0, cols; // the rectangle
    int64_t block_k, block_n;
    int64_t k0, k; // the block of the inner dimension at hand
};

// Where the block of a begins that was made ready, and how its rows are stored.
struct block_a {
    const float *at;
    int64_t a_row;
    bool panels; // of MR rows
};

static const void *element(enum td_dtype t, const void *x, int64_t at) {
    return (const char *)x + at * (int64_t)td_dtype_bytes(t);
}

// Rows [row, row + n) of a: used as they are, widened, or put into panels.
static struct block_a make_a(const struct part *w, int64_t row, int64_t n) {
    const struct td_matmul *p = w->p;
    if (reads_a(p)) {
        return (struct block_a){(const float *)w->a + row * p->k + w->k0, p->k, false};
    }
    if (!p->trans_a) {
        for (int64_t i = 0; i < n; i++) {
            td_cpu_widen(p->a_type, element(p->a_type, w->a, (row + i) * p->k + w->k0), w->k,
                         w->buffer_a + i * w->block_k);
        }
        return (struct block_a){w->buffer_a, w->block_k, false};
    }
    for (int64_t q = 0; q < w->k; q++) {
        const float *from = td_cpu_row(p->a_type, w->a, (w->k0 + q) * p->m + row, n, w->row);
        int64_t i = 0;
        for (float *to = w->buffer_a + q * MR; i + MR <= n; i += MR, to += w->k * MR) {
            memcpy(to, from + i, MR * sizeof *to);
        }
        for (float *to = w->buffer_a + i * w->k + q * MR; i < n; i++) {
            *to++ = from[i];
        }
    }
    return (struct block_a){w->buffer_a, 0, true};
}

// n elements of b from element `at` on, as they are multiplied.
static const float *b_row(const struct td_matmul *p, const void *b, int64_t at, int64_t n,
                          float *buffer) {
    return td_panel_values(p->b_type, p->b_as, b, at, n, buffer);
}

// Columns [col, col + n) of b as panels; what fills up the last one is zeroes.
static const float *make_b(const struct part *w, int64_t col, int64_t n) {
    const struct td_matmul *p = w->p;
    if (p->packed_b) return (const float *)w->b + col * p->k + w->k0 * PANEL;
    for (int64_t j = 0; j < n && p->trans_b; j += PANEL) {
        float *to = w->buffer_b + j * w->k;
        int64_t width = TD_MIN(n - j, (int64_t)PANEL);
        if (width < PANEL) memset(to, 0, (size_t)(w->k * PANEL) * sizeof *to);
        for (int64_t i = 0; i < width; i++) {
            int64_t at = (col + j + i) * p->k + w->k0;
            const float *from = b_row(p, w->b, at, w->k, w->row);
            for (int64_t q = 0; q < w->k; q++) {
                to[q * PANEL + i] = from[q];
            }
        }
    }
    for (int64_t q = 0; q < w->k && !p->trans_b; q++) {
        const float *from = b_row(p, w->b, (w->k0 + q) * p->n + col, n, w->row);
        int64_t j = 0;
        for (float *to = w->buffer_b + q * PANEL; j + PANEL <= n; j += PANEL, to += w->k * PANEL) {
            memcpy(to, from + j, PANEL * sizeof *to);
        }
        if (j == n) continue;
        float *to = w->buffer_b + j * w->k + q * PANEL;
        memcpy(to, from + j, (size_t)(n - j) * sizeof *to);
        memset(to + (n - j), 0, (size_t)(PANEL - (n - j)) * sizeof *to);
    }
    return w->buffer_b;
}

// A tile that y's last columns do not fill: through memory of its own.
static void edge_tile(const struct part *w, tile_fn *fn, const float *a, int64_t a_row,
                      const float *b, const struct tile *t, int64_t rows, int64_t width) {
    struct tile edge = *t;
    edge.y = w->edge;
    edge.y_row = PANEL;
    for (int64_t i = 0; i < rows && t->add; i++) {
        memcpy(w->edge + i * PANEL, t->y + i * t->y_row, (size_t)width * sizeof(float));
    }
    for (int64_t part = 0; part < PARTS; part++) {
        struct tile some = edge;
        some.y += part * PART;
        if (some.bias) some.bias += part * PART;
        fn(w->k, a, a_row, b + part * PART, &some);
    }
    for (int64_t i = 0; i < rows; i++) {
        memcpy(t->y + i * t->y_row, w->edge + i * PANEL, (size_t)width * sizeof(float));
    }
}

// A block of a, `rows` high, by panels of b for `cols` columns of y.
static void multiply(const struct part *w, const struct block_a *a, const float *b,
                     const struct tile *first, int64_t rows, int64_t cols) {
    const int64_t b_panel = (w->p->packed_b ? w->p->k : w->k) * PANEL;
    for (int64_t j = 0; j < cols; j += PANEL, b += b_panel) {
        int64_t width = TD_MIN(cols - j, (int64_t)PANEL);
        for (int64_t i = 0; i < rows; i += MR) {
            int64_t high = TD_MIN(rows - i, (int64_t)MR);
            tile_fn *fn = (a->panels ? of_panels : of_rows)[high];
            const float *at = a->at + i * (a->panels ? w->k : a->a_row);
            struct tile t = *first;
            t.y += i * t.y_row + j;
            if (t.bias) t.bias += j;
            if (width < PANEL) {
                edge_tile(w, fn, at, a->a_row, b, &t, high, width);
                continue;
            }
            for (int part = 0; part < PARTS; part++) {
                fn(w->k, at, a->a_row, b + part * PART, &t);
                t.y += PART;
                if (t.bias) t.bias += PART;
            }
        }
    }
}

// Where sums of the block of columns from `col` on are kept: in y, or in scratch for 16 bits.
static struct tile target(const struct part *w, int64_t col) {
    const struct td_matmul *p = w->p;
    if (p->y_type != TD_F32) return (struct tile){.y = w->sum, .y_row = w->block_n};
    return (struct tile){.y = (float *)w->y + w->row0 * p->n + col, .y_row = p->n};
}

static void multiply_columns(struct part *w, int64_t col, int64_t cols) {
    const struct td_matmul *p = w->p;
    struct tile all = target(w, col);
    for (w->k0 = 0; w->k0 < p->k; w->k0 += w->block_k) {
        w->k = TD_MIN(p->k - w->k0, w->block_k);
        bool last = w->k0 + w->k == p->k;
        all.add = p->accumulate || w->k0 > 0;
        all.bias = last && w->has_bias ? w->bias + (col - w->col0) : NULL;
        all.relu = last && p->act == TD_ACT_RELU;
        const float *b = make_b(w, col, cols);
        for (int64_t i = 0; i < w->rows; i += BLOCK_M) {
            int64_t rows = TD_MIN(w->rows - i, (int64_t)BLOCK_M);
            struct block_a a = make_a(w, w->row0 + i, rows);
            struct tile t = all;
            t.y += i * t.y_row;
            multiply(w, &a, b, &t, rows, cols);
        }
    }
}

// Sums of 16 bits: what is there before, and the rounded result after.
static void move_sums(const struct part *w, int64_t col, int64_t cols, bool out) {
    const struct td_matmul *p = w->p;
    for (int64_t i = 0; i < w->rows; i++) {
        int64_t at = (w->row0 + i) * p->n + col;
        float *sum = w->sum + i * w->block_n;
        if (out) {
            td_cpu_put(p->y_type, sum, cols, w->y, at);
        } else {
            td_cpu_widen(p->y_type, element(p->y_type, w->y, at), cols, sum);
        }
    }
}

struct run {
    const struct td_matmul *p;
    const void *a, *b, *bias;
    void *y;
    char *scratch;
    struct grid grid;
    struct buffers buffer;
};

static void run_rectangle(const struct run *r, int64_t i) {
    const struct td_matmul *p = r->p;
    char *buffer = r->scratch + (size_t)i * r->buffer.bytes;
    int64_t row0 = i / r->grid.wide * r->grid.rows, col0 = i % r->grid.wide * r->grid.cols;
    struct part w = {
        .p = p,
        .a = r->a,
        .b = r->b,
        .y = r->y,
        .buffer_a = (float *)(buffer + r->buffer.a),
        .buffer_b = (float *)(buffer + r->buffer.b),
        .sum = (float *)(buffer + r->buffer.sum),
        .bias = (float *)(buffer + r->buffer.bias),
        .edge = (float *)(buffer + r->buffer.edge),
        .row = (float *)(buffer + r->buffer.row),
        .has_bias = r->bias != NULL,
        .row0 = row0,
        .rows = TD_MIN(p->m - row0, r->grid.rows),
        .col0 = col0,
        .cols = TD_MIN(p->n - col0, r->grid.cols),
        .block_k = block_k_of(p->k),
        .block_n = block_n_of(p, r->grid.cols),
    };
    if (w.has_bias) {
        td_cpu_widen(p->bias_type, element(p->bias_type, r->bias, col0), w.cols, w.bias);
        memset(w.bias + w.cols, 0, (size_t)(r->grid.cols - w.cols) * sizeof *w.bias);
    }
    for (int64_t j = 0; j < w.cols; j += w.block_n) {
        int64_t cols = TD_MIN(w.cols - j, w.block_n);
        if (p->y_type != TD_F32 && p->accumulate) move_sums(&w, col0 + j, cols, false);
        multiply_columns(&w, col0 + j, cols);
        if (p->y_type != TD_F32) move_sums(&w, col0 + j, cols, true);
    }
}

static void run_range(const void *arg, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        run_rectangle(arg, i);
    }
}

void td_matmul_run(const struct td_matmul *p, const void *a, const void *b, const void *bias,
                   void *y, void *scratch) {
    struct run r = {.p = p, .a = a, .b = b, .bias = bias, .y = y, .scratch = scratch};
    r.grid = grid_of(p);
    r.buffer = buffer_of(p, &r.grid);
    td_parallel_units(p->n_threads, r.grid.high * r.grid.wide,
                      td_parallel_products(p->m, p->n, p->k), run_range, &r);
}

// ---- panels of a weight -------------------------------------------------------------------------
struct td_pack_shape td_matmul_panels(int64_t n, int64_t k, bool trans_b, enum td_dtype stored,
                                      enum td_dtype operands) {
    return (struct td_pack_shape){
        .rows = trans_b ? n : k,
        .cols = trans_b ? k : n,
        .panels = trans_b ? TD_PACK_PANELS_OF_ROWS : TD_PACK_PANELS_OF_COLUMNS,
        .block = PANEL,
        .row_block = trans_b ? k * PANEL : PANEL,
        .col_block = trans_b ? 0 : k * PANEL,
        .from = stored,
        .as = operands,
    };
}

size_t td_matmul_panel_bytes(const struct td_pack_shape *s) {
    bool of_rows_of = s->panels == TD_PACK_PANELS_OF_ROWS;
    int64_t n = of_rows_of ? s->rows : s->cols, k = of_rows_of ? s->cols : s->rows;
    return (size_t)(ceil_div(n, PANEL) * PANEL * k) * sizeof(float);
}
