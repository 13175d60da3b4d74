// Tokens: rows read back, what is judged and in which words, bounds, expiry by a clock that is
// given; roles as a table. And the audit log's files: how large they get and how many there are.
// Tags: tsan

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/coordinator/shell/access/audit.h"
#include "daemon/coordinator/shell/access/tokens.h"
#include "lib/base/files/files.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

static const struct td_real t0 = {.ns = INT64_C(1700000000) * TD_NS_PER_S};

static struct td_real later(int64_t s) {
    return (struct td_real){t0.ns + s * TD_NS_PER_S};
}

static struct td_str str(const char *text) {
    return (struct td_str){text, strlen(text)};
}

static const struct td_credential *give(struct td_credential_table *t, struct td_real now,
                                        int64_t expire_ns, char text[TD_TOKEN_TEXT]) {
    const struct td_credential *k = NULL;
    assert_ok(td_tokens_add(t, now, "alice", TD_ROLE_SUBMITTER, expire_ns, &k, text));
    return k;
}

static void assert_refused(struct td_credential_table *t, struct td_real now, const char *text,
                           const char *reason) {
    const struct td_credential *k = NULL;
    td_status s = td_tokens_judge(t, now, str(text), false, &k);
    assert_int_equal(td_status_code(s), TD_UNAUTHENTICATED);
    assert_string_equal(td_status_reason(s), reason);
    assert_null(k);
    td_status_free(s);
}

// Hands the records of one table to another, as a store and a restart would.
static void move_rows(struct td_credential_table *from, struct td_credential_table *to) {
    struct td_record *r = td_credential_table_take(from);
    while (r) {
        struct td_record *gone = r;
        if (to && r->body) {
            assert_ok(td_credential_table_load(to, TD_CREDENTIAL_TOKEN, r->key, r->body));
        }
        r = r->next;
        td_record_destroy(gone);
    }
}

static void test_token_is_the_same_after_its_row_was_read_back(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *a = NULL, *b = NULL;
    char text[TD_TOKEN_TEXT];
    const struct td_credential *k = NULL;
    assert_ok(td_credential_table_create(&a));
    assert_ok(td_credential_table_create(&b));
    const struct td_credential *given = give(a, t0, later(60).ns, text);
    move_rows(a, b);
    assert_ok(td_tokens_judge(b, later(1), str(text), false, &k));
    assert_string_equal(k->id, given->id);
    assert_string_equal(k->name, "alice");
    assert_int_equal(k->role, TD_ROLE_SUBMITTER);
    assert_ptr_equal(td_credential_table_find(b, k->identity), k);
    assert_null(td_credential_table_find(b, 1)); // the owner's is not in the table
    assert_refused(b, later(60), text, "TOKEN_EXPIRED");
}

static void test_token_is_refused_when_a_character_of_it_differs(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = NULL;
    char text[TD_TOKEN_TEXT];
    const struct td_credential *k = NULL;
    assert_ok(td_credential_table_create(&t));
    give(t, t0, 0, text);
    for (size_t i = 0; i < TD_TOKEN_TEXT - 1; i++) {
        char kept = text[i];
        text[i] = kept == '0' ? '1' : '0';
        assert_refused(t, t0, text, "TOKEN_WRONG");
        text[i] = kept;
    }
    assert_ok(td_tokens_judge(t, t0, str(text), false, &k));
    text[TD_TOKEN_TEXT - 2] = '\0';
    assert_refused(t, t0, text, "TOKEN_WRONG");
    assert_refused(t, t0, "", "TOKEN_WRONG");
}

static void test_revoked_token_stays_listed_and_is_refused(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = NULL;
    char text[TD_TOKEN_TEXT];
    const struct td_credential *k = NULL;
    assert_ok(td_credential_table_create(&t));
    char id[TD_TOKEN_ID];
    memcpy(id, give(t, t0, 0, text)->id, sizeof id);
    assert_ok(td_tokens_revoke(t, later(5), id, &k));
    assert_ok(td_tokens_revoke(t, later(9), id, &k)); // again: as it was
    assert_int_equal(k->revoke_ns, later(5).ns);
    assert_refused(t, later(6), text, "TOKEN_REVOKED");
    td_status s = td_tokens_revoke(t, t0, "000000000000", &k);
    assert_int_equal(td_status_code(s), TD_NOT_FOUND);
    td_status_free(s);
    size_t cursor = 0;
    assert_ptr_equal(td_credential_table_next(t, TD_CREDENTIAL_TOKEN, &cursor), k);
    assert_null(td_credential_table_next(t, TD_CREDENTIAL_TOKEN, &cursor));
}

static struct td_certificate certificate(const char *serial, int64_t until_s) {
    struct td_certificate c = {.valid_until_s = later(until_s).ns / TD_NS_PER_S};
    snprintf(c.serial, sizeof c.serial, "%s", serial);
    return c;
}

static void assert_certificate_refused(struct td_credential_table *t, struct td_real now,
                                       const char *serial, const char *reason) {
    const struct td_credential *k = NULL;
    td_status s = td_tokens_judge_certificate(t, now, serial, &k);
    assert_int_equal(td_status_code(s), TD_UNAUTHENTICATED);
    assert_string_equal(td_status_reason(s), reason);
    assert_null(k);
    td_status_free(s);
}

static void test_certificate_is_a_credential_until_its_end(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *a = NULL, *t = NULL;
    const struct td_credential *k = NULL, *other = NULL;
    struct td_certificate first = certificate("4A", 60), second = certificate("4B", 90);
    assert_ok(td_credential_table_create(&a));
    assert_ok(td_credential_table_create(&t));
    assert_ok(td_tokens_may_add(a, t0, "alice", TD_ROLE_OPERATOR, later(60).ns));
    assert_ok(td_tokens_add_certificate(a, t0, "alice", TD_ROLE_OPERATOR, &first, &k));
    assert_ok(td_tokens_add_certificate(a, t0, "bob", TD_ROLE_VIEWER, &second, &k));
    move_rows(a, t);
    assert_ok(td_tokens_judge_certificate(t, later(1), "4A", &k));
    assert_string_equal(k->name, "alice");
    assert_int_equal(k->role, TD_ROLE_OPERATOR);
    assert_true(k->use_ns == later(1).ns && k->expire_ns == later(60).ns);
    assert_ptr_equal(td_credential_table_find(t, k->identity), k);
    assert_ok(td_tokens_judge_certificate(t, later(1), "4C", &other)); // a node's, perhaps
    assert_null(other);
    assert_certificate_refused(t, later(60), "4A", "CERTIFICATE_EXPIRED");
    assert_ok(td_tokens_judge_certificate(t, later(60), "4B", &k));
    assert_ok(td_tokens_revoke(t, later(61), k->id, &k));
    assert_certificate_refused(t, later(61), "4B", "CERTIFICATE_REVOKED");
    // Its id is known to people, and no text goes with it.
    char text[TD_TOKEN_TEXT];
    snprintf(text, sizeof text, "td_%.12s_%064d", k->id, 0);
    assert_refused(t, later(1), text, "TOKEN_WRONG");
    move_rows(t, NULL);
}

static void test_last_use_is_written_once_a_minute(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = NULL;
    char text[TD_TOKEN_TEXT];
    const struct td_credential *k = NULL;
    unsigned n = 0;
    assert_ok(td_credential_table_create(&t));
    give(t, t0, 0, text);
    move_rows(t, NULL);
    for (int64_t s = 0; s < 180; s++) {
        assert_ok(td_tokens_judge(t, later(s), str(text), false, &k));
        struct td_record *r = td_credential_table_take(t);
        n += r != NULL;
        if (r) td_record_destroy(r);
    }
    assert_int_equal(n, 3);
}

static void test_expired_token_is_given_once_to_who_ends_its_calls(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = NULL;
    char text[TD_TOKEN_TEXT];
    assert_ok(td_credential_table_create(&t));
    const struct td_credential *late = give(t, t0, later(20).ns, text),
                               *soon = give(t, t0, later(10).ns, text);
    give(t, t0, 0, text);
    assert_int_equal(td_credential_table_next_expiry(t), later(10).ns);
    assert_null(td_credential_table_expired(t, later(9)));
    give(t, later(15), 0, text); // what comes meanwhile does not hide it
    assert_int_equal(td_credential_table_next_expiry(t), later(10).ns);
    assert_ptr_equal(td_credential_table_expired(t, later(10)), soon);
    assert_null(td_credential_table_expired(t, later(10)));
    assert_int_equal(td_credential_table_next_expiry(t), later(20).ns);
    assert_ptr_equal(td_credential_table_expired(t, later(30)), late);
    assert_int_equal(td_credential_table_next_expiry(t), 0);
}

static void test_tokens_are_bounded_and_the_oldest_that_ended_goes(void **state) {
    (void)state;
    TD_AUTO(td_credential_table) *t = NULL;
    char text[TD_TOKEN_TEXT], first[TD_TOKEN_ID];
    const struct td_credential *k = NULL;
    assert_ok(td_credential_table_create(&t));
    memcpy(first, give(t, t0, later(1).ns, text)->id, sizeof first);
    for (int i = 1; i < TD_TOKENS_MAX; i++) {
        give(t, t0, later(2).ns, text);
    }
    td_status full = td_tokens_add(t, t0, "", TD_ROLE_VIEWER, 0, &k, text);
    assert_int_equal(td_status_code(full), TD_RESOURCE_EXHAUSTED);
    assert_string_equal(td_status_reason(full), "LIMIT_TOKENS");
    td_status_free(full);
    for (int i = 0; i < TD_TOKENS_MAX; i++) { // all of before have expired
        give(t, later(3), later(9).ns, text);
    }
    assert_ok(td_tokens_revoke(t, later(3), first, &k)); // it is there still
    give(t, later(10), 0, text);
    td_status gone = td_tokens_revoke(t, later(10), first, &k);
    assert_int_equal(td_status_code(gone), TD_NOT_FOUND);
    td_status_free(gone);
    move_rows(t, NULL);
}

static void test_row_that_is_no_token_is_damage(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"0123456789ab", "{}"},
        {"0123456789ab", "{\"name\":\"a\",\"role\":\"king\",\"sha256\":\"\"}"},
        {"0123456789ab", "{\"name\":\"a b\",\"role\":\"viewer\",\"sha256\":\"\"}"},
        {"0123456789ab", "{\"name\":\"a\",\"role\":\"viewer\",\"sha256\":\"00\"}"},
        {"0123456789ab", "{\"name\":\"a\",\"role\":\"viewer\",\"serial\":\"x\"}"},
        {"short", "{\"name\":\"a\",\"role\":\"viewer\",\"sha256\":\"00\"}"},
    };
    TD_AUTO(td_credential_table) *t = NULL;
    assert_ok(td_credential_table_create(&t));
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        td_status s = td_credential_table_load(t, TD_CREDENTIAL_TOKEN, rows[i][0], rows[i][1]);
        assert_int_equal(td_status_code(s), TD_DATA_LOSS);
        td_status_free(s);
    }
}

static void test_roles_are_a_ladder_with_nodes_beside_it(void **state) {
    (void)state;
    static const char *const allowed[] = {
        // needs: none, viewer, submitter, operator, admin, node, join
        "y......", "yy.....", "yyy....", "yyyy...", "yyyyy..", "y....y.", "y.....y",
    };
    _Static_assert(TD_COUNTOF(allowed) == TD_ROLE_COUNT, "one row per role that is held");
    for (int held = 0; held < TD_ROLE_COUNT; held++) {
        for (int needed = 0; needed < TD_ROLE_COUNT; needed++) {
            assert_int_equal(
                td_access_role_allows((enum td_access_role)held, (enum td_access_role)needed),
                allowed[held][needed] == 'y');
        }
    }
}

// ---- the audit log ------------------------------------------------------------------------------
static const struct td_audit_entry entry = {.token = "0123456789ab",
                                            .name = "alice",
                                            .role = "submitter",
                                            .source = "127.0.0.1:1",
                                            .method = "traind.v1.JobService/CancelJob",
                                            .object = "j-\x1b\"\n",
                                            .code = "OK",
                                            .reason = ""};

static size_t read_log(const char *dir, const char *suffix, struct td_buf *out) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/audit.log%s", dir, suffix));
    td_buf_clear(out);
    if (td_fs_exists(path)) assert_ok(td_fs_read(path, (size_t)64 << 20, out));
    size_t n = 0;
    for (size_t i = 0; i < out->len; i++) {
        n += out->data[i] == '\n';
    }
    return n;
}

static void test_audit_lines_are_all_there_when_it_is_closed(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct td_audit *a = NULL;
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    assert_ok(td_loop_create(&loop));
    for (int round = 1; round <= 2; round++) { // opened again, it goes on
        assert_ok(td_audit_create(loop, *state, &a));
        for (int i = 0; i < 500; i++) {
            td_audit_add(a, &entry);
        }
        td_audit_destroy(a);
        assert_int_equal(read_log(*state, "", &text), 500 * round);
    }
    assert_non_null(strstr(td_buf_cstr(&text), "\"object\":\"j-\\u001b\\\"\\n\""));
}

static void test_audit_log_that_is_full_becomes_an_older_one(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct td_audit *a = NULL;
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    assert_ok(td_loop_create(&loop));
    for (int round = 0; round < TD_AUDIT_FILES + 2; round++) {
        assert_ok(td_audit_create(loop, *state, &a));
        td_audit_add(a, &entry);
        td_audit_destroy(a);
        assert_int_equal(read_log(*state, "", &text), 1);
        assert_ok(td_fs_path(path, "%s/audit.log", (const char *)*state));
        assert_int_equal(truncate(path, TD_AUDIT_FILE_BYTES - 1), 0);
    }
    for (int i = 1; i <= TD_AUDIT_FILES; i++) {
        assert_ok(td_fs_path(path, "%s/audit.log.%d", (const char *)*state, i));
        assert_int_equal(td_fs_exists(path), i < TD_AUDIT_FILES);
    }
}

static void test_audit_lines_that_have_no_room_are_counted(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct td_audit *a = NULL;
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    assert_ok(td_loop_create(&loop));
    assert_ok(td_fs_path(path, "%s/audit.log", (const char *)*state));
    assert_int_equal(mkdir(path, 0700), 0); // it cannot be opened
    assert_ok(td_audit_create(loop, *state, &a));
    for (int i = 0; i < 5000; i++) {
        td_audit_add(a, &entry);
    }
    assert_int_equal(rmdir(path), 0);
    const char *at = NULL;
    static const bool never = false;
    for (int i = 0; i < 3000 && !at; i++) { // it is tried again each second
        td_status_free(td_loop_run_until(loop, &never, TD_NS_PER_S / 50));
        (void)read_log(*state, "", &text);
        at = strstr(td_buf_cstr(&text), "\"lost\":");
    }
    unsigned long lost = 0;
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"lost\":%lu", &lost), 1);
    size_t n = read_log(*state, "", &text);
    assert_in_range(n, 100, 5000);
    assert_true(text.len <= TD_AUDIT_WAITING_BYTES + 4096);
    assert_int_equal(n - 1 + lost, 5000);
    td_audit_destroy(a);
}

// What a store has of the rows: by number, in order.
struct stored {
    struct td_record *rows[64];
    size_t n;
};

static void store(struct stored *s, struct td_record *take_rows) {
    while (take_rows) {
        struct td_record *r = take_rows;
        take_rows = r->next;
        size_t at = 0;
        while (at < s->n && strcmp(s->rows[at]->key, r->key) != 0) {
            at++;
        }
        if (r->body) {
            assert_true(at == s->n && s->n < TD_COUNTOF(s->rows));
            s->rows[s->n++] = r;
            continue;
        }
        td_record_destroy(r);
        if (at == s->n) continue;
        td_record_destroy(s->rows[at]);
        memmove(&s->rows[at], &s->rows[at + 1], (--s->n - at) * sizeof *s->rows);
    }
}

static void forget_rows(struct stored *s) {
    while (s->n) {
        td_record_destroy(s->rows[--s->n]);
    }
}

static struct td_audit *open_audit(struct td_loop *loop, const char *dir, const struct stored *s) {
    struct td_audit *a = NULL;
    assert_ok(td_audit_create(loop, dir, &a));
    for (size_t i = 0; i < s->n; i++) {
        assert_ok(td_audit_load(a, s->rows[i]->key, s->rows[i]->body));
    }
    td_audit_start(a);
    return a;
}

static void test_line_of_a_change_is_in_the_file_once_whenever_it_ended(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct stored s = {.n = 0};
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    assert_ok(td_loop_create(&loop));
    struct td_audit *a = open_audit(loop, *state, &s);
    assert_int_equal(td_audit_add_change(a, &entry), 1);
    assert_int_equal(td_audit_add_change(a, &entry), 2);
    assert_int_equal(td_audit_add_change(a, &entry), 3);
    store(&s, td_audit_take(a));
    td_audit_committed(a, 2);
    td_audit_destroy(a); // the third is committed, and nobody said so here
    assert_int_equal(read_log(*state, "", &text), 2);
    assert_int_equal(s.n, 3);
    a = open_audit(loop, *state, &s);
    td_audit_add(a, &entry); // without a number
    td_audit_destroy(a);
    assert_int_equal(read_log(*state, "", &text), 4);
    for (int n = 1; n <= 3; n++) {
        char mark[16];
        snprintf(mark, sizeof mark, ",\"n\":%d,", n);
        const char *at = strstr(td_buf_cstr(&text), mark);
        assert_non_null(at);
        assert_null(strstr(at + 1, mark));
    }
    a = open_audit(loop, *state, &s);
    assert_int_equal(td_audit_add_change(a, &entry), 4);
    store(&s, td_audit_take(a));
    assert_int_equal(s.n, 4);
    td_audit_destroy(a); // never committed, as far as we know: the row decides
    assert_int_equal(read_log(*state, "", &text), 4);
    a = open_audit(loop, *state, &(struct stored){.n = 0});
    assert_int_equal(td_audit_add_change(a, &entry), 4); // after the file's last
    td_audit_destroy(a);
    forget_rows(&s);
}

static void test_row_goes_when_the_file_is_synced(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct stored s = {.n = 0};
    static const bool never = false;
    assert_ok(td_loop_create(&loop));
    struct td_audit *a = open_audit(loop, *state, &s);
    for (uint64_t n = 1; n <= 20; n++) {
        assert_int_equal(td_audit_add_change(a, &entry), n);
        store(&s, td_audit_take(a));
        td_audit_committed(a, n);
    }
    assert_int_equal(s.n, 20);
    td_audit_destroy(a); // all of them are in the file; for the next one, as if this was killed
    a = open_audit(loop, *state, &s);
    store(&s, td_audit_take(a));
    assert_int_equal(s.n, 20);
    struct td_mono due = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    for (uint64_t n = 21; s.n > 15 && td_mono_now().ns < due.ns; n++) {
        td_status_free(td_loop_run_until(loop, &never, TD_NS_PER_S / 4));
        assert_int_equal(td_audit_add_change(a, &entry), n); // the next change takes old ones away
        store(&s, td_audit_take(a));
        td_audit_committed(a, n);
    }
    assert_true(s.n <= 15);
    td_audit_destroy(a);
    forget_rows(&s);
}

static void test_line_that_a_crash_cut_is_ended_and_written_again(void **state) {
    TD_AUTO(td_loop) *loop = NULL;
    struct stored s = {.n = 0};
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    assert_ok(td_loop_create(&loop));
    struct td_audit *a = open_audit(loop, *state, &s);
    for (uint64_t n = 1; n <= 12; n++) {
        assert_int_equal(td_audit_add_change(a, &entry), n);
    }
    store(&s, td_audit_take(a));
    td_audit_committed(a, 12);
    td_audit_destroy(a);
    (void)read_log(*state, "", &text);
    const char *last = strstr(td_buf_cstr(&text), ",\"n\":12,");
    assert_ok(td_fs_path(path, "%s/audit.log", (const char *)*state));
    assert_int_equal(truncate(path, last + 6 - td_buf_cstr(&text)), 0); // ,"n":1
    a = open_audit(loop, *state, &s);
    td_audit_destroy(a);
    assert_int_equal(read_log(*state, "", &text), 13);
    assert_non_null(strstr(td_buf_cstr(&text), ",\"n\":1\n{"));
    assert_non_null(strstr(td_buf_cstr(&text), ",\"n\":12,"));
    // The same when the newest file has no number any more, because it is a new one.
    assert_int_equal(truncate(path, TD_AUDIT_FILE_BYTES - 1), 0);
    char older[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(older, "%s.1", path));
    assert_ok(td_fs_rename(path, older));
    a = open_audit(loop, *state, &s);
    td_audit_destroy(a);
    assert_int_equal(read_log(*state, "", &text), 0);
    forget_rows(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_is_the_same_after_its_row_was_read_back),
        cmocka_unit_test(test_token_is_refused_when_a_character_of_it_differs),
        cmocka_unit_test(test_revoked_token_stays_listed_and_is_refused),
        cmocka_unit_test(test_certificate_is_a_credential_until_its_end),
        cmocka_unit_test(test_last_use_is_written_once_a_minute),
        cmocka_unit_test(test_expired_token_is_given_once_to_who_ends_its_calls),
        cmocka_unit_test(test_tokens_are_bounded_and_the_oldest_that_ended_goes),
        cmocka_unit_test(test_row_that_is_no_token_is_damage),
        cmocka_unit_test(test_roles_are_a_ladder_with_nodes_beside_it),
        test_in_scratch(test_audit_lines_are_all_there_when_it_is_closed),
        test_in_scratch(test_audit_log_that_is_full_becomes_an_older_one),
        test_in_scratch(test_audit_lines_that_have_no_room_are_counted),
        test_in_scratch(test_line_of_a_change_is_in_the_file_once_whenever_it_ended),
        test_in_scratch(test_row_goes_when_the_file_is_synced),
        test_in_scratch(test_line_that_a_crash_cut_is_ended_and_written_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
