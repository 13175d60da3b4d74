// Knobs of the modules and datasets of the tree: each reads the rows that the spec's tables have
// for it, and has no default of its own. So a plan without one of them, which no daemon makes, is
// refused by its name. That includes the rows of layers and of the loss.

#include "tests/unit/workloads/module_rig.h"

#include "traind/dataset.h"

static const struct td_field fields[] = {
    {.name = "x", .dtype = TD_F32, .sample_shape = {3, {1, 8, 8}}},
    {.name = "y", .dtype = TD_I32, .n_classes = 3},
};
static const struct td_field rows[] = {
    {.name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11},
    {.name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11},
};

#define TAIL ",{\"name\":\"flatten\"},{\"name\":\"linear\",\"features\":3}]}"
static const struct owner {
    const struct td_plugin_desc *desc;
    const char *given, *list; // list: of layers, of which the first is tried; NULL: no list
    const struct td_field *fields;
} owners[] = {
    {&td_module_mlp, "{\"layers\":[64,3]}", NULL, fields},
    {&td_module_gpt, "{\"n_layer\":1,\"n_head\":1,\"n_embd\":4}", NULL, rows},
    {&td_module_llama,
     "{\"hidden_size\":4,\"intermediate_size\":4,\"num_hidden_layers\":1,"
     "\"num_attention_heads\":1}",
     NULL, rows},
    {&td_module_convnet, "{\"layers\":[{\"name\":\"conv\",\"channels\":2}" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[\"batch_norm\"" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[\"leaky_relu\"" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[\"max_pool\"" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[\"avg_pool\"" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[\"dropout\"" TAIL, "layers", fields},
    {&td_module_convnet, "{\"layers\":[{\"name\":\"residual\",\"channels\":2}" TAIL, "layers",
     fields},
    {&td_dataset_idx, "{\"path\":\"/nonexistent\"}", NULL, NULL},
    {&td_dataset_npy, "{\"x\":\"/nonexistent\",\"y\":\"/nonexistent\"}", NULL, NULL},
    {&td_dataset_synthetic, "{}", NULL, NULL},
    {&td_dataset_text, "{\"path\":\"/nonexistent\"}", NULL, NULL},
    {&td_dataset_tokens, "{\"train\":[\"/nonexistent\"]}", NULL, NULL},
};

static td_status open_owner(const struct owner *o, const struct td_json *knobs) {
    if (o->desc->kind == TD_PLUGIN_MODULE) {
        const struct td_module_ops *ops = o->desc->ops;
        struct td_module *m = NULL;
        TD_TRY(ops->open(knobs, o->fields, 2, &m));
        ops->close(m);
        return TD_OK;
    }
    const struct td_dataset_ops *ops = o->desc->ops;
    const struct td_dataset_config config = {.struct_bytes = sizeof config, .knobs = knobs};
    struct td_dataset *d = NULL;
    TD_TRY(ops->open(&config, &d));
    ops->close(d);
    return TD_OK;
}

// Of the loader, which reads them from the plan itself.
static bool is_loaders(const char *key) {
    return strcmp(key, "batch_size") == 0 || strcmp(key, "shuffle") == 0 ||
           strcmp(key, "drop_last") == 0 || strcmp(key, "val_split") == 0;
}

// Each member of the map under another name, one at a time; the name of a choice stays.
static int try_without(const struct owner *o, const struct td_json *knobs, struct td_json *map) {
    int n = 0;
    for (struct td_json *v = map ? map->first : NULL; v; v = v->next) {
        const char *key = v->key;
        if (strcmp(key, "name") == 0 || is_loaders(key)) continue;
        v->key = "another";
        td_status s = open_owner(o, knobs);
        v->key = key;
        if (!s) fail_msg("%s is opened without %s", o->desc->name, key);
        if (!strstr(td_status_message(s), key)) {
            fail_msg("%s without %s: %s", o->desc->name, key, td_status_message(s));
        }
        td_status_free(s);
        n++;
    }
    return n;
}

static void test_plan_is_refused_by_name_when_it_lacks_a_knob(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < TD_COUNTOF(owners); i++) {
        const struct owner *o = &owners[i];
        TD_AUTO(td_arena) *arena = NULL;
        struct td_json *knobs = NULL;
        assert_ok(td_arena_create(1 << 20, &arena));
        assert_ok(knobs_of(arena, o->desc, o->given, &knobs));
        if (o->fields) assert_ok(open_owner(o, knobs));
        n += try_without(o, knobs, knobs);
        n += try_without(o, knobs, td_json_get(knobs, "loss"));
        if (o->list) n += try_without(o, knobs, td_json_get(knobs, o->list)->first);
    }
    assert_true(n > 90);
}

// Each kind of layer that has rows is one of those above.
static void test_every_layer_with_knobs_is_tried(void **state) {
    (void)state;
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *name = td_section_variant_of(&td_sections[i], "layer");
        const struct td_knob *end;
        if (!name || td_section_knobs(&td_sections[i], &end) == end) continue;
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        bool tried = false;
        for (size_t k = 0; k < TD_COUNTOF(owners); k++) {
            tried = tried || strstr(owners[k].given, quoted);
        }
        if (!tried) fail_msg("layer %s is not tried", name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_refused_by_name_when_it_lacks_a_knob),
        cmocka_unit_test(test_every_layer_with_knobs_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
