// On which network a job over several nodes is placed: its nodes meet, can hold all its parts, and
// are named where they do not.

#include "tests/unit/coordinator/core/coord_parts.h"

static void join_at(struct rig *r, const char *name, const char *address, const char *boot) {
    r->address = address;
    r->boot = boot;
    add_node(r, name, 2);
}

static void test_nodes_that_do_not_meet_take_no_parts_of_one_attempt(void **state) {
    (void)state;
    static const struct {
        const char *address, *boot;
        bool meets; // 10.0.0.1 of boot "one"
    } cases[] = {{"10.0.0.2", "two", true},   {"192.168.7.7", "two", true},
                 {"127.0.0.1", "two", false}, {"127.0.0.1", "one", false},
                 {"fd00::2", "two", false},   {"::1", "one", false}};
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct rig r;
        char words[96];
        struct td_reason why;
        begin_alone(&r, &o);
        join_at(&r, "n-1", "10.0.0.1", "one");
        join_at(&r, "n-2", cases[i].address, cases[i].boot);
        create(&r, 0, spec);
        settle(&r);
        answer_all(&r);
        assert_int_equal(r.n_parts, cases[i].meets ? 2 : 0);
        why = reason(&r, 0);
        snprintf(words, sizeof words, "the collective address %s, of another network",
                 cases[i].address);
        assert_true(cases[i].meets || strstr(why.text, words) || strstr(why.text, "10.0.0.1, of"));
        end(&r);
    }
}

// Each time a node more without an address: the reason has the first of them by name, and how
// many. Its mark changes, so watchers see it.
static void test_nodes_without_an_interface_are_named_and_counted(void **state) {
    (void)state;
    static const struct {
        const char *joins, *words;
    } cases[] = {
        {"n-5", "a part: n-1; node n-5 has no collective interface (traind"},
        {"n-3", "; nodes n-3, n-5 have no collective interface (traind"},
        {"n-7", "; nodes n-3, n-5, n-7 have no"},
        {"n-6", "; nodes n-3, n-5, n-6, n-7 have no"},
        {"n-2", "; nodes n-2, n-3, n-5, n-6 and 1 more have no"},
        {"n-8", "; nodes n-2, n-3, n-5, n-6 and 2 more have no"},
    };
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig r;
    struct td_reason why;
    begin_alone(&r, &o);
    join_at(&r, "n-1", "10.0.0.1", "one");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const uint64_t before = td_queue_reason_mark(r.core, job(&r, 0), r.now.mono);
        join_at(&r, cases[i].joins, "", "two");
        answer_all(&r);
        why = reason(&r, 0);
        assert_string_equal(why.code, "WAITING_FOR_NODE");
        assert_non_null(strstr(why.text, "needs 2 nodes for 1 rank each, 1 connected node could"));
        if (!strstr(why.text, cases[i].words)) fail_msg("%s", why.text);
        assert_true(td_queue_reason_mark(r.core, job(&r, 0), r.now.mono) != before);
    }
    end(&r);
}

static void test_nodes_of_other_networks_are_named_and_counted(void **state) {
    (void)state;
    static const char *const others[] = {"fd00::2",   "127.0.0.1", "127.0.0.1",
                                         "127.0.0.1", "127.0.0.1", ""};
    static const char *const boots[] = {"two", "three", "four", "five", "six", "seven"};
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 3}");
    struct rig r;
    struct td_reason why;
    begin_alone(&r, &o);
    join_at(&r, "n-1", "10.0.0.1", "one");
    join_at(&r, "n-2", "10.0.0.2", "one");
    for (size_t i = 0; i < TD_COUNTOF(others); i++) {
        char name[8];
        snprintf(name, sizeof name, "n-%zu", i + 3);
        join_at(&r, name, others[i], boots[i]);
    }
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    why = reason(&r, 0);
    if (!strstr(why.text,
                "2 connected nodes could take a part: n-1, n-2; node n-8 has no collective "
                "interface (traind --collective-interface); nodes n-3 (fd00::2), n-4 "
                "(127.0.0.1), n-5 (127.0.0.1), n-6 (127.0.0.1) and 1 more have collective "
                "addresses of another network")) {
        fail_msg("%s", why.text);
    }
    end(&r);
}

static void test_nodes_of_one_machine_meet_by_loopback(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig r;
    begin_alone(&r, &o);
    join_at(&r, "n-1", "10.0.0.1", "one");
    join_at(&r, "n-2", "127.0.0.1", "two");
    join_at(&r, "n-3", "127.0.0.1", "three");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 0);
    join_at(&r, "n-4", "127.0.0.1", "three");
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    const struct td_attempt *a = job(&r, 0)->attempts[0];
    assert_string_equal(a->parts[0].node, "n-3");
    assert_string_equal(a->parts[1].node, "n-4");
    end(&r);
}

// Three of one network could take a part, but for their CPU level.
static void test_network_whose_nodes_lack_the_cpu_level_is_not_taken(void **state) {
    (void)state;
    static const char *const v4[] = {"n-1", "n-2", "n-3"};
    TD_AUTO_FREE char *any = make_spec_from(1, 1, ", resources: {nodes: 2}");
    TD_AUTO_FREE char *spec = make_at_level(any, "avx512");
    struct rig r;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    begin_alone(&r, &o);
    for (size_t i = 0; i < TD_COUNTOF(v4); i++) {
        join_as(&r, v4[i], 2, "avx2", NULL);
    }
    r.level = "avx512";
    join_at(&r, "n-4", "fd00::4", "boot");
    join_at(&r, "n-5", "fd00::5", "boot");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    assert_string_equal(job(&r, 0)->attempts[0]->parts[0].node, "n-4");
    end(&r);
}

static void lose_launcher(struct two *t) {
    run_both(t);
    say_at(t, t->b, "{\"event\":\"launcher_lost\",\"class\":\"internal\"}\n");
    say_at(t, t->a,
           "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"rank\":0,"
           "\"class\":\"collective\"}\n");
    assert_int_equal(job(&t->r, 0)->n_excluded, 1);
}

static void test_network_that_needs_no_excluded_node_is_taken_when_it_has_room(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    lose_launcher(&t); // of n-2
    join_at(&t.r, "n-3", "fd00::3", "boot");
    join_at(&t.r, "n-4", "fd00::4", "boot");
    pass(&t, 6, t.a);
    answer_all(&t.r);
    assert_int_equal(job(&t.r, 0)->n_attempts, 2);
    assert_string_equal(job(&t.r, 0)->attempts[1]->parts[0].node, "n-3");
    end_two(&t);
}

// What is left without it has no address for traffic between nodes.
static void test_excluded_node_takes_a_part_when_no_other_can(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    lose_launcher(&t);
    join_at(&t.r, "n-3", "", "boot");
    pass(&t, 6, t.a);
    answer_all(&t.r);
    assert_int_equal(job(&t.r, 0)->n_attempts, 2);
    assert_string_equal(job(&t.r, 0)->attempts[1]->parts[1].node, "n-2");
    end_two(&t);
}

// A network of one node has room for a part; one of two is busy, and could hold both.
static void test_network_that_could_hold_all_parts_is_waited_for(void **state) {
    (void)state;
    struct rig r;
    struct td_reason why;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *first = make_spec_from(1, 1, ", resources: {nodes: 2}");
    TD_AUTO_FREE char *second = make_spec_from(2, 2, ", resources: {nodes: 2}");
    begin_alone(&r, &o);
    join_at(&r, "n-1", "fd00::1", "boot");
    join_at(&r, "n-2", "fd00::2", "boot");
    create(&r, 0, first);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    join_at(&r, "n-3", "10.0.0.3", "boot");
    create(&r, 1, second);
    settle(&r);
    answer_all(&r);
    why = reason(&r, 1);
    if (!strstr(why.text, "0 of 2 ")) fail_msg("%s", why.text);
    end(&r);
}

// Two builds that meet and wait for each other would hang. Of one that does not say there may be
// several, so it takes no part.
static void test_nodes_whose_ranks_speak_otherwise_take_no_parts_of_one_attempt(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig r;
    struct td_reason why;
    begin_alone(&r, &o);
    join_at(&r, "n-1", "10.0.0.1", "one");
    r.ranks_language = TD_RANKS_LANGUAGE + 1;
    join_at(&r, "n-2", "10.0.0.2", "two");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 0);
    why = reason(&r, 0);
    assert_string_equal(why.code, "WAITING_FOR_NODE");
    if (!strstr(why.text, "is of another build, whose ranks")) fail_msg("%s", why.text);
    join_at(&r, "n-3", "10.0.0.3", "three");
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    const struct td_attempt *a = job(&r, 0)->attempts[0];
    assert_string_equal(a->parts[0].node, "n-2");
    assert_string_equal(a->parts[1].node, "n-3");
    end(&r);
}

static void test_nodes_that_do_not_say_what_their_ranks_speak_are_named(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig r;
    struct td_reason why;
    begin_alone(&r, &o);
    r.says_no_ranks_language = true;
    join_at(&r, "n-1", "10.0.0.1", "one");
    join_at(&r, "n-2", "10.0.0.2", "two");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 0);
    why = reason(&r, 0);
    if (!strstr(why.text, "nodes n-1, n-2 are of another build")) fail_msg("%s", why.text);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_do_not_meet_take_no_parts_of_one_attempt),
        cmocka_unit_test(test_nodes_without_an_interface_are_named_and_counted),
        cmocka_unit_test(test_nodes_of_other_networks_are_named_and_counted),
        cmocka_unit_test(test_nodes_of_one_machine_meet_by_loopback),
        cmocka_unit_test(test_network_whose_nodes_lack_the_cpu_level_is_not_taken),
        cmocka_unit_test(test_network_that_needs_no_excluded_node_is_taken_when_it_has_room),
        cmocka_unit_test(test_excluded_node_takes_a_part_when_no_other_can),
        cmocka_unit_test(test_nodes_whose_ranks_speak_otherwise_take_no_parts_of_one_attempt),
        cmocka_unit_test(test_nodes_that_do_not_say_what_their_ranks_speak_are_named),
        cmocka_unit_test(test_network_that_could_hold_all_parts_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
