// Caps on live calls. A name has half of its role's quarter, and viewers and submitters lock out
// nobody else. Operators and admins have what is left and a reserve. What ends gives its place
// back.

#include <stdio.h>

#include "daemon/coordinator/shell/access/caps.h"
#include "lib/base/buf.h"
#include "tests/unit/test.h"

enum { MANY = 2048, WATCHES = 512 };

static struct td_caller person(const char *name, enum td_access_role role) {
    return (struct td_caller){.token = "id", .name = name, .role = role};
}

struct held {
    struct td_seat *seat[MANY];
    size_t n;
};

// Opens calls until one is refused, which is checked.
static size_t fill(struct td_caps *caps, struct td_caller who, const char *method,
                   struct held *held, const char *reason) {
    size_t before = held->n;
    while (held->n < MANY) {
        td_status s = td_caps_enter(caps, &who, method, &held->seat[held->n]);
        if (!s) {
            held->n++;
            continue;
        }
        assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
        assert_string_equal(td_status_reason(s), reason);
        assert_non_null(strstr(td_status_message(s), td_access_role_name(who.role)));
        assert_non_null(strstr(td_status_message(s), who.name));
        td_status_free(s);
        return held->n - before;
    }
    fail_msg("%s was never refused", method);
    return 0;
}

static void drop(struct td_caps *caps, struct held *held, const char *method) {
    while (held->n) {
        td_caps_leave(caps, held->seat[--held->n], method);
    }
}

static void test_name_has_half_of_its_roles_quarter_and_the_role_the_quarter(void **state) {
    (void)state;
    TD_AUTO(td_caps) *caps = NULL;
    static struct held held;
    assert_ok(td_caps_create(&caps));
    const char *names[] = {"ann", "bob", "eve"};
    const size_t expected[] = {WATCHES / 8, WATCHES / 8, 0};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        size_t n = fill(caps, person(names[i], TD_ROLE_VIEWER), "WatchJob", &held, "LIMIT_WATCHES");
        assert_int_equal(n, expected[i]);
    }
    drop(caps, &held, "WatchJob");
    assert_int_equal(td_caps_count(caps, TD_CAP_WATCHES), 0);
    assert_int_equal(td_caps_count(caps, TD_CAP_CALLS), 0);
}

static void test_refusal_says_the_limit_the_role_and_what_the_name_holds(void **state) {
    (void)state;
    TD_AUTO(td_caps) *caps = NULL;
    static struct held held;
    const struct td_caller bob = person("bob", TD_ROLE_SUBMITTER);
    struct td_seat *seat = NULL;
    assert_ok(td_caps_create(&caps));
    fill(caps, bob, "PlanJob", &held, "LIMIT_PLANS");
    td_status s = td_caps_enter(caps, &bob, "PlanJob", &seat);
    assert_string_equal(td_status_message(s),
                        "'bob' holds 8 plans that are waited for, as many as one name with the "
                        "role submitter may; end some of them first");
    td_status_free(s);
    drop(caps, &held, "PlanJob");
}

// Viewers, submitters and those that join do all that they can; nodes, too.
static void test_operators_and_admins_have_room_when_all_others_took_all_they_can(void **state) {
    (void)state;
    TD_AUTO(td_caps) *caps = NULL;
    static struct held held, of_staff;
    char name[16];
    assert_ok(td_caps_create(&caps));
    const enum td_access_role roles[] = {TD_ROLE_VIEWER, TD_ROLE_SUBMITTER, TD_ROLE_JOIN,
                                         TD_ROLE_NODE};
    for (size_t r = 0; r < TD_COUNTOF(roles); r++) {
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "x%d", i);
            fill(caps, person(name, roles[r]), "WatchJob", &held, "LIMIT_WATCHES");
        }
    }
    assert_int_equal(td_caps_count(caps, TD_CAP_WATCHES), WATCHES - WATCHES / 8);
    const struct td_caller op = person("op", TD_ROLE_OPERATOR);
    assert_int_equal(fill(caps, op, "WatchJob", &of_staff, "LIMIT_WATCHES"), WATCHES / 8);
    drop(caps, &held, "WatchJob");
    drop(caps, &of_staff, "WatchJob");
}

static void test_admin_has_no_share(void **state) {
    (void)state;
    TD_AUTO(td_caps) *caps = NULL;
    static struct held held;
    assert_ok(td_caps_create(&caps));
    const struct td_caller owner = person("owner", TD_ROLE_ADMIN);
    assert_int_equal(fill(caps, owner, "WatchJob", &held, "LIMIT_WATCHES"), WATCHES);
    drop(caps, &held, "WatchJob");
    assert_int_equal(fill(caps, owner, "GetJob", &held, "LIMIT_CALLS"), 1024);
    drop(caps, &held, "GetJob");
}

// A stream of any kind is a call, too.
static void test_streams_of_all_kinds_leave_calls_to_others(void **state) {
    (void)state;
    TD_AUTO(td_caps) *caps = NULL;
    static struct held watches, readers, others;
    const struct td_caller eve = person("eve", TD_ROLE_VIEWER);
    assert_ok(td_caps_create(&caps));
    assert_int_equal(fill(caps, eve, "WatchJob", &watches, "LIMIT_WATCHES"), 64);
    assert_int_equal(fill(caps, eve, "ReadLogs", &readers, "LIMIT_READERS"), 64);
    fill(caps, eve, "ListJobs", &(struct held){0}, "LIMIT_CALLS"); // 128 are open
    drop(caps, &watches, "WatchJob");
    assert_int_equal(fill(caps, eve, "ServerReflectionInfo", &others, "LIMIT_REFLECTION"), 32);
    drop(caps, &readers, "ReadLogs");
    drop(caps, &others, "ServerReflectionInfo");
    assert_int_equal(td_caps_count(caps, TD_CAP_READERS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_has_half_of_its_roles_quarter_and_the_role_the_quarter),
        cmocka_unit_test(test_refusal_says_the_limit_the_role_and_what_the_name_holds),
        cmocka_unit_test(test_operators_and_admins_have_room_when_all_others_took_all_they_can),
        cmocka_unit_test(test_admin_has_no_share),
        cmocka_unit_test(test_streams_of_all_kinds_leave_calls_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
