// Members: who may join beside whom, which two certificates of a node are good, what a row brings
// back, and whom a clock that is given ends. And join tokens, which are good for one use.

#include <stdio.h>

#include "daemon/coordinator/shell/access/members.h"
#include "daemon/coordinator/shell/access/tokens.h"
#include "lib/base/arena.h"
#include "lib/base/json.h"
#include "tests/unit/test.h"

static const struct td_real t0 = {.ns = INT64_C(1700000000) * TD_NS_PER_S};
static const int64_t grace_ns = 100 * TD_NS_PER_S;

static struct td_real later(int64_t s) {
    return (struct td_real){t0.ns + s * TD_NS_PER_S};
}

static struct td_certificate certificate(const char *serial, int64_t until_s) {
    struct td_certificate c = {.valid_until_s = later(until_s).ns / TD_NS_PER_S};
    snprintf(c.serial, sizeof c.serial, "%s", serial);
    return c;
}

static struct td_credential_table *table(void) {
    struct td_credential_table *t;
    assert_ok(td_credential_table_create(&t));
    return t;
}

static const struct td_credential *join(struct td_credential_table *t, const char *id,
                                        const char *name, const char *serial) {
    struct td_certificate c = certificate(serial, 60);
    assert_ok(td_members_may_join(t, t0, grace_ns, id, name));
    return td_members_join(t, t0, id, name, "10.9.0.2:5000", &c);
}

static void assert_judged(const struct td_credential_table *t, const char *serial,
                          const char *reason) {
    const struct td_credential *m = NULL;
    td_status s = td_members_judge(t, "n-1", serial, &m);
    assert_string_equal(s ? td_status_reason(s) : "", reason);
    assert_true(s ? !m && td_status_code(s) == TD_UNAUTHENTICATED : m != NULL);
    td_status_free(s);
}

static void test_second_machine_is_refused_when_the_id_or_the_name_is_taken(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = table();
    const struct td_credential *m;
    join(t, "n-1", "rack", "AA");
    assert_fails(td_members_may_join(t, t0, grace_ns, "n-1", "x"), TD_ALREADY_EXISTS, "n-1");
    assert_fails(td_members_may_join(t, t0, grace_ns, "n-2", "rack"), TD_ALREADY_EXISTS,
                 "10.9.0.2:5000");
    assert_ok(td_members_may_join(t, t0, grace_ns, "n-2", "other"));
    assert_fails(td_members_may_join(t, t0, grace_ns, "a b", "x"), TD_INVALID_ARGUMENT, "id");
    assert_fails(td_members_may_join(t, t0, grace_ns, "n-2", ""), TD_INVALID_ARGUMENT, "name");
    // 60 s of its certificate, 100 s in which it may still be renewed.
    assert_fails(td_members_may_join(t, later(159), grace_ns, "n-2", "rack"), TD_ALREADY_EXISTS,
                 "n-1");
    assert_ok(td_members_may_join(t, later(160), grace_ns, "n-2", "rack"));
    assert_ok(td_members_revoke(t, later(1), "rack", &m));
    assert_ok(td_members_may_join(t, later(2), grace_ns, "n-1", "rack"));
}

static void test_members_are_bounded_and_the_one_that_ended_first_goes(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = table();
    const struct td_credential *m;
    char id[TD_CREDENTIAL_ID];
    for (int i = 0; i < TD_MEMBERS_MAX; i++) {
        snprintf(id, sizeof id, "n-%d", i);
        (void)join(t, id, id, "AA");
    }
    assert_fails(td_members_may_join(t, later(1), grace_ns, "n-x", "x"), TD_RESOURCE_EXHAUSTED,
                 "revoke");
    assert_ok(td_members_revoke(t, later(3), "n-7", &m));
    assert_ok(td_members_revoke(t, later(2), "n-8", &m));
    (void)join(t, "n-x", "x", "BB");
    assert_null(td_credential_table_get(t, TD_CREDENTIAL_MEMBER, "n-8"));
    assert_non_null(td_credential_table_get(t, TD_CREDENTIAL_MEMBER, "n-7"));
}

static void test_two_certificates_are_good_and_older_ones_are_not(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = table();
    const struct td_credential *m = join(t, "n-1", "rack", "AA");
    struct td_certificate b = certificate("BB", 90), c = certificate("CC", 120);
    assert_judged(t, "AA", "");
    assert_judged(t, "", "CERTIFICATE_UNKNOWN");
    td_members_renew(t, m, "AA", "10.9.0.2:5001", &b);
    assert_judged(t, "AA", "");
    assert_judged(t, "BB", "");
    td_members_renew(t, m, "AA", "10.9.0.2:5001", &c); // the answer with BB was lost
    assert_judged(t, "AA", "");
    assert_judged(t, "BB", "CERTIFICATE_UNKNOWN");
    td_members_renew(t, m, m->serial, "10.9.0.2:5001", &b); // by what is in the table itself
    assert_judged(t, "AA", "CERTIFICATE_UNKNOWN");
    assert_judged(t, "CC", "");
    assert_ok(td_members_revoke(t, t0, "n-1", &m));
    assert_judged(t, "BB", "CERTIFICATE_REVOKED");
    assert_judged(t, "CC", "CERTIFICATE_REVOKED");
    assert_fails(td_members_revoke(t, t0, "n-9", &m), TD_NOT_FOUND, "n-9");
    m = join(t, "n-1", "rack", "DD"); // with another token
    assert_judged(t, "DD", "");
    assert_judged(t, "BB", "CERTIFICATE_UNKNOWN");
}

static void test_rows_bring_everything_back(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = table(), *again = table();
    const struct td_credential *m = join(t, "n-1", "rack", "AA");
    struct td_certificate b = certificate("BB", 90);
    td_members_renew(t, m, "AA", "10.9.0.2:5001", &b);
    struct td_record *rows = td_credential_table_take(t), *newest = rows;
    assert_null(td_credential_table_take(t));
    while (newest->next) {
        newest = newest->next;
    }
    assert_ok(td_credential_table_load(again, TD_CREDENTIAL_MEMBER, newest->key, newest->body));
    assert_judged(again, "AA", "");
    assert_judged(again, "BB", "");
    const struct td_credential *got = td_credential_table_get(again, TD_CREDENTIAL_MEMBER, "n-1");
    assert_string_equal(got->name, "rack");
    assert_string_equal(got->address, "10.9.0.2:5001");
    assert_true(got->expire_ns == later(90).ns && got->create_ns == t0.ns && !got->revoke_ns);
    assert_ptr_equal(td_credential_table_find(again, got->identity), got);
    assert_fails(
        td_credential_table_load(again, TD_CREDENTIAL_MEMBER, "n-2", "{\"serial\":\"xyz\"}"),
        TD_DATA_LOSS, "n-2");
    assert_fails(td_credential_table_load(again, TD_CREDENTIAL_MEMBER, "n-3", "{}"), TD_DATA_LOSS,
                 "n-3");
    while (rows) {
        struct td_record *next = rows->next;
        td_record_destroy(rows);
        rows = next;
    }
}

static void test_row_of_an_older_build_is_read_and_written_with_its_fields(void **state) {
    (void)state;
    static const struct {
        enum td_credential_kind kind;
        const char *key, *body;
    } rows[] = {
        {TD_CREDENTIAL_TOKEN, "0123456789ab",
         "{\"name\":\"alice\",\"role\":\"viewer\",\"sha256\":"
         "\"00000000000000000000000000000000000000000000000000000000000000ff\",\"create_ns\":1,"
         "\"expire_ns\":2,\"use_ns\":3,\"revoke_ns\":4,\"serial\":\"4A\",\"used_by\":\"ab\"}"},
        {TD_CREDENTIAL_MEMBER, "n-1",
         "{\"name\":\"rack\",\"serial\":\"AA\",\"before\":\"AB\",\"address\":\"10.9.0.2:5000\","
         "\"join_ns\":1,\"expire_ns\":2,\"revoke_ns\":3}"},
    };
    TD_AUTO(td_credential_table) *t = table();
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 16, &a));
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_json *was, *is;
        assert_ok(td_credential_table_load(t, rows[i].kind, rows[i].key, rows[i].body));
        td_credential_table_save(t, td_credential_table_get(t, rows[i].kind, rows[i].key));
        struct td_record *r = td_credential_table_take(t);
        assert_int_equal(strncmp(r->body, "{\"name\":", 8), 0); // a salvage knows it by that
        assert_ok(td_json_parse(a, rows[i].body, strlen(rows[i].body), &was));
        assert_ok(td_json_parse(a, r->body, strlen(r->body), &is));
        assert_int_equal(is->n_children, was->n_children);
        for (const struct td_json *v = was->first; v; v = v->next) {
            assert_true(td_json_equal(v, td_json_get(is, v->key)));
        }
        td_record_destroy(r);
    }
}

static void test_member_expires_once_when_its_newest_certificate_is_over(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = table();
    const struct td_credential *m = join(t, "n-1", "rack", "AA");
    assert_true(td_credential_table_next_expiry(t) == later(60).ns);
    assert_null(td_credential_table_expired(t, later(59)));
    assert_ptr_equal(td_credential_table_expired(t, later(60)), m);
    assert_null(td_credential_table_expired(t, later(61)));
    assert_true(td_credential_table_next_expiry(t) == 0);
    struct td_certificate b = certificate("BB", 200);
    td_members_renew(t, m, "AA", "10.9.0.2:5001", &b);
    assert_true(td_credential_table_next_expiry(t) == later(200).ns);
    assert_ptr_equal(td_credential_table_expired(t, later(200)), m);
    td_members_renew(t, m, "AA", "10.9.0.2:5001", &b);
    assert_ok(td_members_revoke(t, later(1), "n-1", &m));
    assert_true(td_credential_table_next_expiry(t) == 0);
    assert_null(td_credential_table_expired(t, later(200))); // its calls ended with it
}

static void test_join_token_is_good_until_it_is_spent(void **state) {
    (void)state;
    struct td_credential_table *t;
    const struct td_credential *k, *got = NULL;
    char text[TD_TOKEN_TEXT];
    assert_ok(td_credential_table_create(&t));
    assert_ok(td_tokens_add(t, t0, "", TD_ROLE_JOIN, later(900).ns, &k, text));
    struct td_str shown = {text, strlen(text)};
    const uint8_t user[TD_TLS_DIGEST_BYTES] = {7}, other[TD_TLS_DIGEST_BYTES] = {8};
    assert_ok(
        td_tokens_judge(t, later(1), shown, false, &got)); // a request that is refused: as before
    assert_ok(td_tokens_judge(t, later(2), shown, false, &got));
    td_tokens_spend(t, later(3), k, user);
    td_status s = td_tokens_judge(t, later(4), shown, false, &got);
    assert_string_equal(td_status_reason(s), "TOKEN_USED");
    td_status_free(s);
    // But for the same join again, until its end.
    assert_ok(td_tokens_judge(t, later(899), shown, true, &got));
    assert_true(td_tokens_is_of(got, user));
    assert_false(td_tokens_is_of(got, other));
    s = td_tokens_judge(t, later(900), shown, true, &got);
    assert_string_equal(td_status_reason(s), "TOKEN_USED");
    td_status_free(s);
    assert_ok(td_tokens_revoke(t, later(5), k->id, &got));
    s = td_tokens_judge(t, later(6), shown, true, &got);
    assert_string_equal(td_status_reason(s), "TOKEN_USED");
    td_status_free(s);
    td_credential_table_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_machine_is_refused_when_the_id_or_the_name_is_taken),
        cmocka_unit_test(test_members_are_bounded_and_the_one_that_ended_first_goes),
        cmocka_unit_test(test_two_certificates_are_good_and_older_ones_are_not),
        cmocka_unit_test(test_rows_bring_everything_back),
        cmocka_unit_test(test_row_of_an_older_build_is_read_and_written_with_its_fields),
        cmocka_unit_test(test_member_expires_once_when_its_newest_certificate_is_over),
        cmocka_unit_test(test_join_token_is_good_until_it_is_spent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
