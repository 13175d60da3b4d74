// The table of errors of GPUs. Each row is found, in order, with a meaning that fits where it is
// shown. What follows is of the right numbers, and of no others.

#include "lib/attempt/xids.h"

#include <string.h>

#include "tests/unit/test.h"

static const struct td_xid rows[] = {
#define TD_XID(number, effect, meaning) {number, TD_XID_##effect, meaning},
#include "lib/attempt/xids.def"
#undef TD_XID
};

static void test_each_row_is_found_and_says_what_it_means(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const struct td_xid x = td_xid_get(rows[i].number);
        assert_int_equal(x.number, rows[i].number);
        assert_int_equal(x.effect, rows[i].effect);
        assert_string_equal(x.meaning, rows[i].meaning);
        assert_true(strlen(x.meaning) > 8 && strlen(x.meaning) < 112); // messages have room for it
        assert_null(strchr(x.meaning, '|'));                           // docs have it in a table
        assert_true(i == 0 || rows[i - 1].number < rows[i].number);
    }
}

static void expect(enum td_xid_effect effect, const uint32_t *numbers, size_t n) {
    size_t has = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(td_xid_get(numbers[i]).effect, effect);
    }
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        has += rows[i].effect == effect;
    }
    assert_int_equal(has, n); // and no other one
}

static void test_effects_are_of_the_numbers_that_they_should_be(void **state) {
    (void)state;
    static const uint32_t user[] = {13, 31, 43, 45}, reset[] = {63, 94};
    static const uint32_t excludes[] = {48, 64, 74, 79, 95, 119, 120};
    expect(TD_XID_USER, user, TD_COUNTOF(user));
    expect(TD_XID_RESET, reset, TD_COUNTOF(reset));
    expect(TD_XID_EXCLUDES, excludes, TD_COUNTOF(excludes));
}

static void test_number_without_a_row_is_noted(void **state) {
    (void)state;
    const uint32_t strange[] = {0, 5, 99999, UINT32_MAX};
    for (size_t i = 0; i < TD_COUNTOF(strange); i++) {
        const struct td_xid x = td_xid_get(strange[i]);
        assert_int_equal(x.number, strange[i]);
        assert_int_equal(x.effect, TD_XID_NOTED);
        assert_non_null(strstr(x.meaning, "does not know"));
    }
}

static void test_each_effect_has_a_name_and_advice(void **state) {
    (void)state;
    for (int e = 0; e < TD_XID_EFFECT_COUNT; e++) {
        assert_true(td_xid_effect_name((enum td_xid_effect)e)[0]);
        assert_true(td_xid_advice((enum td_xid_effect)e)[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_is_found_and_says_what_it_means),
        cmocka_unit_test(test_effects_are_of_the_numbers_that_they_should_be),
        cmocka_unit_test(test_number_without_a_row_is_noted),
        cmocka_unit_test(test_each_effect_has_a_name_and_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
