// What host code of a module reads between its calls: results of a step, weights, gradients and
// optimizer state, as they are after what was called. A name or size that is wrong changes nothing.

#include "tests/unit/test.h"

#include "tests/unit/train/rank/pair_rig.h"
#include "traind/steps.h"

enum { ROW = 8, ROWS_MAX = 64 };

static struct td_module_ops looking_ops;
static const struct td_plugin_desc looking =
    TD_PLUGIN_DESC(MODULE, "looking", "pair, with host code that looks", &looking_ops);
static int looks;

// The inputs, as a result: (B, 8).
static td_status looking_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    TD_TRY(pair_record(m, g, batch));
    if (td_graph_mode(g) != TD_MODE_TRAIN) return TD_OK;
    return td_graph_result(g, "inputs", td_graph_input_at(g, 0));
}

static void expect_refused(td_status s, enum td_code code, const char *text) {
    assert_int_equal(td_status_code(s), code);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    if (!strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
}

static td_status expect_row(struct td_steps *s, const char *name, float value) {
    float row[ROW];
    TD_TRY(td_steps_tensor(s, name, row, ROW));
    for (int i = 0; i < ROW; i++) {
        if (row[i] != value) fail_msg("%s is %g, not %g", name, (double)row[i], (double)value);
    }
    return TD_OK;
}

// Step "first": the mean of a^2 over 8 elements, whose gradient is a / 4.
static td_status looking_step(struct td_module *m, struct td_steps *s, int64_t batch) {
    float rows[ROWS_MAX * ROW], row[ROW];
    const int64_t n = td_steps_n_samples(s);
    (void)m;
    if (batch == 0 && td_steps_global_step(s) == 0) {
        expect_refused(td_steps_result(s, "inputs", rows, n * ROW), TD_FAILED_PRECONDITION,
                       "result 'inputs' before any forward");
        TD_TRY(expect_row(s, "a", 1));
        TD_TRY(expect_row(s, "b", 4));
    }
    TD_TRY(td_steps_tensor(s, "a", row, ROW));
    const float a = row[0];
    TD_TRY(td_steps_forward(s, "first"));
    TD_TRY(td_steps_result(s, "inputs", rows, n * ROW));
    for (int64_t i = 0; i < n * ROW; i++) {
        looks += rows[i] != 0;
    }
    expect_refused(td_steps_result(s, "inputs", rows, n * ROW - 1), TD_INVALID_ARGUMENT,
                   "elements, not");
    expect_refused(td_steps_result(s, "output", rows, n * ROW), TD_NOT_FOUND,
                   "model 'looking' has no tensor 'output:");
    TD_TRY(td_steps_backward(s));
    TD_TRY(expect_row(s, "a:grad", a / 4));
    TD_TRY(expect_row(s, "a", a));
    TD_TRY(td_steps_optimizer_step(s, "first", NULL));
    return expect_row(s, "a", a - 0.25f * (a / 4));
}

static void use_looking(struct run *r, const char *dir) {
    use_pair(r, dir);
    r->config.model = (struct td_part){"looking", NULL};
    r->config.optimizer.kind = TD_OPTIMIZER_SGD;
    r->config.optimizer.attrs = (struct td_optim_attrs){0};
    r->config.optimizer.lr = 0.25;
    r->config.limits.max_steps = 2;
}

static void test_host_code_sees_results_weights_and_gradients(void **state) {
    static const struct {
        const char *accelerator, *precision;
    } rows[] = {{"reference", "32-true"}, {"far", "32-true"}};
    (void)state;
    name_steps();
    looking_ops = pair_ops;
    looking_ops.record = looking_record;
    looking_ops.training_step = looking_step;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const struct job j = {.accelerator = rows[i].accelerator,
                              .strategy = "single_device",
                              .precision = rows[i].precision,
                              .world = 1,
                              .accumulate = 1,
                              .max_epochs = 1,
                              .own = &looking,
                              .change = use_looking};
        looks = 0;
        assert_int_equal(run_job(&j, NULL).step, 2);
        assert_true(looks > 0); // samples are no zeros
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_code_sees_results_weights_and_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
