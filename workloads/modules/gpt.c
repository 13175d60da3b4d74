// Module `gpt`: GPT-2, the decoder with a norm before each part, learned positions and a head that
// is the token table again.
//
// Names and shapes are Hugging Face's (transformer.h.0.attn.c_attn.weight, stored (in, out) as its
// Conv1D has them), so weights pass in and out unchanged. Knobs are named as in its config.json;
// `preset` gives the sizes of the published models, vocab_size and n_positions are the dataset's
// where nothing else says them. Initial values are GPT-2's: normal with initializer_range, the two
// products that lead back into the residual stream divided by sqrt(2 n_layer), biases zero. Norms
// and biases are marked to be spared weight decay, the two tables not to be Muon's.
// Fields and output are those of decoder.h. Attention takes the product that makes queries, keys
// and values whole.

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traind/build.h"
#include "traind/knobs.h"
#include "workloads/modules/config_json.h"
#include "workloads/modules/decoder.h"
#include "workloads/workloads.h"

struct td_module {
    struct td_decoder decoder;
    int64_t n_head;
    double eps, embd_pdrop, attn_pdrop, resid_pdrop;
    bool gelu_tanh;
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
    struct td_decoder *d = &m->decoder;
    struct preset p = {0};
    TD_TRY(td_knob_text_or(knobs, "preset", "", &p.name));
    for (size_t i = 0; i < TD_COUNTOF(presets); i++) {
        if (strcmp(presets[i].name, p.name) == 0) p = presets[i];
    }
    TD_TRY(td_knob_int_or(knobs, "n_layer", p.n_layer, &d->n_layers));
    TD_TRY(td_knob_int_or(knobs, "n_head", p.n_head, &m->n_head));
    TD_TRY(td_knob_int_or(knobs, "n_embd", p.n_embd, &d->width));
    TD_TRY(td_knob_int_or(knobs, "n_positions", p.n_positions, &d->n_positions));
    TD_TRY(td_knob_int_or(knobs, "vocab_size", p.vocab_size, &d->vocab_size));
    if (d->n_layers < 1 || m->n_head < 1 || d->width < 1) {
        return td_bad_spec("model: give a preset (gpt2, gpt2-medium, gpt2-large, gpt2-xl), or "
                           "n_layer, n_head and n_embd, or init_from a directory with config.json");
    }
    if (d->width % m->n_head == 0) return TD_OK;
    return td_bad_spec("model.n_embd is %" PRId64 ", which model.n_head, %" PRId64
                       ", does not divide",
                       d->width, m->n_head);
}

static td_status read_knobs(struct td_module *m, const struct td_json *knobs) {
    const char *activation = NULL;
    m->decoder.tied = true;
    TD_TRY(read_sizes(m, knobs));
    TD_TRY(td_knob_text(knobs, "activation_function", &activation));
    m->gelu_tanh = strcmp(activation, "gelu_new") == 0;
    TD_TRY(td_knob_real_or(knobs, "layer_norm_epsilon", 1e-5, &m->eps));
    TD_TRY(td_knob_real(knobs, "initializer_range", &m->decoder.initializer_range));
    TD_TRY(td_knob_real(knobs, "embd_pdrop", &m->embd_pdrop));
    TD_TRY(td_knob_real(knobs, "attn_pdrop", &m->attn_pdrop));
    return td_knob_real(knobs, "resid_pdrop", &m->resid_pdrop);
}

// ---- Hugging Face -------------------------------------------------------------------------------
static const char *activation_of(const struct td_module *m) {
    return m->gelu_tanh ? "gelu_new" : "gelu";
}

// Without tokens of its own for begin and end the model has none.
static void write_config(struct td_module *m) {
    struct td_decoder *d = &m->decoder;
    const char *end_of_text = d->vocab_size == 50257 ? "50256" : "null";
    int n = snprintf(
        d->config, sizeof d->config,
        "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
        "  \"n_layer\": %" PRId64 ",\n  \"n_head\": %" PRId64 ",\n  \"n_embd\": %" PRId64 ",\n"
        "  \"n_positions\": %" PRId64 ",\n  \"n_ctx\": %" PRId64 ",\n  \"vocab_size\": %" PRId64
        ",\n  \"activation_function\": \"%s\",\n  \"layer_norm_epsilon\": %.17g,\n"
        "  \"initializer_range\": %.17g,\n  \"embd_pdrop\": %.17g,\n  \"resid_pdrop\": %.17g,\n"
        "  \"attn_pdrop\": %.17g,\n  \"tie_word_embeddings\": true,\n  \"bos_token_id\": %s,\n"
        "  \"eos_token_id\": %s\n}\n",
        d->n_layers, m->n_head, d->width, d->n_positions, d->n_positions, d->vocab_size,
        activation_of(m), m->eps, d->initializer_range, m->embd_pdrop, m->resid_pdrop,
        m->attn_pdrop, end_of_text, end_of_text);
    TD_CHECK(n > 0 && (size_t)n < sizeof d->config);
}

static td_status check_activation(const struct td_module *m, const struct td_json *config) {
    static const char *const by_tanh[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    const struct td_json *v = td_config_key(config, "activation_function");
    char found[72];
    snprintf(found, sizeof found, "%.64s", v ? td_json_string(v, "no text") : by_tanh[0]);
    bool fits = strcmp(found, activation_of(m)) == 0;
    for (size_t i = 0; m->gelu_tanh && i < TD_COUNTOF(by_tanh); i++) {
        fits = fits || strcmp(found, by_tanh[i]) == 0;
    }
    return fits ? TD_OK : td_config_differs(v, "activation_function", found, activation_of(m));
}

// Only what shapes do not show: they are compared tensor by tensor.
static td_status gpt_check_config(struct td_module *m, const struct td_json *config) {
    td_status bad[] = {
        td_config_word(config, "model_type", "gpt2", "gpt2"),
        check_activation(m, config),
        td_config_flag(config, "tie_word_embeddings", true, true),
        td_config_flag(config, "scale_attn_weights", true, true),
        td_config_flag(config, "scale_attn_by_inverse_layer_idx", false, false),
        td_config_number(config, "n_head", 12, (double)m->n_head),
        td_config_number(config, "layer_norm_epsilon", 1e-5, m->eps),
    };
    return td_config_all(bad, TD_COUNTOF(bad));
}

// The tied head, and the causal masks that older files carry.
static bool gpt_spares(struct td_module *m, const char *name) {
    (void)m;
    return strcmp(name, "lm_head.weight") == 0 || td_decoder_name_ends(name, ".attn.bias") ||
           td_decoder_name_ends(name, ".attn.masked_bias");
}

// ---- recording ----------------------------------------------------------------------------------
static td_status layer_norm(const struct td_module *m, struct td_graph *g, const char *name,
                            td_value *h) {
    td_value gamma, beta;
    TD_TRY(td_layer_row(g, name, "weight", m->decoder.width, 1, &gamma));
    TD_TRY(td_layer_row(g, name, "bias", m->decoder.width, 0, &beta));
    return td_build_layer_norm(g, *h, gamma, beta, m->eps, h);
}

// h (..., in) @ weight (in, out) + bias
static td_status conv1d(struct td_graph *g, const char *name, int64_t in, int64_t out,
                        double deviation, td_value *h) {
    char path[TD_LAYER_NAME_BYTES + 16];
    td_value weight, bias;
    snprintf(path, sizeof path, "%s.weight", name);
    TD_TRY(td_layer_normal(g, path, in, out, deviation, 0, &weight));
    TD_TRY(td_layer_row(g, name, "bias", out, 0, &bias));
    TD_TRY(td_build_matmul(g, *h, weight, 0, NULL, h));
    return td_build_add(g, *h, bias, h);
}

// Deviation of a product that leads back into the residual stream.
static double back(const struct td_decoder *d) {
    return d->initializer_range / sqrt(2.0 * (double)d->n_layers);
}

static td_status attention(const struct td_module *m, struct td_graph *g, const char *name,
                           td_value *h) {
    const struct td_decoder *d = &m->decoder;
    char path[TD_LAYER_NAME_BYTES], drop[TD_LAYER_NAME_BYTES];
    const struct td_attention_options causal = {
        .causal = true, .drop = m->attn_pdrop, .name = drop};
    const struct td_shape shape = td_graph_value(g, *h)->shape;
    const struct td_shape heads = {
        4, {shape.dim[0], shape.dim[1], 3 * m->n_head, d->width / m->n_head}};
    snprintf(path, sizeof path, "%s.c_attn", name);
    TD_TRY(conv1d(g, path, d->width, 3 * d->width, d->initializer_range, h));
    TD_TRY(td_layer_reshape(g, &heads, h));
    snprintf(drop, sizeof drop, "%s.attn_dropout", name);
    TD_TRY(td_build_self_attention(g, *h, (int32_t)m->n_head, &causal, h));
    TD_TRY(td_layer_reshape(g, &shape, h));
    snprintf(path, sizeof path, "%s.c_proj", name);
    TD_TRY(conv1d(g, path, d->width, d->width, back(d), h));
    return td_layer_dropout(g, path, m->resid_pdrop, h);
}

static td_status feed_forward(const struct td_module *m, struct td_graph *g, const char *name,
                              td_value *h) {
    const struct td_decoder *d = &m->decoder;
    char path[TD_LAYER_NAME_BYTES];
    snprintf(path, sizeof path, "%s.c_fc", name);
    TD_TRY(conv1d(g, path, d->width, 4 * d->width, d->initializer_range, h));
    TD_TRY(td_build_gelu(g, *h, m->gelu_tanh, h));
    snprintf(path, sizeof path, "%s.c_proj", name);
    TD_TRY(conv1d(g, path, 4 * d->width, d->width, back(d), h));
    return td_layer_dropout(g, path, m->resid_pdrop, h);
}

static td_status embed(const struct td_module *m, struct td_graph *g, td_value x, td_value wte,
                       td_value *out_h) {
    const struct td_decoder *d = &m->decoder;
    const struct td_shape first = td_shape_2(d->block, d->width);
    td_value wpe;
    TD_TRY(td_decoder_table(d, g, "transformer.wpe.weight", d->n_positions, &wpe));
    TD_TRY(td_build_embedding(g, wte, x, out_h));
    if (d->block < d->n_positions) {
        TD_TRY(td_build_slice(g, wpe, (int64_t[]){0, 0}, &first, &wpe));
    }
    TD_TRY(td_build_add(g, *out_h, wpe, out_h));
    return td_layer_dropout(g, "transformer.drop", m->embd_pdrop, out_h);
}

static const struct td_decoder_form form = {
    .module = "gpt",
    .positions = "n_positions",
    .read = read_knobs,
    .write_config = write_config,
    .prefix = "transformer.", // the bare GPT2Model has none, as the files on the hub
    .tokens = "transformer.wte.weight",
    .layers = "transformer.h",
    .last_norm = "transformer.ln_f",
    .embed = embed,
    .norm = layer_norm,
    .parts = {{"ln_1", "attn", attention}, {"ln_2", "mlp", feed_forward}},
};

static td_status gpt_open(const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    return td_decoder_open(&form, sizeof **out_module, knobs, fields, n_fields, out_module);
}

static const struct td_module_ops gpt_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = gpt_open,
    .close = td_decoder_close,
    .record = td_decoder_record,
    .targets = td_module_loss_targets,
    .aim = td_decoder_aim,
    .config = td_decoder_config,
    .check_config = gpt_check_config,
    .other_name = td_decoder_other_name,
    .spares = gpt_spares,
};

const struct td_plugin_desc td_module_gpt =
    TD_PLUGIN_DESC(MODULE, "gpt", "GPT-2 with Hugging Face's names", &gpt_ops);
