// Module `mlp`: fully connected layers with an activation between them, a loss on top: the
// classifier of the first examples, or a regression.
//
// Knobs: layers (widths: input, each hidden layer, classes or targets), activation (relu,
// leaky_relu, gelu, silu, tanh or sigmoid), bias (true), loss (loss.h).
// Parameters are named and shaped as torch's nn.Linear has them: fc1.weight (out, in), fc1.bias
// (out), fc2.weight, ...; their initial values too: uniform in +-1/sqrt(in), weight and bias alike.
// Fields: "x" u8 (cast with the factor 1/255) or f32, of any shape with layers[0] elements. "y" is
// what the loss takes: i32, a class below the last width, or f32, as many as the last width.
// Outputs: loss.h. The graph is plain matmul, add and activation: fusing them is a pass's work.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "traind/knobs.h"
#include "workloads/modules/loss.h"
#include "workloads/workloads.h"

enum { MAX_WIDTHS = 64 };
#define MAX_WIDTH (INT64_C(1) << 20)
enum { td_module_magic = 0x6d6c7031 };

struct td_module {
    uint32_t magic;
    int64_t width[MAX_WIDTHS];
    int n_widths;
    bool bias;
    td_activation_fn *activation;
    struct td_xy fields;
    struct td_module_loss loss;
};

static const char activation_names[] =
#define TD_ACTIVATION(name, built) " " #name
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
    ;

// ---- opening -----------------------------------------------------------------------------------
static td_status read_activation(struct td_module *m, const struct td_json *knobs) {
    const char *name = NULL;
    TD_TRY(td_knob_text(knobs, "activation", &name));
    m->activation = td_activation_find(name);
    if (m->activation) return TD_OK;
    return td_bad_spec("model.activation: '%s' is not known here; use one of%s", name,
                       activation_names);
}

static td_status read_knobs(struct td_module *m, const struct td_json *knobs) {
    const struct td_json *layers = td_json_get(knobs, "layers");
    if (!layers || layers->kind != TD_JSON_ARRAY || layers->n_children < 2 ||
        layers->n_children > MAX_WIDTHS) {
        return td_bad_spec("model.layers: expected a list of 2 to %d widths, as in [784, 512, 10]",
                           MAX_WIDTHS);
    }
    for (const struct td_json *v = layers->first; v; v = v->next) {
        int64_t width = td_json_int(v, 0);
        if (width < 1 || width > MAX_WIDTH) {
            return td_bad_spec("model.layers[%d]: expected a width of 1 to %" PRId64, m->n_widths,
                               MAX_WIDTH);
        }
        m->width[m->n_widths++] = width;
    }
    TD_TRY(td_knob_bool(knobs, "bias", &m->bias));
    return read_activation(m, knobs);
}

static td_status check_fields(struct td_module *m) {
    int64_t features = td_shape_elems(&m->fields.x.sample_shape);
    TD_TRY(
        td_module_loss_fit(&m->loss, "mlp", &m->fields, "model.layers", m->width[m->n_widths - 1]));
    if (features == m->width[0]) return TD_OK;
    return td_bad_spec("model.layers begins with %" PRId64 " but the dataset's samples 'x' have "
                       "%" PRId64 " elements; begin with %" PRId64,
                       m->width[0], features, features);
}

static void mlp_close(struct td_module *m) {
    if (!m) return;
    td_module_loss_finish(&m->loss);
    m->magic = 0;
    free(m);
}
TD_DEFINE_AUTO(td_module, mlp_close);

static td_status mlp_open(const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    TD_AUTO(td_module) *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->magic = td_module_magic;
    TD_TRY(read_knobs(m, knobs));
    TD_TRY(td_module_loss_init(&m->loss, knobs));
    TD_TRY(td_xy_take("mlp", fields, n_fields, &m->fields));
    TD_TRY(check_fields(m));
    *out_module = td_steal(m);
    return TD_OK;
}

// ---- recording ---------------------------------------------------------------------------------
static td_status mlp_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    TD_CHECK(m->magic == td_module_magic);
    const struct td_shape flat = td_shape_2(batch, m->width[0]);
    td_value h, y;
    TD_TRY(td_xy_inputs(&m->fields, g, batch, &h, &y));
    TD_TRY(td_layer_pixels(g, m->fields.x.dtype, &h));
    if (m->fields.x.sample_shape.n_dims != 1) TD_TRY(td_layer_reshape(g, &flat, &h));
    for (int layer = 1; layer < m->n_widths; layer++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", layer);
        bool head = layer + 1 == m->n_widths;
        TD_TRY(td_layer_linear(g, name, m->width[layer - 1], m->width[layer], m->bias,
                               head ? TD_PARAM_NOT_HIDDEN : 0, &h));
        if (!head) TD_TRY(m->activation(g, h, TD_LEAKY_SLOPE, &h));
    }
    return td_module_loss_end(&m->loss, g, h, y);
}

static const struct td_module_ops mlp_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = mlp_open,
    .close = mlp_close,
    .record = mlp_record,
    .targets = td_module_loss_targets,
};

const struct td_plugin_desc td_module_mlp =
    TD_PLUGIN_DESC(MODULE, "mlp", "fully connected layers", &mlp_ops);
