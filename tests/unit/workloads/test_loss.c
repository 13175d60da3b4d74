// What modules minimize: for each loss the ops and outputs that are recorded. Also what is refused
// when the dataset's targets are not those of the loss, with both sides in the message.

#include "tests/unit/workloads/module_rig.h"

#define MLP(loss) "{\"layers\":[4,3],\"loss\":" loss "}"
#define CE(more)  MLP("{\"name\":\"cross_entropy\"" more "}")

static const struct td_field x = {.name = "x", .dtype = TD_F32, .sample_shape = {1, {4}}};
static const struct td_field labels = {.name = "y", .dtype = TD_I32, .n_classes = 3};
static const struct td_field three = {.name = "y", .dtype = TD_F32, .sample_shape = {1, {3}}};
static const struct td_field one = {.name = "y", .dtype = TD_F32};
static const struct td_field image = {.name = "x", .dtype = TD_F32, .sample_shape = {3, {1, 2, 2}}};
static const struct td_field tokens = {
    .name = "x", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11};
static const struct td_field next = {
    .name = "y", .dtype = TD_I32, .sample_shape = {1, {6}}, .n_classes = 11};

// "loss mean, accuracy sum"
static void outputs_of(const struct td_graph *g, char *out, size_t bytes) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < td_graph_n_outputs(g) && len < bytes; i++) {
        const char *name;
        enum td_output_kind kind;
        td_graph_output_at(g, i, &name, NULL, &kind);
        len += (size_t)snprintf(out + len, bytes - len, "%s%s %s", i ? ", " : "", name,
                                td_output_kind_name(kind));
    }
}

static const struct {
    const char *knobs;
    const struct td_field *y;
    const char *ops, *outputs;
} recorded[] = {
    {"{\"layers\":[4,3]}", &labels, "matmul add softmax_ce count_correct",
     "loss mean, accuracy sum"},
    {CE(""), &labels, "matmul add softmax_ce count_correct", "loss mean, accuracy sum"},
    {CE(",\"label_smoothing\":0.1,\"class_weights\":[],\"ignore_index\":null"), &labels,
     "matmul add softmax_ce count_correct", "loss mean, accuracy sum"},
    {CE(",\"ignore_index\":-100"), &labels,
     "matmul add softmax_ce count_labels count_correct count_labels",
     "loss mean, loss_weight weight, accuracy sum, accuracy_weight weight"},
    {CE(",\"class_weights\":[1,0,2]"), &labels,
     "matmul add constant softmax_ce count_labels count_correct",
     "loss mean, loss_weight weight, accuracy sum"},
    {MLP("{\"name\":\"mse\"}"), &three, "matmul add mse", "loss mean"},
    {"{\"layers\":[4,1],\"loss\":{\"name\":\"mse\"}}", &one, "matmul add reshape mse", "loss mean"},
    {MLP("{\"name\":\"bce\"}"), &three, "matmul add bce count_correct fill",
     "loss mean, accuracy sum, accuracy_weight weight"},
    {"{\"layers\":[4,1],\"loss\":{\"name\":\"bce\"}}", &one, "matmul add reshape bce count_correct",
     "loss mean, accuracy sum"},
};

static void test_graph_is_that_of_the_loss_when_recorded(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(recorded); i++) {
        const struct td_field fields[] = {x, *recorded[i].y};
        for (int mode = TD_MODE_TRAIN; mode <= TD_MODE_EVAL; mode++) {
            struct td_state_table *t;
            struct td_graph *g;
            char text[256];
            assert_ok(td_state_table_create(&t));
            module_record(&td_module_mlp, recorded[i].knobs, fields, (enum td_mode)mode, 7, t, &g);
            module_op_names(g, text, sizeof text);
            assert_string_equal(text, recorded[i].ops);
            outputs_of(g, text, sizeof text);
            assert_string_equal(text, recorded[i].outputs);
            td_graph_destroy(g);
            td_state_table_destroy(t);
        }
    }
}

static void test_options_reach_the_op_when_they_are_given(void **state) {
    (void)state;
    static const char knobs[] = CE(",\"label_smoothing\":0.25,\"ignore_index\":7,"
                                   "\"class_weights\":[0.5,1,4]");
    const struct td_field fields[] = {x, labels};
    struct td_state_table *t;
    struct td_graph *g;
    assert_ok(td_state_table_create(&t));
    module_record(&td_module_mlp, knobs, fields, TD_MODE_TRAIN, 7, t, &g);
    const struct td_node_info *weights = td_graph_node(g, 2), *loss = td_graph_node(g, 3);
    assert_memory_equal(weights->attrs.values, ((double[]){0.5, 1, 4}), 3 * sizeof(double));
    assert_int_equal(loss->op, TD_OP_SOFTMAX_CE);
    assert_int_equal(loss->n_inputs, 3);
    assert_true(loss->attrs.label_smoothing == 0.25 && loss->attrs.ignores &&
                loss->attrs.ignore_index == 7);
    for (td_node n = 4; n < 7; n++) {
        assert_true(td_graph_node(g, n)->attrs.ignore_index == 7);
    }
    assert_int_equal(td_graph_node(g, 4)->n_inputs, 2); // the loss counts weights,
    assert_int_equal(td_graph_node(g, 6)->n_inputs, 1); // accuracy labels
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static void test_targets_are_those_of_the_loss_when_a_module_is_asked(void **state) {
    (void)state;
    static const struct td_plugin_desc *const modules[] = {&td_module_mlp, &td_module_convnet,
                                                           &td_module_gpt, &td_module_llama};
    static const struct {
        const char *knobs;
        struct td_targets want;
    } cases[] = {
        {"{}", {.kind = TD_TARGET_CLASS}},
        {"{\"loss\":{\"name\":\"cross_entropy\",\"ignore_index\":null}}",
         {.kind = TD_TARGET_CLASS}},
        {"{\"loss\":{\"name\":\"cross_entropy\",\"ignore_index\":-100}}",
         {.kind = TD_TARGET_CLASS, .ignores = true, .ignore_index = -100}},
        {"{\"loss\":{\"name\":\"mse\"}}", {.kind = TD_TARGET_REAL}},
        {"{\"loss\":{\"name\":\"bce\"}}", {.kind = TD_TARGET_BINARY}},
    };
    static const struct {
        const char *knobs, *text;
    } refused[] = {
        {CE(",\"ignore_index\":3000000000"), "labels are integers of 32 bits"},
        {MLP("{\"name\":\"hinge\"}"), "'hinge' is not known here"},
    };
    TD_AUTO(td_arena) *a = NULL;
    struct td_json *knobs;
    assert_ok(td_arena_create(1 << 20, &a));
    for (size_t i = 0; i < TD_COUNTOF(modules) * TD_COUNTOF(cases); i++) {
        const struct td_module_ops *ops = modules[i % 4]->ops;
        const char *text = cases[i / 4].knobs;
        const struct td_targets *want = &cases[i / 4].want;
        struct td_targets t = {.struct_bytes = sizeof t};
        assert_ok(knobs_of(a, modules[i % 4], text, &knobs));
        assert_ok(ops->targets(knobs, &t));
        assert_true(t.kind == want->kind && t.ignores == want->ignores &&
                    t.ignore_index == want->ignore_index);
    }
    for (size_t i = 0; i < TD_COUNTOF(refused); i++) {
        const struct td_module_ops *ops = td_module_mlp.ops;
        struct td_targets t = {.struct_bytes = sizeof t};
        assert_ok(knobs_of(a, &td_module_mlp, refused[i].knobs, &knobs));
        assert_fails(ops->targets(knobs, &t), TD_INVALID_ARGUMENT, refused[i].text);
    }
}

static void test_open_names_both_sides_when_targets_are_not_the_loss_s(void **state) {
    (void)state;
#define GPT(loss) "{\"n_layer\":1,\"n_head\":1,\"n_embd\":4,\"loss\":" loss "}"
#define NET(loss)                                                                                  \
    "{\"layers\":[{\"name\":\"flatten\"},{\"name\":\"linear\",\"features\":3}],\"loss\":" loss "}"
    const struct {
        const struct td_plugin_desc *module;
        const char *knobs;
        const struct td_field *x, *y;
        const char *text;
    } cases[] = {
        {&td_module_mlp, MLP("{\"name\":\"mse\"}"), &x, &labels,
         "loss mse wants float targets 'y' of 3 numbers a sample; the dataset gives i32 labels: "
         "save y as float32, or set model.loss to cross_entropy"},
        {&td_module_mlp, MLP("{\"name\":\"bce\"}"), &x, &one,
         "model.layers ends with 3 but the dataset's targets 'y' have 1 numbers a sample; end "
         "with 1"},
        {&td_module_convnet, NET("{\"name\":\"mse\"}"), &image, &one, "ends with 3 but"},
        {&td_module_mlp, CE(""), &x, &three,
         "takes one i32 label 'y' per sample; the dataset gives 3 of f32: set model.loss to mse "
         "or bce, or save y as integers"},
        {&td_module_mlp, CE(",\"class_weights\":[1,2]"), &x, &labels,
         "model.loss.class_weights has 2 numbers, but model.layers gives 3 classes"},
        {&td_module_mlp, CE(",\"class_weights\":[0,0,0]"), &x, &labels, "all are 0"},
        {&td_module_mlp, CE(",\"class_weights\":[1,-1,0]"), &x, &labels,
         "class_weights[1]: expected a number from 0"},
        {&td_module_mlp, CE(",\"label_smoothing\":1.5"), &x, &labels, "from 0 to 1"},
        {&td_module_mlp, CE(",\"ignore_index\":3000000000"), &x, &labels, "of 32 bits"},
        {&td_module_mlp, MLP("{\"name\":\"huber\"}"), &x, &labels, "'huber' is not known here"},
        {&td_module_gpt, GPT("{\"name\":\"mse\"}"), &tokens, &next,
         "gpt predicts tokens, which are classes; loss mse wants numbers"},
        {&td_module_gpt, GPT("{\"name\":\"cross_entropy\",\"class_weights\":[1]}"), &tokens, &next,
         "has 1 numbers, but model.vocab_size gives 11 classes"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const struct td_field fields[] = {*cases[i].x, *cases[i].y};
        struct td_module *m = NULL;
        td_status s = module_open(cases[i].module, cases[i].knobs, fields, 2, &m);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
        assert_null(m);
    }
}

static td_status open_once(void *unused) {
    (void)unused;
    const struct td_field fields[] = {x, labels};
    struct td_module *m = NULL;
    TD_TRY(module_open(&td_module_mlp, CE(",\"class_weights\":[1,1,2]"), fields, 2, &m));
    ((const struct td_module_ops *)td_module_mlp.ops)->close(m);
    return TD_OK;
}

static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    td_test_failing_allocations(open_once, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph_is_that_of_the_loss_when_recorded),
        cmocka_unit_test(test_options_reach_the_op_when_they_are_given),
        cmocka_unit_test(test_targets_are_those_of_the_loss_when_a_module_is_asked),
        cmocka_unit_test(test_open_names_both_sides_when_targets_are_not_the_loss_s),
        cmocka_unit_test(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
