// Module `convnet`: a network for images, layer by layer as the spec lists them, a loss on top.
//
// `layers` is a list; each item names a kind of layer and its knobs. open() walks it once with the
// shape of a sample, so that a layer that does not fit what is before it is refused there, by
// number, name and shapes. Parameters have torch's names, by kind and count: conv1.weight,
// bn1.bias, fc1.weight; `as` gives another one. A `residual` layer is torchvision's BasicBlock,
// `blocks` times (layer1.0.conv1.weight, layer1.0.downsample.0.weight, ...). Initial values are
// torch's; with `init: he` convolutions begin as torchvision's ResNets do, normal by fan-out.
// Fields: "x" u8 (divided by 255) or f32, (H, W) or (C, H, W); "y" what the loss takes.
// Outputs: loss.h. Batch norm keeps running statistics as buffers, which eval and predict use.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traind/knobs.h"
#include "workloads/modules/loss.h"
#include "workloads/workloads.h"

enum { td_module_magic = 0x636e7631, MAX_LAYERS = 256, NAME_BYTES = 32 };

struct layer {
    const struct kind *kind;
    char name[NAME_BYTES];
    struct td_shape in, out; // of a sample: (C, H, W) or (features)
    // What the kinds take; each reads some.
    int64_t channels, blocks; // channels: features of a linear layer
    struct td_window_attrs window;
    bool bias;
    double p, eps, momentum, negative_slope;
};

struct td_module {
    uint32_t magic;
    struct td_xy fields;
    struct td_module_loss loss;
    bool he;
    struct layer layer[MAX_LAYERS];
    int n_layers;
};

struct kind {
    const char *name;
    const char *base; // of its parameters' names, counted from 1; NULL: it has none
    td_status (*read)(const struct td_json *v, struct layer *l); // NULL: it has no knobs
    td_status (*fit)(struct layer *l, const char *where);        // in -> out
    td_status (*record)(const struct td_module *m, const struct layer *l, struct td_graph *g,
                        td_value *h);
};

// ---- shapes -------------------------------------------------------------------------------------
static td_status misfit(const struct layer *l, const char *where, const char *why) {
    char shape[96];
    return td_bad_spec("%s (%s%s%s): %s; it is given %s", where, l->kind->name, *l->name ? " " : "",
                       l->name, why, td_shape_words(&l->in, shape, sizeof shape));
}

static td_status needs_image(const struct layer *l, const char *where) {
    if (l->in.n_dims == 3) return TD_OK;
    return misfit(l, where, "it needs an image (channels x height x width)");
}

// Places of a window along height and width; false where it does not fit.
static bool slide(const struct td_window_attrs *w, const struct td_shape *in,
                  struct td_shape *out) {
    for (int d = 0; d < 2; d++) {
        int64_t reach = (int64_t)w->dilation[d] * (w->kernel[d] - 1) + 1;
        int64_t room = in->dim[d + 1] + 2 * (int64_t)w->pad[d] - reach;
        if (room < 0) return false;
        out->dim[d + 1] = room / w->stride[d] + 1;
    }
    return true;
}

static td_status fit_window(struct layer *l, const char *where) {
    char why[128];
    const struct td_window_attrs *w = &l->window;
    l->out = l->in;
    if (slide(w, &l->in, &l->out)) return TD_OK;
    snprintf(why, sizeof why, "a kernel of %dx%d with padding %d and dilation %d does not fit",
             w->kernel[0], w->kernel[1], w->pad[0], w->dilation[0]);
    return misfit(l, where, why);
}

static td_status fit_conv(struct layer *l, const char *where) {
    TD_TRY(needs_image(l, where));
    TD_TRY(fit_window(l, where));
    if (l->in.dim[0] % l->window.groups || l->channels % l->window.groups) {
        return misfit(l, where, "groups must divide the channels before and after it");
    }
    l->out.dim[0] = l->channels;
    return TD_OK;
}

static td_status fit_pool(struct layer *l, const char *where) {
    TD_TRY(needs_image(l, where));
    if (2 * l->window.pad[0] > l->window.kernel[0]) {
        return misfit(l, where, "the padding may be half the kernel at most");
    }
    return fit_window(l, where);
}

static td_status fit_global_pool(struct layer *l, const char *where) {
    TD_TRY(needs_image(l, where));
    l->out = td_shape_1(l->in.dim[0]);
    return TD_OK;
}

static td_status fit_norm(struct layer *l, const char *where) {
    (void)where;
    l->out = l->in; // images by channel, flat values by feature: both are axis 1 of the batch
    return TD_OK;
}

static td_status fit_same(struct layer *l, const char *where) {
    (void)where;
    l->out = l->in;
    return TD_OK;
}

static td_status fit_flatten(struct layer *l, const char *where) {
    (void)where;
    l->out = td_shape_1(td_shape_elems(&l->in));
    return TD_OK;
}

static td_status fit_linear(struct layer *l, const char *where) {
    if (l->in.n_dims != 1) return misfit(l, where, "it needs flat values; put flatten before it");
    l->out = td_shape_1(l->channels);
    return TD_OK;
}

static td_status fit_residual(struct layer *l, const char *where) {
    TD_TRY(needs_image(l, where));
    TD_TRY(fit_window(l, where)); // the first block strides, the others keep the shape
    l->out.dim[0] = l->channels;
    return TD_OK;
}

// ---- knobs --------------------------------------------------------------------------------------
// Each kind reads its own rows of the spec's tables, which have checked ranges and given defaults.
static td_status read_small(const struct td_json *v, const char *key, int32_t *out_value) {
    int64_t n = 0;
    TD_TRY(td_knob_int(v, key, &n));
    *out_value = (int32_t)n;
    return TD_OK;
}

// The name that `as` gives; empty without one.
static td_status read_as(const struct td_json *v, struct layer *l) {
    const char *as = NULL;
    TD_TRY(td_knob_text_or(v, "as", "", &as));
    snprintf(l->name, sizeof l->name, "%s", as);
    return TD_OK;
}

static struct td_window_attrs square(int32_t kernel, int32_t stride, int32_t pad,
                                     int32_t dilation) {
    return (struct td_window_attrs){
        {kernel, kernel}, {stride, stride}, {pad, pad}, {dilation, dilation}, 1};
}

static td_status read_conv(const struct td_json *v, struct layer *l) {
    int32_t kernel = 0, stride = 0, pad = 0, dilation = 0;
    TD_TRY(td_knob_int(v, "channels", &l->channels));
    TD_TRY(read_small(v, "kernel", &kernel));
    TD_TRY(read_small(v, "stride", &stride));
    TD_TRY(read_small(v, "padding", &pad));
    TD_TRY(read_small(v, "dilation", &dilation));
    l->window = square(kernel, stride, pad, dilation);
    TD_TRY(read_small(v, "groups", &l->window.groups));
    TD_TRY(td_knob_bool(v, "bias", &l->bias));
    return read_as(v, l);
}

static td_status read_pool(const struct td_json *v, struct layer *l) {
    int32_t kernel = 0, pad = 0;
    int64_t stride = 0;
    TD_TRY(read_small(v, "kernel", &kernel));
    TD_TRY(read_small(v, "padding", &pad));
    TD_TRY(td_knob_int_or(v, "stride", kernel, &stride));
    l->window = square(kernel, (int32_t)stride, pad, 1);
    return TD_OK;
}

static td_status read_norm(const struct td_json *v, struct layer *l) {
    TD_TRY(td_knob_real(v, "eps", &l->eps));
    TD_TRY(td_knob_real(v, "momentum", &l->momentum));
    return read_as(v, l);
}

static td_status read_activation(const struct td_json *v, struct layer *l) {
    if (strcmp(l->kind->name, "leaky_relu") != 0) return TD_OK;
    return td_knob_real(v, "negative_slope", &l->negative_slope);
}

static td_status read_linear(const struct td_json *v, struct layer *l) {
    TD_TRY(td_knob_int(v, "features", &l->channels));
    TD_TRY(td_knob_bool(v, "bias", &l->bias));
    return read_as(v, l);
}

static td_status read_dropout(const struct td_json *v, struct layer *l) {
    return td_knob_real(v, "p", &l->p);
}

static td_status read_residual(const struct td_json *v, struct layer *l) {
    int32_t stride = 0;
    TD_TRY(td_knob_int(v, "channels", &l->channels));
    TD_TRY(td_knob_int(v, "blocks", &l->blocks));
    TD_TRY(read_small(v, "stride", &stride));
    l->window = square(3, stride, 1, 1);
    return read_norm(v, l); // those of its batch norms, and `as`
}

// ---- recording ----------------------------------------------------------------------------------
// weight (channels, in / groups, kernel, kernel); torch's initial values or He's.
static td_status conv2d(const struct td_module *m, struct td_graph *g, const char *name, int64_t in,
                        int64_t out, const struct td_window_attrs *window, bool bias, td_value *h) {
    const int64_t area = (int64_t)window->kernel[0] * window->kernel[1];
    const double bound = 1.0 / sqrt((double)(in / window->groups * area));
    const struct td_init uniform = {TD_INIT_UNIFORM, -bound, bound};
    const struct td_init he = {TD_INIT_NORMAL, 0, sqrt(2.0 / (double)(out * area))};
    const struct td_shape shape = {
        4, {out, in / window->groups, window->kernel[0], window->kernel[1]}};
    const struct td_shape row = td_shape_1(out);
    char path[TD_LAYER_NAME_BYTES + 16];
    struct td_conv2d_options options = {.groups = window->groups};
    td_value weight, bias_row = 0;
    memcpy(options.stride, window->stride, sizeof options.stride);
    memcpy(options.pad, window->pad, sizeof options.pad);
    memcpy(options.dilation, window->dilation, sizeof options.dilation);
    snprintf(path, sizeof path, "%s.weight", name);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, m->he ? he : uniform, &weight));
    if (bias) {
        snprintf(path, sizeof path, "%s.bias", name);
        TD_TRY(td_graph_param(g, path, TD_F32, &row, uniform, &bias_row));
    }
    return td_build_conv2d(g, *h, weight, bias_row, &options, h);
}

// torch.nn.BatchNorm2d: scale and shift are trained, running_mean and running_var are buffers.
static td_status batch_norm(struct td_graph *g, const char *name, int64_t channels, double eps,
                            double momentum, td_value *h) {
    struct td_batch_norm_state state;
    const struct {
        const char *suffix;
        bool trained;
        double initial;
        td_value *out;
    } part[] = {{"weight", true, 1, &state.gamma},
                {"bias", true, 0, &state.beta},
                {"running_mean", false, 0, &state.mean},
                {"running_var", false, 1, &state.var}};
    const struct td_shape row = td_shape_1(channels);
    for (size_t i = 0; i < TD_COUNTOF(part); i++) {
        char path[TD_LAYER_NAME_BYTES + 16];
        const struct td_init init = {TD_INIT_CONST, part[i].initial, 0};
        snprintf(path, sizeof path, "%s.%s", name, part[i].suffix);
        TD_TRY(part[i].trained ? td_graph_param(g, path, TD_F32, &row, init, part[i].out)
                               : td_layer_buffer(g, path, &row, init, part[i].out));
    }
    return td_graph_mode(g) == TD_MODE_TRAIN ? td_build_batch_norm(g, *h, &state, eps, momentum, h)
                                             : td_build_batch_norm_eval(g, *h, &state, eps, h);
}

static td_status record_conv(const struct td_module *m, const struct layer *l, struct td_graph *g,
                             td_value *h) {
    return conv2d(m, g, l->name, l->in.dim[0], l->channels, &l->window, l->bias, h);
}

static td_status record_norm(const struct td_module *m, const struct layer *l, struct td_graph *g,
                             td_value *h) {
    (void)m;
    return batch_norm(g, l->name, l->in.dim[0], l->eps, l->momentum, h);
}

static struct td_pool_options pool_options(const struct layer *l) {
    struct td_pool_options o;
    memcpy(o.kernel, l->window.kernel, sizeof o.kernel);
    memcpy(o.stride, l->window.stride, sizeof o.stride);
    memcpy(o.pad, l->window.pad, sizeof o.pad);
    return o;
}

static td_status record_max_pool(const struct td_module *m, const struct layer *l,
                                 struct td_graph *g, td_value *h) {
    (void)m;
    const struct td_pool_options options = pool_options(l);
    return td_build_max_pool(g, *h, &options, h);
}

static td_status record_avg_pool(const struct td_module *m, const struct layer *l,
                                 struct td_graph *g, td_value *h) {
    (void)m;
    const struct td_pool_options options = pool_options(l);
    return td_build_avg_pool(g, *h, &options, h);
}

static td_status record_activation(const struct td_module *m, const struct layer *l,
                                   struct td_graph *g, td_value *h) {
    (void)m;
    return td_activation_find(l->kind->name)(g, *h, l->negative_slope, h);
}

static int64_t batch_of(const struct td_graph *g, td_value h) {
    return td_graph_value(g, h)->shape.dim[0];
}

static td_status record_flatten(const struct td_module *m, const struct layer *l,
                                struct td_graph *g, td_value *h) {
    (void)m;
    const struct td_shape flat = td_shape_2(batch_of(g, *h), l->out.dim[0]);
    return td_layer_reshape(g, &flat, h);
}

static struct td_shape one_a_channel(const struct layer *l, const struct td_graph *g, td_value h) {
    return (struct td_shape){4, {batch_of(g, h), l->in.dim[0], 1, 1}};
}

static td_status record_global_avg_pool(const struct td_module *m, const struct layer *l,
                                        struct td_graph *g, td_value *h) {
    const struct td_shape shape = one_a_channel(l, g, *h);
    TD_TRY(td_build_reduce_mean(g, *h, &shape, h));
    return record_flatten(m, l, g, h);
}

static td_status record_global_max_pool(const struct td_module *m, const struct layer *l,
                                        struct td_graph *g, td_value *h) {
    const struct td_shape shape = one_a_channel(l, g, *h);
    TD_TRY(td_build_reduce_max(g, *h, &shape, h));
    return record_flatten(m, l, g, h);
}

static td_status record_linear(const struct td_module *m, const struct layer *l, struct td_graph *g,
                               td_value *h) {
    bool head = l == &m->layer[m->n_layers - 1];
    return td_layer_linear(g, l->name, l->in.dim[0], l->channels, l->bias,
                           head ? TD_PARAM_NOT_HIDDEN : 0, h);
}

static td_status record_dropout(const struct td_module *m, const struct layer *l,
                                struct td_graph *g, td_value *h) {
    (void)m;
    return td_build_dropout(g, *h, l->name, l->p, h);
}

static td_status conv_norm(const struct td_module *m, const struct layer *l, struct td_graph *g,
                           const char *block, const char *conv, const char *norm, int64_t in,
                           const struct td_window_attrs *window, td_value *h) {
    char name[TD_LAYER_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", block, conv);
    TD_TRY(conv2d(m, g, name, in, l->channels, window, false, h));
    snprintf(name, sizeof name, "%s.%s", block, norm);
    return batch_norm(g, name, l->channels, l->eps, l->momentum, h);
}

// relu(bn2(conv2(relu(bn1(conv1 x)))) + x), where x is projected if its shape changes.
static td_status basic_block(const struct td_module *m, const struct layer *l, struct td_graph *g,
                             const char *name, int64_t in, int32_t stride, td_value *h) {
    const struct td_window_attrs three = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1};
    struct td_window_attrs first = three, one = {{1, 1}, {1, 1}, {0, 0}, {1, 1}, 1};
    first.stride[0] = first.stride[1] = one.stride[0] = one.stride[1] = stride;
    td_value around = *h;
    TD_TRY(conv_norm(m, l, g, name, "conv1", "bn1", in, &first, h));
    TD_TRY(td_build_relu(g, *h, h));
    TD_TRY(conv_norm(m, l, g, name, "conv2", "bn2", l->channels, &three, h));
    if (stride != 1 || in != l->channels) {
        TD_TRY(conv_norm(m, l, g, name, "downsample.0", "downsample.1", in, &one, &around));
    }
    TD_TRY(td_build_add(g, *h, around, h));
    return td_build_relu(g, *h, h);
}

static td_status record_residual(const struct td_module *m, const struct layer *l,
                                 struct td_graph *g, td_value *h) {
    for (int64_t b = 0; b < l->blocks; b++) {
        char name[TD_LAYER_NAME_BYTES];
        snprintf(name, sizeof name, "%s.%" PRId64, l->name, b);
        TD_TRY(basic_block(m, l, g, name, b ? l->channels : l->in.dim[0],
                           b ? 1 : l->window.stride[0], h));
    }
    return TD_OK;
}

static const struct kind kinds[] = {
    {"conv", "conv", read_conv, fit_conv, record_conv},
    {"batch_norm", "bn", read_norm, fit_norm, record_norm},
#define TD_ACTIVATION(name, built) {#name, NULL, read_activation, fit_same, record_activation},
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
    {"max_pool", NULL, read_pool, fit_pool, record_max_pool},
    {"avg_pool", NULL, read_pool, fit_pool, record_avg_pool},
    {"global_avg_pool", NULL, NULL, fit_global_pool, record_global_avg_pool},
    {"global_max_pool", NULL, NULL, fit_global_pool, record_global_max_pool},
    {"flatten", NULL, NULL, fit_flatten, record_flatten},
    {"linear", "fc", read_linear, fit_linear, record_linear},
    {"dropout", "dropout", read_dropout, fit_same, record_dropout},
    {"residual", "layer", read_residual, fit_residual, record_residual},
};

// ---- opening ------------------------------------------------------------------------------------
static const struct kind *kind_of(const char *name) {
    for (size_t i = 0; i < TD_COUNTOF(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    }
    return NULL;
}

// "conv2", or what `as` says; two layers must not share their parameters by accident.
static td_status name_layer(struct td_module *m, struct layer *l, const char *where) {
    int count = 1;
    if (!l->kind->base) return TD_OK;
    for (const struct layer *o = m->layer; o < l; o++) {
        count += o->kind == l->kind;
    }
    if (!*l->name) snprintf(l->name, sizeof l->name, "%s%d", l->kind->base, count);
    for (const struct layer *o = m->layer; o < l; o++) {
        if (strcmp(o->name, l->name) == 0) {
            return td_bad_spec("%s: another layer is named '%s' too; give one a name with `as`",
                               where, l->name);
        }
    }
    return TD_OK;
}

static td_status take_layers(struct td_module *m, const struct td_json *layers,
                             struct td_shape shape) {
    if (!layers || layers->kind != TD_JSON_ARRAY || layers->n_children < 1 ||
        layers->n_children > MAX_LAYERS) {
        return td_bad_spec("model.layers: expected a list of 1 to %d layers", MAX_LAYERS);
    }
    for (const struct td_json *v = layers->first; v; v = v->next) {
        char where[32];
        struct layer *l = &m->layer[m->n_layers];
        const char *name = td_json_string(td_json_get(v, "name"), "");
        snprintf(where, sizeof where, "model.layers[%d]", m->n_layers);
        l->kind = kind_of(name);
        if (!l->kind) return td_bad_spec("%s: no kind of layer is named '%s'", where, name);
        if (l->kind->read) TD_TRY_CTX(l->kind->read(v, l), "%s", where);
        TD_TRY(name_layer(m, l, where));
        l->in = shape;
        TD_TRY(l->kind->fit(l, where));
        shape = l->out;
        m->n_layers++;
    }
    return TD_OK;
}

static td_status check_end(struct td_module *m) {
    const struct td_shape *end = &m->layer[m->n_layers - 1].out;
    char shape[96];
    if (end->n_dims == 1) {
        return td_module_loss_fit(&m->loss, "convnet", &m->fields, "model.layers", end->dim[0]);
    }
    return td_bad_spec("model.layers ends with %s; it must end with one number a class or "
                       "target: add "
                       "flatten and linear",
                       td_shape_words(end, shape, sizeof shape));
}

static void convnet_close(struct td_module *m) {
    if (!m) return;
    td_module_loss_finish(&m->loss);
    m->magic = 0;
    free(m);
}
TD_DEFINE_AUTO(td_module, convnet_close);

static td_status convnet_open(const struct td_json *knobs, const struct td_field *fields,
                              size_t n_fields, struct td_module **out_module) {
    TD_AUTO(td_module) *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->magic = td_module_magic;
    const char *init = NULL;
    TD_TRY(td_knob_text(knobs, "init", &init));
    m->he = strcmp(init, "he") == 0;
    TD_TRY(td_module_loss_init(&m->loss, knobs));
    TD_TRY(td_xy_take("convnet", fields, n_fields, &m->fields));
    struct td_shape shape = m->fields.x.sample_shape;
    if (shape.n_dims == 2) shape = (struct td_shape){3, {1, shape.dim[0], shape.dim[1]}};
    if (shape.n_dims != 3) {
        char text[96];
        return td_bad_spec("convnet takes images 'x' of (height, width) or (channels, height, "
                           "width); the dataset's samples are %s",
                           td_shape_words(&shape, text, sizeof text));
    }
    TD_TRY(take_layers(m, td_json_get(knobs, "layers"), shape));
    TD_TRY(check_end(m));
    *out_module = td_steal(m);
    return TD_OK;
}

static td_status convnet_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    TD_CHECK(m->magic == td_module_magic);
    const struct td_shape *image = &m->layer[0].in;
    const struct td_shape shape = {4, {batch, image->dim[0], image->dim[1], image->dim[2]}};
    td_value h, y;
    TD_TRY(td_xy_inputs(&m->fields, g, batch, &h, &y));
    TD_TRY(td_layer_pixels(g, m->fields.x.dtype, &h));
    if (m->fields.x.sample_shape.n_dims != 3) TD_TRY(td_layer_reshape(g, &shape, &h));
    for (int i = 0; i < m->n_layers; i++) {
        const struct layer *l = &m->layer[i];
        TD_TRY_CTX(l->kind->record(m, l, g, &h), "model.layers[%d]", i);
    }
    return td_module_loss_end(&m->loss, g, h, y);
}

// torch counts the batches that a norm has seen; momentum does not need it.
static bool convnet_spares(struct td_module *m, const char *name) {
    static const char end[] = ".num_batches_tracked";
    size_t n = strlen(name), k = sizeof end - 1;
    (void)m;
    return n >= k && strcmp(name + n - k, end) == 0;
}

static const struct td_module_ops convnet_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = convnet_open,
    .close = convnet_close,
    .record = convnet_record,
    .targets = td_module_loss_targets,
    .spares = convnet_spares,
};

const struct td_plugin_desc td_module_convnet =
    TD_PLUGIN_DESC(MODULE, "convnet", "layers from the spec over images", &convnet_ops);
