// Module `mlp`: fully connected layers with an activation between them, softmax cross entropy on
// top: the classifier of the first examples.
//
// Knobs: layers (widths: input, each hidden layer, classes), activation (relu), bias (true).
// Parameters are named and shaped as torch's nn.Linear has them: fc1.weight (out, in), fc1.bias
// (out), fc2.weight, ...; their initial values too: uniform in +-1/sqrt(in), weight and bias alike.
// Fields: "x" u8 (cast with the factor 1/255) or f32, of any shape with layers[0] elements; "y"
// i32, a class below the last width. Outputs: "loss" MEAN, "accuracy" SUM (the number right). The
// graph is plain matmul, add and relu: fusing them is a pass's work.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "traind/module.h"
#include "workloads/workloads.h"

enum { MAX_WIDTHS = 64 };
#define MAX_WIDTH       (INT64_C(1) << 20)
#define td_module_magic UINT32_C(0x6d6c7031)

struct td_module {
    uint32_t magic;
    int64_t width[MAX_WIDTHS];
    int n_widths;
    bool bias;
    struct td_field x, y;
    bool y_first; // the order of the fields is the dataset's
};

static td_status bad_spec(td_status s) {
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

// ---- opening -----------------------------------------------------------------------------------
static td_status read_knobs(struct td_module *m, const struct td_json *knobs) {
    const struct td_json *layers = td_json_get(knobs, "layers");
    if (!layers || layers->kind != TD_JSON_ARRAY || layers->n_children < 2 ||
        layers->n_children > MAX_WIDTHS) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "model.layers: expected a list of 2 to %d widths, as in "
                                "[784, 512, 10]",
                                MAX_WIDTHS));
    }
    for (const struct td_json *v = layers->first; v; v = v->next) {
        int64_t width = td_json_int(v, 0);
        if (width < 1 || width > MAX_WIDTH) {
            return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                    "model.layers[%d]: expected a width of 1 to %" PRId64,
                                    m->n_widths, MAX_WIDTH));
        }
        m->width[m->n_widths++] = width;
    }
    const char *activation = td_json_string(td_json_get(knobs, "activation"), "relu");
    if (strcmp(activation, "relu") != 0) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "model.activation: '%s' is not known here; use relu", activation));
    }
    m->bias = td_json_bool(td_json_get(knobs, "bias"), true);
    return TD_OK;
}

static td_status check_fields(struct td_module *m) {
    int64_t features = td_shape_elems(&m->x.sample_shape), classes = m->width[m->n_widths - 1];
    if (m->x.dtype != TD_U8 && m->x.dtype != TD_F32) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "mlp takes field 'x' as u8 or f32; the dataset gives %s",
                                td_dtype_name(m->x.dtype)));
    }
    if (features != m->width[0]) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "model.layers begins with %" PRId64 " but the dataset's samples "
                                "'x' have %" PRId64 " elements; begin with %" PRId64,
                                m->width[0], features, features));
    }
    if (m->y.dtype != TD_I32 || td_shape_elems(&m->y.sample_shape) != 1) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "mlp takes one i32 label 'y' per sample; the dataset gives "
                                "%" PRId64 " of %s",
                                td_shape_elems(&m->y.sample_shape), td_dtype_name(m->y.dtype)));
    }
    if (m->y.n_classes > classes) {
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "model.layers ends with %" PRId64 " but the dataset's labels 'y' "
                                "have %" PRId64 " classes; end with %" PRId64,
                                classes, m->y.n_classes, m->y.n_classes));
    }
    return TD_OK;
}

static td_status take_fields(struct td_module *m, const struct td_field *fields, size_t n_fields) {
    for (size_t i = 0; i < n_fields; i++) {
        if (strcmp(fields[i].name, "x") == 0) {
            m->x = fields[i];
        } else if (strcmp(fields[i].name, "y") == 0) {
            m->y = fields[i];
            m->y_first = i == 0;
        } else {
            return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                    "mlp takes the fields 'x' and 'y'; the dataset also gives '%s'",
                                    fields[i].name));
        }
    }
    if (n_fields == 2 && m->x.name[0] && m->y.name[0]) return check_fields(m);
    return bad_spec(td_fail(
        TD_INVALID_ARGUMENT, "mlp takes the fields 'x' and 'y'; the dataset gives %s%s",
        m->x.name[0] ? "no 'y'" : "no 'x'", m->x.name[0] || m->y.name[0] ? "" : " and no 'y'"));
}

static td_status mlp_open(const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    TD_AUTO_FREE struct td_module *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->magic = td_module_magic;
    TD_TRY(read_knobs(m, knobs));
    TD_TRY(take_fields(m, fields, n_fields));
    *out_module = td_steal(m);
    return TD_OK;
}

static void mlp_close(struct td_module *m) {
    if (!m) return;
    m->magic = 0;
    free(m);
}

// ---- recording ---------------------------------------------------------------------------------
static struct td_shape shape_1(int64_t a) {
    return (struct td_shape){.n_dims = 1, .dim = {a}};
}

static struct td_shape shape_2(int64_t a, int64_t b) {
    return (struct td_shape){.n_dims = 2, .dim = {a, b}};
}

static td_status input(struct td_graph *g, const struct td_field *f, int64_t batch,
                       td_value *out_value) {
    struct td_shape shape = {.n_dims = f->sample_shape.n_dims + 1, .dim = {batch}};
    for (int d = 0; d < f->sample_shape.n_dims; d++)
        shape.dim[d + 1] = f->sample_shape.dim[d];
    return td_graph_input(g, f->name, f->dtype, &shape, out_value);
}

// x (B, ...) u8 or f32 -> (B, features) f32
static td_status flatten(struct td_module *m, struct td_graph *g, int64_t batch, td_value x,
                         td_value *out_value) {
    if (m->x.dtype == TD_U8) {
        struct td_attrs cast = {.dtype = TD_F32, .scale = 1.0 / 255.0};
        TD_TRY(td_graph_op(g, TD_OP_CAST, &x, 1, &cast, &x));
    }
    if (m->x.sample_shape.n_dims != 1) {
        struct td_attrs reshape = {.shape = shape_2(batch, m->width[0])};
        TD_TRY(td_graph_op(g, TD_OP_RESHAPE, &x, 1, &reshape, &x));
    }
    *out_value = x;
    return TD_OK;
}

// h (B, in) -> h @ weight^T + bias (B, out)
static td_status linear(struct td_module *m, struct td_graph *g, int layer, td_value h,
                        td_value *out_value) {
    const int64_t in = m->width[layer - 1], out = m->width[layer];
    const double bound = 1.0 / sqrt((double)in);
    const struct td_init init = {TD_INIT_UNIFORM, -bound, bound};
    char name[32];
    td_value weight, bias;
    struct td_shape shape = shape_2(out, in);
    snprintf(name, sizeof name, "fc%d.weight", layer);
    TD_TRY(td_graph_param(g, name, TD_F32, &shape, init, &weight));
    struct td_attrs transposed = {.trans_b = true};
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, (td_value[]){h, weight}, 2, &transposed, &h));
    if (m->bias) {
        shape = shape_1(out);
        snprintf(name, sizeof name, "fc%d.bias", layer);
        TD_TRY(td_graph_param(g, name, TD_F32, &shape, init, &bias));
        TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){h, bias}, 2, NULL, &h));
    }
    *out_value = h;
    return TD_OK;
}

static td_status record_loss(struct td_graph *g, td_value logits, td_value y) {
    td_value loss[2], correct; // loss[1]: its gradient, which autodiff takes up
    TD_TRY(td_graph_op(g, TD_OP_SOFTMAX_CE, (td_value[]){logits, y}, 2, NULL, loss));
    TD_TRY(td_graph_op(g, TD_OP_COUNT_CORRECT, (td_value[]){logits, y}, 2, NULL, &correct));
    TD_TRY(td_graph_output(g, "loss", loss[0], TD_OUTPUT_MEAN));
    TD_TRY(td_graph_output(g, "accuracy", correct, TD_OUTPUT_SUM));
    return td_graph_loss(g, loss[0]);
}

static td_status mlp_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    TD_CHECK(m->magic == td_module_magic);
    td_value x, y, h;
    if (m->y_first) TD_TRY(input(g, &m->y, batch, &y));
    TD_TRY(input(g, &m->x, batch, &x));
    if (!m->y_first) TD_TRY(input(g, &m->y, batch, &y));
    TD_TRY(flatten(m, g, batch, x, &h));
    for (int layer = 1; layer < m->n_widths; layer++) {
        TD_TRY(linear(m, g, layer, h, &h));
        if (layer + 1 < m->n_widths) TD_TRY(td_graph_op(g, TD_OP_RELU, &h, 1, NULL, &h));
    }
    return record_loss(g, h, y);
}

static const struct td_module_ops mlp_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = mlp_open,
    .close = mlp_close,
    .record = mlp_record,
};

const struct td_plugin_desc td_module_mlp = {
    .struct_bytes = sizeof(struct td_plugin_desc),
    .abi_major = TD_ABI_MAJOR,
    .abi_minor = TD_ABI_MINOR,
    .kind = TD_PLUGIN_MODULE,
    .name = "mlp",
    .summary = "fully connected layers, softmax cross entropy",
    .ops = &mlp_ops,
};
