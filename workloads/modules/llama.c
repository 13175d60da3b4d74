// Module `llama`: the decoder of Llama 2 and 3 and of their small relatives. It has an RMS norm
// before each part, positions by turning queries and keys, and fewer heads of keys and values than
// of queries. The feed-forward is silu(gate) times up. There is no bias anywhere. The head is one
// of its own or the token table again.
//
// Names and shapes are Hugging Face's (model.layers.0.self_attn.q_proj.weight, stored (out, in)),
// so weights pass in and out unchanged; op rope turns a head's halves, as its checkpoints want it.
// Knobs are named as in its config.json; max_position_embeddings and vocab_size are the dataset's
// where nothing else says them. Initial values are its own too: normal with initializer_range,
// norms 1. Norms are marked to be spared weight decay, table and head not to be Muon's. Fields and
// output are those of decoder.h. Angles may be stretched for long rows (rope_scaling.h). Not built:
// biases; a config.json that asks for them is refused.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "traind/build.h"
#include "traind/knobs.h"
#include "workloads/modules/config_json.h"
#include "workloads/modules/decoder.h"
#include "workloads/modules/rope_scaling.h"
#include "workloads/workloads.h"

struct td_module {
    struct td_decoder decoder;
    int64_t inner, n_heads, n_groups, depth; // depth: of a head
    double eps, rope_theta, attention_dropout;
    struct td_rope_settings rope;
};

// ---- opening ------------------------------------------------------------------------------------
static td_status check_heads(const struct td_module *m) {
    const int64_t width = m->decoder.width;
    if (m->depth > 0 && m->depth % 2 != 0) {
        return td_bad_spec("model.head_dim is %" PRId64 "; a head's width is even", m->depth);
    }
    if (m->depth == 0 && (width % m->n_heads != 0 || width / m->n_heads % 2 != 0)) {
        return td_bad_spec("model.hidden_size is %" PRId64 ", which model.num_attention_heads, "
                           "%" PRId64 ", does not divide into heads of an even width; "
                           "model.head_dim gives another",
                           width, m->n_heads);
    }
    if (m->n_heads % m->n_groups == 0) return TD_OK;
    return td_bad_spec("model.num_attention_heads is %" PRId64 ", which "
                       "model.num_key_value_heads, %" PRId64 ", does not divide",
                       m->n_heads, m->n_groups);
}

static td_status read_sizes(struct td_module *m, const struct td_json *knobs) {
    struct td_decoder *d = &m->decoder;
    TD_TRY(td_knob_int_or(knobs, "hidden_size", 0, &d->width));
    TD_TRY(td_knob_int_or(knobs, "intermediate_size", 0, &m->inner));
    TD_TRY(td_knob_int_or(knobs, "num_hidden_layers", 0, &d->n_layers));
    TD_TRY(td_knob_int_or(knobs, "num_attention_heads", 0, &m->n_heads));
    TD_TRY(td_knob_int_or(knobs, "num_key_value_heads", m->n_heads, &m->n_groups));
    if (d->width < 1 || m->inner < 1 || d->n_layers < 1 || m->n_heads < 1 || m->n_groups < 1) {
        return td_bad_spec(
            "model: hidden_size, intermediate_size, num_hidden_layers, "
            "num_attention_heads and num_key_value_heads are at least 1; give them, or "
            "init_from a directory with config.json");
    }
    TD_TRY(td_knob_int_or(knobs, "head_dim", 0, &m->depth));
    if (m->depth < 0) return td_bad_spec("model.head_dim is below 1");
    TD_TRY(check_heads(m));
    if (m->depth == 0) m->depth = d->width / m->n_heads;
    return TD_OK;
}

static td_status read_knobs(struct td_module *m, const struct td_json *knobs) {
    struct td_decoder *d = &m->decoder;
    TD_TRY(read_sizes(m, knobs));
    TD_TRY(td_knob_int_or(knobs, "max_position_embeddings", 0, &d->n_positions));
    TD_TRY(td_knob_int_or(knobs, "vocab_size", 0, &d->vocab_size));
    // Null: what a config.json means that leaves them out.
    TD_TRY(td_knob_real_or(knobs, "rms_norm_eps", 1e-6, &m->eps));
    TD_TRY(td_knob_real_or(knobs, "rope_theta", 10000, &m->rope_theta));
    TD_TRY(td_knob_bool_or(knobs, "tie_word_embeddings", false, &d->tied));
    TD_TRY(td_knob_real(knobs, "initializer_range", &d->initializer_range));
    TD_TRY(td_knob_real(knobs, "attention_dropout", &m->attention_dropout));
    const struct td_json *rope_scaling = td_json_get(knobs, "rope_scaling");
    if (!rope_scaling) return td_bad_spec("knob 'rope_scaling' is missing: a map, or null");
    TD_TRY_CTX(td_rope_read(rope_scaling, "model.rope_scaling", &m->rope),
               "rotary angles of the spec, or of its weights' config.json");
    return TD_OK;
}

// ---- Hugging Face -------------------------------------------------------------------------------
// Tokens of its own for begin and end have those vocabularies alone that are known to have them.
static void write_config(struct td_module *m) {
    struct td_decoder *d = &m->decoder;
    const int64_t tokens = d->vocab_size;
    const char *begin = tokens == 32000 ? "1" : tokens == 128256 ? "128000" : "null";
    const char *end = tokens == 32000 ? "2" : tokens == 128256 ? "128001" : "null";
    char rope[TD_ROPE_TEXT];
    td_rope_print(&m->rope, rope);
    int n = snprintf(
        d->config, sizeof d->config,
        "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
        "  \"hidden_size\": %" PRId64 ",\n  \"intermediate_size\": %" PRId64 ",\n"
        "  \"num_hidden_layers\": %" PRId64 ",\n  \"num_attention_heads\": %" PRId64 ",\n"
        "  \"num_key_value_heads\": %" PRId64 ",\n  \"head_dim\": %" PRId64 ",\n"
        "  \"max_position_embeddings\": %" PRId64 ",\n  \"vocab_size\": %" PRId64 ",\n"
        "  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": %.17g,\n  \"rope_theta\": %.17g,\n"
        "  \"rope_scaling\": %s,\n  \"initializer_range\": %.17g,\n"
        "  \"attention_dropout\": %.17g,\n  \"attention_bias\": false,\n  \"mlp_bias\": false,\n"
        "  \"tie_word_embeddings\": %s,\n  \"bos_token_id\": %s,\n  \"eos_token_id\": %s\n}\n",
        d->width, m->inner, d->n_layers, m->n_heads, m->n_groups, m->depth, d->n_positions, tokens,
        m->eps, m->rope_theta, rope, d->initializer_range, m->attention_dropout,
        d->tied ? "true" : "false", begin, end);
    TD_CHECK(n > 0 && (size_t)n < sizeof d->config);
}

// *io_scales: some map of the file stretches them, or cannot be read.
static td_status check_rope_scaling(const struct td_module *m, const struct td_json *how,
                                    bool *io_scales) {
    struct td_rope_settings found = {.kind = TD_ROPE_DEFAULT};
    char ours[TD_ROPE_TEXT], theirs[TD_ROPE_TEXT];
    td_status bad = td_rope_read(how, "config.json", &found);
    *io_scales |= bad || found.kind != TD_ROPE_DEFAULT;
    if (bad || found.kind == TD_ROPE_DEFAULT || td_rope_equal(&found, &m->rope)) return bad;
    td_rope_print(&m->rope, ours);
    td_rope_print(&found, theirs);
    return td_bad_spec("config.json says rope_scaling: %s, the model has %s; set "
                       "model.rope_scaling",
                       theirs, ours);
}

// The base is beside the other keys, or, as transformers writes it since 5.0, among
// rope_parameters; how angles are stretched in rope_scaling or there, under either name. A file may
// have both: each is judged.
static td_status check_rope(const struct td_module *m, const struct td_json *config) {
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    td_status bad[6] = {TD_OK};
    bool inside = false, scales = false;
    for (size_t i = 0; i < TD_COUNTOF(keys); i++) {
        const struct td_json *how = td_config_key(config, keys[i]);
        bad[i] = check_rope_scaling(m, how, &scales);
        if (!td_config_key(how, "rope_theta")) continue;
        bad[2 + i] = td_config_number(how, "rope_theta", 10000, m->rope_theta);
        inside = true;
    }
    if (!scales && m->rope.kind != TD_ROPE_DEFAULT) {
        bad[4] = td_config_differs(NULL, "rope_scaling", "null", "model.rope_scaling");
    }
    if (!inside) bad[5] = td_config_number(config, "rope_theta", 10000, m->rope_theta);
    return td_config_all(bad, TD_COUNTOF(bad));
}

// Only what shapes do not show: they are compared tensor by tensor.
static td_status llama_check_config(struct td_module *m, const struct td_json *config) {
    const bool has_depth = td_config_key(config, "head_dim") != NULL;
    td_status bad[] = {
        td_config_word(config, "model_type", "llama", "llama"),
        td_config_word(config, "hidden_act", "silu", "silu"),
        td_config_flag(config, "attention_bias", false, false),
        td_config_flag(config, "mlp_bias", false, false),
        td_config_flag(config, "tie_word_embeddings", false, m->decoder.tied),
        td_config_number(config, "num_attention_heads", 32, (double)m->n_heads),
        has_depth ? td_config_number(config, "head_dim", 0, (double)m->depth) : TD_OK,
        td_config_number(config, "rms_norm_eps", 1e-6, m->eps),
        check_rope(m, config),
    };
    return td_config_all(bad, TD_COUNTOF(bad));
}

// The tied head, and the angles that older files carry.
static bool llama_spares(struct td_module *m, const char *name) {
    return (m->decoder.tied && strcmp(name, "lm_head.weight") == 0) ||
           td_decoder_name_ends(name, ".rotary_emb.inv_freq");
}

// ---- recording ----------------------------------------------------------------------------------
static td_status rms_norm(const struct td_module *m, struct td_graph *g, const char *name,
                          td_value *h) {
    td_value gamma;
    TD_TRY(td_layer_row(g, name, "weight", m->decoder.width, 1, &gamma));
    return td_build_rms_norm(g, *h, gamma, m->eps, h);
}

// h (..., in) by <part>.<name>.weight (out, in)
static td_status linear(const struct td_module *m, struct td_graph *g, const char *part,
                        const char *name, int64_t out, td_value *h) {
    const struct td_matmul_options transposed = {.trans_b = true};
    const struct td_shape *in = &td_graph_value(g, *h)->shape;
    char path[TD_LAYER_NAME_BYTES + 16];
    td_value weight;
    snprintf(path, sizeof path, "%s.%s.weight", part, name);
    TD_TRY(td_layer_normal(g, path, out, in->dim[in->n_dims - 1], m->decoder.initializer_range, 0,
                           &weight));
    return td_build_matmul(g, *h, weight, 0, &transposed, h);
}

// h (B,T,C) -> (B,T,n_heads,D)
static td_status heads(const struct td_module *m, struct td_graph *g, const char *part,
                       const char *name, int64_t n_heads, td_value h, td_value *out_heads) {
    const struct td_shape *in = &td_graph_value(g, h)->shape;
    const struct td_shape shape = {4, {in->dim[0], in->dim[1], n_heads, m->depth}};
    TD_TRY(linear(m, g, part, name, n_heads * m->depth, &h));
    TD_TRY(td_layer_reshape(g, &shape, &h));
    *out_heads = h;
    return TD_OK;
}

static td_status attention(const struct td_module *m, struct td_graph *g, const char *name,
                           td_value *h) {
    const struct td_rope_options rope = {.base = m->rope_theta, .scaling = m->rope.scaling};
    const struct td_shape *in = &td_graph_value(g, *h)->shape;
    const struct td_shape shape = {3, {in->dim[0], in->dim[1], m->n_heads * m->depth}};
    char drop[TD_LAYER_NAME_BYTES];
    const struct td_attention_options causal = {
        .causal = true, .drop = m->attention_dropout, .name = drop};
    td_value qkv[3];
    TD_TRY(heads(m, g, name, "q_proj", m->n_heads, *h, &qkv[0]));
    TD_TRY(heads(m, g, name, "k_proj", m->n_groups, *h, &qkv[1]));
    TD_TRY(heads(m, g, name, "v_proj", m->n_groups, *h, &qkv[2]));
    for (int i = 0; i < 2; i++) {
        TD_TRY(td_build_rope(g, qkv[i], &rope, &qkv[i]));
    }
    snprintf(drop, sizeof drop, "%s.attention_dropout", name);
    TD_TRY(td_build_attention(g, qkv[0], qkv[1], qkv[2], &causal, h));
    TD_TRY(td_layer_reshape(g, &shape, h));
    return linear(m, g, name, "o_proj", m->decoder.width, h);
}

static td_status feed_forward(const struct td_module *m, struct td_graph *g, const char *name,
                              td_value *h) {
    td_value gate = *h, up = *h;
    TD_TRY(linear(m, g, name, "gate_proj", m->inner, &gate));
    TD_TRY(linear(m, g, name, "up_proj", m->inner, &up));
    TD_TRY(td_build_silu(g, gate, &gate));
    TD_TRY(td_build_mul(g, gate, up, h));
    return linear(m, g, name, "down_proj", m->decoder.width, h);
}

static const struct td_decoder_form form = {
    .module = "llama",
    .positions = "max_position_embeddings",
    .read = read_knobs,
    .write_config = write_config,
    .prefix = "model.", // the bare LlamaModel has none
    .tokens = "model.embed_tokens.weight",
    .layers = "model.layers",
    .last_norm = "model.norm",
    .head = "lm_head.weight",
    .norm = rms_norm,
    .parts = {{"input_layernorm", "self_attn", attention},
              {"post_attention_layernorm", "mlp", feed_forward}},
};

static td_status llama_open(const struct td_json *knobs, const struct td_field *fields,
                            size_t n_fields, struct td_module **out_module) {
    return td_decoder_open(&form, sizeof **out_module, knobs, fields, n_fields, out_module);
}

static const struct td_module_ops llama_ops = {
    .struct_bytes = sizeof(struct td_module_ops),
    .open = llama_open,
    .close = td_decoder_close,
    .record = td_decoder_record,
    .targets = td_module_loss_targets,
    .aim = td_decoder_aim,
    .config = td_decoder_config,
    .check_config = llama_check_config,
    .other_name = td_decoder_other_name,
    .spares = llama_spares,
};

const struct td_plugin_desc td_module_llama =
    TD_PLUGIN_DESC(MODULE, "llama", "Llama 2 and 3 with Hugging Face's names", &llama_ops);
