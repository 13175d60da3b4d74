// Fields and plain layers, as every in-tree module records them; see layers.h. Initial values are
// torch's: uniform in +-1/sqrt(in), weight and bias alike.

#include "workloads/modules/layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traind/build.h"

struct td_shape td_shape_1(int64_t a) {
    return (struct td_shape){.n_dims = 1, .dim = {a}};
}

struct td_shape td_shape_2(int64_t a, int64_t b) {
    return (struct td_shape){.n_dims = 2, .dim = {a, b}};
}

const char *td_shape_words(const struct td_shape *s, char *out, size_t out_bytes) {
    size_t len = (size_t)snprintf(out, out_bytes, "%s", s->n_dims ? "" : "one number");
    for (int d = 0; d < s->n_dims && len < out_bytes; d++) {
        len += (size_t)snprintf(out + len, out_bytes - len, "%s%" PRId64, d ? "x" : "", s->dim[d]);
    }
    return out;
}

// ---- fields -------------------------------------------------------------------------------------
td_status td_xy_take(const char *module, const struct td_field *fields, size_t n_fields,
                     struct td_xy *out_xy) {
    struct td_xy xy = {.y_first = false};
    for (size_t i = 0; i < n_fields; i++) {
        if (strcmp(fields[i].name, "x") == 0) {
            xy.x = fields[i];
        } else if (strcmp(fields[i].name, "y") == 0) {
            xy.y = fields[i];
            xy.y_first = i == 0;
        } else {
            return td_bad_spec("%s takes the fields 'x' and 'y'; the dataset also gives '%s'",
                               module, fields[i].name);
        }
    }
    *out_xy = xy;
    if (n_fields == 2 && xy.x.name[0] && xy.y.name[0]) return TD_OK;
    return td_bad_spec("%s takes the fields 'x' and 'y'; the dataset gives %s%s", module,
                       xy.x.name[0] ? "no 'y'" : "no 'x'",
                       xy.x.name[0] || xy.y.name[0] ? "" : " and no 'y'");
}

static td_status input(struct td_graph *g, const struct td_field *f, int64_t batch,
                       td_value *out_value) {
    struct td_shape shape = {.n_dims = f->sample_shape.n_dims + 1, .dim = {batch}};
    for (int d = 0; d < f->sample_shape.n_dims; d++) {
        shape.dim[d + 1] = f->sample_shape.dim[d];
    }
    return td_graph_input(g, f->name, f->dtype, &shape, out_value);
}

td_status td_xy_inputs(const struct td_xy *xy, struct td_graph *g, int64_t batch, td_value *out_x,
                       td_value *out_y) {
    if (xy->y_first) TD_TRY(input(g, &xy->y, batch, out_y));
    TD_TRY(input(g, &xy->x, batch, out_x));
    return xy->y_first ? TD_OK : input(g, &xy->y, batch, out_y);
}

// ---- recording ----------------------------------------------------------------------------------
td_status td_layer_buffer(struct td_graph *g, const char *name, const struct td_shape *shape,
                          struct td_init init, td_value *out_value) {
    uint32_t index;
    TD_TRY(td_state_add(td_graph_state(g), name, TD_ROLE_BUFFER, TD_F32, shape, init, 0, &index));
    return td_graph_state_value(g, index, out_value);
}

td_status td_layer_normal(struct td_graph *g, const char *name, int64_t rows, int64_t cols,
                          double deviation, unsigned marks, td_value *out_value) {
    const struct td_init init = {TD_INIT_NORMAL, 0, deviation};
    const struct td_shape shape = td_shape_2(rows, cols);
    TD_TRY(td_graph_param(g, name, TD_F32, &shape, init, out_value));
    return td_graph_mark(g, *out_value, marks);
}

td_status td_layer_row(struct td_graph *g, const char *layer, const char *part, int64_t n,
                       double initial, td_value *out_value) {
    const struct td_init init = {TD_INIT_CONST, initial, 0};
    const struct td_shape shape = td_shape_1(n);
    char path[TD_LAYER_NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s.%s", layer, part);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, init, out_value));
    return td_graph_mark(g, *out_value, TD_PARAM_NO_DECAY);
}

td_status td_layer_dropout(struct td_graph *g, const char *name, double p, td_value *h) {
    return td_build_dropout(g, *h, name, p, h);
}

td_status td_layer_pixels(struct td_graph *g, enum td_dtype dtype, td_value *h) {
    return dtype == TD_U8 ? td_build_cast(g, *h, TD_F32, 1.0 / 255.0, h) : TD_OK;
}

td_status td_layer_reshape(struct td_graph *g, const struct td_shape *shape, td_value *h) {
    return td_build_reshape(g, *h, shape, h);
}

#define TD_ACTIVATION(name, built)                                                                 \
    static td_status record_##name(struct td_graph *g, td_value x, double slope,                   \
                                   td_value *out_y) {                                              \
        (void)slope;                                                                               \
        return built;                                                                              \
    }
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION

td_activation_fn *td_activation_find(const char *name) {
    static const struct {
        const char *name;
        td_activation_fn *record;
    } rows[] = {
#define TD_ACTIVATION(name, built) {#name, record_##name},
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) return rows[i].record;
    }
    return NULL;
}

td_status td_layer_linear(struct td_graph *g, const char *name, int64_t in, int64_t out, bool bias,
                          unsigned marks, td_value *h) {
    const double bound = 1.0 / sqrt((double)in);
    const struct td_init init = {TD_INIT_UNIFORM, -bound, bound};
    const struct td_matmul_options transposed = {.trans_b = true};
    char path[TD_LAYER_NAME_BYTES + 16];
    td_value weight, shift;
    struct td_shape shape = td_shape_2(out, in);
    snprintf(path, sizeof path, "%s.weight", name);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, init, &weight));
    TD_TRY(td_graph_mark(g, weight, marks));
    TD_TRY(td_build_matmul(g, *h, weight, 0, &transposed, h));
    if (!bias) return TD_OK;
    shape = td_shape_1(out);
    snprintf(path, sizeof path, "%s.bias", name);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, init, &shift));
    return td_build_add(g, *h, shift, h);
}
