// Module `mynet`: linear layers with an activation between them, and cross entropy.
//
// A module records what is trained: it has no loop, no device, and no idea of precision or ranks.
// Gradients, fusion and memory are traind's work. `make` builds it, docs/plugins.md of traind has
// all that a module may do. Fields: "x" f32 (features), "y" i32, one class a sample.
// Outputs: "loss", "accuracy"; when it predicts, the result "logits".

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traind/build.h"
#include "traind/module.h"
#include "traind/plugin.h"

// What a job may set under model.knobs. Type and range are checked before mynet_open is called.
// Name, type, least, largest, unit, default, names of an enum, prose.
static const struct td_plugin_knob knobs[] = {
    {"hidden", TD_PLUGIN_KNOB_INT, 1, 65536, NULL, "32", NULL, "width of the layers between"},
    {"layers", TD_PLUGIN_KNOB_INT, 0, 64, NULL, "2", NULL, "how many of them"},
};

struct td_module {
    int64_t hidden, layers;
    struct td_field x, y; // what the dataset gives
};

// ---- opening ------------------------------------------------------------------------------------
static td_status read_fields(struct td_module *m, const struct td_field *fields, size_t n_fields) {
    if (n_fields != 2 || strcmp(fields[0].name, "x") != 0 || strcmp(fields[1].name, "y") != 0) {
        return td_bad_spec("mynet takes the fields 'x' and 'y' of a dataset");
    }
    m->x = fields[0];
    m->y = fields[1];
    if (m->x.dtype != TD_F32 || m->x.sample_shape.n_dims != 1) {
        return td_bad_spec("mynet takes 'x' as f32 (features)");
    }
    if (m->y.dtype != TD_I32 || m->y.n_classes < 2) {
        return td_bad_spec("mynet takes one class a sample as 'y', of two classes at least");
    }
    return TD_OK;
}

static void mynet_close(struct td_module *m) {
    free(m);
}

static td_status mynet_open(const struct td_json *values, const struct td_field *fields,
                            size_t n_fields, struct td_module **out_module) {
    struct td_module *m = (struct td_module *)calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    td_status s = td_knob_int(values, "hidden", &m->hidden);
    if (!s) s = td_knob_int(values, "layers", &m->layers);
    if (!s) s = read_fields(m, fields, n_fields);
    if (s) {
        mynet_close(m);
        return s;
    }
    *out_module = m;
    return TD_OK;
}

// ---- recording ----------------------------------------------------------------------------------
// *h (B, in) -> (B, out). Initial values are torch's: uniform in +-1/sqrt(in).
static td_status linear(struct td_graph *g, const char *layer, int64_t in, int64_t out,
                        td_value *h) {
    const double bound = 1 / sqrt((double)in);
    const struct td_init init = {TD_INIT_UNIFORM, -bound, bound};
    const struct td_shape shape = {2, {out, in}}, row = {1, {out}};
    const struct td_matmul_options transposed = {false, true};
    char name[64];
    td_value w, bias;
    snprintf(name, sizeof name, "%s.weight", layer);
    TD_TRY(td_graph_param(g, name, TD_F32, &shape, init, &w));
    snprintf(name, sizeof name, "%s.bias", layer);
    TD_TRY(td_graph_param(g, name, TD_F32, &row, init, &bias));
    TD_TRY(td_build_matmul(g, *h, w, 0, &transposed, h));
    return td_build_add(g, *h, bias, h);
}

// Called once for each program (to train, to evaluate, to predict; whole and partial batch), with
// the same parameters each time. Inputs come in the order of the dataset's fields.
static td_status mynet_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    int64_t width = m->x.sample_shape.dim[0];
    const struct td_shape x_shape = {2, {batch, width}}, y_shape = {1, {batch}};
    char layer[32];
    td_value h, y, loss, correct;
    TD_TRY(td_graph_input(g, "x", TD_F32, &x_shape, &h));
    TD_TRY(td_graph_input(g, "y", TD_I32, &y_shape, &y));
    for (int i = 0; i < m->layers; i++) {
        snprintf(layer, sizeof layer, "layer%d", i);
        TD_TRY(linear(g, layer, width, m->hidden, &h));
        TD_TRY(td_build_relu(g, h, &h));
        width = m->hidden;
    }
    TD_TRY(linear(g, "head", width, m->y.n_classes, &h));
    if (td_graph_mode(g) == TD_MODE_PREDICT) return td_graph_result(g, "logits", h);
    TD_TRY(td_build_softmax_ce(g, h, y, 0, NULL, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    TD_TRY(td_build_count_correct(g, h, y, NULL, &correct));
    TD_TRY(td_graph_output(g, "accuracy", correct, TD_OUTPUT_SUM));
    return td_graph_loss(g, loss);
}

// ---- the plugin ---------------------------------------------------------------------------------
static const struct td_module_ops ops = {
    .struct_bytes = sizeof ops,
    .open = mynet_open,
    .close = mynet_close,
    .record = mynet_record,
};

TD_PLUGIN_WITH_KNOBS(MODULE, "mynet", "linear layers", &ops, knobs)
