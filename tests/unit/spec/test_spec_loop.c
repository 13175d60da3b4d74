// What knobs of the loop make of each other: periods of checkpoints, and runs for a try.

#include "tests/unit/spec/spec_rig.h"

// A small job with these keys besides, or with these data if they are a map.
static struct td_spec view(struct td_arena *a, const char *more) {
    struct td_json *tree;
    struct td_spec spec;
    const bool is_data = *more == '{';
    const char *data = is_data ? more : "{name: synthetic, batch_size: 8, shuffle: true}";
    const char *text = td_arena_printf(a,
                                       "model: {name: mlp, layers: [4, 2]}\n"
                                       "optimizer: {name: sgd}\n"
                                       "data: %s\n%s\n",
                                       data, is_data ? "" : more);
    assert_non_null(text);
    assert_ok(td_spec_parse(a, text, strlen(text), NULL, 0, &tree));
    td_spec_read(tree, &spec);
    return spec;
}

static void test_no_epoch_is_saved_when_checkpoints_go_by_time(void **state) {
    struct td_spec_checkpoint c =
        view(*state, "checkpoint: {train_time_interval: \"00:01:00:05\"}").checkpoint;
    assert_int_equal(c.train_time_interval_s, 3605);
    assert_int_equal(c.every_n_epochs, 0);
    assert_int_equal(c.every_n_train_steps, 0);
    c = view(*state, "").checkpoint;
    assert_int_equal(c.train_time_interval_s, 0);
    assert_int_equal(c.every_n_epochs, 1);
}

static void test_fast_run_says_what_limits_say_when_it_is_on(void **state) {
    static const char *const off[] = {"", "trainer: {fast_dev_run: false}",
                                      "trainer: {fast_dev_run: 0}"};
    for (size_t i = 0; i < TD_COUNTOF(off); i++) {
        const struct td_spec s = view(*state, off[i]);
        assert_int_equal(s.trainer.limits.max_epochs, 1000);
        assert_true(s.trainer.limits.train_batches.is_fraction);
        assert_int_equal(s.checkpoint.save_top_k, 1);
    }
    assert_int_equal(view(*state, "trainer: {fast_dev_run: true}").trainer.limits.max_steps, 1);
    const struct td_spec s = view(*state, "trainer: {fast_dev_run: 3, max_epochs: 9, "
                                          "limit_test_batches: 0, val_check_interval: 2}\n"
                                          "checkpoint: {monitor: val_loss, save_top_k: 4}\n"
                                          "early_stopping: {monitor: val_loss}\n"
                                          "evaluate_from: best");
    const struct td_limits *l = &s.trainer.limits;
    assert_int_equal(l->max_epochs, 1);
    assert_int_equal(l->max_steps, 3);
    assert_int_equal(l->sanity_batches, 0);
    assert_int_equal(l->train_batches.batches, 3);
    assert_int_equal(l->val_batches.batches, 3);
    assert_int_equal(l->test_batches.batches, 3);
    assert_int_equal(l->predict_batches.batches, 3);
    assert_true(l->val_check_interval.is_fraction && l->val_check_interval.fraction == 1);
    assert_int_equal(s.checkpoint.save_top_k, 0);
    assert_int_equal(s.checkpoint.every_n_epochs, 0);
    assert_string_equal(s.checkpoint.monitor, "");
    assert_string_equal(s.early_stopping.monitor, "");
    assert_string_equal(s.evaluate_from, "last");
    // The spec itself stays as it was written.
    assert_int_equal(td_json_int(td_json_path(s.tree, "trainer.max_epochs"), 0), 9);
    assert_string_equal(td_json_string(td_json_path(s.tree, "evaluate_from"), ""), "best");
}

static void test_overfitting_limits_both_splits_and_shuffles_nothing_when_it_is_on(void **state) {
    const struct td_spec off = view(*state, "trainer: {limit_val_batches: 4, overfit_batches: 0}");
    assert_int_equal(off.trainer.limits.val_batches.batches, 4);
    assert_true(off.loader.shuffle);
    struct td_spec s = view(*state, "trainer: {overfit_batches: 0.25, limit_train_batches: 4}");
    assert_true(s.trainer.limits.train_batches.fraction == 0.25);
    assert_true(s.trainer.limits.val_batches.fraction == 0.25);
    s = view(*state, "trainer: {fast_dev_run: 5, overfit_batches: 2}");
    assert_int_equal(s.trainer.limits.train_batches.batches, 2);
    assert_int_equal(s.trainer.limits.test_batches.batches, 5);
    assert_false(s.loader.shuffle);
}

static void test_part_is_kept_to_validate_on_with_every_dataset(void **state) {
    static const char *const datasets[] = {
        "{name: idx, path: /d, batch_size: 8",  "{name: tokens, train: [/d], batch_size: 8",
        "{name: text, path: /d, batch_size: 8", "{name: npy, x: /x, y: /y, batch_size: 8",
        "{name: synthetic, batch_size: 8",      "{name: plugin, dataset: own, batch_size: 8",
    };
    struct td_arena *a = *state;
    assert_int_equal(view(a, "").loader.val_split.batches, 0);
    assert_false(view(a, "").loader.val_split.is_fraction);
    for (size_t i = 0; i < TD_COUNTOF(datasets); i++) {
        struct td_spec s = view(a, td_arena_printf(a, "%s, val_split: 30}", datasets[i]));
        assert_int_equal(s.loader.val_split.batches, 30);
        s = view(a, td_arena_printf(a, "%s, val_split: 0.2}", datasets[i]));
        assert_true(s.loader.val_split.is_fraction && s.loader.val_split.fraction == 0.2);
        s = view(a, td_arena_printf(a, "%s, val_split: 0.0}", datasets[i]));
        assert_false(s.loader.val_split.is_fraction);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_no_epoch_is_saved_when_checkpoints_go_by_time),
        test_in_arena(test_fast_run_says_what_limits_say_when_it_is_on),
        test_in_arena(test_overfitting_limits_both_splits_and_shuffles_nothing_when_it_is_on),
        test_in_arena(test_part_is_kept_to_validate_on_with_every_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
