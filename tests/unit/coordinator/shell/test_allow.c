// What a node allows, and where it takes ports from.

#include "daemon/allow.h"
#include "tests/unit/test.h"

static unsigned parsed(const char *text, bool is_loopback) {
    unsigned bits = 99;
    assert_null(td_allow_parse(text, is_loopback, &bits));
    return bits;
}

static void test_all_is_allowed_when_only_this_machine_can_ask(void **state) {
    (void)state;
    assert_int_equal(parsed("auto", true), 7);
    assert_int_equal(parsed("auto", false), 0);
    assert_int_equal(parsed("all", false), 7);
    assert_int_equal(parsed("none", true), 0);
    assert_int_equal(parsed("commands", false), TD_ALLOW_COMMANDS);
    assert_int_equal(parsed("plugins,commands", false), TD_ALLOW_PLUGINS | TD_ALLOW_COMMANDS);
    assert_true(td_allow_is_loopback("127.0.0.1:0") && td_allow_is_loopback("localhost:80"));
    assert_true(td_allow_is_loopback("[::1]:80"));
    assert_false(td_allow_is_loopback("10.0.0.1:80") || td_allow_is_loopback("0.0.0.0:1"));
}

static void test_allow_is_refused_when_a_name_is_unknown(void **state) {
    (void)state;
    static const char *const wrong[] = {"", "command", "plugins,", ",plugins", "all,plugins"};
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        unsigned bits = 99;
        td_status s = td_allow_parse(wrong[i], true, &bits);
        assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
        assert_int_equal(bits, 99);
        td_status_free(s);
    }
}

static void test_ports_are_outside_of_the_range_that_the_kernel_takes(void **state) {
    (void)state;
    static const struct {
        int taken[2], want[2];
    } cases[] = {
        {{32768, 60999}, {20000, 29999}}, // Linux's own
        {{1024, 65535}, {20000, 29999}},  // nothing is free
        {{15000, 61000}, {5000, 14999}},  // below
        {{1024, 40000}, {40001, 50000}},  // above
        {{5000, 65535}, {1024, 4999}},    // few
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_ports p = td_allow_ports_beside(cases[i].taken[0], cases[i].taken[1]);
        assert_int_equal(p.first, cases[i].want[0]);
        assert_int_equal(p.last, cases[i].want[1]);
    }
}

static void test_ports_are_refused_when_they_are_no_range(void **state) {
    (void)state;
    static const char *const wrong[] = {"",    "1-2",         "30000",      "30000-",
                                        "3-x", "30000-20000", "60000-70000"};
    struct td_ports p = {1, 2};
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        td_status s = td_allow_ports(wrong[i], &p);
        assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
        td_status_free(s);
    }
    assert_null(td_allow_ports("2000-2001", &p));
    assert_int_equal(p.first, 2000);
    assert_int_equal(p.last, 2001);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_allowed_when_only_this_machine_can_ask),
        cmocka_unit_test(test_allow_is_refused_when_a_name_is_unknown),
        cmocka_unit_test(test_ports_are_outside_of_the_range_that_the_kernel_takes),
        cmocka_unit_test(test_ports_are_refused_when_they_are_no_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
