// Names of checkpoints and of their files.

#include "tests/unit/test.h"

#include "lib/attempt/checkpoint_name.h"

static void test_name_is_read_as_it_was_made(void **state) {
    (void)state;
    const int64_t steps[] = {0, 7, 2340, 999999999};
    for (size_t i = 0; i < TD_COUNTOF(steps); i++) {
        uint32_t attempt;
        int64_t step;
        const struct td_checkpoint_name name = td_checkpoint_name_of(steps[i]);
        assert_int_equal(td_checkpoint_name_step(name.text, ""), steps[i]);
        assert_int_equal(td_checkpoint_name_step(name.text, TD_CHECKPOINT_HALF), -1);
        assert_true(
            td_checkpoint_path_parse(td_checkpoint_path_of(12, steps[i]).text, &attempt, &step));
        assert_int_equal(attempt, 12);
        assert_int_equal(step, steps[i]);
    }
    assert_string_equal(td_checkpoint_name_of(5).text, "step-5");
    assert_string_equal(td_checkpoint_path_of(UINT32_MAX, INT64_MIN).text,
                        "a4294967295/step--9223372036854775808");
    assert_int_equal(td_checkpoint_name_step("step-5.tmp", TD_CHECKPOINT_HALF), 5);
}

static void test_name_is_refused_when_it_is_of_something_else(void **state) {
    (void)state;
    const char *const names[] = {"",       "step",   "step-",      "step--5",         "step- 5",
                                 "step-+", "Step-5", "step-5.tmp", "step-1234567890", "xstep-5"};
    const char *const paths[] = {"",           "step-5",       "a/step-5",   "a1",
                                 "a1/",        "a1/step-5/",   "/a1/step-5", "a1/step-5.tmp",
                                 "a1//step-5", "a1/../step-5", "a-1/step-5", "a1234567890/step-5"};
    uint32_t attempt;
    int64_t step;
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        assert_int_equal(td_checkpoint_name_step(names[i], ""), -1);
    }
    for (size_t i = 0; i < TD_COUNTOF(paths); i++) {
        assert_false(td_checkpoint_path_parse(paths[i], &attempt, &step));
    }
    assert_false(td_checkpoint_path_ok(NULL));
}

static void test_file_is_refused_when_its_name_is_not_plain(void **state) {
    (void)state;
    assert_false(td_checkpoint_file_ok("../x"));
    assert_false(td_checkpoint_file_ok(".hidden"));
    assert_true(td_checkpoint_file_ok("model.safetensors"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_is_read_as_it_was_made),
        cmocka_unit_test(test_name_is_refused_when_it_is_of_something_else),
        cmocka_unit_test(test_file_is_refused_when_its_name_is_not_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
