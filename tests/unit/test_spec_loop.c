// What knobs of the loop make of each other: periods of checkpoints.

#include "tests/unit/test.h"

#include "lib/spec/spec.h"

static int make_arena(void **state) {
    struct td_arena *a;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    *state = a;
    return 0;
}

static int drop_arena(void **state) {
    td_arena_destroy(*state);
    return 0;
}

// A small job with these keys besides.
static struct td_spec view(struct td_arena *a, const char *keys) {
    struct td_json *tree;
    struct td_spec spec;
    const char *text = td_arena_printf(a,
                                       "model: {name: mlp, layers: [4, 2]}\n"
                                       "optimizer: {name: sgd}\n"
                                       "data: {name: synthetic, batch_size: 8}\n%s\n",
                                       keys);
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

#define test_in_arena(f) cmocka_unit_test_setup_teardown(f, make_arena, drop_arena)
int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_no_epoch_is_saved_when_checkpoints_go_by_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
