// Who may register: a machine beside another of its name or id, one that comes back, one of
// another build. Sessions are opened by hand, because who speaks, and from where, is what counts.

#include "daemon/coordinator/core/core.h"
#include "tests/unit/coordinator/core/core_check.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/view.h"
#include "lib/spec/language.h"
#include "lib/version/version.h"
#include "tests/unit/test.h"

struct rig {
    struct td_core *core;
    struct td_now now;
    char driven_out[512]; // why another session ended when the last one registered
};

static struct rig begin(void) {
    struct rig r = {.now = {{TD_NS_PER_S}, {INT64_C(1700000000) * TD_NS_PER_S}}};
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    assert_ok(td_core_create(&o, &r.core));
    td_core_start(r.core, r.now);
    return r;
}

struct who {
    const char *id, *name, *boot, *from;
    uint32_t major;
    const char *language, *daemon; // NULL: its build does not say
};

// "": registered; else the reason for which its session ends. *out_text: the message.
static const char *registers(struct rig *r, const struct who *w, uint64_t *out_session,
                             char out_text[512]) {
    static char reason[64];
    uint64_t session = td_core_session_open(r->core, r->now, false);
    td_core_session_from(r->core, session, w->from);
    Traind__V1__Register reg = TRAIND__V1__REGISTER__INIT;
    reg.node_id = td_unconst(w->id);
    reg.name = td_unconst(w->name);
    reg.boot_id = td_unconst(w->boot);
    reg.version = td_unconst("7.7");
    reg.launcher_major = w->major;
    if (w->language) reg.plan_language = td_unconst(w->language);
    if (w->daemon) reg.daemon = td_unconst(w->daemon);
    reg.cores = reg.slots = 1;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &reg;
    td_core_session_message(r->core, r->now, session, &m);
    assert_ok(td_core_check(r->core));
    reason[0] = out_text[0] = r->driven_out[0] = '\0';
    struct td_core_effects out = td_core_take(r->core);
    for (const struct td_action *a = out.actions; a; a = a->next) {
        if (a->kind == TD_ACTION_CLOSE && a->session != session) {
            snprintf(r->driven_out, sizeof r->driven_out, "%s", a->text);
        }
        if (a->kind != TD_ACTION_CLOSE || a->session != session) continue;
        snprintf(reason, sizeof reason, "%s", a->failure ? td_status_reason(a->failure) : "closed");
        snprintf(out_text, 512, "%s", a->text);
    }
    td_core_effects_finish(&out);
    *out_session = session;
    return reason;
}

// The only node, in lists; said: part of its reason, "": it has none.
static void assert_shown(struct rig *r, Traind__V1__Node__State state, const char *said) {
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(1 << 20, &arena));
    const Traind__V1__ListNodesResponse *m =
        td_view_nodes(arena, r->core, r->now, td_page_of(0), "");
    assert_non_null(m);
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->nodes[0]->state, state);
    assert_non_null(strstr(m->nodes[0]->state_reason, said));
    assert_int_equal(!*said, !m->nodes[0]->state_reason[0]);
}

static const struct who first = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, NULL, NULL};

static void test_machine_with_a_copied_id_is_refused_while_the_first_speaks(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s1, s2;
    char text[512];
    assert_string_equal(registers(&r, &first, &s1, text), "");
    const struct who copy = {"n-1", "rack", "boot-2", "10.9.0.2:5000", 1, NULL, NULL};
    assert_string_equal(registers(&r, &copy, &s2, text), "NODE_EXISTS");
    assert_non_null(strstr(text, "n-1"));
    assert_non_null(strstr(text, "10.9.0.1:5000"));
    td_core_session_close(r.core, r.now, s2);
    td_core_session_close(r.core, r.now, s1); // it has gone: the disk may have moved
    assert_string_equal(registers(&r, &copy, &s2, text), "");
    td_core_destroy(r.core);
}

static void test_node_that_comes_back_is_never_refused(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512];
    assert_string_equal(registers(&r, &first, &s, text), "");
    const struct who same[] = {
        {"n-1", "rack", "boot-1", "10.9.0.1:6000", 1, NULL,
         NULL}, // its session broke, here unnoticed
        {"n-1", "rack", "boot-2", "10.9.0.1:6001", 1, NULL, NULL},  // it was booted
        {"n-1", "rack", "boot-2", "10.9.0.7:6002", 1, NULL, NULL},  // its address changed
        {"n-1", "other", "boot-2", "10.9.0.7:6003", 1, NULL, NULL}, // its name did
    };
    for (size_t i = 0; i < TD_COUNTOF(same); i++) {
        assert_string_equal(registers(&r, &same[i], &s, text), "");
    }
    td_core_destroy(r.core);
}

// One boot, as of two containers, or one address, by a router: which of the two starts of a
// daemon came first is seen when the first comes back.
static void test_copy_is_refused_when_the_one_that_it_drove_out_comes_back(void **state) {
    (void)state;
    const struct who copies[] = {
        {"n-1", "rack", "boot-1", "10.9.0.2:5000", 1, NULL, "start-b"},
        {"n-1", "rack", "boot-2", "10.9.0.1:5001", 1, NULL, "start-b"},
        {"n-1", "rack", "boot-1", "10.9.0.1:5002", 1, NULL, "start-b"},
    };
    const struct who original = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, NULL, "start-a"};
    const struct who again = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, NULL, "start-c"};
    for (size_t i = 0; i < TD_COUNTOF(copies); i++) {
        struct rig r = begin();
        uint64_t s, session;
        char text[512];
        assert_string_equal(registers(&r, &original, &s, text), "");
        assert_string_equal(registers(&r, &original, &s, text), ""); // its session broke, unnoticed
        assert_string_equal(registers(&r, &copies[i], &s, text), "");
        assert_string_equal(r.driven_out, "the node began another session");
        assert_string_equal(registers(&r, &original, &session, text), "");
        assert_non_null(strstr(r.driven_out, "node n-1 ('rack') has this id and speaks from "
                                             "10.9.0.1:5000; give this machine a state directory"));
        for (int k = 0; k < 2; k++) {
            assert_string_equal(registers(&r, &copies[i], &s, text), "NODE_EXISTS");
            assert_non_null(strstr(text, "speaks from 10.9.0.1:5000"));
            assert_string_equal(r.driven_out, "");
        }
        assert_string_equal(registers(&r, &again, &session, text), ""); // it started again
        assert_string_equal(registers(&r, &copies[i], &s, text), "NODE_EXISTS");
        td_core_session_close(r.core, r.now, session);
        assert_string_equal(registers(&r, &copies[i], &s, text), ""); // nobody else speaks
        td_core_destroy(r.core);
    }
}

static void test_daemon_that_starts_again_and_again_is_never_refused(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512], start[16];
    struct who w = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, NULL, start};
    for (int i = 0; i < 5; i++) {
        snprintf(start, sizeof start, "start-%d", i);
        assert_string_equal(registers(&r, &w, &s, text), ""); // the one before was not seen to end
        assert_string_equal(r.driven_out, i ? "the node began another session" : "");
    }
    td_core_destroy(r.core);
}

static void test_second_node_of_a_name_is_refused_while_the_first_speaks(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s1, s2;
    char text[512];
    const struct who second = {"n-2", "rack", "boot-2", "10.9.0.2:5000", 1, NULL, NULL};
    assert_string_equal(registers(&r, &first, &s1, text), "");
    assert_string_equal(registers(&r, &second, &s2, text), "NODE_EXISTS");
    assert_non_null(strstr(text, "node n-1 ('rack') has this name and speaks from 10.9.0.1:5000"));
    td_core_session_close(r.core, r.now, s2);
    td_core_session_close(r.core, r.now, s1);
    assert_string_equal(registers(&r, &second, &s2, text), "");
    td_core_destroy(r.core);
}

static void test_node_of_another_build_is_refused_with_both_versions(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512], wanted[128];
    const struct who old = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 2, NULL, NULL};
    assert_string_equal(registers(&r, &old, &s, text), "ABI_MISMATCH");
    assert_non_null(strstr(text, "traind 7.7, whose launchers speak version 2"));
    snprintf(wanted, sizeof wanted, "traind %s and reads version 1", td_version);
    assert_non_null(strstr(text, wanted));
    td_core_destroy(r.core);
}

// ---- nodes whose build does not fit -------------------------------------------------------------
static char own[TD_DIGEST_HEX]; // the language of plans of this build

static int name_own(void **state) {
    (void)state;
    td_spec_language(own);
    return 0;
}

static const struct who same = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, own, NULL};
static const struct who other = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 2, own, NULL};

// It is refused for its build, and its session ends. out_text: the message.
static void assert_mismatch(struct rig *r, const struct who *w, char out_text[512]) {
    uint64_t s;
    assert_string_equal(registers(r, w, &s, out_text), "ABI_MISMATCH");
    td_core_session_close(r->core, r->now, s);
}

// A refused node is shown with the reason until it registers; it holds nothing up.
static void test_refused_node_is_shown_incompatible_with_the_reason(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512];
    assert_mismatch(&r, &other, text);
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE, text);
    assert_string_equal(registers(&r, &same, &s, text), "");
    assert_shown(&r, TRAIND__V1__NODE__STATE__READY, "");
    td_core_session_close(r.core, r.now, s); // and back to that build
    assert_mismatch(&r, &other, text);
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE, "launchers speak version 2");
    td_core_destroy(r.core);
}

static void pass(struct rig *r, int64_t seconds) {
    r->now.mono.ns += seconds * TD_NS_PER_S;
    td_core_tick(r->core, r->now);
    struct td_core_effects out = td_core_take(r->core);
    td_core_effects_finish(&out);
}

static void test_refused_node_is_shown_no_longer_when_it_tries_no_more(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512];
    const struct who guest = {"n-2", "desk", "boot-2", "10.9.0.2:5000", 2, own, NULL};
    assert_string_equal(registers(&r, &same, &s, text), "");
    td_core_session_close(r.core, r.now, s);
    assert_mismatch(&r, &guest, text); // once, and never again
    for (int i = 0; i < 60; i++) {     // as long as one tries it is shown
        if (i % 5 == 0) assert_mismatch(&r, &other, text);
        pass(&r, 1);
    }
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE, "launchers speak version 2");
    for (int i = 0; i < 30; i++) {
        pass(&r, 1);
    }
    assert_shown(&r, TRAIND__V1__NODE__STATE__LOST, ""); // it registered once
    td_core_destroy(r.core);
}

static void test_refused_nodes_take_no_known_ones_place(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512], id[32];
    assert_string_equal(registers(&r, &same, &s, text), "");
    td_core_session_close(r.core, r.now, s);
    r.now.real.ns += TD_NS_PER_S; // so it is the one that was seen longest ago
    for (int i = 0; i < TD_CORE_MAX_NODES + 8; i++) {
        snprintf(id, sizeof id, "guest-%d", i);
        const struct who guest = {id, id, "boot-2", "10.9.0.2:5000", 2, own, NULL};
        assert_mismatch(&r, &guest, text);
    }
    assert_non_null(td_map_get(r.core->nodes, "n-1"));
    const struct who next = {"n-2", "desk", "boot-3", "10.9.0.3:5000", 1, own, NULL};
    assert_string_equal(registers(&r, &next, &s, text), "");
    assert_non_null(td_map_get(r.core->nodes, "n-1")); // a refused one made room
    td_core_destroy(r.core);
}

// Another machine with its id says nothing about a node that lives.
static void test_node_that_speaks_is_not_marked_by_a_refused_copy(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s, s2;
    char text[512];
    const struct who copy = {"n-1", "rack", "boot-2", "10.9.0.2:5000", 2, own, NULL};
    assert_string_equal(registers(&r, &same, &s, text), "");
    assert_string_equal(registers(&r, &copy, &s2, text), "ABI_MISMATCH");
    assert_shown(&r, TRAIND__V1__NODE__STATE__READY, "");
    td_core_destroy(r.core);
}

// Each of its jobs would fail by a key that it does not know, or has not. What runs there goes on.
static void test_node_whose_ranks_read_other_plans_has_a_session_and_no_jobs(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t s;
    char text[512], wanted[128];
    const struct who foreign = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, "0123456789abcdef",
                                NULL};
    const struct who older = {"n-1", "rack", "boot-1", "10.9.0.1:5000", 1, NULL, NULL};
    snprintf(wanted, sizeof wanted, "traind %s and writes form %s", td_version, own);
    assert_string_equal(registers(&r, &foreign, &s, text), "");
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE,
                 "traind 7.7, whose ranks read plans of another form (0123456789");
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE, wanted);
    assert_string_equal(registers(&r, &older, &s, text), "");
    assert_shown(&r, TRAIND__V1__NODE__STATE__INCOMPATIBLE, "traind 7.7, an older build");
    td_core_session_close(r.core, r.now, s);
    assert_shown(&r, TRAIND__V1__NODE__STATE__LOST, ""); // nobody is refused now
    assert_string_equal(registers(&r, &same, &s, text), "");
    assert_shown(&r, TRAIND__V1__NODE__STATE__READY, "");
    td_core_destroy(r.core);
}

// ---- sessions that do not register --------------------------------------------------------------
// How many were asked to end; those end. The first of them: *out_first.
static int ended(struct rig *r, uint64_t *out_first) {
    int n = 0;
    struct td_core_effects out = td_core_take(r->core);
    *out_first = 0;
    for (const struct td_action *a = out.actions; a; a = a->next) {
        if (a->kind != TD_ACTION_CLOSE) continue;
        if (!n++) *out_first = a->session;
        td_core_session_close(r->core, r->now, a->session);
    }
    td_core_effects_finish(&out);
    return n;
}

static void test_session_that_does_not_register_ends_after_a_lease(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t ends, who = 0;
    const uint64_t silent = td_core_session_open(r.core, r.now, false);
    (void)td_core_session_open(r.core, r.now, true); // in process
    int n = 0;
    for (int i = 1; i <= 12; i++) {
        r.now.mono.ns += TD_NS_PER_S;
        td_core_tick(r.core, r.now);
        n += ended(&r, &ends);
        assert_int_equal(n, i < 10 ? 0 : 1);
        if (ends) who = ends;
    }
    assert_true(who == silent);
    td_core_destroy(r.core);
}

static void test_sessions_that_do_not_register_keep_no_node_out(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t node, oldest = 0, ends;
    char text[512];
    for (int i = 0; i < 2 * TD_CORE_MAX_NODES; i++) { // one credential opens them
        uint64_t s = td_core_session_open(r.core, r.now, false);
        assert_true(s != 0);
        if (!i) oldest = s;
        assert_int_equal(ended(&r, &ends), i < TD_CORE_MAX_NODES ? 0 : 1);
        assert_true(!ends || ends == oldest + (uint64_t)(i - TD_CORE_MAX_NODES));
    }
    assert_string_equal(
        registers(&r, &(struct who){"n-1", "rack", "b", "10.9.0.1:5", 1, 0, 0}, &node, text), "");
    td_core_destroy(r.core);
}

// The end of a session that another one drove out may be seen late: its node is forgotten by then.
static void test_session_that_was_driven_out_outlives_its_node(void **state) {
    (void)state;
    struct rig r = begin();
    uint64_t driven_out, s;
    char text[512], id[16], from[32];
    assert_string_equal(registers(&r, &first, &driven_out, text), "");
    assert_string_equal(registers(&r, &first, &s, text), "");
    td_core_session_close(r.core, r.now, s);
    struct who w = {id, id, "boot", from, 1, NULL, NULL};
    for (int i = 0; i < TD_CORE_MAX_NODES; i++) { // the last one takes the place of n-1
        snprintf(id, sizeof id, "other-%d", i);
        snprintf(from, sizeof from, "10.8.%d.%d:5000", i / 250, i % 250);
        assert_string_equal(registers(&r, &w, &s, text), "");
        td_core_session_close(r.core, r.now, s);
    }
    // A newer node may have the memory of the one that went.
    assert_int_equal(r.core->sessions[0]->id, driven_out);
    assert_null(r.core->sessions[0]->node);
    td_core_session_close(r.core, r.now, driven_out);
    assert_ok(td_core_check(r.core));
    td_core_destroy(r.core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine_with_a_copied_id_is_refused_while_the_first_speaks),
        cmocka_unit_test(test_node_that_comes_back_is_never_refused),
        cmocka_unit_test(test_copy_is_refused_when_the_one_that_it_drove_out_comes_back),
        cmocka_unit_test(test_daemon_that_starts_again_and_again_is_never_refused),
        cmocka_unit_test(test_second_node_of_a_name_is_refused_while_the_first_speaks),
        cmocka_unit_test(test_node_of_another_build_is_refused_with_both_versions),
        cmocka_unit_test(test_refused_node_is_shown_incompatible_with_the_reason),
        cmocka_unit_test(test_refused_node_is_shown_no_longer_when_it_tries_no_more),
        cmocka_unit_test(test_refused_nodes_take_no_known_ones_place),
        cmocka_unit_test(test_node_that_speaks_is_not_marked_by_a_refused_copy),
        cmocka_unit_test(test_node_whose_ranks_read_other_plans_has_a_session_and_no_jobs),
        cmocka_unit_test(test_session_that_does_not_register_ends_after_a_lease),
        cmocka_unit_test(test_sessions_that_do_not_register_keep_no_node_out),
        cmocka_unit_test(test_session_that_was_driven_out_outlives_its_node),
    };
    return cmocka_run_group_tests(tests, name_own, NULL);
}
