// The state machine of reduce_on_plateau, validation by validation against torch
// (tests/golden/plateau.json, made by tests/tools/make_golden.py). Also what torch has no
// word for: values that are infinite, states that come from another job.

#include "tests/unit/test.h"
#include "tests/unit/train/loop/golden.h"

#include <math.h>

#include "engine/train/config/plateau.h"

#define GOLDEN "tests/golden/plateau.json"

static struct td_plateau_config config_of(const struct td_json *k) {
    return (struct td_plateau_config){
        .monitor = "val_loss",
        .larger_is_better = strcmp(td_json_string(td_json_get(k, "mode"), "min"), "max") == 0,
        .factor = td_json_real(td_json_get(k, "factor"), 0.1),
        .patience = td_json_int(td_json_get(k, "patience"), 10),
        .threshold = td_json_real(td_json_get(k, "threshold"), 1e-4),
        .threshold_is_absolute =
            strcmp(td_json_string(td_json_get(k, "threshold_mode"), "rel"), "abs") == 0,
        .cooldown = td_json_int(td_json_get(k, "cooldown"), 0),
        .min_lr = td_json_real(td_json_get(k, "min_lr"), 0),
        .eps = td_json_real(td_json_get(k, "eps"), 1e-8),
    };
}

// Returns how often the rate fell.
static int follow(const struct td_json *c, double base_lr, int row) {
    struct td_plateau_config config = config_of(td_json_get(c, "plateau"));
    struct td_plateau p = {0};
    const struct td_json *value = td_json_get(c, "values")->first;
    int falls = 0;
    td_plateau_begin(&p, &config);
    for (const struct td_json *a = td_json_get(c, "after")->first; a; a = a->next) {
        double before = p.lr_scale, expected = td_json_real(a->first, -1);
        bool fell = td_plateau_receive(&p, &config, base_lr, td_json_real(value, (double)NAN));
        double lr = base_lr * p.lr_scale;
        if (!(fabs(lr - expected) <= 1e-13 * expected) || fell != (p.lr_scale < before)) {
            fail_msg("case %d: rate %.17g, torch %.17g", row, lr, expected);
        }
        assert_int_equal(p.bad, td_json_int(a->first->next, -1));
        assert_int_equal(p.cooldown, td_json_int(a->last, -1));
        value = value->next;
        falls += fell;
    }
    assert_null(value);
    return falls;
}

static void test_plateau_follows_torch_when_golden(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    const struct td_json *root = td_golden_read(GOLDEN, &a);
    double lr = td_json_real(td_json_get(root, "lr"), 0);
    int rows = 0, falls = 0;
    for (const struct td_json *c = td_json_get(root, "cases")->first; c; c = c->next) {
        falls += follow(c, lr, rows++);
    }
    assert_int_equal(rows, 36);
    assert_true(falls > rows);
}

static const struct td_plateau_config quick = {
    .monitor = "val_loss",
    .factor = 0.5,
    .eps = 1e-8,
};

static void test_infinite_value_is_bad_when_nothing_was_reported(void **state) {
    (void)state;
    const double values[] = {INFINITY, -INFINITY, (double)NAN};
    for (size_t i = 0; i < TD_COUNTOF(values); i++) {
        struct td_plateau p = {0};
        td_plateau_begin(&p, &quick);
        assert_true(td_plateau_receive(&p, &quick, 1.0, values[i]));
        assert_false(p.has_best);
        assert_false(td_plateau_receive(&p, &quick, 1.0, 3.0)); // the first to be compared with
        assert_true(p.has_best && p.best == 3.0 && p.lr_scale == 0.5);
    }
}

static void test_rate_stays_when_it_is_zero(void **state) {
    (void)state;
    struct td_plateau p = {0};
    td_plateau_begin(&p, &quick);
    for (int i = 0; i < 3; i++) {
        assert_false(td_plateau_receive(&p, &quick, 0.0, 1.0));
    }
    assert_true(p.lr_scale == 1);
}

static void test_state_goes_on_when_the_job_listens_to_the_same_metric(void **state) {
    (void)state;
    struct td_plateau p = {.monitor = "val_loss", .best = 2, .lr_scale = 0.25, .has_best = true};
    p.bad = 3;
    td_plateau_begin(&p, &quick);
    assert_true(p.best == 2 && p.has_best && p.lr_scale == 0.25 && p.bad == 3);
}

static void test_state_keeps_only_its_scale_when_the_job_listens_to_another_metric(void **state) {
    (void)state;
    struct td_plateau p = {.monitor = "val_accuracy", .best = 0.9, .has_best = true};
    p.lr_scale = 0.25;
    p.bad = 3;
    p.cooldown = 2;
    td_plateau_begin(&p, &quick);
    assert_string_equal(p.monitor, "val_loss");
    assert_true(!p.has_best && p.lr_scale == 0.25 && p.bad == 0 && p.cooldown == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plateau_follows_torch_when_golden),
        cmocka_unit_test(test_infinite_value_is_bad_when_nothing_was_reported),
        cmocka_unit_test(test_rate_stays_when_it_is_zero),
        cmocka_unit_test(test_state_goes_on_when_the_job_listens_to_the_same_metric),
        cmocka_unit_test(test_state_keeps_only_its_scale_when_the_job_listens_to_another_metric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
