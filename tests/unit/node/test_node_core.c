// The node's core: every cell of its table, sessions and their incarnation, stops that get
// stronger.
//
// Tags: tsan

#include "daemon/node/core/core.h"
#include "lib/base/clock.h"
#include "tests/unit/test.h"

static char job[] = "j-1";
static const struct td_mono t0 = {1000};

// What an input answered, as text: "STOP(1) REMOVE".
struct reply {
    char text[256];
    struct td_node_attempt *started;
};
static const char *const names[] = {
    "REGISTER", "HEARTBEAT", "START", "ABANDON", "REFUSE", "STOP",      "KILL",      "SAVE",
    "ADOPT",    "ACK",       "FINAL", "REMOVE",  "PLAN",   "PLAN_DROP", "RECONCILE", "STORE"};

static struct reply listen(struct td_node_core *c) {
    struct reply h = {0};
    struct td_node_action a;
    while (td_node_core_next(c, &a)) {
        size_t len = strlen(h.text);
        snprintf(h.text + len, sizeof h.text - len, "%s%s", len ? " " : "", names[a.kind]);
        if (a.kind == TD_NA_STOP) {
            len = strlen(h.text);
            snprintf(h.text + len, sizeof h.text - len, "(%d)", a.attempt->stop_mode);
        }
        if (a.kind == TD_NA_START) h.started = a.attempt;
    }
    return h;
}

static Traind__V1__AttemptId attempt_id(uint32_t attempt, uint64_t epoch) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = job;
    id.attempt = attempt;
    id.epoch = epoch;
    return id;
}

static struct reply say(struct td_node_core *c, struct td_mono now,
                        Traind__V1__CoordinatorMessage *m) {
    td_node_core_message(c, now, m);
    return listen(c);
}

static struct reply assign(struct td_node_core *c, uint32_t attempt, uint64_t epoch,
                           uint32_t ranks) {
    Traind__V1__AttemptId id = attempt_id(attempt, epoch);
    Traind__V1__Assign a = TRAIND__V1__ASSIGN__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    a.id = &id;
    a.n_ranks = a.world_size = ranks;
    a.slots_per_rank = 1;
    m.incarnation = 5;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN;
    m.assign = &a;
    return say(c, t0, &m);
}

static struct reply stop(struct td_node_core *c, int mode, uint64_t incarnation) {
    Traind__V1__AttemptId id = attempt_id(1, 7);
    Traind__V1__Stop s = TRAIND__V1__STOP__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    s.id = &id;
    s.mode = (Traind__V1__Stop__Mode)mode;
    s.grace_ms = 1000;
    m.incarnation = incarnation;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP;
    m.stop = &s;
    return say(c, t0, &m);
}

static struct reply registered(struct td_node_core *c, uint64_t incarnation,
                               Traind__V1__AttemptCursor *adopt, Traind__V1__AttemptId *unwanted) {
    Traind__V1__Registered r = TRAIND__V1__REGISTERED__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    r.heartbeat_ms = 1000;
    r.n_adopt = adopt != NULL;
    r.adopt = &adopt;
    r.n_stop = unwanted != NULL;
    r.stop = &unwanted;
    m.incarnation = incarnation;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED;
    m.registered = &r;
    return say(c, t0, &m);
}

static struct td_node_core *make_core(uint32_t slots) {
    struct td_node_core *c;
    assert_ok(td_node_core_create(slots, &c));
    td_node_core_up(c);
    assert_string_equal(listen(c).text, "REGISTER");
    assert_string_equal(registered(c, 5, NULL, NULL).text, "");
    return c;
}

static struct reply happens(struct td_node_core *c, struct td_node_attempt *a,
                            enum td_attempt_event e, td_status why) {
    td_node_core_event(c, t0, a, e, why);
    return listen(c);
}

// An attempt in the state asked for.
static struct td_node_attempt *in_state(struct td_node_core *c, enum td_node_attempt_state state) {
    struct td_node_attempt *a = assign(c, 1, 7, 2).started;
    assert_non_null(a);
    if (state != TD_AT_PREPARING) happens(c, a, TD_AE_STARTED, TD_OK);
    if (state == TD_AT_STOPPING) stop(c, 1, 5);
    if (state == TD_AT_KILLING) stop(c, 3, 5);
    if (state == TD_AT_ENDED) happens(c, a, TD_AE_GONE, TD_OK);
    assert_int_equal(a->state, state);
    return a;
}

static void test_core_answers_as_the_table_says_when_in_every_cell(void **state) {
    (void)state;
    enum { SAME = -1, REMOVED = -2 };
    static const struct {
        const char *text;
        int next;
    } cells[TD_AT_COUNT][TD_AE_COUNT] = {
        [TD_AT_PREPARING] = {{"", TD_AT_RUNNING},
                             {"REFUSE REMOVE", REMOVED},
                             {"ABANDON", SAME},
                             {"", SAME},
                             {"", SAME},
                             {"ABANDON", SAME}},
        [TD_AT_RUNNING] = {{"", SAME},
                           {"", SAME},
                           {"STOP(0)", TD_AT_STOPPING},
                           {"", SAME},
                           {"FINAL", TD_AT_ENDED},
                           {"STOP(3)", TD_AT_KILLING}},
        [TD_AT_STOPPING] = {{"", SAME},
                            {"", SAME},
                            {"STOP(1)", SAME},
                            {"STOP(3)", TD_AT_KILLING},
                            {"FINAL", TD_AT_ENDED},
                            {"STOP(3)", TD_AT_KILLING}},
        [TD_AT_KILLING] = {{"", SAME},
                           {"", SAME},
                           {"", SAME},
                           {"KILL", SAME},
                           {"FINAL", TD_AT_ENDED},
                           {"", SAME}},
        [TD_AT_ENDED] =
            {{"", SAME}, {"", SAME}, {"", SAME}, {"", SAME}, {"", SAME}, {"REMOVE", REMOVED}},
    };
    for (int s = 0; s < TD_AT_COUNT; s++) {
        for (int e = 0; e < TD_AE_COUNT; e++) {
            struct td_node_core *c = make_core(4);
            struct td_node_attempt *a = in_state(c, (enum td_node_attempt_state)s);
            td_status why = e == TD_AE_FAILED ? td_fail(TD_INTERNAL, "no") : TD_OK;
            struct reply h = happens(c, a, (enum td_attempt_event)e, why);
            print_message("# %s event %d\n",
                          td_node_attempt_state_name((enum td_node_attempt_state)s), e);
            assert_string_equal(h.text, cells[s][e].text);
            if (cells[s][e].next == REMOVED) {
                assert_null(td_node_core_find(c, job, 1));
            } else {
                assert_int_equal(a->state, cells[s][e].next == SAME ? s : cells[s][e].next);
            }
            td_node_core_destroy(c);
        }
    }
}

static void test_stop_gets_stronger_when_its_time_passes(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    struct td_node_attempt *a = in_state(c, TD_AT_RUNNING);
    assert_string_equal(stop(c, 1, 5).text, "STOP(1)");
    assert_string_equal(stop(c, 2, 5).text, "STOP(2)");
    assert_string_equal(stop(c, 1, 5).text, ""); // weaker: ignored
    struct td_mono late = {t0.ns + (1 + TD_NODE_STOP_MARGIN_S) * TD_NS_PER_S};
    td_node_core_tick(c, (struct td_mono){late.ns - 1});
    assert_string_equal(listen(c).text, "HEARTBEAT");
    td_node_core_tick(c, late);
    assert_string_equal(listen(c).text, "STOP(3)");
    for (int i = 0; i < 3; i++) {
        late.ns += TD_NODE_KILL_S * TD_NS_PER_S;
        assert_true(td_node_core_wake(c).ns <= late.ns);
        td_node_core_tick(c, late);
        assert_string_equal(listen(c).text, "HEARTBEAT KILL");
    }
    happens(c, a, TD_AE_GONE, TD_OK);
    assert_int_equal(td_node_core_slots_used(c), 0);
    td_node_core_destroy(c);
}

static void test_stop_is_kept_when_the_session_breaks(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    struct td_node_attempt *a = in_state(c, TD_AT_STOPPING);
    td_node_core_down(c);
    td_node_core_tick(c, (struct td_mono){t0.ns + 60 * TD_NS_PER_S});
    assert_string_equal(listen(c).text, "STOP(3)");
    assert_string_equal(happens(c, a, TD_AE_GONE, TD_OK).text,
                        ""); // reported with the next session
    Traind__V1__AttemptId id = attempt_id(1, 7);
    Traind__V1__AttemptCursor cursor = TRAIND__V1__ATTEMPT_CURSOR__INIT;
    cursor.id = &id;
    td_node_core_up(c);
    assert_string_equal(listen(c).text, "REGISTER");
    assert_string_equal(registered(c, 6, &cursor, NULL).text, "ADOPT FINAL");
    td_node_core_destroy(c);
}

static void test_messages_are_dropped_and_counted_when_stale(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    in_state(c, TD_AT_RUNNING);
    assert_string_equal(stop(c, 1, 4).text, "");      // another incarnation
    assert_string_equal(assign(c, 1, 7, 2).text, ""); // reported twice
    assert_string_equal(assign(c, 1, 8, 2).text, "REFUSE");
    assert_int_equal(td_node_core_stale(c), 1);
    td_node_core_down(c);
    assert_string_equal(stop(c, 1, 5).text, "");
    assert_int_equal(td_node_core_stale(c), 2);
    td_node_core_destroy(c);
}

static struct reply store_value(struct td_node_core *c, uint32_t attempt, uint64_t epoch) {
    Traind__V1__AttemptId id = attempt_id(attempt, epoch);
    Traind__V1__StoreValue value = TRAIND__V1__STORE_VALUE__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    char key[] = "k";
    value.id = &id;
    value.key = key;
    m.incarnation = 5;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_VALUE;
    m.store_value = &value;
    return say(c, t0, &m);
}

static void test_value_of_the_store_is_for_the_attempt_that_it_names(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    struct td_node_attempt *a = in_state(c, TD_AT_RUNNING);
    a->shell = a; // as if a launcher were there
    assert_string_equal(store_value(c, 1, 7).text, "STORE");
    assert_int_equal(td_node_core_stale(c), 0);
    assert_string_equal(store_value(c, 1, 8).text, "");
    assert_string_equal(store_value(c, 2, 7).text, "");
    assert_int_equal(td_node_core_stale(c), 2);
    td_node_core_destroy(c);
}

static void test_assignment_is_refused_when_slots_are_taken(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    assert_string_equal(assign(c, 1, 7, 3).text, "START");
    assert_int_equal(td_node_core_slots_used(c), 3);
    assert_string_equal(assign(c, 2, 8, 2).text, "REFUSE");
    assert_string_equal(assign(c, 3, 9, 1).text, "START");
    assert_string_equal(assign(c, 4, 9, 0).text, ""); // no attempt has no ranks
    td_node_core_destroy(c);
}

static void test_unwanted_attempts_go_when_the_coordinator_says_so(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    struct td_node_attempt *a = in_state(c, TD_AT_RUNNING);
    Traind__V1__AttemptId id = attempt_id(1, 7);
    assert_string_equal(registered(c, 5, NULL, &id).text, "STOP(3)");
    assert_string_equal(happens(c, a, TD_AE_GONE, TD_OK).text, "REMOVE");
    a = in_state(c, TD_AT_ENDED);
    assert_string_equal(registered(c, 5, NULL, &id).text, "");
    assert_int_equal(td_node_core_wake(c).ns, t0.ns);
    td_node_core_tick(c, t0);
    assert_string_equal(listen(c).text, "REMOVE");
    td_node_core_destroy(c);
}

static void test_attempt_that_is_abandoned_is_refused_when_it_was_stopped(void **state) {
    (void)state;
    struct td_node_core *c = make_core(4);
    struct td_node_attempt *a = in_state(c, TD_AT_PREPARING);
    assert_string_equal(stop(c, 1, 5).text, "ABANDON");
    // It may have started meanwhile; then the stop is given.
    assert_string_equal(happens(c, a, TD_AE_STARTED, TD_OK).text, "STOP(1)");
    assert_int_equal(a->state, TD_AT_STOPPING);
    td_node_core_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_answers_as_the_table_says_when_in_every_cell),
        cmocka_unit_test(test_stop_gets_stronger_when_its_time_passes),
        cmocka_unit_test(test_stop_is_kept_when_the_session_breaks),
        cmocka_unit_test(test_messages_are_dropped_and_counted_when_stale),
        cmocka_unit_test(test_value_of_the_store_is_for_the_attempt_that_it_names),
        cmocka_unit_test(test_assignment_is_refused_when_slots_are_taken),
        cmocka_unit_test(test_unwanted_attempts_go_when_the_coordinator_says_so),
        cmocka_unit_test(test_attempt_that_is_abandoned_is_refused_when_it_was_stopped),
    };
    return cmocka_run_group_tests_name("node_core", tests, NULL, NULL);
}
