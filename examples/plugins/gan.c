// Module `gan`: a small generative adversarial net over images, of two perceptrons.
//
//   generator      noise (B, latent) -> hidden -> pixels from 0 to 1
//   discriminator  pixels -> hidden -> one logit: is it from the dataset?
//
// It has two training steps, which each batch goes through in this order:
//
//   discriminator  trains disc.*: real images are to be taken for real, generated ones are not
//   generator      trains gen.*: generated images are to be taken for real, by the discriminator
//                  that the step before has just changed, and which is a constant here
//
// Noise is +1 or -1, half of each: dropout keeps or zeroes each of a row of ones. So it is keyed by
// (seed, optimizer step, name, sample), the same for any number of ranks, and resumes to the bit.
//   cc  -shared -fPIC -o module-gan.so gan.c $(pkg-config --cflags --libs traind)
// Fields: "x" u8 or f32 of any shape; others are left alone. Outputs: "loss_disc", "loss_gen", and
// "real" and "fake", the shares that the discriminator judges rightly. Validation measures the
// discriminator on real images alone, and prediction gives its logit of each.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traind/build.h"
#include "traind/module.h"
#include "traind/plugin.h"

static const struct td_plugin_knob knobs[] = {
    {"latent", TD_PLUGIN_KNOB_INT, 1, 4096, NULL, "64", NULL, "numbers that an image is made from"},
    {"hidden", TD_PLUGIN_KNOB_INT, 1, 65536, NULL, "128", NULL, "width of the hidden layers"},
};

enum { FIELDS_MAX = 8 };
struct td_module {
    int64_t latent, hidden, pixels;
    struct td_field field[FIELDS_MAX];
    size_t n_fields, x;
};

// ---- opening ------------------------------------------------------------------------------------
static td_status read_fields(struct td_module *m, const struct td_field *fields, size_t n_fields) {
    m->x = FIELDS_MAX;
    if (n_fields > FIELDS_MAX) return td_bad_spec("gan takes %d fields at most", FIELDS_MAX);
    for (size_t i = 0; i < n_fields; i++) {
        m->field[m->n_fields++] = fields[i];
        if (strcmp(fields[i].name, "x") == 0) m->x = i;
    }
    if (m->x == FIELDS_MAX) return td_bad_spec("gan takes images as the field 'x'");
    const struct td_field *x = &m->field[m->x];
    if (x->dtype != TD_U8 && x->dtype != TD_F32) {
        return td_bad_spec("gan takes images 'x' of u8 or f32");
    }
    m->pixels = td_shape_elems(&x->sample_shape);
    return TD_OK;
}

static void gan_close(struct td_module *m) {
    free(m);
}

static td_status gan_open(const struct td_json *values, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    struct td_module *m = (struct td_module *)calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    td_status s = td_knob_int(values, "latent", &m->latent);
    if (!s) s = td_knob_int(values, "hidden", &m->hidden);
    if (!s) s = read_fields(m, fields, n_fields);
    if (s) {
        gan_close(m);
        return s;
    }
    *out_module = m;
    return TD_OK;
}

static bool gan_step_at(struct td_module *m, uint32_t i, struct td_step_info *out_info) {
    static const char *const steps[][2] = {{"discriminator", "disc.*"}, {"generator", "gen.*"}};
    (void)m;
    if (i >= 2) return false;
    out_info->name = steps[i][0];
    out_info->trains = steps[i][1];
    return true;
}

// ---- layers -------------------------------------------------------------------------------------
static td_status parameter(struct td_graph *g, const char *layer, const char *part,
                           const struct td_shape *shape, int64_t n_in, td_value *out_value) {
    const double bound = 1 / sqrt((double)n_in);
    const struct td_init init = {TD_INIT_UNIFORM, -bound, bound};
    char name[64];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    return td_graph_param(g, name, TD_F32, shape, init, out_value);
}

// *h (B, in) -> (B, out).
static td_status linear(struct td_graph *g, const char *layer, int64_t in, int64_t out,
                        td_value *h) {
    const struct td_shape shape = {2, {out, in}}, row = {1, {out}};
    const struct td_matmul_options transposed = {false, true};
    td_value w, bias;
    TD_TRY(parameter(g, layer, "weight", &shape, in, &w));
    TD_TRY(parameter(g, layer, "bias", &row, in, &bias));
    TD_TRY(td_build_matmul(g, *h, w, 0, &transposed, h));
    return td_build_add(g, *h, bias, h);
}

static td_status generate(const struct td_module *m, struct td_graph *g, int64_t batch,
                          td_value *out_images) {
    const struct td_shape shape = {2, {batch, m->latent}}, one = {2, {1, 1}};
    td_value h, ones;
    TD_TRY(td_build_fill(g, TD_F32, &shape, 1, &h));
    TD_TRY(td_build_dropout(g, h, "noise", 0.5, &h)); // 0 or 2
    TD_TRY(td_build_fill(g, TD_F32, &one, 1, &ones));
    TD_TRY(td_build_sub(g, h, ones, &h));
    TD_TRY(linear(g, "gen.fc1", m->latent, m->hidden, &h));
    TD_TRY(td_build_relu(g, h, &h));
    TD_TRY(linear(g, "gen.fc2", m->hidden, m->pixels, &h));
    return td_build_sigmoid(g, h, out_images);
}

static td_status discriminate(const struct td_module *m, struct td_graph *g, td_value images,
                              td_value *out_logits) {
    td_value h = images;
    TD_TRY(linear(g, "disc.fc1", m->pixels, m->hidden, &h));
    TD_TRY(td_build_leaky_relu(g, h, 0.2, &h));
    TD_TRY(linear(g, "disc.fc2", m->hidden, 1, &h));
    *out_logits = h;
    return TD_OK;
}

// How far the logits (B, 1) are from `wanted`, 0 or 1, for all; and of how many they say it.
static td_status judge(struct td_graph *g, td_value logits, int64_t batch, double wanted,
                       td_value *out_loss, td_value *out_right) {
    const struct td_shape shape = {2, {batch, 1}};
    td_value targets;
    TD_TRY(td_build_fill(g, TD_F32, &shape, wanted, &targets));
    TD_TRY(td_build_bce(g, logits, targets, out_loss));
    return td_build_count_correct(g, logits, targets, NULL, out_right);
}

// ---- recording ----------------------------------------------------------------------------------
// All fields are inputs, in their order; "x" comes as (B, pixels) from 0 to 1.
static td_status inputs(const struct td_module *m, struct td_graph *g, int64_t batch,
                        td_value *out_x) {
    const struct td_shape flat = {2, {batch, m->pixels}};
    td_value x = 0;
    for (size_t i = 0; i < m->n_fields; i++) {
        struct td_shape shape = m->field[i].sample_shape;
        td_value v;
        for (int32_t d = shape.n_dims++; d > 0; d--) {
            shape.dim[d] = shape.dim[d - 1];
        }
        shape.dim[0] = batch;
        TD_TRY(td_graph_input(g, m->field[i].name, m->field[i].dtype, &shape, &v));
        if (i == m->x) x = v;
    }
    if (m->field[m->x].dtype == TD_U8) TD_TRY(td_build_cast(g, x, TD_F32, 1.0 / 255, &x));
    return td_build_reshape(g, x, &flat, out_x);
}

static td_status record_discriminator(struct td_module *m, struct td_graph *g, int64_t batch) {
    td_value x, logits, loss, right, of_fakes, fakes_right;
    TD_TRY(inputs(m, g, batch, &x));
    TD_TRY(discriminate(m, g, x, &logits));
    if (td_graph_mode(g) == TD_MODE_PREDICT) return td_graph_result(g, "logits", logits);
    TD_TRY(judge(g, logits, batch, 1, &loss, &right));
    if (td_graph_mode(g) == TD_MODE_TRAIN) {
        TD_TRY(generate(m, g, batch, &x));
        TD_TRY(discriminate(m, g, x, &logits));
        TD_TRY(judge(g, logits, batch, 0, &of_fakes, &fakes_right));
        TD_TRY(td_build_add(g, loss, of_fakes, &loss));
        TD_TRY(td_graph_output(g, "fake", fakes_right, TD_OUTPUT_SUM));
    }
    TD_TRY(td_graph_output(g, "loss_disc", loss, TD_OUTPUT_MEAN));
    TD_TRY(td_graph_output(g, "real", right, TD_OUTPUT_SUM));
    return td_graph_loss(g, loss);
}

static td_status record_generator(struct td_module *m, struct td_graph *g, int64_t batch) {
    td_value x, logits, loss, right;
    TD_TRY(inputs(m, g, batch, &x)); // which it does not look at
    TD_TRY(generate(m, g, batch, &x));
    TD_TRY(discriminate(m, g, x, &logits));
    TD_TRY(judge(g, logits, batch, 1, &loss, &right));
    TD_TRY(td_graph_output(g, "loss_gen", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static td_status gan_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    return strcmp(td_graph_step(g), "generator") == 0 ? record_generator(m, g, batch)
                                                      : record_discriminator(m, g, batch);
}

// ---- the plugin ---------------------------------------------------------------------------------
static const struct td_module_ops ops = {
    .struct_bytes = sizeof ops,
    .open = gan_open,
    .close = gan_close,
    .record = gan_record,
    .step_at = gan_step_at,
};

TD_PLUGIN_WITH_KNOBS(MODULE, "gan", "a small generative adversarial net over images", &ops, knobs)
