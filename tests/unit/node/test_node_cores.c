// Cores for ranks: disjoint, in order, near each other, refused when there are not enough.

#include "daemon/node/core/cores.h"
#include "tests/unit/test.h"

static cpu_set_t set_of(const char *lists) {
    cpu_set_t s;
    CPU_ZERO(&s);
    td_cores_add(lists, &s);
    return s;
}

// A machine of one NUMA node after the other: the CPUs that its cores are known by.
static struct td_topology machine_of(const char *const *nodes, size_t n_nodes) {
    struct td_topology t = {0};
    for (size_t node = 0; node < n_nodes; node++) {
        cpu_set_t cpus = set_of(nodes[node]);
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &cpus)) continue;
            t.core[t.n_cores++] = (struct td_topology_core){(uint16_t)cpu, (uint16_t)node};
        }
    }
    return t;
}

static void test_ranks_get_disjoint_cores_when_there_are_enough(void **state) {
    (void)state;
    struct td_topology here = machine_of((const char *[]){"0-3,8-9"}, 1);
    cpu_set_t used = set_of("1");
    char out[64];
    assert_true(td_cores_allocate(&here, &used, 2, 2, NULL, out, sizeof out));
    assert_string_equal(out, "0,2:3,8");
    assert_int_equal(CPU_COUNT(&used), 5);
    assert_true(td_cores_allocate(&here, &used, 1, 1, NULL, out, sizeof out));
    assert_string_equal(out, "9");
}

static void test_allocation_changes_nothing_when_there_are_too_few(void **state) {
    (void)state;
    struct td_topology here = machine_of((const char *[]){"0-3"}, 1);
    cpu_set_t used = set_of("0:1");
    char out[64], tiny[3];
    assert_false(td_cores_allocate(&here, &used, 1, 3, NULL, out, sizeof out));
    assert_string_equal(out, "");
    assert_false(td_cores_allocate(&here, &used, 1, 2, NULL, tiny, sizeof tiny));
    assert_int_equal(CPU_COUNT(&used), 2);
}

static void test_rank_is_on_one_numa_node_when_any_has_room_for_it(void **state) {
    (void)state;
    struct td_topology here = machine_of((const char *[]){"0,2,4,6", "1,3,5,7"}, 2);
    cpu_set_t used = set_of("");
    char out[64];
    assert_true(td_cores_allocate(&here, &used, 2, 3, NULL, out, sizeof out));
    assert_string_equal(out, "0,2,4:1,3,5");
    assert_true(td_cores_allocate(&here, &used, 1, 2, NULL, out, sizeof out)); // neither has room
    assert_string_equal(out, "6,7");
    used = set_of("0");
    assert_true(td_cores_allocate(&here, &used, 3, 2, NULL, out, sizeof out));
    assert_string_equal(out, "2,4:1,3:5,7");
}

static void test_rank_is_near_its_device_when_there_is_room(void **state) {
    (void)state;
    struct td_topology here = machine_of((const char *[]){"0-3", "4-7"}, 2);
    const uint64_t second[] = {2, 0, 1 << 9};
    cpu_set_t used = set_of("");
    char out[64];
    assert_true(td_cores_allocate(&here, &used, 3, 2, second, out, sizeof out));
    assert_string_equal(out, "4,5:0,1:2,3"); // the third one's is not here
    used = set_of("5-7");
    assert_true(td_cores_allocate(&here, &used, 1, 2, second, out, sizeof out));
    assert_string_equal(out, "0,1"); // the second has no room
}

static void test_lists_are_read_when_they_are_strange(void **state) {
    (void)state;
    cpu_set_t s = set_of("0-1:4-5,7:");
    assert_int_equal(CPU_COUNT(&s), 5);
    s = set_of("x");
    assert_int_equal(CPU_COUNT(&s), 0);
    s = set_of("0-99999999");
    assert_int_equal(CPU_COUNT(&s), CPU_SETSIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_get_disjoint_cores_when_there_are_enough),
        cmocka_unit_test(test_allocation_changes_nothing_when_there_are_too_few),
        cmocka_unit_test(test_rank_is_on_one_numa_node_when_any_has_room_for_it),
        cmocka_unit_test(test_rank_is_near_its_device_when_there_is_room),
        cmocka_unit_test(test_lists_are_read_when_they_are_strange),
    };
    return cmocka_run_group_tests_name("node_cores", tests, NULL, NULL);
}
