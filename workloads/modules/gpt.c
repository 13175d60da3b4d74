// Module `gpt`: GPT-2, the decoder with a norm before each part, learned positions and a head that
// is the token table again.
//
// Names and shapes are Hugging Face's (transformer.h.0.attn.c_attn.weight, stored (in, out) as its
// Conv1D has them), so weights pass in and out unchanged. Knobs are named as in its config.json;
// `preset` gives the sizes of the published models, vocab_size and n_positions are the dataset's
// where nothing else says them. Initial values are GPT-2's: normal with initializer_range, the two
// products that lead back into the residual stream divided by sqrt(2 n_layer), biases zero. Norms
// and biases are marked to be spared weight decay, the two tables not to be Muon's.
// Fields: "x" and "y" i32 (T), tokens and the tokens that follow them. Output: "loss" MEAN, over
// all tokens of the batch. Attention takes the product that makes queries, keys and values whole.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traind/random.h"
#include "workloads/modules/layers.h"
#include "workloads/workloads.h"

#define td_module_magic UINT32_C(0x67707431)

struct td_module {
    uint32_t magic;
    struct td_xy fields;
    int64_t n_layer, n_head, n_embd, n_positions, vocab_size;
    int64_t block; // T
    double eps, initializer_range, embd_pdrop, attn_pdrop, resid_pdrop;
    bool gelu_tanh;
    char config[1024]; // config.json
};

static const struct preset {
    const char *name;
    int64_t n_layer, n_head, n_embd, n_positions, vocab_size;
} presets[] = {
    {"gpt2", 12, 12, 768, 1024, 50257},
    {"gpt2-medium", 24, 16, 1024, 1024, 50257},
    {"gpt2-large", 36, 20, 1280, 1024, 50257},
    {"gpt2-xl", 48, 25, 1600, 1024, 50257},
};

// ---- opening ------------------------------------------------------------------------------------
static td_status read_sizes(struct td_module *m, const struct td_json *knobs) {
    struct preset p = {.name = td_json_string(td_json_get(knobs, "preset"), "")};
    for (size_t i = 0; i < TD_COUNTOF(presets); i++)
        if (strcmp(presets[i].name, p.name) == 0) p = presets[i];
    m->n_layer = td_json_int(td_json_get(knobs, "n_layer"), p.n_layer);
    m->n_head = td_json_int(td_json_get(knobs, "n_head"), p.n_head);
    m->n_embd = td_json_int(td_json_get(knobs, "n_embd"), p.n_embd);
    m->n_positions = td_json_int(td_json_get(knobs, "n_positions"), p.n_positions);
    m->vocab_size = td_json_int(td_json_get(knobs, "vocab_size"), p.vocab_size);
    if (m->n_layer < 1 || m->n_head < 1 || m->n_embd < 1) {
        return td_bad_spec("model: give a preset (gpt2, gpt2-medium, gpt2-large, gpt2-xl), or "
                           "n_layer, n_head and n_embd");
    }
    if (m->n_embd % m->n_head == 0) return TD_OK;
    return td_bad_spec("model.n_embd is %" PRId64 ", which model.n_head, %" PRId64
                       ", does not divide",
                       m->n_embd, m->n_head);
}

static void read_knobs(struct td_module *m, const struct td_json *knobs) {
    const char *activation = td_json_string(td_json_get(knobs, "activation_function"), "gelu_new");
    m->gelu_tanh = strcmp(activation, "gelu_new") == 0;
    m->eps = td_json_real(td_json_get(knobs, "layer_norm_epsilon"), 1e-5);
    m->initializer_range = td_json_real(td_json_get(knobs, "initializer_range"), 0.02);
    m->embd_pdrop = td_json_real(td_json_get(knobs, "embd_pdrop"), 0);
    m->attn_pdrop = td_json_real(td_json_get(knobs, "attn_pdrop"), 0);
    m->resid_pdrop = td_json_real(td_json_get(knobs, "resid_pdrop"), 0);
}

// Rows of tokens, alike in x and y; sizes that the knobs left open are the data's.
static td_status fit_fields(struct td_module *m) {
    const struct td_field *x = &m->fields.x, *y = &m->fields.y;
    if (x->dtype != TD_I32 || y->dtype != TD_I32 || x->sample_shape.n_dims != 1 ||
        !td_shape_equal(&x->sample_shape, &y->sample_shape)) {
        char a[96], b[96];
        return td_bad_spec("gpt takes rows of i32 tokens 'x' and as many 'y'; the dataset gives "
                           "%s of %s and %s of %s",
                           td_shape_words(&x->sample_shape, a, sizeof a), td_dtype_name(x->dtype),
                           td_shape_words(&y->sample_shape, b, sizeof b), td_dtype_name(y->dtype));
    }
    int64_t tokens = TD_MAX(x->n_classes, y->n_classes);
    m->block = x->sample_shape.dim[0];
    if (!m->n_positions) m->n_positions = m->block;
    if (!m->vocab_size) m->vocab_size = tokens;
    if (m->block > m->n_positions) {
        return td_bad_spec("the dataset's rows have %" PRId64 " tokens, but model.n_positions is "
                           "%" PRId64,
                           m->block, m->n_positions);
    }
    if (tokens <= m->vocab_size && m->vocab_size > 0) return TD_OK;
    return td_bad_spec("the dataset's tokens are below %" PRId64 ", but model.vocab_size is "
                       "%" PRId64,
                       tokens, m->vocab_size);
}

// ---- Hugging Face -------------------------------------------------------------------------------
static const char *activation_of(const struct td_module *m) {
    return m->gelu_tanh ? "gelu_new" : "gelu";
}

// Without tokens of its own for begin and end the model has none.
static void write_config(struct td_module *m) {
    const char *end_of_text = m->vocab_size == 50257 ? "50256" : "null";
    int n = snprintf(
        m->config, sizeof m->config,
        "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
        "  \"n_layer\": %" PRId64 ",\n  \"n_head\": %" PRId64 ",\n  \"n_embd\": %" PRId64 ",\n"
        "  \"n_positions\": %" PRId64 ",\n  \"n_ctx\": %" PRId64 ",\n  \"vocab_size\": %" PRId64
        ",\n  \"activation_function\": \"%s\",\n  \"layer_norm_epsilon\": %.17g,\n"
        "  \"initializer_range\": %.17g,\n  \"embd_pdrop\": %.17g,\n  \"resid_pdrop\": %.17g,\n"
        "  \"attn_pdrop\": %.17g,\n  \"tie_word_embeddings\": true,\n  \"bos_token_id\": %s,\n"
        "  \"eos_token_id\": %s\n}\n",
        m->n_layer, m->n_head, m->n_embd, m->n_positions, m->n_positions, m->vocab_size,
        activation_of(m), m->eps, m->initializer_range, m->embd_pdrop, m->resid_pdrop,
        m->attn_pdrop, end_of_text, end_of_text);
    TD_CHECK(n > 0 && (size_t)n < sizeof m->config);
}

static const char *gpt_config(struct td_module *m) {
    return m->config;
}

// A key of config.json; NULL where it is left out: transformers then takes its own default.
static const struct td_json *key_of(const struct td_json *config, const char *key) {
    const struct td_json *v = td_json_get(config, key);
    return v && v->kind != TD_JSON_NULL ? v : NULL;
}

static td_status differs(const struct td_json *v, const char *key, const char *found,
                         const char *wanted) {
    return td_bad_spec("config.json %s %s%s%.64s, the model has %s", v ? "says" : "leaves out", key,
                       v ? ": " : ", which is then ", found, wanted);
}

static td_status check_number(const struct td_json *config, const char *key, double fallback,
                              double wanted) {
    char found[32] = "no number", ours[32];
    const struct td_json *v = key_of(config, key);
    double x = v ? td_json_real(v, (double)NAN) : fallback;
    if (fabs(x - wanted) <= 1e-6 * wanted) return TD_OK;
    if (!isnan(x)) snprintf(found, sizeof found, "%g", x);
    snprintf(ours, sizeof ours, "%g", wanted);
    return differs(v, key, found, ours);
}

static td_status check_flag(const struct td_json *config, const char *key, bool wanted) {
    const struct td_json *v = key_of(config, key);
    if (!v || td_json_bool(v, !wanted) == wanted) return TD_OK;
    return td_bad_spec("config.json says %s: %s, which this model does not do", key,
                       wanted ? "false" : "true");
}

static td_status check_activation(const struct td_module *m, const struct td_json *config) {
    static const char *const by_tanh[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    const struct td_json *v = key_of(config, "activation_function");
    char found[72];
    snprintf(found, sizeof found, "%.64s", v ? td_json_string(v, "no text") : by_tanh[0]);
    bool fits = strcmp(found, activation_of(m)) == 0;
    for (size_t i = 0; m->gelu_tanh && i < TD_COUNTOF(by_tanh); i++) {
        fits = fits || strcmp(found, by_tanh[i]) == 0;
    }
    return fits ? TD_OK : differs(v, "activation_function", found, activation_of(m));
}

// Only what shapes do not show: they are compared tensor by tensor.
static td_status gpt_check_config(struct td_module *m, const struct td_json *config) {
    const struct td_json *type = key_of(config, "model_type");
    const char *name = td_json_string(type, type ? "no text" : "gpt2");
    if (strcmp(name, "gpt2") != 0) return differs(type, "model_type", name, "gpt2");
    TD_TRY(check_activation(m, config));
    TD_TRY(check_flag(config, "tie_word_embeddings", true));
    TD_TRY(check_flag(config, "scale_attn_weights", true));
    TD_TRY(check_flag(config, "scale_attn_by_inverse_layer_idx", false));
    TD_TRY(check_number(config, "n_head", 12, (double)m->n_head));
    return check_number(config, "layer_norm_epsilon", 1e-5, m->eps);
}

// The bare GPT2Model leaves the prefix out, as the files on the hub do.
static const char *gpt_other_name(struct td_module *m, const char *name) {
    static const char prefix[] = "transformer.";
    (void)m;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : NULL;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

// The tied head, and the causal masks that older files carry.
static bool gpt_spares(struct td_module *m, const char *name) {
    (void)m;
    return strcmp(name, "lm_head.weight") == 0 || ends_with(name, ".attn.bias") ||
           ends_with(name, ".attn.masked_bias");
}

static td_status gpt_open(const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    TD_AUTO_FREE struct td_module *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->magic = td_module_magic;
    TD_TRY(read_sizes(m, knobs));
    read_knobs(m, knobs);
    TD_TRY(td_xy_take("gpt", fields, n_fields, &m->fields));
    TD_TRY(fit_fields(m));
    write_config(m);
    *out_module = td_steal(m);
    return TD_OK;
}

static void gpt_close(struct td_module *m) {
    if (!m) return;
    m->magic = 0;
    free(m);
}

// ---- recording ----------------------------------------------------------------------------------
static td_status table(const struct td_module *m, struct td_graph *g, const char *name,
                       int64_t rows, td_value *out_value) {
    const struct td_init init = {TD_INIT_NORMAL, 0, m->initializer_range};
    const struct td_shape shape = td_shape_2(rows, m->n_embd);
    TD_TRY(td_graph_param(g, name, TD_F32, &shape, init, out_value));
    return td_graph_mark(g, *out_value, TD_PARAM_NOT_HIDDEN);
}

// A row that weight decay spares: of a norm, or a bias.
static td_status row(struct td_graph *g, const char *layer, const char *part, int64_t n,
                     double initial, td_value *out_value) {
    const struct td_init init = {TD_INIT_CONST, initial, 0};
    const struct td_shape shape = td_shape_1(n);
    char path[TD_LAYER_NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s.%s", layer, part);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, init, out_value));
    return td_graph_mark(g, *out_value, TD_PARAM_NO_DECAY);
}

static td_status layer_norm(const struct td_module *m, struct td_graph *g, const char *name,
                            td_value *h) {
    const struct td_attrs attrs = {.eps = m->eps};
    td_value operand[3] = {*h};
    TD_TRY(row(g, name, "weight", m->n_embd, 1, &operand[1]));
    TD_TRY(row(g, name, "bias", m->n_embd, 0, &operand[2]));
    return td_graph_op(g, TD_OP_LAYER_NORM, operand, 3, &attrs, h);
}

// h (..., in) @ weight (in, out) + bias
static td_status conv1d(struct td_graph *g, const char *name, int64_t in, int64_t out,
                        double deviation, td_value *h) {
    const struct td_init init = {TD_INIT_NORMAL, 0, deviation};
    const struct td_shape shape = td_shape_2(in, out);
    char path[TD_LAYER_NAME_BYTES + 16];
    td_value weight, bias;
    snprintf(path, sizeof path, "%s.weight", name);
    TD_TRY(td_graph_param(g, path, TD_F32, &shape, init, &weight));
    TD_TRY(row(g, name, "bias", out, 0, &bias));
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, (td_value[]){*h, weight}, 2, NULL, h));
    return td_graph_op(g, TD_OP_ADD, (td_value[]){*h, bias}, 2, NULL, h);
}

static td_status dropout(struct td_graph *g, const char *name, double p, td_value *h) {
    const struct td_attrs attrs = {.drop = p, .stream = td_stream_of(name)};
    if (td_graph_mode(g) != TD_MODE_TRAIN || p <= 0) return TD_OK;
    return td_graph_op(g, TD_OP_DROPOUT, h, 1, &attrs, h);
}

static td_status attention(const struct td_module *m, struct td_graph *g, const char *name,
                           double back, td_value *h) {
    struct td_attrs causal = {.causal = true, .groups = (int32_t)m->n_head};
    char path[TD_LAYER_NAME_BYTES];
    td_value out[2];
    const struct td_shape shape = td_graph_value(g, *h)->shape;
    const struct td_shape heads = {
        4, {shape.dim[0], shape.dim[1], 3 * m->n_head, m->n_embd / m->n_head}};
    snprintf(path, sizeof path, "%s.c_attn", name);
    TD_TRY(conv1d(g, path, m->n_embd, 3 * m->n_embd, m->initializer_range, h));
    TD_TRY(td_layer_reshape(g, &heads, h));
    snprintf(path, sizeof path, "%s.attn_dropout", name);
    if (td_graph_mode(g) == TD_MODE_TRAIN) causal.drop = m->attn_pdrop;
    if (causal.drop > 0) causal.stream = td_stream_of(path);
    TD_TRY(td_graph_op(g, TD_OP_SELF_ATTENTION, h, 1, &causal, out));
    *h = out[0];
    TD_TRY(td_layer_reshape(g, &shape, h));
    snprintf(path, sizeof path, "%s.c_proj", name);
    TD_TRY(conv1d(g, path, m->n_embd, m->n_embd, back, h));
    return dropout(g, path, m->resid_pdrop, h);
}

static td_status feed_forward(const struct td_module *m, struct td_graph *g, const char *name,
                              double back, td_value *h) {
    const struct td_attrs gelu = {.gelu_tanh = m->gelu_tanh};
    char path[TD_LAYER_NAME_BYTES];
    snprintf(path, sizeof path, "%s.c_fc", name);
    TD_TRY(conv1d(g, path, m->n_embd, 4 * m->n_embd, m->initializer_range, h));
    TD_TRY(td_graph_op(g, TD_OP_GELU, h, 1, &gelu, h));
    snprintf(path, sizeof path, "%s.c_proj", name);
    TD_TRY(conv1d(g, path, 4 * m->n_embd, m->n_embd, back, h));
    return dropout(g, path, m->resid_pdrop, h);
}

// x + part(norm(x)), twice.
static td_status block(const struct td_module *m, struct td_graph *g, int64_t layer, td_value *h) {
    static const struct {
        const char *norm, *name;
        td_status (*record)(const struct td_module *m, struct td_graph *g, const char *name,
                            double back, td_value *h);
    } part[] = {{"ln_1", "attn", attention}, {"ln_2", "mlp", feed_forward}};
    const double back = m->initializer_range / sqrt(2.0 * (double)m->n_layer);
    for (size_t i = 0; i < TD_COUNTOF(part); i++) {
        char path[TD_LAYER_NAME_BYTES];
        td_value inner = *h;
        snprintf(path, sizeof path, "transformer.h.%" PRId64 ".%s", layer, part[i].norm);
        TD_TRY(layer_norm(m, g, path, &inner));
        snprintf(path, sizeof path, "transformer.h.%" PRId64 ".%s", layer, part[i].name);
        TD_TRY(part[i].record(m, g, path, back, &inner));
        TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){*h, inner}, 2, NULL, h));
    }
    return TD_OK;
}

// Tokens x (B,T) -> (B,T,C); *out_wte is the head's table too.
static td_status embed(const struct td_module *m, struct td_graph *g, td_value x, td_value *out_wte,
                       td_value *out_h) {
    td_value wpe;
    const struct td_attrs first = {.shape = td_shape_2(m->block, m->n_embd)};
    TD_TRY(table(m, g, "transformer.wte.weight", m->vocab_size, out_wte));
    TD_TRY(table(m, g, "transformer.wpe.weight", m->n_positions, &wpe));
    TD_TRY(td_graph_op(g, TD_OP_EMBEDDING, (td_value[]){*out_wte, x}, 2, NULL, out_h));
    if (m->block < m->n_positions) TD_TRY(td_graph_op(g, TD_OP_SLICE, &wpe, 1, &first, &wpe));
    TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){*out_h, wpe}, 2, NULL, out_h));
    return dropout(g, "transformer.drop", m->embd_pdrop, out_h);
}

// The head reads one place of each row only: the first of its y says which, counted through the
// batch.
static td_status record_prediction(struct td_graph *g, td_value h, td_value y, td_value wte) {
    const int64_t batch = td_graph_value(g, y)->shape.dim[0];
    const struct td_attrs transposed = {.trans_b = true}, first = {.shape = td_shape_2(batch, 1)};
    const struct td_shape places = td_shape_1(batch);
    td_value logits;
    TD_TRY(td_graph_op(g, TD_OP_SLICE, &y, 1, &first, &y));
    TD_TRY(td_layer_reshape(g, &places, &y));
    TD_TRY(td_graph_op(g, TD_OP_EMBEDDING, (td_value[]){h, y}, 2, NULL, &h));
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, (td_value[]){h, wte}, 2, &transposed, &logits));
    return td_graph_result(g, "logits", logits);
}

static void gpt_aim(struct td_module *m, int64_t row, int64_t position, void *const *inputs) {
    int32_t *y = inputs[m->fields.y_first ? 0 : 1];
    y[row * m->block] = (int32_t)(row * m->block + position);
}

static td_status gpt_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    TD_CHECK(m->magic == td_module_magic);
    const struct td_shape rows = td_shape_2(batch * m->block, m->n_embd);
    const struct td_shape targets = td_shape_1(batch * m->block);
    const struct td_attrs transposed = {.trans_b = true};
    td_value x, y, wte, h, logits, loss[2];
    TD_TRY(td_xy_inputs(&m->fields, g, batch, &x, &y));
    TD_TRY(embed(m, g, x, &wte, &h));
    for (int64_t layer = 0; layer < m->n_layer; layer++)
        TD_TRY(block(m, g, layer, &h));
    TD_TRY(layer_norm(m, g, "transformer.ln_f", &h));
    TD_TRY(td_layer_reshape(g, &rows, &h));
    if (td_graph_mode(g) == TD_MODE_PREDICT) return record_prediction(g, h, y, wte);
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, (td_value[]){h, wte}, 2, &transposed, &logits));
    TD_TRY(td_layer_reshape(g, &targets, &y));
    TD_TRY(td_graph_op(g, TD_OP_SOFTMAX_CE, (td_value[]){logits, y}, 2, NULL, loss));
    TD_TRY(td_graph_output(g, "loss", loss[0], TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss[0]);
}

static const struct td_module_ops gpt_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = gpt_open,
    .close = gpt_close,
    .record = gpt_record,
    .aim = gpt_aim,
    .config = gpt_config,
    .check_config = gpt_check_config,
    .other_name = gpt_other_name,
    .spares = gpt_spares,
};

const struct td_plugin_desc td_module_gpt = {
    .struct_bytes = sizeof(struct td_plugin_desc),
    .abi_major = TD_ABI_MAJOR,
    .abi_minor = TD_ABI_MINOR,
    .kind = TD_PLUGIN_MODULE,
    .name = "gpt",
    .summary = "GPT-2 with Hugging Face's names",
    .ops = &gpt_ops,
};
