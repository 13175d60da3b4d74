// Errors of GPUs that a node keeps for its coordinator. Each has a number of its own, and one that
// comes again is there once. A full list keeps those that exclude a device.

#include "daemon/node/shell/gpus/gpu_errors.h"
#include "tests/unit/test.h"

static const struct td_real at = {INT64_C(1700000000) * TD_NS_PER_S};

static const Traind__V1__GpuList *put(struct td_gpu_errors *e) {
    static Traind__V1__GpuList list;
    traind__v1__gpu_list__init(&list);
    td_gpu_errors_put(e, &list);
    return &list;
}

static void test_error_that_comes_again_is_the_newest_and_has_another_number(void **state) {
    (void)state;
    static struct td_gpu_errors e;
    assert_int_equal(put(&e)->n_errors, 0);
    td_gpu_errors_add(&e, "GPU-a", 13, at);
    td_gpu_errors_add(&e, "GPU-b", 79, at);
    td_gpu_errors_add(&e, "GPU-a", 31, at);
    td_gpu_errors_add(&e, "GPU-a", 13, at);
    const Traind__V1__GpuList *l = put(&e);
    assert_int_equal(l->n_errors, 3);
    assert_int_equal(l->errors[0]->number, 2);
    assert_string_equal(l->errors[0]->uuid, "GPU-b");
    assert_int_equal(l->errors[0]->xid, 79);
    assert_string_equal(l->errors[0]->time, "2023-11-14T22:13:20.000Z");
    assert_int_equal(l->errors[2]->number, 4);
    assert_int_equal(l->errors[2]->xid, 13);
}

static void test_full_list_drops_the_oldest_that_excludes_nothing(void **state) {
    (void)state;
    static struct td_gpu_errors e;
    td_gpu_errors_add(&e, "GPU-a", 79, at);
    for (uint32_t i = 0; i < 2 * TD_GPU_ERRORS; i++) {
        td_gpu_errors_add(&e, "GPU-a", 1000 + i, at);
    }
    const Traind__V1__GpuList *l = put(&e);
    assert_int_equal(l->n_errors, TD_GPU_ERRORS);
    assert_int_equal(l->errors[0]->xid, 79);
    assert_int_equal(l->errors[1]->xid, 1000 + TD_GPU_ERRORS + 1);
    assert_int_equal(l->errors[TD_GPU_ERRORS - 1]->number, 2 * TD_GPU_ERRORS + 1);
    char uuid[16];
    for (int i = 0; i <= TD_GPU_ERRORS; i++) { // all of them exclude one: the oldest goes
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        td_gpu_errors_add(&e, uuid, 48, at);
    }
    l = put(&e);
    assert_int_equal(l->n_errors, TD_GPU_ERRORS);
    assert_string_equal(l->errors[0]->uuid, "GPU-1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_that_comes_again_is_the_newest_and_has_another_number),
        cmocka_unit_test(test_full_list_drops_the_oldest_that_excludes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
