// Module `skipnet`: a small residual net over images.
//
//   convolution -> blocks of (convolution, activation, convolution) + skip -> mean over the image
//   -> linear -> cross entropy
//
// It is built outside of traind's tree, with the installed headers alone, as C or as C++:
//   cc  -shared -fPIC -o module-skipnet.so skipnet.c $(pkg-config --cflags --libs traind)
// docs/plugins.md says where the file goes. Fields: "x" u8 or f32 (C, H, W), "y" i32, one class a
// sample. Outputs: "loss", "accuracy"; when it predicts, the result "logits".

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traind/build.h"
#include "traind/module.h"
#include "traind/plugin.h"

// What a person may set. Type and range are checked before skipnet_open is called.
static const struct td_plugin_knob knobs[] = {
    {"channels", TD_PLUGIN_KNOB_INT, 1, 1024, NULL, "16", NULL, "channels between the blocks"},
    {"blocks", TD_PLUGIN_KNOB_INT, 0, 64, NULL, "2", NULL, "residual blocks"},
    {"activation", TD_PLUGIN_KNOB_ENUM, 0, 0, NULL, "relu", "relu|silu", "inside a block"},
    {"dropout", TD_PLUGIN_KNOB_REAL, 0, 0.9, NULL, "0", NULL, "of the input of the linear layer"},
};

struct td_module {
    int64_t channels, blocks;
    double dropout;
    bool silu;
    bool y_first; // fields come in the order of the dataset
    struct td_field x, y;
};

// ---- opening ------------------------------------------------------------------------------------
static td_status read_knobs(struct td_module *m, const struct td_json *values) {
    const char *activation;
    TD_TRY(td_knob_int(values, "channels", &m->channels));
    TD_TRY(td_knob_int(values, "blocks", &m->blocks));
    TD_TRY(td_knob_real(values, "dropout", &m->dropout));
    TD_TRY(td_knob_text(values, "activation", &activation));
    m->silu = strcmp(activation, "silu") == 0;
    return TD_OK;
}

// Says what is wrong in the words of the person who wrote the spec.
static td_status read_fields(struct td_module *m, const struct td_field *fields, size_t n_fields) {
    if (n_fields != 2) return td_bad_spec("skipnet takes the fields 'x' and 'y' of a dataset");
    m->y_first = strcmp(fields[0].name, "y") == 0;
    m->x = fields[m->y_first];
    m->y = fields[!m->y_first];
    if (strcmp(m->x.name, "x") != 0 || strcmp(m->y.name, "y") != 0) {
        return td_bad_spec("skipnet takes the fields 'x' and 'y', not '%s' and '%s'", m->x.name,
                           m->y.name);
    }
    if (m->x.sample_shape.n_dims != 3 || (m->x.dtype != TD_U8 && m->x.dtype != TD_F32)) {
        return td_bad_spec("skipnet takes images 'x' of u8 or f32 as (channels, height, width)");
    }
    if (m->y.dtype != TD_I32 || m->y.n_classes < 2) {
        return td_bad_spec("skipnet takes one class a sample as 'y', of two classes at least");
    }
    return TD_OK;
}

static void skipnet_close(struct td_module *m) {
    free(m);
}

static td_status skipnet_open(const struct td_json *values, const struct td_field *fields,
                              size_t n_fields, struct td_module **out_module) {
    struct td_module *m = (struct td_module *)calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    td_status s = read_knobs(m, values);
    if (!s) s = read_fields(m, fields, n_fields);
    if (s) {
        skipnet_close(m);
        return s;
    }
    *out_module = m;
    return TD_OK;
}

// ---- recording ----------------------------------------------------------------------------------
// A parameter with torch's initial values: uniform in +-1/sqrt(n_in).
static td_status weight(struct td_graph *g, const char *layer, const char *part,
                        const struct td_shape *shape, int64_t n_in, td_value *out_value) {
    const double bound = 1 / sqrt((double)n_in);
    const struct td_init init = {TD_INIT_UNIFORM, -bound, bound};
    char name[64];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    return td_graph_param(g, name, TD_F32, shape, init, out_value);
}

// 3 x 3, the image keeps its size: *h (B, in, H, W) -> (B, out, H, W).
static td_status conv(struct td_graph *g, const char *layer, int64_t in, int64_t out, td_value *h) {
    const struct td_shape shape = {4, {out, in, 3, 3}};
    const struct td_conv2d_options same = {{1, 1}, {1, 1}, {1, 1}, 1};
    td_value w;
    TD_TRY(weight(g, layer, "weight", &shape, 9 * in, &w));
    return td_build_conv2d(g, *h, w, 0, &same, h);
}

static td_status block(const struct td_module *m, struct td_graph *g, int64_t i, td_value *h) {
    char layer[32];
    td_value around = *h;
    snprintf(layer, sizeof layer, "block%d.conv1", (int)i);
    TD_TRY(conv(g, layer, m->channels, m->channels, h));
    TD_TRY(m->silu ? td_build_silu(g, *h, h) : td_build_relu(g, *h, h));
    snprintf(layer, sizeof layer, "block%d.conv2", (int)i);
    TD_TRY(conv(g, layer, m->channels, m->channels, h));
    return td_build_add(g, *h, around, h);
}

// *h (B, C, H, W) -> logits (B, classes).
static td_status head(const struct td_module *m, struct td_graph *g, int64_t batch, td_value *h) {
    const int64_t classes = m->y.n_classes;
    const struct td_shape mean = {4, {batch, m->channels, 1, 1}}, flat = {2, {batch, m->channels}};
    const struct td_shape shape = {2, {classes, m->channels}}, row = {1, {classes}};
    const struct td_matmul_options transposed = {false, true};
    td_value w, bias;
    TD_TRY(td_build_reduce_mean(g, *h, &mean, h));
    TD_TRY(td_build_reshape(g, *h, &flat, h));
    TD_TRY(td_build_dropout(g, *h, "dropout", m->dropout, h));
    TD_TRY(weight(g, "fc", "weight", &shape, m->channels, &w));
    TD_TRY(weight(g, "fc", "bias", &row, m->channels, &bias));
    TD_TRY(td_graph_mark(g, w, TD_PARAM_NOT_HIDDEN)); // Muon leaves the last layer to AdamW
    TD_TRY(td_graph_mark(g, bias, TD_PARAM_NO_DECAY));
    TD_TRY(td_build_matmul(g, *h, w, 0, &transposed, h));
    return td_build_add(g, *h, bias, h);
}

static td_status input(struct td_graph *g, const struct td_field *f, int64_t batch,
                       td_value *out_value) {
    struct td_shape shape = f->sample_shape;
    for (int32_t d = shape.n_dims++; d > 0; d--) {
        shape.dim[d] = shape.dim[d - 1];
    }
    shape.dim[0] = batch;
    return td_graph_input(g, f->name, f->dtype, &shape, out_value);
}

static td_status inputs(const struct td_module *m, struct td_graph *g, int64_t batch,
                        td_value *out_x, td_value *out_y) {
    if (m->y_first) TD_TRY(input(g, &m->y, batch, out_y));
    TD_TRY(input(g, &m->x, batch, out_x));
    return m->y_first ? TD_OK : input(g, &m->y, batch, out_y);
}

// Called once for each (step, mode, batch): the same parameters each time.
static td_status skipnet_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    td_value h, y, loss, correct;
    TD_TRY(inputs(m, g, batch, &h, &y));
    if (m->x.dtype == TD_U8) TD_TRY(td_build_cast(g, h, TD_F32, 1.0 / 255, &h));
    TD_TRY(conv(g, "stem", m->x.sample_shape.dim[0], m->channels, &h));
    for (int64_t i = 0; i < m->blocks; i++) {
        TD_TRY(block(m, g, i, &h));
    }
    TD_TRY(head(m, g, batch, &h));
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
    .open = skipnet_open,
    .close = skipnet_close,
    .record = skipnet_record,
};

TD_PLUGIN_WITH_KNOBS(MODULE, "skipnet", "a small residual net over images", &ops, knobs)
