// What a node says of its machine, where the machine says it in bytes that are no text.

#include "daemon/node/shell/planner/inventory.h"
#include "lib/base/utf8.h"
#include "tests/unit/test.h"

static void test_name_of_the_host_is_utf8_when_the_kernel_has_other_bytes(void **state) {
    (void)state;
    char name[TD_INVENTORY_NAME], host[70];
    td_inventory_name("gpu-3", name);
    assert_string_equal(name, "gpu-3");
    td_inventory_name("h\xc3\xb6st", name);
    assert_string_equal(name, "h\xc3\xb6st");
    td_inventory_name("h\xf6st\x1b", name);
    assert_string_equal(name, "h\\xf6st\\x1b");
    memset(host, 0xff, sizeof host - 1); // the longest there is, all of it escaped
    host[sizeof host - 1] = '\0';
    td_inventory_name(host, name);
    assert_true(td_utf8_valid(name, strlen(name)));
    assert_int_equal(strncmp(name, "\\xff\\xff", 8), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_of_the_host_is_utf8_when_the_kernel_has_other_bytes),
    };
    return cmocka_run_group_tests_name("node_inventory", tests, NULL, NULL);
}
