// Which update each parameter gets: groups by name, marks of modules, and what is refused.

#include "tests/unit/test.h"

#include "engine/train/rank/programs/optimizer.h"
#include "traind/op.h"

static struct td_state_table *gpt_like(void) {
    static const struct {
        const char *name;
        unsigned marks;
        struct td_shape shape;
    } rows[] = {
        {"wte.weight", TD_PARAM_NOT_HIDDEN, {2, {9, 4}}},
        {"h.0.ln_1.weight", TD_PARAM_NO_DECAY, {1, {4}}},
        {"h.0.c_fc.weight", 0, {2, {4, 16}}},
        {"h.0.c_fc.bias", TD_PARAM_NO_DECAY, {1, {16}}},
    };
    struct td_state_table *t;
    struct td_graph *g;
    assert_ok(td_state_table_create(&t));
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, t, &g));
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        td_value v;
        struct td_init zero = {0};
        assert_ok(td_graph_param(g, rows[i].name, TD_F32, &rows[i].shape, zero, &v));
        assert_ok(td_graph_mark(g, v, rows[i].marks));
    }
    td_graph_destroy(g);
    return t;
}

static struct td_optim_choice choice_as(bool in_out, const struct td_optimizer_config *c,
                                        const struct td_state_table *t, const char *name) {
    struct td_optimizer_options o;
    uint32_t index;
    td_optimizer_options(c, &o);
    struct td_optim_choice choice = {.op = o.op, .attrs = o.attrs, .in_out = in_out};
    assert_ok(td_state_find(t, name, &index));
    o.choose(o.choose_arg, td_state_at(t, index), &choice);
    return choice;
}

static struct td_optim_choice choice_of(const struct td_optimizer_config *c,
                                        const struct td_state_table *t, const char *name) {
    return choice_as(false, c, t, name);
}

static struct td_optimizer_config adamw(const struct td_optimizer_group *groups, size_t n) {
    return (struct td_optimizer_config){.kind = TD_OPTIMIZER_ADAMW,
                                        .attrs = {.weight_decay = 0.5},
                                        .groups = groups,
                                        .n_groups = n};
}

static void test_decay_spares_what_the_module_marks_when_no_group_names_it(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    struct td_optimizer_config c = adamw(NULL, 0);
    assert_true(choice_of(&c, t, "wte.weight").attrs.weight_decay == 0.5f);
    assert_true(choice_of(&c, t, "h.0.c_fc.weight").attrs.weight_decay == 0.5f);
    assert_true(choice_of(&c, t, "h.0.c_fc.bias").attrs.weight_decay == 0);
    assert_true(choice_of(&c, t, "h.0.ln_1.weight").attrs.weight_decay == 0);
    const struct td_optimizer_group all[] = {{"*", 1, true, 0.5}};
    c = adamw(all, 1);
    assert_true(choice_of(&c, t, "h.0.c_fc.bias").attrs.weight_decay == 0.5f);
    td_state_table_destroy(t);
}

static void test_first_group_that_matches_decides_when_several_do(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    const struct td_optimizer_group groups[] = {
        {"*.bias|*.ln_?.*", 2, true, 0.125}, {"h.*", 0.5, false, 0}, {"wte.*", 0, false, 0}};
    struct td_optimizer_config c = adamw(groups, 3);
    assert_ok(td_optimizer_check(&c, t));
    struct td_optim_choice bias = choice_of(&c, t, "h.0.c_fc.bias");
    assert_true(bias.attrs.lr_scale == 2 && bias.attrs.weight_decay == 0.125f && !bias.frozen);
    assert_true(choice_of(&c, t, "h.0.ln_1.weight").attrs.lr_scale == 2);
    struct td_optim_choice weight = choice_of(&c, t, "h.0.c_fc.weight");
    assert_true(weight.attrs.lr_scale == 0.5f && weight.attrs.weight_decay == 0.5f);
    assert_true(choice_of(&c, t, "wte.weight").frozen);
    td_state_table_destroy(t);
}

static void test_pattern_is_refused_when_it_names_no_parameter(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    const struct td_optimizer_group typo[] = {{"h.*", 1, false, 0}, {"wte.*|ln_*", 1, false, 0}};
    struct td_optimizer_config c = adamw(typo, 2);
    assert_fails(td_optimizer_check(&c, t), TD_INVALID_ARGUMENT,
                 "optimizer.groups[1].match: 'ln_*' is the name of no parameter; the model has "
                 "wte.weight, h.0.ln_1.weight, h.0.c_fc.weight, h.0.c_fc.bias");
    const struct td_optimizer_group late[] = {{"h.*", 1, false, 0}, {"*.bias", 1, false, 0}};
    c = adamw(late, 2);
    assert_fails(td_optimizer_check(&c, t), TD_INVALID_ARGUMENT,
                 "optimizer.groups[1]: all that '*.bias' names belongs to earlier groups");
    td_state_table_destroy(t);
}

// Cut, it would end in the star and match everything.
static void test_pattern_is_refused_when_it_is_too_long_to_be_whole(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    char pattern[302] = "wte.*|";
    memset(pattern + 6, '*', 289);
    snprintf(pattern + 295, 7, ".bias");
    const struct td_optimizer_group groups[] = {{pattern, 1, false, 0}};
    struct td_optimizer_config c = adamw(groups, 1);
    assert_fails(td_optimizer_check(&c, t), TD_INVALID_ARGUMENT,
                 "optimizer.groups[0].match: a pattern of 294 bytes; 255 are the most");
    td_state_table_destroy(t);
}

static void test_names_are_counted_when_there_are_too_many_to_show(void **state) {
    (void)state;
    struct td_state_table *t;
    assert_ok(td_state_table_create(&t));
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer_%02d.weight", i);
        struct td_shape shape = {1, {1}};
        struct td_init zero = {0};
        assert_ok(td_state_add(t, name, TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &(uint32_t){0}));
    }
    const struct td_optimizer_group none[] = {{"x", 1, false, 0}};
    struct td_optimizer_config c = adamw(none, 1);
    assert_fails(td_optimizer_check(&c, t), TD_INVALID_ARGUMENT, "layer_14.weight and 85 more");
    td_state_table_destroy(t);
}

static void test_muon_takes_hidden_matrices_and_leaves_the_rest_to_adamw(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    const struct td_optimizer_group groups[] = {{"h.0.c_fc.*", 0.5, false, 0}};
    struct td_optimizer_config c = {.kind = TD_OPTIMIZER_MUON,
                                    .lr = 0.5,
                                    .attrs = {.weight_decay = 0.25, .momentum = 0.9},
                                    .muon = {.ns_steps = 7,
                                             .ns_coefficients = {3, 2, 1},
                                             .adamw_lr = 0.125,
                                             .adamw = {.beta1 = 0.5, .weight_decay = 0.75}},
                                    .groups = groups,
                                    .n_groups = 1};
    struct td_optim_choice hidden = choice_of(&c, t, "h.0.c_fc.weight"); // (4,16)
    assert_true(hidden.op == TD_OP_MUON && hidden.ns_steps == 7 && hidden.ns_coefficients[0] == 3);
    assert_true(hidden.attrs.update_scale == 1 && hidden.attrs.weight_decay == 0.25f);
    assert_true(hidden.attrs.lr_scale == 0.5f);
    struct td_optim_choice table = choice_of(&c, t, "wte.weight");
    assert_true(table.op == TD_OP_ADAMW && table.attrs.beta1 == 0.5f);
    assert_true(table.attrs.lr_scale == 0.25f && table.attrs.weight_decay == 0.75f);
    struct td_optim_choice bias =
        choice_of(&c, t, "h.0.c_fc.bias"); // its group's share of its rate
    assert_true(bias.op == TD_OP_ADAMW && bias.attrs.lr_scale == 0.125f);
    assert_true(bias.attrs.weight_decay == 0);
    assert_true(choice_as(true, &c, t, "h.0.c_fc.weight").attrs.update_scale == 2);
    c.muon.scale = TD_MUON_MATCH_RMS_ADAMW;
    hidden = choice_of(&c, t, "h.0.c_fc.weight");
    assert_true(hidden.attrs.update_scale == 0.2 * 4);
    c.muon.scale = TD_MUON_SPECTRAL_UNCLAMPED;
    hidden = choice_of(&c, t, "h.0.c_fc.weight");
    assert_true(hidden.attrs.update_scale == 0.5f);
    td_state_table_destroy(t);
}

static void test_muon_lets_the_rest_alone_when_its_rate_is_0(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    double scalars[TD_SCALAR_COUNT] = {[TD_SCALAR_LR] = 0.5};
    struct td_optimizer_config c = {.kind = TD_OPTIMIZER_MUON, .lr = 0.5};
    struct td_optim_choice table = choice_of(&c, t, "wte.weight");
    assert_true((float)td_optim_lr(&table.attrs, scalars) == 0);
    c = (struct td_optimizer_config){.kind = TD_OPTIMIZER_MUON, .muon = {.adamw_lr = 0.5}};
    assert_fails(td_optimizer_check(&c, t), TD_INVALID_ARGUMENT,
                 "share of optimizer.lr, which is 0");
    td_state_table_destroy(t);
}

static void test_only_parameters_are_marked(void **state) {
    (void)state;
    struct td_state_table *t = gpt_like();
    struct td_graph *g;
    td_value x;
    struct td_shape shape = {1, {2}};
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, t, &g));
    assert_ok(td_graph_input(g, "x", TD_F32, &shape, &x));
    assert_fails(td_graph_mark(g, x, TD_PARAM_NO_DECAY), TD_INVALID_ARGUMENT, "only a parameter");
    td_graph_destroy(g);
    td_state_table_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decay_spares_what_the_module_marks_when_no_group_names_it),
        cmocka_unit_test(test_first_group_that_matches_decides_when_several_do),
        cmocka_unit_test(test_pattern_is_refused_when_it_names_no_parameter),
        cmocka_unit_test(test_pattern_is_refused_when_it_is_too_long_to_be_whole),
        cmocka_unit_test(test_names_are_counted_when_there_are_too_many_to_show),
        cmocka_unit_test(test_muon_takes_hidden_matrices_and_leaves_the_rest_to_adamw),
        cmocka_unit_test(test_muon_lets_the_rest_alone_when_its_rate_is_0),
        cmocka_unit_test(test_only_parameters_are_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
