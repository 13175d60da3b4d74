#ifndef TRAIND_TESTS_UNIT_GRAPH_STEP_RIG_H
#define TRAIND_TESTS_UNIT_GRAPH_STEP_RIG_H

// Whole training steps of the modules, small, for tests of passes: recorded from knobs, given keyed
// random batches, run on any accelerator.

#include "tests/unit/graph/graph_rig.h"
#include "tests/unit/workloads/module_rig.h"
#include "traind/precision.h"

extern const struct td_plugin_desc td_precision_bf16_mixed, td_precision_bf16_true,
    td_precision_fp16_mixed, td_precision_fp16_true, td_precision_fp64;

struct step_case {
    const char *name;
    const struct td_plugin_desc *module;
    const char *knobs;
    struct td_field field[2];
    int64_t batch;
};

#define STEP_LINEAR(n) "{\"name\":\"linear\",\"features\":" #n "}"
#define STEP_CONV(n)   "{\"name\":\"conv\",\"channels\":" #n ",\"kernel\":3,\"padding\":1}"
#define STEP_POOL      "{\"name\":\"max_pool\",\"kernel\":2}"
#define STEP_ONE(name) "{\"name\":\"" name "\"}"

// Every option of cross entropy, of five classes.
#define STEP_WEIGHED                                                                               \
    "\"loss\":{\"name\":\"cross_entropy\",\"label_smoothing\":0.1,\"ignore_index\":3,"             \
    "\"class_weights\":[1,2,0.5,1,0.25]}"

static const struct step_case step_cases[] = {
    {.name = "mlp",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,32,24,5]}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 5}},
     .batch = 9},
    {.name = "convnet",
     .module = &td_module_convnet,
     .knobs = "{\"layers\":[" STEP_CONV(4) "," STEP_ONE("relu") "," STEP_POOL "," STEP_CONV(
         6) "," STEP_ONE("relu") "," STEP_POOL
                                 "," STEP_ONE("flatten") "," STEP_LINEAR(16) "," STEP_ONE(
                                     "relu") "," STEP_LINEAR(5) "]}",
     .field = {{.name = "x", .dtype = TD_U8, .sample_shape = {2, {9, 10}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 5}},
     .batch = 3},
    {.name = "resnet",
     .module = &td_module_convnet,
     .knobs = "{\"layers\":[" STEP_CONV(4) "," STEP_ONE("batch_norm") "," STEP_ONE(
         "relu") ","
                 "{\"name\":\"residual\",\"channels\":4,\"blocks\":2},"
                 "{\"name\":\"residual\",\"channels\":6,\"blocks\":2,\"stride\":2}," STEP_ONE(
                     "global_avg_pool") ","
                                        "{\"name\":\"dropout\",\"p\":0.25}," STEP_LINEAR(5) "]}",
     .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {3, {3, 8, 8}}},
               {.name = "y", .dtype = TD_I32, .n_classes = 5}},
     .batch = 3},
    {.name = "gpt",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":4,\"n_head\":2,\"n_embd\":8,\"resid_pdrop\":0.2,\"embd_pdrop\":0.1}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11}},
     .batch = 2},
    {.name = "regression",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,24,3],\"activation\":\"tanh\",\"loss\":{\"name\":\"mse\"}}",
     .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_F32, .sample_shape = {1, {3}}}},
     .batch = 9},
    {.name = "several labels",
     .module = &td_module_mlp,
     .knobs = "{\"layers\":[16,24,3],\"loss\":{\"name\":\"bce\"}}",
     .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {1, {16}}},
               {.name = "y", .dtype = TD_F32, .sample_shape = {1, {3}}}},
     .batch = 9},
    {.name = "weighed gpt",
     .module = &td_module_gpt,
     .knobs = "{\"n_layer\":2,\"n_head\":2,\"n_embd\":8," STEP_WEIGHED "}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 5},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 5}},
     .batch = 3},
    {.name = "llama",
     .module = &td_module_llama,
     .knobs = "{\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":4,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"attention_dropout\":0.2}",
     .field = {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11},
               {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11}},
     .batch = 2},
};

// For td_compile_options: the precision plugin that is its argument.
static inline td_status step_lower(void *plugin, struct td_graph *g,
                                   const struct td_program_key *key) {
    const struct td_precision_ops *ops = ((const struct td_plugin_desc *)plugin)->ops;
    struct td_precision *p = NULL;
    const struct td_precision_config config = {.struct_bytes = sizeof config};
    TD_TRY(ops->open(&config, &p));
    td_status s = ops->rewrite(p, g, key);
    ops->close(p);
    return s;
}

// NULL: as it is recorded, fp32.
static inline void step_set_precision(struct td_compile_options *o,
                                      const struct td_plugin_desc *plugin) {
    o->precision = plugin ? step_lower : NULL;
    o->precision_arg = td_unconst(plugin);
    o->scales_loss = plugin == &td_precision_fp16_mixed;
}

static inline const struct step_case *step_case(const char *name) {
    size_t i = 0;
    while (strcmp(step_cases[i].name, name) != 0) {
        i++;
    }
    return &step_cases[i];
}

static inline td_status step_record(void *arg, struct td_graph *g, int64_t batch) {
    const struct step_case *c = arg;
    const struct td_module_ops *ops = c->module->ops;
    struct td_module *m = NULL;
    TD_TRY(module_open(c->module, c->knobs, c->field, 2, &m));
    td_status s = ops->record(m, g, batch);
    ops->close(m);
    return s;
}

static inline struct td_compile_options step_options(const struct step_case *c,
                                                     const struct td_optimizer_options *optimizer) {
    return (struct td_compile_options){
        .key = rig_key(TD_MODE_TRAIN, c->batch, true),
        .record = step_record,
        .record_arg = td_unconst(c),
        .optimizer = optimizer,
    };
}

// One batch; each field's memory is the caller's to free.
static inline void step_batch(const struct step_case *c, void *out_fields[2]) {
    for (int f = 0; f < 2; f++) {
        const struct td_field *field = &c->field[f];
        int64_t n = c->batch * td_shape_elems(&field->sample_shape);
        char *data = calloc((size_t)n, td_dtype_bytes(field->dtype));
        assert_non_null(data);
        for (int64_t i = 0; i < n; i++) {
            double u = (rig_random(field->name, (uint64_t)i) + 1) / 2; // [0, 1)
            if (field->dtype == TD_U8) ((uint8_t *)data)[i] = (uint8_t)(u * 256);
            if (field->dtype == TD_I32) {
                ((int32_t *)data)[i] = (int32_t)(u * (double)field->n_classes);
            }
            if (field->dtype == TD_F32) ((float *)data)[i] = (float)(2 * u - 1);
        }
        out_fields[f] = data;
    }
}

// All state of the rig, copied; the caller frees.
static inline void *step_state(const struct rig *r, size_t *out_bytes) {
    size_t bytes = 0, at = 0;
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        bytes += r->region[i].bytes;
    }
    char *all = malloc(bytes);
    assert_non_null(all);
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        memcpy(all + at, r->host[i], r->region[i].bytes);
        at += r->region[i].bytes;
    }
    *out_bytes = bytes;
    return all;
}

#endif
