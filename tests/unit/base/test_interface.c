// Interfaces by name and by network, on the loopback interface, which every machine has.

#include "lib/base/machine/interface.h"

#include <string.h>

#include "tests/unit/test.h"

static void test_interface_is_found_by_name_and_by_network(void **state) {
    (void)state;
    static const char *const names[] = {"lo", "127.0.0.0/8", "127.0.0.1/32", "127.0.0.0/30"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        struct td_interface found;
        assert_ok(td_interface_find(names[i], &found));
        assert_string_equal(found.name, "lo");
        assert_string_equal(found.address, "127.0.0.1");
    }
}

static void test_interface_that_is_not_there_is_refused_with_those_that_are(void **state) {
    (void)state;
    static const char *const names[] = {"eth-none0", "240.1.2.0/24", "2001:db8::/32",
                                        "127.0.0.2/32"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        struct td_interface found;
        TD_AUTO_STATUS td_status s = td_interface_find(names[i], &found);
        assert_int_equal(td_status_code(s), TD_NOT_FOUND);
        assert_non_null(strstr(td_status_message(s), names[i]));
        assert_non_null(strstr(td_status_message(s), "lo (127.0.0.1)"));
    }
}

static void test_text_that_names_no_interface_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",          "10.0.0.0/33", "10.0.0/8",    "fd00::/129",
        "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "a-name-that-is-too-long",
        "/8"};
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        TD_AUTO_STATUS td_status s = td_interface_check(texts[i]);
        assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interface_is_found_by_name_and_by_network),
        cmocka_unit_test(test_interface_that_is_not_there_is_refused_with_those_that_are),
        cmocka_unit_test(test_text_that_names_no_interface_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
