// Module `convnet`: names, shapes and initial values are torch's (the rival's net, and a ResNet's
// block as torchvision names it). Eval uses the running statistics. A layer that does not fit is
// named with its number and shapes.

#include "tests/unit/workloads/module_rig.h"

static const struct td_field gray = {
    .name = "x", .dtype = TD_U8, .sample_shape = {.n_dims = 2, .dim = {28, 28}}};
static const struct td_field color = {
    .name = "x", .dtype = TD_F32, .sample_shape = {.n_dims = 3, .dim = {3, 32, 32}}};
static const struct td_field labels = {.name = "y", .dtype = TD_I32, .n_classes = 10};

#define CONV(extra) "{\"name\":\"conv\",\"channels\":4,\"kernel\":3,\"padding\":1" extra "}"
#define ONE(name)   "{\"name\":\"" name "\"}"
#define FC(n)       "{\"name\":\"linear\",\"features\":" #n "}"
#define LAYERS(...) "{\"layers\":[" __VA_ARGS__ "]}"

static const char rival[] =
    LAYERS("{\"name\":\"conv\",\"channels\":32,\"kernel\":3,\"padding\":1}," ONE(
        "relu") ","
                "{\"name\":\"max_pool\",\"kernel\":2},"
                "{\"name\":\"conv\",\"channels\":64,\"kernel\":3,\"padding\":1}," ONE(
                    "relu") ","
                            "{\"name\":\"max_pool\",\"kernel\":2}," ONE("flatten") "," FC(
                                128) "," ONE("relu") "," FC(10));

static void test_parameters_are_those_of_torch_when_recorded(void **state) {
    (void)state;
    struct td_state_table *t;
    struct td_graph *g;
    char text[1024];
    assert_ok(td_state_table_create(&t));
    module_record(&td_module_convnet, rival, (const struct td_field[]){gray, labels}, TD_MODE_TRAIN,
                  5, t, &g);
    module_op_names(g, text, sizeof text);
    assert_string_equal(text, "cast reshape conv2d relu max_pool conv2d relu max_pool reshape "
                              "matmul add relu matmul add softmax_ce count_correct");
    module_state(t, text, sizeof text);
    assert_string_equal(
        text, "conv1.weight 32x1x3x3 uniform 0.333\nconv1.bias 32 uniform 0.333\n"
              "conv2.weight 64x32x3x3 uniform 0.0589\nconv2.bias 64 uniform 0.0589\n"
              "fc1.weight 128x3136 uniform 0.0179\nfc1.bias 128 uniform 0.0179\n"
              "fc2.weight 10x128 uniform 0.0884 not-hidden\nfc2.bias 10 uniform 0.0884\n");
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static const char resnet[] =
    "{\"init\":\"he\",\"layers\":[" CONV(",\"bias\":false") "," ONE("batch_norm") "," ONE(
        "relu") ","
                "{\"name\":\"residual\",\"channels\":4},"
                "{\"name\":\"residual\",\"channels\":8,\"blocks\":2,\"stride\":2}," ONE(
                    "global_avg_pool") ","
                                       "{\"name\":\"linear\",\"features\":10,\"as\":\"fc\"}]}";

static void test_parameters_are_those_of_torchvision_when_residual(void **state) {
    (void)state;
    struct td_state_table *t;
    struct td_graph *g;
    char text[4096];
    uint32_t index;
    assert_ok(td_state_table_create(&t));
    module_record(&td_module_convnet, resnet, (const struct td_field[]){color, labels},
                  TD_MODE_TRAIN, 2, t, &g);
    module_state(t, text, sizeof text);
    static const char *const expected[] = {
        "conv1.weight 4x3x3x3 normal 0.236\n",
        "bn1.weight 4 const 1\nbn1.bias 4 const 0\n",
        "bn1.running_mean 4 const 0 buffer\nbn1.running_var 4 const 1 buffer\n",
        "layer1.0.conv1.weight 4x4x3x3",
        "layer1.0.bn2.running_var 4 const 1 buffer\n",
        "layer2.0.conv1.weight 8x4x3x3",
        "layer2.0.downsample.0.weight 8x4x1x1",
        "layer2.0.downsample.1.running_mean 8",
        "layer2.1.conv2.weight 8x8x3x3",
        "fc.weight 10x8 uniform 0.354 not-hidden\n"};
    for (size_t i = 0; i < TD_COUNTOF(expected); i++) {
        if (!strstr(text, expected[i])) fail_msg("no '%s' in\n%s", expected[i], text);
    }
    assert_fails(td_state_find(t, "layer1.0.downsample.0.weight", &index), TD_NOT_FOUND,
                 "downsample"); // nothing to project
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static void count_ops(const struct td_graph *g, int *out) {
    for (uint32_t i = 0; i < td_graph_n_nodes(g); i++) {
        out[td_graph_node(g, i)->op]++;
    }
}

static void test_eval_uses_running_statistics_and_no_dropout_when_recorded(void **state) {
    (void)state;
    const char *knobs = LAYERS(
        CONV("") "," ONE("batch_norm") "," ONE("dropout") "," ONE("global_max_pool") "," FC(10));
    int train[TD_OP_COUNT] = {0}, eval[TD_OP_COUNT] = {0};
    for (int mode = TD_MODE_TRAIN; mode <= TD_MODE_PREDICT; mode++) {
        struct td_state_table *t;
        struct td_graph *g;
        assert_ok(td_state_table_create(&t));
        module_record(&td_module_convnet, knobs, (const struct td_field[]){labels, gray},
                      (enum td_mode)mode, 3, t, &g);
        count_ops(g, mode == TD_MODE_TRAIN ? train : eval);
        td_graph_destroy(g);
        td_state_table_destroy(t);
    }
    assert_true(train[TD_OP_BATCH_NORM] == 1 && train[TD_OP_BATCH_NORM_EVAL] == 0);
    assert_true(train[TD_OP_DROPOUT] == 1 && eval[TD_OP_DROPOUT] == 0);
    assert_true(eval[TD_OP_BATCH_NORM] == 0 && eval[TD_OP_BATCH_NORM_EVAL] == 2);
}

static void test_slope_is_the_knobs_when_leaky(void **state) {
    (void)state;
    static const struct {
        const char *layer;
        double slope;
    } cases[] = {{ONE("leaky_relu"), 0.01},
                 {"{\"name\":\"leaky_relu\",\"negative_slope\":0.2}", 0.2}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_state_table *t;
        struct td_graph *g;
        char knobs[256];
        double slope = -1;
        snprintf(knobs, sizeof knobs, LAYERS(CONV("") ",%s," ONE("flatten") "," FC(10)),
                 cases[i].layer);
        assert_ok(td_state_table_create(&t));
        module_record(&td_module_convnet, knobs, (const struct td_field[]){gray, labels},
                      TD_MODE_TRAIN, 3, t, &g);
        for (uint32_t n = 0; n < td_graph_n_nodes(g); n++) {
            const struct td_node_info *node = td_graph_node(g, n);
            if (node->op == TD_OP_LEAKY_RELU) slope = node->attrs.scale;
        }
        assert_true(slope == cases[i].slope);
        td_graph_destroy(g);
        td_state_table_destroy(t);
    }
}

static void test_open_names_layer_and_shapes_when_something_does_not_fit(void **state) {
    (void)state;
    struct td_field flat = gray;
    flat.sample_shape = (struct td_shape){1, {784}};
    const struct {
        struct td_field x;
        const char *knobs, *text;
    } cases[] = {
        {gray, "{}", "a list of 1 to 256 layers"},
        {gray, "{\"layers\":[]}", "a list of 1 to 256 layers"},
        {gray, LAYERS(ONE("warp")), "model.layers[0]: no kind of layer is named 'warp'"},
        {flat, LAYERS(ONE("relu")), "the dataset's samples are 784"},
        {gray, LAYERS(FC(10)),
         "model.layers[0] (linear fc1): it needs flat values; put flatten "
         "before it; it is given 1x28x28"},
        {gray, LAYERS(ONE("flatten") "," CONV("")),
         "model.layers[1] (conv conv1): it needs an image (channels x height x width); it is given "
         "784"},
        {gray,
         LAYERS(CONV("") ","
                         "{\"name\":\"conv\",\"channels\":8,\"kernel\":31,\"padding\":1}"),
         "model.layers[1] (conv conv2): a kernel of 31x31 with padding 1 and dilation 1 does not "
         "fit; it is given 4x28x28"},
        {gray, LAYERS(CONV(",\"groups\":2")), "groups must divide"},
        {gray, LAYERS("{\"name\":\"max_pool\",\"kernel\":29}"), "does not fit"},
        {gray, LAYERS("{\"name\":\"max_pool\",\"kernel\":2,\"padding\":2}"), "half the kernel"},
        {gray, LAYERS(CONV("")), "model.layers ends with 4x28x28"},
        {gray, LAYERS(ONE("flatten") "," FC(9)),
         "model.layers ends with 9 but the dataset's labels 'y' have 10 classes"},
        {gray, LAYERS(CONV(",\"as\":\"a\"") "," CONV(",\"as\":\"a\"")),
         "model.layers[1]: another layer is named 'a' too"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_module *m = NULL;
        const struct td_field fields[] = {cases[i].x, labels};
        td_status s = module_open(&td_module_convnet, cases[i].knobs, fields, 2, &m);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
        assert_null(m);
    }
}

static td_status open_once(void *arg) {
    (void)arg;
    const struct td_module_ops *ops = td_module_convnet.ops;
    struct td_module *m = NULL;
    TD_TRY(module_open(&td_module_convnet, rival, (const struct td_field[]){gray, labels}, 2, &m));
    ops->close(m);
    return TD_OK;
}

static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    td_test_failing_allocations(open_once, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_those_of_torch_when_recorded),
        cmocka_unit_test(test_parameters_are_those_of_torchvision_when_residual),
        cmocka_unit_test(test_eval_uses_running_statistics_and_no_dropout_when_recorded),
        cmocka_unit_test(test_slope_is_the_knobs_when_leaky),
        cmocka_unit_test(test_open_names_layer_and_shapes_when_something_does_not_fit),
        cmocka_unit_test(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
