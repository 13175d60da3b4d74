// Module `mlp`: what it records (names, shapes, initial ranges, order of inputs and outputs) and
// what it refuses, with both sides of a misfit in the message.

#include "tests/unit/workloads/module_rig.h"

#include <math.h>

static const struct td_field image_u8 = {
    .name = "x", .dtype = TD_U8, .sample_shape = {.n_dims = 2, .dim = {4, 3}}};
static const struct td_field flat_f32 = {
    .name = "x", .dtype = TD_F32, .sample_shape = {.n_dims = 1, .dim = {12}}};
static const struct td_field labels = {.name = "y", .dtype = TD_I32, .n_classes = 5};

static const struct td_module_ops *mlp_ops(void) {
    return td_module_mlp.ops;
}

static td_status open_mlp(const char *knobs_text, const struct td_field *fields, size_t n_fields,
                          struct td_module **out_module) {
    return module_open(&td_module_mlp, knobs_text, fields, n_fields, out_module);
}

// Ops of the graph in order, as one line.
static void op_names(const struct td_graph *g, char *out, size_t bytes) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < td_graph_n_nodes(g); i++) {
        len += (size_t)snprintf(out + len, bytes - len, "%s%s", i ? " " : "",
                                td_op_name(td_graph_node(g, i)->op));
    }
}

static void check_param(const struct td_state_table *t, const char *name, int n_dims, int64_t d0,
                        int64_t d1, double bound) {
    uint32_t index;
    assert_ok(td_state_find(t, name, &index));
    const struct td_state_info *s = td_state_at(t, index);
    assert_int_equal(s->role, TD_ROLE_PARAM);
    assert_int_equal(s->dtype, TD_F32);
    assert_int_equal(s->shape.n_dims, n_dims);
    assert_int_equal(s->shape.dim[0], d0);
    if (n_dims == 2) assert_int_equal(s->shape.dim[1], d1);
    assert_int_equal(s->init.kind, TD_INIT_UNIFORM);
    assert_true(fabs(s->init.b - bound) < 1e-12 && s->init.a == -s->init.b);
}

static void record(const char *knobs, const struct td_field *fields, enum td_mode mode,
                   struct td_state_table *t, struct td_graph **out_graph) {
    struct td_module *m;
    assert_ok(open_mlp(knobs, fields, 2, &m));
    assert_ok(td_graph_create("train", mode, t, out_graph));
    assert_ok(mlp_ops()->record(m, *out_graph, 7));
    mlp_ops()->close(m);
}

static void test_graph_is_that_of_linear_layers_when_recorded(void **state) {
    (void)state;
    struct td_state_table *t;
    struct td_graph *g;
    char ops[256];
    assert_ok(td_state_table_create(&t));
    record("{\"layers\":[12,6,5],\"activation\":\"relu\",\"bias\":true}",
           (const struct td_field[]){image_u8, labels}, TD_MODE_TRAIN, t, &g);
    op_names(g, ops, sizeof ops);
    assert_string_equal(ops, "cast reshape matmul add relu matmul add softmax_ce count_correct");
    assert_int_equal(td_state_count(t), 4);
    check_param(t, "fc1.weight", 2, 6, 12, 1 / sqrt(12));
    check_param(t, "fc1.bias", 1, 6, 0, 1 / sqrt(12));
    check_param(t, "fc2.weight", 2, 5, 6, 1 / sqrt(6));
    check_param(t, "fc2.bias", 1, 5, 0, 1 / sqrt(6));

    const struct td_value_info *x = td_graph_value(g, td_graph_input_at(g, 0));
    assert_string_equal(x->name, "x");
    assert_int_equal(x->dtype, TD_U8);
    assert_int_equal(x->shape.n_dims, 3);
    assert_int_equal(x->shape.dim[0], 7);
    assert_true(td_graph_node(g, 0)->attrs.scale == 1.0 / 255.0);
    const char *name;
    td_value v;
    enum td_output_kind kind;
    td_graph_output_at(g, 0, &name, &v, &kind);
    assert_string_equal(name, "loss");
    assert_int_equal(kind, TD_OUTPUT_MEAN);
    assert_int_equal(v, td_graph_loss_value(g));
    td_graph_output_at(g, 1, &name, &v, &kind);
    assert_string_equal(name, "accuracy");
    assert_int_equal(kind, TD_OUTPUT_SUM);
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

static void test_steps_share_parameters_when_recorded_twice(void **state) {
    (void)state;
    struct td_state_table *t;
    struct td_graph *train, *eval;
    const struct td_field fields[] = {labels, flat_f32}; // the dataset's order is kept
    const char *knobs = "{\"layers\":[12,5],\"bias\":false}";
    char ops[256];
    assert_ok(td_state_table_create(&t));
    record(knobs, fields, TD_MODE_TRAIN, t, &train);
    record(knobs, fields, TD_MODE_EVAL, t, &eval);
    assert_int_equal(td_state_count(t), 1);
    op_names(train, ops, sizeof ops);
    assert_string_equal(ops, "matmul softmax_ce count_correct");
    assert_string_equal(td_graph_value(train, td_graph_input_at(train, 0))->name, "y");
    assert_string_equal(td_graph_value(train, td_graph_input_at(train, 1))->name, "x");
    td_graph_destroy(train);
    td_graph_destroy(eval);
    td_state_table_destroy(t);
}

static void test_spec_takes_the_activations_of_the_one_list(void **state) {
    (void)state;
    static const char bar_before_each[] =
#define TD_ACTIVATION(name, built) "|" #name
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
        ;
    assert_string_equal(td_knob_find("model.mlp", "activation")->values, bar_before_each + 1);
#define TD_ACTIVATION(name, built) assert_non_null(td_section_find("layer." #name));
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
}

static void test_activation_is_the_knobs_when_recorded(void **state) {
    (void)state;
    static const char *const names[] = {
#define TD_ACTIVATION(name, built) #name,
#include "workloads/modules/activations.def"
#undef TD_ACTIVATION
    };
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        struct td_state_table *t;
        struct td_graph *g;
        char knobs[96], ops[256], expected[128];
        snprintf(knobs, sizeof knobs, "{\"layers\":[12,6,5],\"activation\":\"%s\"}", names[i]);
        snprintf(expected, sizeof expected, "matmul add %s matmul add softmax_ce count_correct",
                 names[i]);
        assert_ok(td_state_table_create(&t));
        record(knobs, (const struct td_field[]){flat_f32, labels}, TD_MODE_TRAIN, t, &g);
        op_names(g, ops, sizeof ops);
        assert_string_equal(ops, expected);
        td_graph_destroy(g);
        td_state_table_destroy(t);
    }
}

static void test_open_names_both_sides_when_data_and_knobs_do_not_fit(void **state) {
    (void)state;
    struct td_field f64 = flat_f32, two_labels = labels, other = labels;
    f64.dtype = TD_F64;
    two_labels.sample_shape = (struct td_shape){.n_dims = 1, .dim = {2}};
    snprintf(other.name, sizeof other.name, "mask");
    const struct {
        const char *knobs;
        struct td_field x, y;
        const char *text;
    } cases[] = {
        {"{}", image_u8, labels, "model.layers"},
        {"{\"layers\":[12]}", image_u8, labels, "2 to 64"},
        {"{\"layers\":[12,0]}", image_u8, labels, "model.layers[1]"},
        {"{\"layers\":[12,\"a\"]}", image_u8, labels, "model.layers[1]"},
        {"{\"layers\":[12,5],\"activation\":\"gleu\"}", image_u8, labels, "'gleu'"},
        {"{\"layers\":[784,5]}", image_u8, labels,
         "begins with 784 but the dataset's samples 'x' "
         "have 12 elements"},
        {"{\"layers\":[12,4]}", image_u8, labels,
         "ends with 4 but the dataset's labels 'y' have 5"},
        {"{\"layers\":[12,5]}", f64, labels, "gives f64"},
        {"{\"layers\":[12,5]}", image_u8, two_labels, "gives 2 of i32"},
        {"{\"layers\":[12,5]}", image_u8, other, "'mask'"},
        {"{\"layers\":[12,5]}", image_u8, image_u8, "no 'y'"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_module *m = NULL;
        const struct td_field fields[] = {cases[i].x, cases[i].y};
        td_status s = open_mlp(cases[i].knobs, fields, 2, &m);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].text);
        assert_null(m);
    }
    mlp_ops()->close(NULL);
}

static td_status open_once(void *arg) {
    (void)arg;
    struct td_module *m = NULL;
    const struct td_field fields[] = {image_u8, labels};
    TD_TRY(open_mlp("{\"layers\":[12,5]}", fields, 2, &m));
    mlp_ops()->close(m);
    return TD_OK;
}
static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    td_test_failing_allocations(open_once, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph_is_that_of_linear_layers_when_recorded),
        cmocka_unit_test(test_steps_share_parameters_when_recorded_twice),
        cmocka_unit_test(test_spec_takes_the_activations_of_the_one_list),
        cmocka_unit_test(test_activation_is_the_knobs_when_recorded),
        cmocka_unit_test(test_open_names_both_sides_when_data_and_knobs_do_not_fit),
        cmocka_unit_test(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
