// Devices of nodes in the coordinator's core: what plans and probes report is kept with the node,
// and ranks have devices of their own.

#include "daemon/coordinator/core/host_devices.h"
#include "daemon/coordinator/core/view.h"
#include "tests/unit/coord_rig.h"

// ---- what a node has ----------------------------------------------------------------------------
static const char two[] = "{\"accelerator\":\"far\",\"devices\":["
                          "{\"uuid\":\"far-0\",\"name\":\"a\",\"memory_bytes\":7},"
                          "{\"uuid\":\"far-1\",\"name\":\"b\",\"memory_bytes\":7}]}";

static void test_plan_says_what_devices_there_are(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    assert_null(td_host_accel_find(&d, "far"));
    assert_true(td_host_devices_take_plan(&d, two));
    assert_false(td_host_devices_take_plan(&d, two)); // nothing new
    const struct td_host_accel *a = td_host_accel_find(&d, "far");
    assert_int_equal(a->n, 2);
    assert_string_equal(a->device[1].uuid, "far-1");
    assert_string_equal(a->device[1].name, "b");
    assert_int_equal(a->device[1].memory_bytes, 7);
    assert_false(a->is_host);
    assert_true(td_host_devices_take_plan(&d, "{\"accelerator\":\"cpu\",\"devices\":null}"));
    assert_true(td_host_accel_find(&d, "cpu")->is_host);
    assert_false(td_host_devices_take_plan(&d, "{\"state_bytes\":3}")); // of an older node
    assert_false(td_host_devices_take_plan(&d, "no plan"));
    assert_true(td_host_devices_take_plan(&d, "{\"accelerator\":\"far\",\"devices\":["
                                              "{\"uuid\":\"far-1\"},{\"uuid\":\"far 2\"},"
                                              "{\"uuid\":\"far-1\"},{}]}"));
    assert_int_equal(td_host_accel_find(&d, "far")->n, 1);
    assert_true(td_host_devices_forget(&d));
    assert_false(td_host_devices_forget(&d));
}

static void test_accelerator_listed_longest_ago_goes_when_there_are_too_many(void **state) {
    (void)state;
    struct td_host_devices d = {.n = 0};
    char json[64], name[16];
    for (int i = 0; i <= TD_HOST_ACCELERATORS; i++) {
        snprintf(json, sizeof json, "{\"accelerator\":\"a%d\",\"devices\":null}", i);
        assert_true(td_host_devices_take_plan(&d, json));
    }
    assert_null(td_host_accel_find(&d, "a0"));
    snprintf(name, sizeof name, "a%d", TD_HOST_ACCELERATORS);
    assert_non_null(td_host_accel_find(&d, name));
    assert_true(td_host_devices_forget(&d));
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
    assert_true(td_host_devices_take_plan(&d, two));
    assert_true(td_host_devices_take_plan(&d, "{\"accelerator\":\"cpu\",\"devices\":null}"));
    assert_ok(td_host_devices_encode(&d, &once));
    assert_ok(td_json_parse(arena, once.data, once.len, &v));
    td_host_devices_decode(&read, v);
    assert_ok(td_host_devices_encode(&read, &twice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
    assert_int_equal(td_host_accel_find(&read, "far")->n, 2);
    (void)td_host_devices_forget(&d);
    (void)td_host_devices_forget(&read);
}

// ---- jobs ---------------------------------------------------------------------------------------
static char *far_spec(int seed, int n_ranks) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF text;
    char spec[640];
    snprintf(spec, sizeof spec,
             "{name: n, seed_everything: %d, model: {name: mlp, layers: [2, 2]},"
             " data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 2},"
             " optimizer: {name: sgd, lr: 0.1}, trainer: {devices: %d,"
             " accelerator: {name: plugin, accelerator: far}}}",
             seed, n_ranks);
    td_buf_init(&text, 1 << 20);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    assert_ok(td_spec_parse(arena, spec, strlen(spec), NULL, 0, &tree));
    assert_ok(td_json_print(tree, false, &text));
    return td_buf_take_cstr(&text);
}

static void answer_plans_with(struct rig *r, const char *json) {
    while (r->n_requests) {
        answer_plan_with(r, r->requests[--r->n_requests], json);
        settle(r);
    }
}

static size_t shown(struct rig *r, size_t *out_used) {
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(1 << 20, &arena));
    const Traind__V1__ListNodesResponse *m = td_view_nodes(arena, r->core, r->now);
    assert_int_equal(m->n_nodes, 1);
    *out_used = 0;
    if (!m->nodes[0]->n_devices) return 0;
    const Traind__V1__AcceleratorDevices *a = m->nodes[0]->devices[0];
    assert_string_equal(a->accelerator, "far");
    for (size_t i = 0; i < a->n_devices; i++) {
        *out_used += a->devices[i]->used;
    }
    return a->n_devices;
}

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_says_what_devices_there_are),
        cmocka_unit_test(test_accelerator_listed_longest_ago_goes_when_there_are_too_many),
        cmocka_unit_test(test_record_brings_the_devices_back),
        cmocka_unit_test(test_node_keeps_its_devices_when_the_coordinator_starts_again),
    };
    return cmocka_run_group_tests_name("coord_devices", tests, NULL, NULL);
}
