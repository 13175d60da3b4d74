// The state directory's rule, row by row: who wins over whom.
#include "lib/base/files/state_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_state_dir_follows_the_order_when_several_are_given(void **state) {
    (void)state;
    static const struct {
        const char *own, *xdg, *home;
        bool root;
        const char *want;
    } rows[] = {
        {"/own", "/xdg", "/home/a", true, "/own"},
        {NULL, "/xdg", "/home/a", true, "/xdg/traind"},
        {"", "", "/home/a", true, "/var/lib/traind"},
        {NULL, NULL, "/home/a", false, "/home/a/.local/state/traind"},
        {"rel", NULL, NULL, false, "rel"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char out[64];
        td_status s = td_state_dir_default(rows[i].own, rows[i].xdg, rows[i].home, rows[i].root,
                                           out, sizeof out);
        assert_null(s);
        assert_string_equal(out, rows[i].want);
    }
}

static void test_state_dir_refuses_when_nothing_is_given_or_too_long(void **state) {
    (void)state;
    char out[8];
    td_status s = td_state_dir_default(NULL, NULL, NULL, false, out, sizeof out);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    assert_non_null(strstr(td_status_message(s), "TRAIND_STATE_DIR"));
    td_status_free(s);
    s = td_state_dir_default("/12345678", NULL, NULL, false, out, sizeof out);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_dir_follows_the_order_when_several_are_given),
        cmocka_unit_test(test_state_dir_refuses_when_nothing_is_given_or_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
