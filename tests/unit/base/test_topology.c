// Cores of machines that hwloc is given as text, files of /sys or answers of CPUs; and of this one.

#include "lib/topology/topology.h"

#include <stdlib.h>

#include "lib/base/machine/proc.h"
#include "tests/unit/test.h"

// "CPU@NUMA" of each core of the machine that the variable describes, of the CPUs in `mask`.
static const char *cores_of(const char *variable, const char *value, const cpu_set_t *mask) {
    static char text[256];
    struct td_topology t;
    setenv(variable, value, 1);
    td_status s = td_topology_read(mask, &t);
    unsetenv(variable);
    assert_ok(s);
    size_t len = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < t.n_cores; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u@%u", i ? " " : "",
                                t.core[i].cpu, t.core[i].numa);
    }
    return text;
}

static cpu_set_t every_cpu(void) {
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    return all;
}

// ---- synthetic machines -------------------------------------------------------------------------
static void test_each_core_counts_once_on_machines_of_all_kinds(void **state) {
    (void)state;
    static const struct {
        const char *machine, *cores;
    } cases[] = {
        {"pack:1 core:4 pu:1", "0@0 1@0 2@0 3@0"}, // no SMT
        {"pack:1 core:4 pu:2", "0@0 2@0 4@0 6@0"}, // siblings are numbered one after the other
        {"pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)", "0@0 1@0 2@0 3@0"}, // as Linux does
        {"pack:1 core:2 pu:4", "0@0 4@0"},
        {"pack:1 core:1 pu:2", "0@0"},
        {"pu:3", "0@0 1@0 2@0"}, // nobody knows its cores
        // packages whose CPUs are numbered in turns: neighbours come together
        {"pack:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", "0@0 2@0 1@0 3@0"},
        {"pack:2 [numa] core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", "0@0 2@0 1@1 3@1"},
        {"node:2 core:2 pu:1(indexes=0,2,1,3)", "0@0 2@0 1@1 3@1"},
        {"pack:1 l3:2 core:2 pu:1(indexes=0,2,1,3)", "0@0 2@0 1@0 3@0"},
    };
    cpu_set_t all = every_cpu();
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        assert_string_equal(cores_of("HWLOC_SYNTHETIC", cases[i].machine, &all), cases[i].cores);
    }
}

static void test_core_counts_by_its_sibling_when_the_mask_leaves_only_that(void **state) {
    (void)state;
    const char *machine = "pack:1 core:4 pu:2";
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(1, &mask); // the second of a core
    CPU_SET(4, &mask); // both
    CPU_SET(5, &mask);
    CPU_SET(6, &mask); // the first
    assert_string_equal(cores_of("HWLOC_SYNTHETIC", machine, &mask), "1@0 4@0 6@0");
    CPU_ZERO(&mask);
    for (size_t cpu = 1; cpu < 8; cpu += 2) {
        CPU_SET(cpu, &mask);
    }
    assert_string_equal(cores_of("HWLOC_SYNTHETIC", machine, &mask), "1@0 3@0 5@0 7@0");
}

static void test_machine_is_refused_when_the_mask_leaves_no_cpu_of_it(void **state) {
    (void)state;
    cpu_set_t mask;
    struct td_topology t;
    CPU_ZERO(&mask);
    CPU_SET(9, &mask);
    setenv("HWLOC_SYNTHETIC", "pack:1 core:4 pu:2", 1);
    td_status s = td_topology_read(&mask, &t);
    unsetenv("HWLOC_SYNTHETIC");
    assert_fails(s, TD_FAILED_PRECONDITION, "finds no CPU that this process may use");
}

// ---- what hwloc reads ---------------------------------------------------------------------------
static void put(const char *root, const char *file, const char *text) {
    char path[512], *slash;
    snprintf(path, sizeof path, "%s/%s", root, file);
    slash = strrchr(path, '/');
    *slash = '\0';
    assert_ok(td_fs_mkdirs(path, 0700));
    *slash = '/';
    assert_ok(td_fs_write(path, text, strlen(text), 0600, 0));
}

// A /sys with six CPUs: 0 and 4 are siblings, 1 and 5, and 2 and 3, which is offline.
static void test_offline_cpus_are_left_out(void **state) {
    static const struct {
        const char *cpu, *siblings, *core;
    } cpus[] = {{"cpu0", "11", "0"},
                {"cpu1", "22", "1"},
                {"cpu2", "04", "2"},
                {"cpu4", "11", "0"},
                {"cpu5", "22", "1"}};
    for (size_t i = 0; i < TD_COUNTOF(cpus); i++) {
        const struct {
            const char *file, *text;
        } files[] = {{"core_cpus", cpus[i].siblings},
                     {"core_id", cpus[i].core},
                     {"package_cpus", "37"},
                     {"physical_package_id", "0"}};
        for (size_t k = 0; k < TD_COUNTOF(files); k++) {
            char file[128];
            snprintf(file, sizeof file, "sys/devices/system/cpu/%s/topology/%s", cpus[i].cpu,
                     files[k].file);
            put(*state, file, files[k].text);
        }
    }
    put(*state, "sys/devices/system/cpu/online", "0-2,4-5\n");
    put(*state, "sys/devices/system/cpu/cpu3/online", "0\n");
    put(*state, "proc/cpuinfo", "");
    cpu_set_t all = every_cpu();
    assert_string_equal(cores_of("HWLOC_FSROOT", *state, &all), "0@0 1@0 2@0");
}

#ifdef __x86_64__
// Answers of cpuid: two CPUs of one core. Linux is asked for nothing, as if it had no /sys.
static void test_cpus_are_asked_when_the_kernel_knows_no_cores(void **state) {
    put(*state, "hwloc-cpuid-info", "Architecture: x86\n");
    for (int i = 0; i < 2; i++) {
        char file[8], text[512];
        snprintf(file, sizeof file, "pu%d", i);
        snprintf(text, sizeof text,
                 "1 0 0 0 0 => b 756e6547 6c65746e 49656e69\n"
                 "1 1 0 0 0 => 506e3 %x020800 200000 10000000\n"
                 "5 4 0 0 0 => 0 0 0 0\n"
                 "5 7 0 0 0 => 0 0 0 0\n"
                 "5 b 0 0 0 => 1 2 100 %x\n"
                 "5 b 0 1 0 => 1 2 201 %x\n"
                 "5 b 0 2 0 => 0 0 2 %x\n"
                 "1 80000000 0 0 0 => 80000000 0 0 0\n",
                 (unsigned)i, (unsigned)i, (unsigned)i, (unsigned)i);
        put(*state, file, text);
    }
    cpu_set_t all = every_cpu();
    setenv("HWLOC_COMPONENTS", "-linux", 1);
    const char *cores = cores_of("HWLOC_CPUID_PATH", *state, &all);
    unsetenv("HWLOC_COMPONENTS");
    assert_string_equal(cores, "0@0");
}
#endif

// ---- this machine -------------------------------------------------------------------------------
static void test_process_gets_cores_of_its_own_mask_and_quota(void **state) {
    (void)state;
    cpu_set_t before, one;
    struct td_topology all, bound;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_ok(td_topology_read(NULL, &all));
    assert_in_range(all.n_cores, 1, td_proc_n_cpus());
    const uint16_t last = all.core[all.n_cores - 1].cpu;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    td_status s = td_topology_read(NULL, &bound);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_ok(s);
    assert_int_equal(bound.n_cores, 1);
    assert_int_equal(bound.core[0].cpu, last);
    // A machine of text has more cores than this process gets time for.
    setenv("HWLOC_SYNTHETIC", "pack:1 core:1000 pu:1", 1);
    s = td_topology_read(NULL, &all);
    unsetenv("HWLOC_SYNTHETIC");
    assert_ok(s);
    assert_int_equal(all.n_cores, td_proc_n_cpus());
}

static void test_reading_on_a_thread_gives_the_same_and_its_failure(void **state) {
    (void)state;
    struct td_topology here, there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    assert_ok(td_topology_read(NULL, &here));
    TD_AUTO(td_topology_reading) *r = NULL, *failing = NULL;
    struct td_topology_reading *unread;
    assert_ok(td_topology_reading_create(&r));
    assert_ok(td_topology_reading_await(r, &there));
    assert_memory_equal(&here, &there, sizeof here);
    assert_ok(td_topology_reading_create(&unread));
    td_topology_reading_destroy(unread);
    // No CPU of this machine may be used by anybody.
    setenv("HWLOC_SYNTHETIC", "pack:1 core:1 pu:1(indexes=5000)", 1);
    td_status s = td_topology_reading_create(&failing);
    if (!s) s = td_topology_reading_await(failing, &there);
    unsetenv("HWLOC_SYNTHETIC");
    assert_fails(s, TD_FAILED_PRECONDITION, "finds no CPU that this process may use");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_core_counts_once_on_machines_of_all_kinds),
        cmocka_unit_test(test_core_counts_by_its_sibling_when_the_mask_leaves_only_that),
        cmocka_unit_test(test_machine_is_refused_when_the_mask_leaves_no_cpu_of_it),
        test_in_scratch(test_offline_cpus_are_left_out),
#ifdef __x86_64__
        test_in_scratch(test_cpus_are_asked_when_the_kernel_knows_no_cores),
#endif
        cmocka_unit_test(test_process_gets_cores_of_its_own_mask_and_quota),
        cmocka_unit_test(test_reading_on_a_thread_gives_the_same_and_its_failure),
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
