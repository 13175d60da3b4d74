// The coordinator's part of the rendezvous store: who gets which value, what is refused and what is
// counted. The test plays the nodes of an attempt with two of them (meeting_rig.h).

#include "tests/unit/coordinator/core/meeting_rig.h"

#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "lib/attempt/store_message.h"

static const char *set_as(struct meeting *m, int node, Traind__V1__AttemptId id, const char *key,
                          const void *data, size_t bytes) {
    Traind__V1__StoreSet set = TRAIND__V1__STORE_SET__INIT;
    Traind__V1__NodeMessage x = TRAIND__V1__NODE_MESSAGE__INIT;
    set.id = &id;
    set.key = td_unconst(key);
    set.value = (ProtobufCBinaryData){bytes, td_unconst(data)};
    x.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_SET;
    x.store_set = &set;
    return say_as(m, node, &x);
}

static const char *set(struct meeting *m, int node, const char *key, const char *text) {
    return set_as(m, node, attempt_id(&m->rig), key, text, strlen(text));
}

static const char *want_as(struct meeting *m, int node, Traind__V1__AttemptId id, const char *key) {
    Traind__V1__StoreWant want = TRAIND__V1__STORE_WANT__INIT;
    Traind__V1__NodeMessage x = TRAIND__V1__NODE_MESSAGE__INIT;
    want.id = &id;
    want.key = td_unconst(key);
    x.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_WANT;
    x.store_want = &want;
    return say_as(m, node, &x);
}

static const char *want(struct meeting *m, int node, const char *key) {
    return want_as(m, node, attempt_id(&m->rig), key);
}

static const char *taken(struct meeting *m, int node, uint32_t values) {
    Traind__V1__StoreTaken t = TRAIND__V1__STORE_TAKEN__INIT;
    Traind__V1__NodeMessage x = TRAIND__V1__NODE_MESSAGE__INIT;
    t.values = values;
    x.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_TAKEN;
    x.store_taken = &t;
    return say_as(m, node, &x);
}

static void test_value_goes_to_the_node_that_waits_for_it(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    assert_string_equal(want(&m, 1, "k"), "");
    assert_string_equal(want(&m, 1, "k"), ""); // said again
    assert_string_equal(set(&m, 0, "k", "abc"), "0:done k 0  | 1:value k=abc");
    assert_string_equal(set(&m, 0, "k", "abc"), "0:done k 0 "); // again, and nobody waits now
    assert_string_equal(want(&m, 1, "k"), "1:value k=abc");
    assert_string_equal(want(&m, 0, "k"), "0:value k=abc");
    end_meeting(&m);
}

static void test_other_bytes_are_refused_and_the_first_ones_stay(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    (void)set(&m, 0, "k", "abc");
    const char *said = set(&m, 1, "k", "abd");
    assert_ptr_equal(strstr(said, "1:done k 9 key 'k'"), said);
    assert_string_equal(want(&m, 1, "k"), "1:value k=abc");
    said = set(&m, 1, "no key", "x");
    assert_ptr_equal(strstr(said, "1:done no key 3 "), said);
    end_meeting(&m);
}

static void test_stale_messages_are_dropped_and_counted(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    char other[] = "j-00000000ffff";
    Traind__V1__AttemptId wrong[3] = {attempt_id(&m.rig), attempt_id(&m.rig), attempt_id(&m.rig)};
    wrong[0].epoch++;
    wrong[1].job = other;
    wrong[2].attempt++;
    const uint32_t before = td_core_counter(m.rig.core, TD_COUNT_STALE);
    for (uint32_t i = 0; i < 3; i++) {
        assert_string_equal(set_as(&m, 0, wrong[i], "k", "x", 1), "");
        assert_string_equal(want_as(&m, 0, wrong[i], "k"), "");
        assert_int_equal(td_core_counter(m.rig.core, TD_COUNT_STALE), before + 2 * (i + 1));
    }
    m.rig.session = m.sessions[1] = td_core_session_open(m.rig.core, m.rig.now, false);
    say_register(&m.rig, "n-3", 2); // a node that has no part of it
    assert_string_equal(set(&m, 1, "k", "x"), "");
    assert_int_equal(td_core_counter(m.rig.core, TD_COUNT_STALE), before + 7);
    assert_string_equal(want(&m, 0, "k"), ""); // nothing of all that was kept
    end_meeting(&m);
}

static uint32_t beat(struct meeting *m, int node, uint32_t n_stale) {
    Traind__V1__Heartbeat h = TRAIND__V1__HEARTBEAT__INIT;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    h.stale_messages = n_stale;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
    up.heartbeat = &h;
    m->rig.session = m->sessions[node];
    say(&m->rig, &up);
    return td_core_counter(m->rig.core, TD_COUNT_NODE_STALE);
}

static void test_what_nodes_drop_is_counted_once(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    assert_int_equal(beat(&m, 0, 0), 0);
    assert_int_equal(beat(&m, 0, 3), 3);
    assert_int_equal(beat(&m, 0, 3), 3);
    assert_int_equal(beat(&m, 1, 2), 5);
    assert_int_equal(beat(&m, 0, 4), 6);
    assert_int_equal(beat(&m, 0, 1), 7); // its daemon has begun again
    assert_string_equal(td_core_counter_name(TD_COUNT_NODE_STALE), "node_stale_messages");
    end_meeting(&m);
}

static void test_few_values_are_on_their_way_to_a_node(void **state) {
    (void)state;
    struct meeting m;
    char key[16];
    begin_meeting(&m, 2);
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)set(&m, 0, key, "v");
        (void)want(&m, 1, key);
    }
    assert_int_equal(m.values, TD_RENDEZVOUS_FLYING);
    assert_string_equal(taken(&m, 1, 1), "1:value k4=v");
    assert_string_equal(taken(&m, 0, 1), ""); // another node's
    assert_string_equal(taken(&m, 1, UINT32_MAX), "1:value k5=v");
    end_meeting(&m);
}

static void test_node_that_registers_again_says_its_wants_again(void **state) {
    (void)state;
    struct meeting m;
    char key[16];
    begin_meeting(&m, 2);
    for (int i = 0; i < TD_RENDEZVOUS_FLYING; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)set(&m, 0, key, "v");
        (void)want(&m, 1, key); // on their way, and lost with the session
    }
    (void)want(&m, 1, "late");
    td_core_session_close(m.rig.core, m.rig.now, m.sessions[1]);
    take(&m.rig);
    enter(&m, 1);
    assert_string_equal(set(&m, 0, "late", "x"), "0:done late 0 ");
    assert_string_equal(want(&m, 1, "late"), "1:value late=x");
    assert_string_equal(want(&m, 1, "k0"), "1:value k0=v");
    end_meeting(&m);
}

static void test_coordinator_that_is_started_again_learns_it_again(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    (void)set(&m, 0, "k", "abc");
    start_again(&m.rig, &meeting_options);
    enter(&m, 0);
    enter(&m, 1);
    assert_string_equal(want(&m, 1, "k"), ""); // it was in memory alone
    assert_string_equal(set(&m, 0, "k", "abc"), "0:done k 0  | 1:value k=abc");
    end_meeting(&m);
}

static void test_bounds_are_named(void **state) {
    (void)state;
    struct meeting m;
    char key[32];
    static char large[TD_STORE_VALUE_MAX];
    begin_meeting(&m, 2);
    for (int i = 0; i < TD_STORE_BYTES_MAX / TD_STORE_VALUE_MAX; i++) {
        snprintf(key, sizeof key, "large/%d", i);
        const char *said = set_as(&m, 0, attempt_id(&m.rig), key, large, sizeof large);
        assert_non_null(strstr(said, " 0 "));
    }
    assert_non_null(strstr(set(&m, 1, "more", "x"), "1:done more 8 key 'more' with 1 bytes"));
    for (int i = 0; i < TD_STORE_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "wanted/%d", i);
        assert_string_equal(want(&m, 1, key), "");
    }
    assert_non_null(strstr(want(&m, 1, "more"), "1:done more 8 key 'more': the ranks"));
    end_meeting(&m);
}

static void test_store_is_empty_when_the_attempt_is_over(void **state) {
    (void)state;
    struct meeting m;
    begin_meeting(&m, 2);
    (void)set(&m, 0, "k", "abc");
    const uint32_t before = td_core_counter(m.rig.core, TD_COUNT_STALE);
    const struct td_job *j = NULL;
    assert_ok(td_core_cancel(m.rig.core, m.rig.now, m.rig.assigned, "", &j));
    take(&m.rig);
    m.rig.session = m.sessions[0];
    say_register(&m.rig, "n-1", 2); // without the attempt: it is lost, and so fenced
    assert_string_equal(want(&m, 1, "k"), "");
    assert_int_equal(td_core_counter(m.rig.core, TD_COUNT_STALE), before + 1);
    end_meeting(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_goes_to_the_node_that_waits_for_it),
        cmocka_unit_test(test_other_bytes_are_refused_and_the_first_ones_stay),
        cmocka_unit_test(test_stale_messages_are_dropped_and_counted),
        cmocka_unit_test(test_what_nodes_drop_is_counted_once),
        cmocka_unit_test(test_few_values_are_on_their_way_to_a_node),
        cmocka_unit_test(test_node_that_registers_again_says_its_wants_again),
        cmocka_unit_test(test_coordinator_that_is_started_again_learns_it_again),
        cmocka_unit_test(test_bounds_are_named),
        cmocka_unit_test(test_store_is_empty_when_the_attempt_is_over),
    };
    return cmocka_run_group_tests_name("coord_rendezvous", tests, NULL, NULL);
}
