// Devices of nodes in the coordinator's core: what plans and probes report is kept with the node,
// and ranks have devices of their own.

#include "tests/unit/coordinator/core/coord_devices.h"

// ---- what a node has ----------------------------------------------------------------------------

static void test_plan_says_what_devices_there_are(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    assert_null(td_host_accel_find(&d, "far"));
    assert_true(td_host_devices_take_plan(&d, "far", two));
    assert_false(td_host_devices_take_plan(&d, "far", two)); // nothing new
    const struct td_host_accel *a = td_host_accel_find(&d, "far");
    assert_int_equal(a->n, 2);
    assert_string_equal(a->device[1].uuid, "far-1");
    assert_string_equal(a->device[1].name, "b");
    assert_int_equal(a->device[1].memory_bytes, 7);
    assert_false(a->is_host);
    assert_true(td_host_devices_take_plan(&d, "my", "{\"accelerator\":\"my\",\"devices\":null}"));
    assert_true(td_host_accel_find(&d, "my")->is_host);
    assert_false(
        td_host_devices_take_plan(&d, "auto", "{\"accelerator\":\"cpu\",\"devices\":null}"));
    assert_false(td_host_devices_take_plan(&d, "x", "{\"state_bytes\":3}")); // of an older node
    assert_false(td_host_devices_take_plan(&d, "x", "no plan"));
    assert_true(td_host_devices_take_plan(&d, "far",
                                          "{\"accelerator\":\"far\",\"devices\":["
                                          "{\"uuid\":\"far-1\"},{\"uuid\":\"far 2\"},"
                                          "{\"uuid\":\"far-1\"},{}]}"));
    assert_int_equal(td_host_accel_find(&d, "far")->n, 1);
    assert_true(td_host_devices_forget(&d));
    assert_false(td_host_devices_forget(&d));
}

static void test_accelerator_used_longest_ago_goes_when_there_are_too_many(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    char json[64], name[16];
    for (int i = 0; i <= TD_HOST_ACCELERATORS; i++) {
        snprintf(name, sizeof name, "a%d", i);
        snprintf(json, sizeof json, "{\"accelerator\":\"a%d\",\"devices\":null}", i);
        if (i == TD_HOST_ACCELERATORS) td_host_devices_use(&d, "a0");
        assert_true(td_host_devices_take_plan(&d, name, json));
    }
    assert_non_null(td_host_accel_find(&d, "a0"));
    assert_null(td_host_accel_find(&d, "a1"));
    assert_non_null(td_host_accel_find(&d, name));
    assert_true(td_host_devices_forget(&d));
}

static void test_device_that_is_held_stays_so_when_the_list_changes(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    assert_true(td_host_devices_take_plan(&d, "far", two));
    td_host_devices_hold(&d, "far-1");
    assert_true(td_host_devices_take_plan(
        &d, "far", "{\"accelerator\":\"far\",\"devices\":[{\"uuid\":\"far-1\"}]}"));
    const struct td_device_want want = {.n = 2, .model = ""};
    assert_int_equal(td_host_devices_free(td_host_accel_find(&d, "far"), &want, 1), 0);
    assert_true(td_host_devices_take_plan(&d, "far@1", two));
    assert_int_equal(td_host_devices_free(td_host_accel_find(&d, "far@1"), &want, 1), 1);
    (void)td_host_devices_forget(&d);
}

static void test_record_brings_the_devices_back(void **state) {
    (void)state;
    TD_AUTO_BUF once, twice;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    struct td_host_devices d = {.n = 0}, read = {.n = 0};
    td_buf_init(&once, 1 << 16);
    td_buf_init(&twice, 1 << 16);
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_true(td_host_devices_take_plan(&d, "far", two));
    assert_true(td_host_devices_take_plan(&d, "my", "{\"accelerator\":\"my\",\"devices\":null}"));
    td_host_devices_refuse(&d, "other"); // until it registers again
    assert_int_equal(td_host_accel_find(&d, "other")->n, 0);
    assert_ok(td_host_devices_encode(&d, &once));
    assert_ok(td_json_parse(arena, once.data, once.len, &v));
    td_host_devices_decode(&read, v);
    assert_ok(td_host_devices_encode(&read, &twice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
    assert_int_equal(td_host_accel_find(&read, "far")->n, 2);
    (void)td_host_devices_forget(&d);
    (void)td_host_devices_forget(&read);
}

// ---- the probe's list ---------------------------------------------------------------------------

static void test_what_the_list_lacks_is_not_installed(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    struct listed before = {.n = 0}, after = {.n = 0};
    list(&before, "cpu", -1);
    list(&before, "far", 2);
    list(&after, "cpu", -1);
    assert_true(td_host_devices_take_plan(&d, "far@1",
                                          "{\"accelerator\":\"far\",\"devices\":["
                                          "{\"uuid\":\"x\"}]}"));
    assert_null(td_host_accel_find(&d, "far"));
    assert_true(td_host_devices_take_probe(&d, before.list, before.n));
    assert_false(td_host_devices_take_probe(&d, before.list, before.n));
    assert_int_equal(td_host_accel_find(&d, "far")->n, 2);
    assert_int_equal(td_host_accel_find(&d, "other")->n, 0);
    assert_null(td_host_accel_find(&d, "other@1")); // the spec's plugins may have it
    assert_true(td_host_devices_take_probe(&d, after.list, after.n));
    assert_int_equal(td_host_accel_find(&d, "far")->n, 0);
    assert_int_equal(td_host_accel_find(&d, "far@1")->n, 1);
    assert_false(td_host_devices_take_probe(&d, NULL, 0)); // an older node lists none
    assert_non_null(td_host_accel_find(&d, "far"));
    assert_true(td_host_devices_forget(&d));
    assert_null(td_host_accel_find(&d, "far"));
}

static void test_installed_accelerator_is_one_whatever_files_specs_list(void **state) {
    (void)state;
    static const char mine[] = "{\"accelerator\":\"far\",\"devices\":[{\"uuid\":\"mine\"}]}";
    static const char same[] = "{\"accelerator\":\"far\",\"devices\":[{\"uuid\":\"far-0\"},"
                               "{\"uuid\":\"far-1\"}]}";
    struct td_host_devices d = {.n = 0};
    struct listed l = {.n = 0};
    char key[32];
    list(&l, "far", 2);
    assert_true(td_host_devices_take_probe(&d, l.list, l.n));
    for (int i = 0; i < 3 * TD_HOST_ACCELERATORS; i++) {
        snprintf(key, sizeof key, "far@%d", i);
        assert_int_equal(td_host_accel_find(&d, key)->n, 2);
        assert_false(td_host_devices_take_plan(&d, key, same));
    }
    assert_int_equal(d.n, 1);
    assert_true(td_host_devices_take_plan(&d, "far@1", mine)); // the file is another plugin
    assert_int_equal(td_host_accel_find(&d, "far@1")->n, 1);
    assert_int_equal(td_host_accel_find(&d, "far@2")->n, 2);
    assert_true(td_host_devices_take_plan(&d, "far@1", same));
    assert_int_equal(d.n, 1);
    (void)td_host_devices_forget(&d);
}

// ---- jobs ---------------------------------------------------------------------------------------

static void test_node_keeps_its_devices_when_the_coordinator_starts_again(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct rig r;
    size_t used;
    begin(&r, 4);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(shown(&r, &used), 0);
    answer_plans_with(&r, two);
    assert_int_equal(shown(&r, &used), 2);
    start_again(&r, &o);
    assert_int_equal(shown(&r, &used), 2);
    end(&r);
}

// ---- the queue ----------------------------------------------------------------------------------

static void test_each_rank_has_a_device_of_its_own(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = far_spec(1, 1), *other = far_spec(2, 1);
    struct rig r;
    size_t used;
    begin(&r, 4);
    create(&r, 1, one);
    settle(&r);
    assert_string_equal(reason(&r, 1).code, "PLANNING");
    answer_plans_with(&r, two);
    assert_string_equal(last(&r, 1)->parts[0].devices, "far-0");
    create(&r, 2, other);
    settle(&r);
    answer_plans_with(&r, two);
    assert_string_equal(last(&r, 2)->parts[0].devices, "far-1");
    assert_int_equal(shown(&r, &used), 2);
    assert_int_equal(used, 2);
    end(&r);
}

static void test_job_waits_for_devices_with_numbers_and_others_pass_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = far_spec(1, 1), *pair = far_spec(2, 2), *single = far_spec(3, 1),
                      *host = make_spec(4, 1);
    struct rig r;
    begin(&r, 8);
    create(&r, 1, one);
    settle(&r);
    answer_plans_with(&r, two);
    char first[TD_JOB_ID_MAX];
    memcpy(first, r.assigned, sizeof first);
    const uint64_t epoch = r.epoch;
    create(&r, 2, pair);
    settle(&r);
    answer_plans_with(&r, two);
    create(&r, 3, single);
    settle(&r);
    answer_plans_with(&r, two);
    create(&r, 4, host);
    settle(&r);
    answer_plans(&r);
    const struct td_reason why = reason(&r, 2);
    assert_string_equal(why.code, "WAITING_FOR_DEVICES");
    assert_string_equal(why.text, "needs 2 devices of 'far', 1 free on node n-1 (2 devices); job "
                                  "j-000000000001 (n) runs there");
    assert_int_equal(why.needed_devices, 2);
    assert_int_equal(why.free_devices, 1);
    assert_int_equal(why.all_devices, 2);
    assert_int_equal(why.position, 1);
    assert_string_equal(reason(&r, 3).code, "WAITING_FOR_DEVICES"); // the free one is kept for 2
    assert_int_equal(reason(&r, 3).free_devices, 0);
    assert_int_equal(job(&r, 4)->n_attempts, 1); // it needs none
    assert_null(last(&r, 4)->parts[0].devices);

    memcpy(r.assigned, first, sizeof first); // the first ends: both devices are job 2's
    r.epoch = epoch;
    r.events = 0;
    finish_running(&r);
    settle(&r);
    assert_string_equal(last(&r, 2)->parts[0].devices, "far-0,far-1");
    assert_int_equal(job(&r, 3)->n_attempts, 0);
    end(&r);
}

static void test_job_fails_when_no_node_has_so_many_devices(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = far_spec(1, 3), *later = far_spec(2, 3);
    struct rig r;
    const struct td_job *j = NULL;
    begin(&r, 4);
    create(&r, 1, spec);
    settle(&r);
    answer_plans_with(&r, two);
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    assert_string_equal(job(&r, 1)->reason.code, "UNSATISFIABLE");
    assert_non_null(
        strstr(job(&r, 1)->reason.text, "3 ranks need a device of 'far' each, node n-1 has 2"));
    assert_int_equal(job(&r, 1)->n_attempts, 0);
    assert_fails(try_create(&r, 2, later, &j), TD_FAILED_PRECONDITION, "node n-1 has 2");
    end(&r);
}

static void test_adopted_attempt_holds_its_devices_after_a_restart(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *one = far_spec(1, 2), *other = far_spec(2, 1);
    struct rig r;
    begin(&r, 4);
    create(&r, 1, one);
    settle(&r);
    answer_plans_with(&r, two);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    start_again(&r, &o);
    assert_string_equal(last(&r, 1)->parts[0].devices, "far-0,far-1");
    r.session = td_core_session_open(r.core, r.now, false);
    Traind__V1__AttemptId id = attempt_id(&r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    say_register_with(&r, "n-1", 4, &held);
    settle(&r);
    create(&r, 2, other);
    settle(&r);
    answer_plans_with(&r, two);
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_DEVICES");
    assert_int_equal(reason(&r, 2).free_devices, 0);
    end(&r);
}

static void test_node_that_nobody_asked_is_planned_on_before_it_is_used(void **state) {
    (void)state;
    TD_AUTO_FREE char *pair = far_spec(1, 2), *one = far_spec(2, 1);
    struct rig r;
    begin(&r, 4);
    create(&r, 1, pair);
    settle(&r);
    answer_plans_with(&r, two);
    create(&r, 2, one);
    settle(&r);
    answer_plans_with(&r, two);
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_DEVICES");
    add_node(&r, "n-2", 4);
    assert_int_equal(r.n_requests, 1); // the sizes are known, the devices of n-2 are not
    assert_string_equal(reason(&r, 2).code, "PLANNING");
    answer_plans_with(&r, "{\"accelerator\":\"far\",\"devices\":[{\"uuid\":\"far-9\"}]}");
    assert_string_equal(last(&r, 2)->parts[0].devices, "far-9");
    assert_string_equal(last(&r, 2)->parts[0].node, "n-2");
    end(&r);
}

static void test_plugins_of_the_same_name_are_apart_when_the_files_are_others(void **state) {
    (void)state;
    static const char *const specs[] = {
        "{plugins: [/a], model: {name: mlp, layers: [2, 2]}, data: {name: synthetic, samples: 8,"
        " features: 2, classes: 2, batch_size: 2}, optimizer: {name: sgd, lr: 0.1},"
        " trainer: {accelerator: {name: plugin, accelerator: far}}}",
        "{plugins: [/b], model: {name: mlp, layers: [2, 2]}, data: {name: synthetic, samples: 8,"
        " features: 2, classes: 2, batch_size: 2}, optimizer: {name: sgd, lr: 0.1},"
        " trainer: {accelerator: {name: plugin, accelerator: far}}}"};
    char key[2][TD_ACCEL_KEY];
    for (int i = 0; i < 2; i++) {
        TD_AUTO(td_arena) *arena = NULL;
        struct td_json *tree = NULL;
        struct td_spec spec;
        assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
        assert_ok(td_spec_parse(arena, specs[i], strlen(specs[i]), NULL, 0, &tree));
        td_spec_read(tree, &spec);
        td_accel_key(&spec, key[i]);
        assert_int_equal(td_accel_name_len(key[i]), 3);
        assert_memory_equal(key[i], "far@", 4);
    }
    assert_string_not_equal(key[0], key[1]);
    assert_true(td_accel_is_host("cpu"));
    assert_false(td_accel_is_host("far"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_says_what_devices_there_are),
        cmocka_unit_test(test_accelerator_used_longest_ago_goes_when_there_are_too_many),
        cmocka_unit_test(test_device_that_is_held_stays_so_when_the_list_changes),
        cmocka_unit_test(test_record_brings_the_devices_back),
        cmocka_unit_test(test_what_the_list_lacks_is_not_installed),
        cmocka_unit_test(test_installed_accelerator_is_one_whatever_files_specs_list),
        cmocka_unit_test(test_node_keeps_its_devices_when_the_coordinator_starts_again),
        cmocka_unit_test(test_each_rank_has_a_device_of_its_own),
        cmocka_unit_test(test_job_waits_for_devices_with_numbers_and_others_pass_it),
        cmocka_unit_test(test_job_fails_when_no_node_has_so_many_devices),
        cmocka_unit_test(test_adopted_attempt_holds_its_devices_after_a_restart),
        cmocka_unit_test(test_node_that_nobody_asked_is_planned_on_before_it_is_used),
        cmocka_unit_test(test_plugins_of_the_same_name_are_apart_when_the_files_are_others),
    };
    return cmocka_run_group_tests_name("coord_devices", tests, NULL, NULL);
}
