// The rendezvous store of a launcher: what its ranks get, what the daemon receives, and what is
// said again. Ranks are sockets and, once, a thread with the client of lib/attempt.

#include <pthread.h>
#include <sys/socket.h>

#include "daemon/launcher/store.h"
#include "lib/attempt/store_client.h"
#include "tests/unit/test.h"

struct rig {
    struct td_launch_store store;
    int ranks[2];
};

static void begin(struct rig *r, bool alone) {
    assert_ok(td_launch_store_init(&r->store, 2, alone));
    for (int i = 0; i < 2; i++) {
        assert_ok(td_launch_store_connect(&r->store, i, &r->ranks[i]));
    }
}

static void end(struct rig *r) {
    for (int i = 0; i < 2; i++) {
        td_auto_close(&r->ranks[i]);
    }
    td_launch_store_finish(&r->store);
}

static void ask(struct rig *r, int rank, enum td_store_call call, uint32_t id, const char *key,
                const void *data, size_t bytes) {
    static uint8_t message[TD_STORE_MESSAGE_MAX];
    struct td_store_request q = {.id = id, .call = call, .data = data, .bytes = bytes};
    snprintf(q.key, sizeof q.key, "%s", key);
    size_t n = td_store_request_write(&q, message);
    assert_int_equal(send(r->ranks[rank], message, n, 0), (ssize_t)n);
    assert_true(td_launch_store_drain(&r->store, rank));
}

static void set(struct rig *r, int rank, uint32_t id, const char *key, const char *text) {
    ask(r, rank, TD_STORE_SET, id, key, text, strlen(text));
}

static void get(struct rig *r, int rank, uint32_t id, const char *key) {
    ask(r, rank, TD_STORE_GET, id, key, NULL, 0);
}

// "7 OK text", or "" where there is no answer.
static const char *answered(struct rig *r, int rank) {
    static char text[640];
    static uint8_t message[TD_STORE_MESSAGE_MAX];
    struct td_store_answer a;
    ssize_t n = recv(r->ranks[rank], message, sizeof message, MSG_DONTWAIT);
    text[0] = '\0';
    if (n <= 0) return text;
    assert_true(td_store_answer_read(message, (size_t)n, &a));
    snprintf(text, sizeof text, "%u %s %.*s", a.id, a.code ? td_code_name(a.code) : "OK",
             (int)TD_MIN(a.bytes, (size_t)600), (const char *)a.data);
    return text;
}

// "set k", "want k", or "".
static const char *next(struct rig *r) {
    static char text[160];
    struct td_launch_store_news news;
    text[0] = '\0';
    if (!td_launch_store_next(&r->store, &news)) return text;
    snprintf(text, sizeof text, "%s %s", news.item ? "set" : "want", news.key);
    return text;
}

static void test_store_answers_by_itself_when_all_ranks_are_here(void **state) {
    (void)state;
    struct rig r;
    begin(&r, true);
    get(&r, 1, 1, "a/0");
    assert_string_equal(answered(&r, 1), "");
    set(&r, 0, 9, "a/0", "host:1");
    assert_string_equal(answered(&r, 0), "9 OK ");
    assert_string_equal(answered(&r, 1), "1 OK host:1");
    set(&r, 1, 2, "a/0", "host:1"); // the same bytes again
    assert_string_equal(answered(&r, 1), "2 OK ");
    set(&r, 1, 3, "a/0", "host:2");
    assert_non_null(strstr(answered(&r, 1), "3 FAILED_PRECONDITION key 'a/0'"));
    set(&r, 1, 4, "empty", "");
    assert_string_equal(answered(&r, 1), "4 OK ");
    get(&r, 0, 10, "empty");
    assert_string_equal(answered(&r, 0), "10 OK ");
    assert_string_equal(next(&r), ""); // nobody else needs it
    end(&r);
}

static void test_store_waits_for_the_coordinator_when_ranks_are_elsewhere(void **state) {
    (void)state;
    struct rig r;
    begin(&r, false);
    set(&r, 0, 1, "k", "mine");
    get(&r, 1, 1, "k");
    assert_string_equal(next(&r), "set k");
    assert_string_equal(next(&r), "");
    assert_string_equal(answered(&r, 0), "");
    assert_string_equal(answered(&r, 1), "");
    td_launch_store_done(&r.store, "k", TD_CODE_OK, "");
    assert_string_equal(answered(&r, 0), "1 OK ");
    assert_string_equal(answered(&r, 1), "1 OK mine");
    get(&r, 0, 2, "theirs");
    assert_string_equal(next(&r), "want theirs");
    assert_string_equal(next(&r), "");
    td_launch_store_value(&r.store, "theirs", "abc", 3);
    assert_string_equal(answered(&r, 0), "2 OK abc");
    get(&r, 1, 2, "theirs"); // from what was seen
    assert_string_equal(answered(&r, 1), "2 OK abc");
    set(&r, 1, 3, "theirs", "abd");
    assert_non_null(strstr(answered(&r, 1), "FAILED_PRECONDITION"));
    end(&r);
}

static void test_refused_key_fails_its_calls_and_is_not_said_again(void **state) {
    (void)state;
    struct rig r;
    begin(&r, false);
    set(&r, 0, 1, "k", "mine");
    get(&r, 1, 1, "k");
    assert_string_equal(next(&r), "set k");
    td_launch_store_done(&r.store, "k", TD_FAILED_PRECONDITION, "key 'k' has other bytes");
    assert_string_equal(answered(&r, 0), "1 FAILED_PRECONDITION key 'k' has other bytes");
    assert_string_equal(answered(&r, 1), "1 FAILED_PRECONDITION key 'k' has other bytes");
    td_launch_store_again(&r.store, true);
    assert_string_equal(next(&r), "");
    get(&r, 1, 2, "k"); // what the other node set
    assert_string_equal(next(&r), "want k");
    td_launch_store_value(&r.store, "k", "his", 3);
    assert_string_equal(answered(&r, 1), "2 OK his");
    end(&r);
}

static void test_all_is_said_again_when_the_coordinator_lost_it(void **state) {
    (void)state;
    struct rig r;
    begin(&r, false);
    set(&r, 0, 1, "a", "1");
    assert_string_equal(next(&r), "set a");
    td_launch_store_done(&r.store, "a", TD_CODE_OK, "");
    assert_string_equal(answered(&r, 0), "1 OK ");
    set(&r, 0, 2, "b", "2");
    get(&r, 1, 1, "c");
    assert_string_equal(next(&r), "set b");
    assert_string_equal(next(&r), "want c");
    td_launch_store_again(&r.store, false); // only what has no answer
    assert_string_equal(next(&r), "set b");
    assert_string_equal(next(&r), "want c");
    td_launch_store_again(&r.store, true);
    assert_string_equal(next(&r), "set a");
    assert_string_equal(next(&r), "set b");
    assert_string_equal(next(&r), "want c");
    assert_string_equal(next(&r), "");
    td_launch_store_done(&r.store, "a", TD_CODE_OK, "");
    td_launch_store_done(&r.store, "b", TD_CODE_OK, "");
    assert_string_equal(answered(&r, 0), "2 OK ");
    end(&r);
}

static void test_few_values_are_on_their_way_at_a_time(void **state) {
    (void)state;
    struct rig r;
    char key[16];
    begin(&r, false);
    for (uint32_t i = 0; i < 3 * TD_STORE_FLYING; i++) { // a rank that does not wait for answers
        snprintf(key, sizeof key, "k%u", i);
        set(&r, 0, i, key, "v");
    }
    for (uint32_t i = 0; i < 3 * TD_STORE_FLYING; i++) {
        char said[16];
        snprintf(said, sizeof said, "set k%u", i);
        if (i >= TD_STORE_FLYING) {
            assert_string_equal(next(&r), "");
            snprintf(key, sizeof key, "k%u", i - TD_STORE_FLYING);
            td_launch_store_done(&r.store, key, TD_CODE_OK, "");
        }
        assert_string_equal(next(&r), said);
    }
    end(&r);
}

static void test_store_holds_its_bounds(void **state) {
    (void)state;
    struct rig r;
    char key[32];
    static char large[TD_STORE_VALUE_MAX];
    begin(&r, true);
    for (int i = 0; i < TD_STORE_BYTES_MAX / TD_STORE_VALUE_MAX; i++) {
        snprintf(key, sizeof key, "large/%d", i);
        ask(&r, 0, TD_STORE_SET, 1, key, large, sizeof large);
        assert_string_equal(answered(&r, 0), "1 OK ");
    }
    set(&r, 0, 2, "one-more", "x");
    assert_non_null(strstr(answered(&r, 0), "2 RESOURCE_EXHAUSTED key 'one-more' with 1 bytes"));
    for (int i = TD_STORE_BYTES_MAX / TD_STORE_VALUE_MAX; i < TD_STORE_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "empty/%d", i);
        set(&r, 0, 3, key, "");
        assert_string_equal(answered(&r, 0), "3 OK ");
    }
    set(&r, 0, 4, "one-more", "");
    assert_non_null(strstr(answered(&r, 0), "holds 4096 keys"));
    end(&r);
}

static void test_messages_that_are_none_are_answered(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        {"\1\0\0", 3, "is too short"},
        {"\1\0\0\0\3\1\0\0k", 9, "names no call"},
        {"\1\0\0\0\1\5\0\0k", 9, "has a key that is cut"},
        {"\1\0\0\0\1\377\0\0k", 9, "has a key that is cut"},
        {"\1\0\0\0\1\0\0\0", 8, "1 to 127 bytes"},
        {"\1\0\0\0\1\1\0\0 ", 9, "1 to 127 bytes"},
        {"\1\0\0\0\1\2\0\0k\0", 10, "a key with a NUL"},
        {"\1\0\0\0\2\1\0\0kv", 10, "to get a key has a value"},
    };
    struct rig r;
    begin(&r, true);
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        assert_int_equal(send(r.ranks[0], cases[i].bytes, cases[i].n, 0), (ssize_t)cases[i].n);
        assert_true(td_launch_store_drain(&r.store, 0));
        const char *said = answered(&r, 0);
        assert_non_null(strstr(said, "INVALID_ARGUMENT"));
        assert_non_null(strstr(said, cases[i].says));
    }
    static char huge[TD_STORE_MESSAGE_MAX + 1] = "\1\0\0\0\1\1\0\0k";
    assert_int_equal(send(r.ranks[0], huge, sizeof huge, 0), (ssize_t)sizeof huge);
    assert_true(td_launch_store_drain(&r.store, 0));
    assert_non_null(strstr(answered(&r, 0), "too long"));
    close(r.ranks[0]);
    r.ranks[0] = -1;
    assert_false(td_launch_store_drain(&r.store, 0));
    end(&r);
}

static void test_calls_are_aborted_when_the_attempt_is_over(void **state) {
    (void)state;
    struct rig r;
    begin(&r, false);
    get(&r, 0, 1, "never");
    td_launch_store_end(&r.store);
    assert_non_null(strstr(answered(&r, 0), "1 ABORTED"));
    set(&r, 1, 1, "late", "x");
    assert_non_null(strstr(answered(&r, 1), "1 ABORTED"));
    end(&r);
}

// ---- the client ---------------------------------------------------------------------------------
static void *be_rank(void *arg) {
    struct td_store *store = td_store_client_store(arg);
    char text[8] = "";
    size_t bytes = 0;
    static char large[TD_STORE_VALUE_MAX], back[TD_STORE_VALUE_MAX];
    memset(large, 'x', sizeof large);
    assert_ok(store->set(store, "a", "one", 3));
    assert_ok(store->set(store, "large", large, sizeof large));
    assert_ok(store->get(store, "large", TD_TEST_WAIT_NS, back, sizeof back, &bytes));
    assert_true(bytes == sizeof back && memcmp(large, back, bytes) == 0);
    assert_fails(store->get(store, "never", TD_NS_PER_MS, text, sizeof text, &bytes),
                 TD_DEADLINE_EXCEEDED,
                 "key 'never' of the rendezvous store was set by no rank "
                 "within 0.001 s");
    assert_ok(store->get(store, "a", TD_TEST_WAIT_NS, text, sizeof text, &bytes));
    assert_int_equal(bytes, 3);
    assert_string_equal(text, "one");
    assert_fails(store->get(store, "a", TD_TEST_WAIT_NS, text, 2, &bytes), TD_RESOURCE_EXHAUSTED,
                 "has 3 bytes, the caller takes 2");
    assert_fails(store->set(store, "a", "two", 3), TD_FAILED_PRECONDITION, "key 'a'");
    assert_fails(store->set(store, "a b", "two", 3), TD_INVALID_ARGUMENT, "[A-Za-z0-9/_.-]");
    assert_fails(store->set(store, "b", large, sizeof large + 1), TD_INVALID_ARGUMENT, "key 'b'");
    assert_fails(store->get(store, "gone", TD_TEST_WAIT_NS, text, sizeof text, &bytes), TD_ABORTED,
                 "the launcher is gone");
    return NULL;
}

static void test_client_gets_what_a_launcher_says_and_no_more_when_it_is_gone(void **state) {
    (void)state;
    struct rig r;
    TD_AUTO(td_store_client) *client = NULL;
    pthread_t thread;
    begin(&r, true);
    assert_ok(td_store_client_create(r.ranks[0], TD_TEST_WAIT_NS, &client));
    assert_int_equal(pthread_create(&thread, NULL, be_rank, client), 0);
    struct td_launch_store_call *c = &r.store.calls[0];
    while (!c->waits || strcmp(c->key, "gone") != 0) {
        assert_true(td_launch_store_drain(&r.store, 0));
    }
    close(c->fd);
    c->fd = -1;
    assert_int_equal(pthread_join(thread, NULL), 0);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_answers_by_itself_when_all_ranks_are_here),
        cmocka_unit_test(test_store_waits_for_the_coordinator_when_ranks_are_elsewhere),
        cmocka_unit_test(test_refused_key_fails_its_calls_and_is_not_said_again),
        cmocka_unit_test(test_all_is_said_again_when_the_coordinator_lost_it),
        cmocka_unit_test(test_few_values_are_on_their_way_at_a_time),
        cmocka_unit_test(test_store_holds_its_bounds),
        cmocka_unit_test(test_messages_that_are_none_are_answered),
        cmocka_unit_test(test_calls_are_aborted_when_the_attempt_is_over),
        cmocka_unit_test(test_client_gets_what_a_launcher_says_and_no_more_when_it_is_gone),
    };
    return cmocka_run_group_tests_name("launcher_store", tests, NULL, NULL);
}
