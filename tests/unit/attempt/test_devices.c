// Names of devices: their lists, and what an accelerator says it has.

#include "tests/unit/test.h"

#include "accelerators/far/far.h"
#include "accelerators/reference/reference.h"
#include "fabric/configure/devices.h"
#include "lib/attempt/devices.h"

static void test_uuid_is_refused_when_it_is_no_word(void **state) {
    (void)state;
    const char *const good[] = {"far-0", "GPU-1a2b:3", "a.b_c"};
    const char *const bad[] = {"", "a b", "a,b", "a/b", "\"", "é"};
    char text[TD_DEVICE_UUID + 1];
    for (size_t i = 0; i < TD_COUNTOF(good); i++) {
        assert_true(td_device_uuid_ok(good[i]));
    }
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_false(td_device_uuid_ok(bad[i]));
    }
    memset(text, 'x', sizeof text);
    text[TD_DEVICE_UUID] = '\0';
    assert_false(td_device_uuid_ok(text));
    assert_true(td_device_uuid_ok(text + 1));
}

// Contract 19: the order of devices is kept
static void test_list_gives_the_item_of_each_rank(void **state) {
    (void)state;
    char uuid[TD_DEVICE_UUID];
    assert_true(td_device_list_at("far-1,far-0", 0, uuid));
    assert_string_equal(uuid, "far-1");
    assert_true(td_device_list_at("far-1,far-0", 1, uuid));
    assert_string_equal(uuid, "far-0");
    assert_false(td_device_list_at("far-1,far-0", 2, uuid));
    assert_false(td_device_list_at("far-1,", 1, uuid));
    assert_false(td_device_list_at("", 0, uuid));
    assert_int_equal(td_device_list_count(""), 0);
    assert_int_equal(td_device_list_count("far-1"), 1);
    assert_int_equal(td_device_list_count("far-1,far-0"), 2);
    assert_true(td_device_list_has("far-1,far-0", "far-0"));
    assert_true(td_device_list_has("far-1,far-0", "far-1"));
    assert_false(td_device_list_has("far-1,far-0", "far-"));
    assert_false(td_device_list_has("", "far-0"));
}

// ---- what an accelerator says ------------------------------------------------------------------
static td_status find(const struct td_plugin_desc *desc, const char *uuid, int32_t *out_index) {
    const struct td_accelerator_ops *ops = desc->ops;
    struct td_accel_facts facts = {.struct_bytes = sizeof facts};
    assert_ok(ops->probe(&facts));
    return td_devices_find(desc->name, ops, &facts, uuid, out_index);
}

static void test_device_is_found_by_its_uuid(void **state) {
    (void)state;
    int32_t at = -1;
    assert_ok(find(&td_accelerator_far, "far-1", &at));
    assert_int_equal(at, 1);
    td_status s = find(&td_accelerator_far, "far-2", &at);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    assert_fails(s, TD_FAILED_PRECONDITION, "no device 'far-2' here; it has far-0, far-1");
    assert_fails(find(&td_accelerator_reference, "far-0", &at), TD_FAILED_PRECONDITION,
                 "none that has a name");
    assert_int_equal(at, 1);
}

static void test_devices_are_listed_as_json(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    struct td_accel_facts facts = {.struct_bytes = sizeof facts, .n_devices = 1};
    td_buf_init(&b, 4096);
    assert_ok(td_devices_print("far", td_accelerator_far.ops, &facts, &b));
    assert_string_equal(td_buf_cstr(&b), "[{\"uuid\":\"far-0\",\"name\":\"a device for tests\","
                                         "\"memory_bytes\":1073741824}]");
    td_buf_clear(&b);
    assert_ok(td_devices_print("reference", td_accelerator_reference.ops, &facts, &b));
    assert_string_equal(td_buf_cstr(&b), "null");
}

// As a plugin of XLA whose library has found the CPU.
static td_status host_after_all(int32_t i, struct td_device_info *out_info) {
    (void)i;
    out_info->is_host = true;
    return TD_OK;
}

static void test_devices_are_none_when_the_first_says_that_it_is_the_host(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    td_buf_init(&b, 4096);
    const struct td_accel_facts facts = {.struct_bytes = sizeof facts, .n_devices = 2};
    const struct td_accelerator_ops ops = {.struct_bytes = sizeof ops, .device_at = host_after_all};
    assert_ok(td_devices_print("xla", &ops, &facts, &b));
    assert_string_equal(td_buf_cstr(&b), "null");
}

static td_status twins(int32_t i, struct td_device_info *out_info) {
    (void)i;
    snprintf(out_info->uuid, sizeof out_info->uuid, "twin");
    return TD_OK;
}

static td_status spaced(int32_t i, struct td_device_info *out_info) {
    snprintf(out_info->uuid, sizeof out_info->uuid, "no %d", i);
    return TD_OK;
}

static void test_accelerator_is_blamed_when_it_names_devices_badly(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    td_buf_init(&b, 4096);
    const struct td_accel_facts facts = {.struct_bytes = sizeof facts, .n_devices = 2};
    struct td_accelerator_ops ops = {.struct_bytes = sizeof ops, .device_at = twins};
    td_status s = td_devices_print("odd", &ops, &facts, &b);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_fails(s, TD_FAILED_PRECONDITION, "its device 1 has the uuid of another");
    ops.device_at = spaced;
    assert_fails(td_devices_print("odd", &ops, &facts, &b), TD_FAILED_PRECONDITION,
                 "the uuid of its device 0 must have");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uuid_is_refused_when_it_is_no_word),
        cmocka_unit_test(test_list_gives_the_item_of_each_rank),
        cmocka_unit_test(test_device_is_found_by_its_uuid),
        cmocka_unit_test(test_devices_are_listed_as_json),
        cmocka_unit_test(test_devices_are_none_when_the_first_says_that_it_is_the_host),
        cmocka_unit_test(test_accelerator_is_blamed_when_it_names_devices_badly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
