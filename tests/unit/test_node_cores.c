// Cores for ranks: disjoint, in order, refused when there are not enough.

#include "daemon/node/core/cores.h"
#include "daemon/node/shell/inventory.h"
#include "tests/unit/test.h"

static cpu_set_t set_of(const char *lists) {
    cpu_set_t s;
    CPU_ZERO(&s);
    td_cores_add(lists, &s);
    return s;
}

static void test_ranks_get_disjoint_cores_when_there_are_enough(void **state) {
    (void)state;
    cpu_set_t here = set_of("0-3,8-9"), used = set_of("1");
    char out[64];
    assert_true(td_cores_allocate(&here, &used, 2, 2, out, sizeof out));
    assert_string_equal(out, "0,2:3,8");
    assert_int_equal(CPU_COUNT(&used), 5);
    assert_true(td_cores_allocate(&here, &used, 1, 1, out, sizeof out));
    assert_string_equal(out, "9");
}

static void test_allocation_changes_nothing_when_there_are_too_few(void **state) {
    (void)state;
    cpu_set_t here = set_of("0-3"), used = set_of("0:1");
    char out[64], tiny[3];
    assert_false(td_cores_allocate(&here, &used, 1, 3, out, sizeof out));
    assert_string_equal(out, "");
    assert_false(td_cores_allocate(&here, &used, 1, 2, tiny, sizeof tiny));
    assert_int_equal(CPU_COUNT(&used), 2);
}

static void test_lists_are_read_when_they_are_strange(void **state) {
    (void)state;
    cpu_set_t s = set_of("0-1:4-5,7:");
    assert_int_equal(CPU_COUNT(&s), 5);
    s = set_of("x");
    assert_int_equal(CPU_COUNT(&s), 0);
    s = set_of("0-99999999");
    assert_int_equal(CPU_COUNT(&s), CPU_SETSIZE);
    cpu_set_t here;
    td_inventory_core_ids(1, &here);
    assert_int_equal(CPU_COUNT(&here), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_get_disjoint_cores_when_there_are_enough),
        cmocka_unit_test(test_allocation_changes_nothing_when_there_are_too_few),
        cmocka_unit_test(test_lists_are_read_when_they_are_strange),
    };
    return cmocka_run_group_tests_name("node_cores", tests, NULL, NULL);
}
