// Optimizers and schedules as the worker reads them out of a plan: the defaults are those of the
// rows, and every row of every kind is read.

#include "tests/unit/test.h"

#include "fabric/configure/method.h"
#include "lib/spec/knobs.h"
#include "lib/spec/plan.h"

static struct td_arena *arena;

static int begin(void **state) {
    (void)state;
    td_status s = td_arena_create(4 * TD_SPEC_ARENA_BYTES, &arena);
    td_status_free(s);
    return s ? -1 : 0;
}

static int end(void **state) {
    (void)state;
    td_arena_destroy(arena);
    return 0;
}

static const char *required_value(const struct td_knob *k) {
    switch ((int)k->type) {
    case TD_KNOB_INT:
        return "1";
    case TD_KNOB_REAL:
        return "0.5";
    case TD_KNOB_INTS:
        return "[3, 5]";
    }
    fail_msg("%s.%s: the test has no value for it", k->section, k->key);
    return "";
}

// A plan with this kind of a section, and only what its rows demand.
static struct td_spec plan_of(const char *section, const char *name) {
    static const char fixed[] =
        "{\"format\":1,\"model\":{\"name\":\"mlp\",\"layers\":[4,2]},\"data\":{\"name\":"
        "\"synthetic\",\"batch_size\":4}";
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    bool optimizes = strcmp(section, "optimizer") == 0;
    assert_ok(td_buf_str(&text, fixed));
    if (!optimizes) assert_ok(td_buf_str(&text, ",\"optimizer\":{\"name\":\"sgd\"}"));
    assert_ok(td_buf_printf(&text, ",\"%s\":{\"name\":\"%s\"", section, name));
    const char *path = td_arena_printf(arena, "%s.%s", section, name);
    const struct td_knob *last, *k = td_section_knobs(td_section_find(path), &last);
    for (; k < last; k++) {
        if (!k->fallback) assert_ok(td_buf_printf(&text, ",\"%s\":%s", k->key, required_value(k)));
    }
    assert_ok(td_buf_str(&text, "}}"));
    struct td_plan plan;
    assert_ok(td_plan_parse(arena, text.data, text.len, &plan));
    return plan.spec;
}

static struct td_optimizer_config optimizer_of(const char *name) {
    struct td_spec spec = plan_of("optimizer", name);
    struct td_optimizer_config o;
    assert_ok(td_method_optimizer(&spec, arena, &o));
    return o;
}

static struct td_schedule_config schedule_of(const char *name) {
    struct td_spec spec = plan_of("lr_scheduler", name);
    struct td_schedule_config s;
    assert_ok(td_method_schedule(&spec, &s));
    return s;
}

static void test_optimizer_has_the_defaults_of_its_rows(void **state) {
    (void)state;
    struct td_optimizer_config o = optimizer_of("sgd");
    assert_int_equal(o.kind, TD_OPTIMIZER_SGD);
    assert_true(o.lr == 0.001 && o.attrs.momentum == 0 && !o.attrs.nesterov);
    o = optimizer_of("adamw");
    assert_int_equal(o.kind, TD_OPTIMIZER_ADAMW);
    assert_true(o.attrs.beta1 == 0.9 && o.attrs.beta2 == 0.999);
    assert_true(o.attrs.eps == 1e-8 && o.attrs.weight_decay == 0.01);
    o = optimizer_of("lion");
    assert_int_equal(o.kind, TD_OPTIMIZER_LION);
    assert_true(o.lr == 1e-4 && o.attrs.beta1 == 0.9 && o.attrs.beta2 == 0.99);
    o = optimizer_of("adafactor");
    assert_int_equal(o.kind, TD_OPTIMIZER_ADAFACTOR);
    assert_true(o.lr == 0.01 && o.attrs.beta2_decay == -0.8 && o.attrs.eps == 0);
    assert_true(o.attrs.eps2 == 0.001 && o.attrs.threshold == 1);
    assert_false(o.attrs.fixed_step || o.attrs.unscaled);
    o = optimizer_of("muon");
    assert_int_equal(o.kind, TD_OPTIMIZER_MUON);
    assert_true(o.attrs.momentum == 0.95 && o.attrs.nesterov && o.attrs.weight_decay == 0.1);
    assert_int_equal(o.muon.ns_steps, 5);
    assert_true(o.muon.ns_coefficients[0] == 3.4445 && o.muon.ns_coefficients[2] == 2.0315);
    assert_true(o.muon.adamw_lr == o.lr && o.muon.adamw.weight_decay == 0.01);
}

static void test_schedule_has_the_defaults_of_its_rows(void **state) {
    (void)state;
    struct td_schedule_config s = schedule_of("linear");
    assert_int_equal(s.kind, TD_SCHEDULE_LINEAR);
    assert_true(s.start_factor == 0.3333333333333333 && s.end_factor == 1 && s.total_steps == 5);
    s = schedule_of("cosine");
    assert_int_equal(s.total_steps, 0); // auto: the run's last step
    s = schedule_of("step");
    assert_true(s.period_steps == 1 && s.gamma == 0.1);
    s = schedule_of("multistep");
    assert_true(s.n_milestones == 2 && s.milestone[0] == 3 && s.milestone[1] == 5);
    s = schedule_of("inverse_sqrt");
    assert_true(s.warmup_steps == 1 && s.timescale == 1); // auto: the warm-up
    s = schedule_of("one_cycle");
    assert_true(s.pct_start == 0.3 && s.div_factor == 25 && s.final_div_factor == 1e4);
    assert_int_equal(s.decay_curve, TD_CURVE_COSINE);
    s = schedule_of("warmup_stable_decay");
    assert_int_equal(s.warmup_curve, TD_CURVE_LINEAR);
    assert_int_equal(s.decay_curve, TD_CURVE_COSINE);
    s = schedule_of("reduce_on_plateau");
    assert_string_equal(s.plateau.monitor, "val_loss");
    assert_true(s.plateau.factor == 0.1 && s.plateau.patience == 10 && s.plateau.eps == 1e-8);
    assert_false(s.plateau.larger_is_better || s.plateau.threshold_is_absolute);
}

// The part that the rows describe, without one of its knobs.
static const struct td_json *without(const struct td_json *section, const char *key) {
    struct td_json *copy = td_json_copy(arena, section);
    struct td_json *v = td_json_get(copy, key);
    assert_non_null(v);
    v->key = "another";
    return copy;
}

static td_status read_part(const char *choice, const struct td_spec *spec) {
    struct td_optimizer_config optimizer;
    struct td_schedule_config schedule;
    return strcmp(choice, "optimizer") == 0 ? td_method_optimizer(spec, arena, &optimizer)
                                            : td_method_schedule(spec, &schedule);
}

static void test_every_row_is_read_and_named_when_it_is_missing(void **state) {
    (void)state;
    static const char *const choices[] = {"optimizer", "lr_scheduler"};
    int rows = 0;
    for (size_t i = 0; i < td_n_sections * TD_COUNTOF(choices); i++) {
        const char *choice = choices[i % 2], *name;
        const struct td_section *section = &td_sections[i / 2];
        name = section->kind == TD_SECTION_VARIANT ? td_section_variant_of(section, choice) : NULL;
        if (!name) continue;
        const struct td_knob *last, *k = td_section_knobs(section, &last);
        for (; k < last; k++, rows++) {
            char words[128];
            struct td_spec spec = plan_of(choice, name);
            struct td_spec_part *part = i % 2 ? &spec.lr_scheduler : &spec.optimizer;
            part->knobs = without(part->knobs, k->key);
            snprintf(words, sizeof words, "%s.%s is missing", choice, k->key);
            assert_fails(read_part(choice, &spec), TD_INTERNAL, words);
        }
    }
    assert_true(rows > 60);
}

static void test_groups_are_those_of_the_plan(void **state) {
    (void)state;
    static const char text[] =
        "{\"format\":1,\"model\":{\"name\":\"mlp\",\"layers\":[4,2]},\"data\":{\"name\":"
        "\"synthetic\",\"batch_size\":4},\"trainer\":{\"gradient_clip_val\":2,"
        "\"gradient_clip_algorithm\":\"value\"},\"optimizer\":{\"name\":\"sgd\",\"groups\":["
        "{\"match\":\"*.bias\",\"weight_decay\":0},{\"match\":\"fc1.*\",\"lr_scale\":0.5}]}}";
    struct td_plan plan;
    struct td_optimizer_config o;
    assert_ok(td_plan_parse(arena, text, sizeof text - 1, &plan));
    assert_ok(td_method_optimizer(&plan.spec, arena, &o));
    assert_int_equal(o.n_groups, 2);
    assert_string_equal(o.groups[0].match, "*.bias");
    assert_true(o.groups[0].has_weight_decay && o.groups[0].lr_scale == 1);
    assert_true(!o.groups[1].has_weight_decay && o.groups[1].lr_scale == 0.5);
    assert_true(o.max_norm == 0 && o.max_value == 2);
}

static void test_several_optimizers_are_read_out_of_the_plan_that_a_plan_gives(void **state) {
    (void)state;
    static const char text[] =
        "{'format':1,'model':{'name':'mlp','layers':[4,2]},'data':{'name':"
        "'synthetic','batch_size':4},'trainer':{'gradient_clip_val':2.0},'optimizers':["
        "{'name':'d','match':'a|b','optimizer':{'name':'adam','lr':0.5,'groups':"
        "[{'match':'a','lr_scale':0}]}},"
        "{'name':'g','match':'c','optimizer':'sgd','lr_scheduler':{'name':'step','step_size':3}}]}";
    char json[sizeof text];
    for (size_t i = 0; i < sizeof text; i++) {
        json[i] = text[i] == '\'' ? '"' : text[i];
    }
    TD_AUTO_BUF again;
    td_buf_init(&again, 1 << 16);
    struct td_plan plan;
    assert_ok(td_plan_parse(arena, json, sizeof json - 1, &plan));
    assert_ok(td_json_print(plan.tree, false, &again)); // with the optimizer that does nothing
    assert_non_null(strstr(td_buf_cstr(&again), "\"optimizer\":{\"name\":\"sgd\""));
    assert_ok(td_plan_parse(arena, again.data, again.len, &plan));
    const struct td_named_optimizer *o;
    int n;
    assert_ok(td_method_optimizers(&plan.spec, arena, &o, &n));
    assert_int_equal(n, 2);
    assert_true(!strcmp(o[0].name, "d") && !strcmp(o[0].match, "a|b"));
    assert_true(o[0].optimizer.kind == TD_OPTIMIZER_ADAM && o[0].optimizer.lr == 0.5);
    assert_true(o[0].optimizer.n_groups == 1 && o[0].optimizer.max_norm == 2);
    assert_int_equal(o[0].schedule.kind, TD_SCHEDULE_CONSTANT);
    assert_true(o[1].optimizer.kind == TD_OPTIMIZER_SGD && o[1].optimizer.lr == 0.001);
    assert_true(o[1].schedule.kind == TD_SCHEDULE_STEP && o[1].schedule.gamma == 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_optimizer_has_the_defaults_of_its_rows, begin, end),
        cmocka_unit_test_setup_teardown(test_schedule_has_the_defaults_of_its_rows, begin, end),
        cmocka_unit_test_setup_teardown(test_every_row_is_read_and_named_when_it_is_missing, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_groups_are_those_of_the_plan, begin, end),
        cmocka_unit_test_setup_teardown(
            test_several_optimizers_are_read_out_of_the_plan_that_a_plan_gives, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
