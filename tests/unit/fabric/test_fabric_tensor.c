// What a program reads of its model: weights and gradients as fp32, whatever a precision stores
// them as. A wrong name, size or order changes nothing.

#include <math.h>
#include <string.h>

#include "tests/unit/fabric/fabric_rig.h"

enum { WEIGHTS = 8 * 16 };

static void expect_refused(td_status s, enum td_code code, const char *text) {
    assert_int_equal(td_status_code(s), code);
    if (!strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
}

static void step(struct td_fabric *f) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_backward(f));
}

static void test_tensor_is_fp32_whatever_it_is_stored_as(void **state) {
    static const struct {
        const char *precision;
        double tolerance;
    } rows[] = {{"32-true", 0},      {"64-true", 1e-6}, {"bf16-mixed", 0},
                {"bf16-true", 4e-3}, {"16-mixed", 0},   {"16-true", 1e-3}};
    float first[WEIGHTS];
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        float w[WEIGHTS], g[WEIGHTS];
        double size = 0;
        struct td_fabric *f = set_up(rows[i].precision);
        assert_ok(td_fabric_tensor(f, "fc1.weight", w, WEIGHTS));
        if (i == 0) memcpy(first, w, sizeof w);
        step(f);
        assert_ok(td_fabric_tensor(f, "fc1.weight:grad", g, WEIGHTS));
        for (int k = 0; k < WEIGHTS; k++) {
            size += fabs((double)g[k]);
            if (fabs((double)(w[k] - first[k])) <= rows[i].tolerance) continue;
            fail_msg("%s: %g, not %g", rows[i].precision, (double)w[k], (double)first[k]);
        }
        assert_true(size > 0 && isfinite(size));
        assert_ok(td_fabric_optimizer_step(f, NULL, NULL));
        assert_ok(td_fabric_tensor(f, "fc1.weight", g, WEIGHTS));
        assert_memory_not_equal(g, w, sizeof w);
        assert_ok(td_fabric_finish(f, TD_OK));
        td_fabric_destroy(f);
    }
}

static void test_wrong_name_or_size_changes_nothing(void **state) {
    float w[WEIGHTS];
    (void)state;
    struct td_fabric *f = set_up("32-true");
    expect_refused(td_fabric_result(f, "rows", w, 8), TD_FAILED_PRECONDITION,
                   "result 'rows' before any forward");
    step(f);
    expect_refused(td_fabric_tensor(f, "fc9.weight", w, WEIGHTS), TD_NOT_FOUND,
                   "model 'mlp' has no tensor 'fc9.weight'");
    expect_refused(td_fabric_tensor(f, "fc1.weight", w, 7), TD_INVALID_ARGUMENT,
                   "tensor 'fc1.weight' has 128 elements, not 7");
    expect_refused(td_fabric_result(f, "rows", w, 8), TD_NOT_FOUND,
                   "model 'mlp' has no tensor 'rows:8'");
    assert_ok(td_fabric_optimizer_step(f, NULL, NULL));
    assert_ok(td_fabric_finish(f, TD_OK));
    td_fabric_destroy(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_is_fp32_whatever_it_is_stored_as),
        cmocka_unit_test(test_wrong_name_or_size_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
