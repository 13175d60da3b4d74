// What ranks need to know of the GPUs that were assigned to them: their names for CUDA, and whose
// memory they are near.

#include "daemon/node/core/gpu_parts.h"
#include "tests/unit/test.h"

static uint32_t near_0[] = {0}, near_both[] = {0, 1};
static char names[4][16] = {"GPU-a", "GPU-b", "MIG-c", "GPU-d"};

static void make(Traind__V1__GpuList *l, Traind__V1__Gpu gpu[4], Traind__V1__Gpu *gpus[4]) {
    traind__v1__gpu_list__init(l);
    for (uint32_t i = 0; i < 4; i++) {
        traind__v1__gpu__init(&gpu[i]);
        gpu[i].uuid = names[i];
        gpu[i].index = 3 + i;
        gpu[i].numa_nodes = i == 0 ? near_0 : near_both;
        gpu[i].n_numa_nodes = i == 0 ? 1 : i < 3 ? 2 : 0;
        gpus[i] = &gpu[i];
    }
    l->gpus = gpus;
    l->n_gpus = 4;
}

static void test_names_are_those_of_cuda(void **state) {
    (void)state;
    Traind__V1__GpuList l;
    Traind__V1__Gpu gpu[4], *gpus[4];
    char out[64];
    make(&l, gpu, gpus);
    assert_ok(td_gpu_parts_name(&l, "GPU-d,GPU-a", false, out, sizeof out));
    assert_string_equal(out, "GPU-d,GPU-a");
    assert_ok(td_gpu_parts_name(&l, "GPU-d,GPU-a", true, out, sizeof out));
    assert_string_equal(out, "6,3");
    assert_ok(td_gpu_parts_name(&l, "MIG-c,GPU-b", true, out, sizeof out));
    assert_string_equal(out, "MIG-c,4");
    assert_ok(td_gpu_parts_name(&l, "far-0,far-1", true, out, sizeof out)); // of an accelerator
    assert_string_equal(out, "");
    assert_ok(td_gpu_parts_name(&l, "", true, out, sizeof out));
    assert_string_equal(out, "");
    assert_ok(td_gpu_parts_name(NULL, "GPU-x", false, out, sizeof out)); // the driver is slow
    assert_string_equal(out, "GPU-x");
    assert_fails(td_gpu_parts_name(&l, "GPU-a,GPU-b", false, out, 11), TD_RESOURCE_EXHAUSTED,
                 "longer than 11 bytes");
    assert_ok(td_gpu_parts_name(&l, "GPU-a,GPU-b", false, out, 12));
}

static void test_attempt_is_restarted_elsewhere_when_a_gpu_is_gone(void **state) {
    (void)state;
    Traind__V1__GpuList l;
    Traind__V1__Gpu gpu[4], *gpus[4];
    char out[64];
    make(&l, gpu, gpus);
    td_status s = td_gpu_parts_name(&l, "GPU-a,GPU-x", false, out, sizeof out);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    assert_non_null(strstr(td_status_message(s), "GPU-x is assigned, and is not on this node"));
    td_status_free(s);
    s = td_gpu_parts_name(NULL, "GPU-a", true, out, sizeof out);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    td_status_free(s);
}

static void test_memory_is_near_all_gpus_of_a_rank(void **state) {
    (void)state;
    Traind__V1__GpuList l;
    Traind__V1__Gpu gpu[4], *gpus[4];
    make(&l, gpu, gpus);
    assert_int_equal(td_gpu_parts_near(&l, "GPU-a,GPU-b", 2, 0), 1);
    assert_int_equal(td_gpu_parts_near(&l, "GPU-a,GPU-b", 2, 1), 3);
    assert_int_equal(td_gpu_parts_near(&l, "GPU-b,GPU-a,MIG-c,GPU-b", 2, 0), 1);
    assert_int_equal(td_gpu_parts_near(&l, "GPU-b,GPU-a,MIG-c,GPU-b", 2, 1), 3);
    assert_int_equal(td_gpu_parts_near(&l, "GPU-d", 1, 0), 0);
    assert_int_equal(td_gpu_parts_near(&l, "", 2, 1), 0);
    assert_int_equal(td_gpu_parts_near(NULL, "GPU-a", 1, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_those_of_cuda),
        cmocka_unit_test(test_attempt_is_restarted_elsewhere_when_a_gpu_is_gone),
        cmocka_unit_test(test_memory_is_near_all_gpus_of_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
