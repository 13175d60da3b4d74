// NVML as it is read, against a double of the driver's library that a file scripts
// (tests/doubles/nvml.c). There are two models, MIG, cards that die or are not ours, an older
// library, and one of another major version. Every error has words.

#include <stdlib.h>

#include "lib/base/buf.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"
#include "lib/nvml/calls.h"
#include "lib/nvml/nvml.h"
#include "tests/unit/test.h"

#define GIB (UINT64_C(1) << 30)

static const char four[] = "driver 550.54.15\n"
                           "gpu GPU-a NVIDIA_H100 85899345920 3b 0 9 0\n"
                           "gpu GPU-b NVIDIA_H100 85899345920 5e 0 9 0\n"
                           "gpu GPU-c NVIDIA_A40 48318382080 86 1 8 6\n"
                           "gpu GPU-d NVIDIA_A40 48318382080 d8 1 8 6\n"
                           "link GPU-a GPU-b\n";

static void script(const char *dir, const char *text, const char *more) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF all;
    td_buf_init(&all, 1 << 16);
    TD_CHECK(!td_fs_path(path, "%s/script", dir));
    assert_ok(td_buf_printf(&all, "%s%s", text, more));
    assert_ok(td_fs_write(path, all.data, all.len, 0600, 0));
    assert_int_equal(setenv("NVML_DOUBLE", path, 1), 0);
}

static td_status open_double(const char *name, struct td_nvml **out) {
    char dir[TD_FS_PATH_BYTES], path[TD_FS_PATH_BYTES + 64];
    TD_TRY(td_proc_self_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/../../doubles/%s.so", dir, name);
    return td_nvml_open(path, out);
}

static const struct td_nvml_list *read_list(struct td_nvml *n) {
    const struct td_nvml_list *l = NULL;
    assert_ok(td_nvml_read(n, &l));
    return l;
}

static void test_devices_have_their_facts_when_the_driver_is_well(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four, "");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 4);
    assert_string_equal(l->driver, "550.54.15");
    assert_string_equal(l->notes, "");
    const struct td_nvml_device *a = &l->device[0], *c = &l->device[2];
    assert_string_equal(a->uuid, "GPU-a");
    assert_string_equal(a->name, "NVIDIA H100");
    assert_true(a->memory_bytes == 80 * GIB);
    assert_string_equal(a->bus_id, "00000000:3B:00.0");
    assert_string_equal(a->capability, "9.0");
    assert_string_equal(a->health, "");
    assert_true(a->numa_nodes == 1 && c->numa_nodes == 2);
    assert_true(a->peers == 2 && l->device[1].peers == 1 && !c->peers);
    assert_int_equal(c->index, 2);
    l = read_list(n); // as it was read before
    assert_int_equal(l->n, 4);
    assert_true(l->device[0].peers == 2 && l->device[3].memory_bytes == 45 * GIB);
}

static void test_index_is_the_place_in_pci_order_when_the_library_has_another(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, "gpu GPU-z NVIDIA_A40 1024 d8 0 8 6\ngpu GPU-y NVIDIA_A40 1024 3b 0 8 6\n",
           "link GPU-z GPU-y\n");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 2);
    assert_string_equal(l->device[0].uuid, "GPU-y");
    assert_int_equal(l->device[0].index, 0);
    assert_string_equal(l->device[1].uuid, "GPU-z");
    assert_int_equal(l->device[1].index, 1);
    assert_true(l->device[0].peers == 2 && l->device[1].peers == 1);
    assert_string_equal(l->driver, "");
}

static void test_each_instance_is_a_device_when_a_gpu_is_cut_by_mig(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four,
           "mig GPU-b MIG-1 NVIDIA_H100_MIG_3g.40gb 42949672960\n"
           "mig GPU-b MIG-2 NVIDIA_H100_MIG_3g.40gb 42949672960\nmigmode GPU-c\n");
    assert_ok(open_double("nvml", &n));
    for (int pass = 0; pass < 2; pass++) {
        const struct td_nvml_list *l = read_list(n);
        assert_int_equal(l->n, 4); // a, two of b, none of c, d
        const struct td_nvml_device *one = &l->device[1], *two = &l->device[2];
        assert_string_equal(one->uuid, "MIG-1");
        assert_string_equal(two->uuid, "MIG-2");
        assert_string_equal(one->parent, "GPU-b");
        assert_string_equal(one->name, "NVIDIA H100 MIG 3g.40gb");
        assert_true(one->memory_bytes == 40 * GIB && one->numa_nodes == 1 && !one->peers);
        assert_string_equal(one->bus_id, "00000000:5E:00.0");
        assert_int_equal(one->index, 1);
        assert_string_equal(l->device[3].uuid, "GPU-d");
        assert_int_equal(l->device[3].index, 3);
        assert_non_null(strstr(l->notes, "GPU-c is in MIG mode and has no instances"));
    }
}

static void test_device_stays_with_the_reason_when_it_dies_and_is_well_again_after(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four, "mig GPU-a MIG-1 NVIDIA_H100_MIG 1024\n");
    assert_ok(open_double("nvml", &n));
    (void)read_list(n);
    script(*state, four, "mig GPU-a MIG-1 NVIDIA_H100_MIG 1024\nlost GPU-a\nlost GPU-c\n");
    for (int pass = 0; pass < 2; pass++) {
        const struct td_nvml_list *l = read_list(n);
        assert_int_equal(l->n, 4);
        assert_string_equal(l->device[0].uuid, "MIG-1");
        assert_non_null(strstr(l->device[0].health, "the GPU is lost"));
        assert_string_equal(l->device[1].health, "");
        assert_string_equal(l->device[2].uuid, "GPU-c");
        assert_non_null(strstr(l->device[2].health, "NVML error 15"));
        assert_int_equal(l->device[3].index, 3);
    }
    script(*state, four, "");
    const struct td_nvml_list *l = read_list(n);
    assert_string_equal(l->device[0].uuid, "GPU-a");
    assert_string_equal(l->device[2].health, "");
}

static void test_indexes_hold_when_a_gpu_was_lost_from_the_start(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four, "lost GPU-b\n");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 3);
    assert_string_equal(l->device[1].uuid, "GPU-c");
    assert_int_equal(l->device[1].index, 2);
    assert_non_null(strstr(l->notes, "GPU 1 cannot be listed"));
}

static void test_instance_has_the_index_of_its_gpu_when_that_is_lost_and_has_moved(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four, "mig GPU-c MIG-1 NVIDIA_A40_MIG 1024\n");
    assert_ok(open_double("nvml", &n));
    assert_int_equal(read_list(n)->device[2].index, 2);
    script(*state, four, "mig GPU-c MIG-1 NVIDIA_A40_MIG 1024\nlost GPU-c\ndenied GPU-a\n");
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 3);
    assert_string_equal(l->device[1].uuid, "MIG-1");
    assert_non_null(strstr(l->device[1].health, "the GPU is lost"));
    assert_int_equal(l->device[1].index, 1);
    assert_int_equal(l->device[2].index, 2);
}

static void test_notes_are_counted_when_there_are_more_than_there_is_room(void **state) {
    enum { LOST = 40 };
    TD_AUTO(td_nvml) *n = NULL;
    TD_AUTO_BUF many;
    td_buf_init(&many, 1 << 16);
    for (int i = 0; i < LOST; i++) {
        assert_ok(
            td_buf_printf(&many, "gpu GPU-%d NVIDIA_A40 1024 %x 0 8 6\nlost GPU-%d\n", i, i, i));
    }
    script(*state, td_buf_cstr(&many), "");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 0);
    int named = 0, more = 0;
    for (const char *at = l->notes; (at = strstr(at, "cannot be listed")); at++) {
        named++;
    }
    const char *rest = strstr(l->notes, " and ");
    assert_non_null(rest);
    assert_true(sscanf(rest, " and %d more", &more) == 1 && named > 2);
    assert_int_equal(named + more, LOST);
}

// As in a cgroup of Slurm's: CUDA counts those that it may open.
static void test_devices_of_others_are_left_out_when_they_cannot_be_opened(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    script(*state, four, "denied GPU-a\ndenied GPU-c\n");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 2);
    assert_string_equal(l->device[0].uuid, "GPU-b");
    assert_int_equal(l->device[0].index, 0);
    assert_string_equal(l->device[1].uuid, "GPU-d");
    assert_non_null(strstr(l->notes, "2 more that this user, or its cgroup, may not open"));
}

static void test_samples_have_what_the_driver_says_and_nothing_else(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    struct td_nvml_sample s;
    script(*state, four,
           "use GPU-a 1073741824 97 651500 61\nprocess GPU-a 4242 1048576\n"
           "process GPU-a 4343 0\n");
    assert_ok(open_double("nvml", &n));
    const struct td_nvml_list *l = read_list(n);
    td_nvml_sample(n, &l->device[0], &s);
    assert_true(s.has_memory && s.used_bytes == GIB);
    assert_true(s.has_utilization && s.utilization == 97);
    assert_true(s.has_power && s.power_w > 651.4 && s.power_w < 651.6);
    assert_true(s.has_temperature && s.temperature_c == 61);
    assert_false(s.has_throttle || s.throttled);
    assert_true(s.has_processes && s.n_processes == 2 && !s.n_more);
    assert_true(s.process[0].pid == 4242 && s.process[0].used_bytes == 1 << 20);
    assert_true(s.process[1].pid == 4343 && !s.process[1].used_bytes);
    td_nvml_sample(n, &l->device[1], &s);
    assert_true(s.has_memory && !s.used_bytes && !s.has_utilization && !s.has_power);
}

static void test_device_is_throttled_when_power_or_heat_hold_it_back(void **state) {
    static const struct {
        const char *bits;
        bool throttled;
    } cases[] = {{"1", false},  // it is idle
                 {"2", false},  // clocks of applications
                 {"16", false}, // another device's
                 {"256", false}, {"4", true},  {"8", true},
                 {"32", true},   {"64", true}, {"128", true}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        TD_AUTO(td_nvml) *n = NULL;
        struct td_nvml_sample s;
        char line[64];
        snprintf(line, sizeof line, "throttle GPU-a %s\n", cases[i].bits);
        script(*state, four, line);
        assert_ok(open_double(i % 2 ? "nvml" : "nvml_old", &n));
        td_nvml_sample(n, &read_list(n)->device[0], &s);
        assert_true(s.has_throttle && s.throttle == strtoull(cases[i].bits, NULL, 10));
        assert_true(s.throttled == cases[i].throttled);
    }
}

static void test_processes_are_counted_when_there_are_more_than_there_is_room(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    TD_AUTO_BUF many;
    struct td_nvml_sample s;
    td_buf_init(&many, 1 << 16);
    for (int i = 0; i < TD_NVML_PROCESSES + 1; i++) {
        assert_ok(td_buf_printf(&many, "process GPU-a %d 1\n", i + 1));
    }
    script(*state, four, td_buf_cstr(&many));
    assert_ok(open_double("nvml", &n));
    td_nvml_sample(n, &read_list(n)->device[0], &s);
    assert_true(s.has_processes && !s.n_processes && s.n_more == TD_NVML_PROCESSES + 1);
}

static void test_error_event_names_its_device_when_the_driver_has_one(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    char uuid[TD_DEVICE_UUID];
    uint64_t xid = 0;
    script(*state, four, "xid GPU-c 79\n");
    assert_ok(open_double("nvml", &n));
    (void)read_list(n);
    assert_true(td_nvml_await_xid(n, TD_TEST_WAIT_NS, uuid, &xid));
    assert_string_equal(uuid, "GPU-c");
    assert_true(xid == 79);
    assert_false(td_nvml_await_xid(n, 20 * TD_NS_PER_MS, uuid, &xid));
}

static void test_older_library_is_read_when_it_has_older_names_and_layouts(void **state) {
    TD_AUTO(td_nvml) *n = NULL;
    struct td_nvml_sample s;
    script(*state, four, "process GPU-b 7 5\nprocess GPU-b 8 6\n");
    assert_ok(open_double("nvml_old", &n));
    const struct td_nvml_list *l = read_list(n);
    assert_int_equal(l->n, 4);
    assert_string_equal(l->device[1].bus_id, "00000000:5E:00.0");
    td_nvml_sample(n, &l->device[1], &s);
    assert_int_equal(s.n_processes, 2);
    assert_true(s.process[1].pid == 8 && s.process[1].used_bytes == 6);
}

static void test_no_list_when_the_library_is_not_there_or_another_one(void **state) {
    struct td_nvml *n = NULL;
    script(*state, four, "");
    assert_fails(open_double("none_such", &n), TD_NOT_FOUND, "no NVIDIA driver is installed here");
    assert_fails(open_double("nvml_other", &n), TD_UNIMPLEMENTED, "another major version of NVML");
    script(*state, four, "fail nvmlInit 18\n");
    assert_fails(open_double("nvml", &n), TD_FAILED_PRECONDITION, "of different versions");
    script(*state, four, "fail nvmlInit 9\n");
    assert_fails(open_double("nvml", &n), TD_FAILED_PRECONDITION, "modprobe nvidia");
    script(*state, four, "fail nvmlDeviceGetCount 999\n");
    TD_AUTO(td_nvml) *up = NULL;
    const struct td_nvml_list *l;
    assert_ok(open_double("nvml", &up));
    assert_fails(td_nvml_read(up, &l), TD_UNKNOWN, "NVML error 999");
}

static void test_every_code_has_words(void **state) {
    (void)state;
    for (int code = 1; code < 1200; code++) {
        const char *words = td_nvml_words(code);
        assert_true(strlen(words) > 10);
        td_status s = td_nvml_fail("x", code);
        assert_non_null(s);
        // Those of a library that is not there: nothing would be asked again.
        assert_true(td_status_code(s) != TD_NOT_FOUND && td_status_code(s) != TD_UNIMPLEMENTED);
        td_status_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_devices_have_their_facts_when_the_driver_is_well),
        test_in_scratch(test_index_is_the_place_in_pci_order_when_the_library_has_another),
        test_in_scratch(test_each_instance_is_a_device_when_a_gpu_is_cut_by_mig),
        test_in_scratch(test_device_stays_with_the_reason_when_it_dies_and_is_well_again_after),
        test_in_scratch(test_indexes_hold_when_a_gpu_was_lost_from_the_start),
        test_in_scratch(test_instance_has_the_index_of_its_gpu_when_that_is_lost_and_has_moved),
        test_in_scratch(test_notes_are_counted_when_there_are_more_than_there_is_room),
        test_in_scratch(test_devices_of_others_are_left_out_when_they_cannot_be_opened),
        test_in_scratch(test_samples_have_what_the_driver_says_and_nothing_else),
        test_in_scratch(test_device_is_throttled_when_power_or_heat_hold_it_back),
        test_in_scratch(test_processes_are_counted_when_there_are_more_than_there_is_room),
        test_in_scratch(test_error_event_names_its_device_when_the_driver_has_one),
        test_in_scratch(test_older_library_is_read_when_it_has_older_names_and_layouts),
        test_in_scratch(test_no_list_when_the_library_is_not_there_or_another_one),
        cmocka_unit_test(test_every_code_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
