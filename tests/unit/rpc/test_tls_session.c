// Two ends of a TLS connection over a socket pair: whose certificate is refused, and in which
// words. And much data through small sockets, where a write is taken in parts.

#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/tls/first_contact.h"
#include "lib/tls/revoked.h"
#include "lib/tls/session.h"
#include "tests/unit/rpc/tls_rig.h"

// Of a certificate that is loaded and then ends. Seconds are whole ones: it has one to two.
enum { LOADED_S = 2 };

struct link {
    int fds[2];
    struct td_tls_session *server, *client;
    td_status server_failed, client_failed;
    bool server_done, client_done;
};

static void step(struct td_tls_session *s, bool *done, td_status *failed) {
    enum td_tls_step got = TD_TLS_WANTS_READ;
    if (*done || *failed) return;
    *failed = td_tls_session_handshake(s, &got);
    *done = !*failed && got == TD_TLS_DONE;
}

static struct link shake(struct td_tls_context *server, struct td_tls_context *client,
                         const char *host) {
    struct link l = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, l.fds), 0);
    assert_ok(td_tls_session_create(server, l.fds[0], NULL, &l.server));
    assert_ok(td_tls_session_create(client, l.fds[1], host, &l.client));
    for (int i = 0; i < 10; i++) {
        step(l.client, &l.client_done, &l.client_failed);
        step(l.server, &l.server_done, &l.server_failed);
    }
    return l;
}

static void finish(struct link *l) {
    td_tls_session_destroy(l->server);
    td_tls_session_destroy(l->client);
    close(l->fds[0]);
    close(l->fds[1]);
    td_status_free(l->server_failed);
    td_status_free(l->client_failed);
}

static void test_peer_is_known_when_its_certificate_is_good(void **state) {
    struct home h = make_home(*state, "a-");
    struct td_certificate c;
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    issue(&h, "n-1", TD_TLS_CLIENT, HOUR_S);
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_context *named = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, "n-1");
    struct td_tls_context *nameless = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, NULL);
    struct link l = shake(server, named, "here.example");
    assert_true(l.server_done && l.client_done);
    assert_true(td_tls_session_peer(l.server, &c));
    assert_string_equal(c.name, "n-1");
    finish(&l);
    l = shake(server, nameless, "here.example");
    assert_true(l.server_done && l.client_done);
    assert_false(td_tls_session_peer(l.server, &c));
    finish(&l);
    assert_in_range(td_tls_context_left_s(server), HOUR_S - 60, HOUR_S);
    assert_int_equal(td_tls_context_left_s(nameless), INT64_MAX);
    td_tls_context_destroy(server);
    td_tls_context_destroy(named);
    td_tls_context_destroy(nameless);
    td_authority_destroy(h.authority);
}

static void test_client_is_refused_when_its_certificate_is_of_another_ca(void **state) {
    struct home h = make_home(*state, "a-"), other = make_home(*state, "b-");
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    issue(&other, "n-1", TD_TLS_CLIENT, HOUR_S);
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_paths mixed = {path_of(&h, "ca.pem"), path_of(&other, "n-1.pem"),
                                 path_of(&other, "n-1.key")};
    struct td_tls_context *client;
    assert_fails(td_tls_context_create(TD_TLS_CLIENT, &mixed, &client), TD_FAILED_PRECONDITION,
                 "another CA"); // it would be refused, and says so before
    client = context_of(TD_TLS_CLIENT, path_of(&other, "ca.pem"), &other, "n-1");
    struct link l = shake(server, client, "here.example");
    assert_non_null(
        strstr(td_status_message(l.client_failed), "'server' was issued by another CA"));
    assert_string_equal(td_status_reason(l.server_failed), "TLS"); // the client said so
    assert_non_null(strstr(td_status_message(l.server_failed), "unknown ca"));
    finish(&l);
    td_tls_context_destroy(server);
    td_tls_context_destroy(client);
    td_authority_destroy(h.authority);
    td_authority_destroy(other.authority);
}

static void test_other_end_is_refused_when_the_host_is_another(void **state) {
    struct home h = make_home(*state, "a-");
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_context *client = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, NULL);
    static const char *const hosts[][2] = {{"there.example", "hostname mismatch"},
                                           {"10.0.0.1", "IP address mismatch"}};
    for (size_t i = 0; i < TD_COUNTOF(hosts); i++) {
        struct link l = shake(server, client, hosts[i][0]);
        assert_int_equal(td_status_code(l.client_failed), TD_FAILED_PRECONDITION);
        assert_non_null(strstr(td_status_message(l.client_failed), hosts[i][1]));
        assert_true(l.server_failed && !l.server_done);
        finish(&l);
    }
    td_tls_context_destroy(server);
    td_tls_context_destroy(client);
    td_authority_destroy(h.authority);
}

// A context loads no certificate that has ended, so it ends while the context has it.
static void test_client_is_refused_when_its_certificate_ended_meanwhile(void **state) {
    struct home h = make_home(*state, "a-");
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    issue(&h, "n-1", TD_TLS_CLIENT, LOADED_S);
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_context *client = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, "n-1");
    struct td_mono due = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    bool refused = false;
    while (!refused && td_mono_now().ns < due.ns) {
        struct link l = shake(server, client, "here.example");
        const char *why = td_status_message(l.server_failed);
        refused = l.server_failed;
        if (refused) assert_non_null(strstr(why, "'n-1' has expired on 20"));
        if (refused) assert_non_null(strstr(why, "and the clock here says 20"));
        finish(&l);
    }
    assert_true(refused);
    const struct td_tls_paths ended = {path_of(&h, "ca.pem"), path_of(&h, "n-1.pem"),
                                       path_of(&h, "n-1.key")};
    struct td_tls_context *none;
    assert_fails(td_tls_context_create(TD_TLS_CLIENT, &ended, &none), TD_FAILED_PRECONDITION,
                 "has expired");
    td_tls_context_destroy(server);
    td_tls_context_destroy(client);
    td_authority_destroy(h.authority);
}

// The same, where the server excuses it; and what was revoked is refused, however fresh, and
// excused never.
static void test_guest_is_judged_by_the_servers_rules(void **state) {
    struct home h = make_home(*state, "a-");
    struct td_tls_revoked *revoked;
    struct td_certificate c;
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    issue(&h, "n-1", TD_TLS_CLIENT, LOADED_S);
    issue(&h, "n-2", TD_TLS_CLIENT, HOUR_S);
    assert_ok(td_tls_revoked_create(&revoked));
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_context *client = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, "n-1");
    struct td_tls_context *fresh = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, "n-2");
    const struct td_tls_guests rules = {revoked, HOUR_S};
    td_tls_context_set_guests(server, &rules);
    struct td_mono due = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    bool over = false;
    while (!over && td_mono_now().ns < due.ns) {
        struct link l = shake(server, client, "here.example");
        assert_true(l.server_done && td_tls_session_peer(l.server, &c));
        over = c.left_s < 0;
        finish(&l);
    }
    assert_true(over);
    td_tls_revoked_add(revoked, "");
    td_tls_revoked_add(revoked, c.serial);
    td_tls_revoked_add(revoked, c.serial);
    struct link l = shake(server, client, "here.example");
    assert_non_null(strstr(td_status_message(l.server_failed), "'n-1' has expired on 20"));
    finish(&l);
    l = shake(server, fresh, "here.example");
    assert_true(l.server_done && td_tls_session_peer(l.server, &c));
    finish(&l);
    td_tls_revoked_add(revoked, c.serial);
    l = shake(server, fresh, "here.example");
    assert_non_null(strstr(td_status_message(l.server_failed), "'n-2' was revoked (serial"));
    assert_string_equal(td_status_reason(l.server_failed), "CERTIFICATE_REFUSED");
    finish(&l);
    td_tls_context_destroy(server);
    td_tls_context_destroy(client);
    td_tls_context_destroy(fresh);
    td_tls_revoked_destroy(revoked);
    td_authority_destroy(h.authority);
}

static void test_revoked_serials_are_bounded_and_the_oldest_goes(void **state) {
    (void)state;
    struct td_tls_revoked *r;
    char serial[16];
    assert_ok(td_tls_revoked_create(&r));
    for (int i = 0; i <= TD_TLS_REVOKED_MAX; i++) {
        snprintf(serial, sizeof serial, "%08X", (unsigned)i);
        td_tls_revoked_add(r, serial);
    }
    assert_false(td_tls_revoked_has(r, "00000000"));
    assert_true(td_tls_revoked_has(r, "00000001") && td_tls_revoked_has(r, serial));
    td_tls_revoked_destroy(r);
}

// ---- the first contact --------------------------------------------------------------------------
struct host {
    const struct td_tls_context *context;
    int fd;
};

// A server in a thread of its own, because the first contact blocks.
static void *serve(void *arg) {
    const struct host *host = arg;
    struct td_tls_session *s;
    enum td_tls_step got = TD_TLS_WANTS_READ;
    struct td_mono due = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    td_status failed = td_tls_session_create(host->context, host->fd, NULL, &s);
    while (!failed && got != TD_TLS_DONE && td_mono_now().ns < due.ns) {
        struct pollfd p = {.fd = host->fd, .events = POLLIN};
        (void)poll(&p, 1, 100);
        failed = td_tls_session_handshake(s, &got);
    }
    td_status_free(failed);
    td_tls_session_destroy(s);
    return NULL;
}

static td_status contact(const struct td_tls_context *server, const char *host,
                         const char *fingerprint, struct td_buf *out_ca) {
    int fds[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    struct host at_work = {server, fds[0]};
    assert_int_equal(pthread_create(&thread, NULL, serve, &at_work), 0);
    td_status s = td_tls_first_contact(fds[1], host, fingerprint, TD_TEST_WAIT_NS, out_ca);
    close(fds[1]);
    pthread_join(thread, NULL);
    close(fds[0]);
    return s;
}

static void test_ca_is_found_by_its_fingerprint_alone(void **state) {
    struct home h = make_home(*state, "a-"), other = make_home(*state, "b-");
    TD_AUTO_BUF ca, other_ca, got;
    struct td_certificate mine, foreign, found;
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    td_buf_init(&other_ca, TD_TLS_PEM_MAX);
    td_buf_init(&got, TD_TLS_PEM_MAX);
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    assert_ok(td_fs_read(path_of(&h, "ca.pem"), TD_TLS_PEM_MAX, &ca));
    assert_ok(td_fs_read(path_of(&other, "ca.pem"), TD_TLS_PEM_MAX, &other_ca));
    assert_ok(td_certificate_read(td_buf_cstr(&ca), &mine));
    assert_ok(td_certificate_read(td_buf_cstr(&other_ca), &foreign));
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    td_status s = contact(server, "here.example", foreign.fingerprint, &got);
    assert_string_equal(td_status_reason(s), "CLUSTER_WRONG");
    td_status_free(s);
    assert_fails(contact(server, "there.example", mine.fingerprint, &got), TD_FAILED_PRECONDITION,
                 "hostname mismatch");
    assert_int_equal(got.len, 0);
    assert_ok(contact(server, "here.example", mine.fingerprint, &got));
    assert_ok(td_certificate_read(td_buf_cstr(&got), &found));
    assert_string_equal(found.fingerprint, mine.fingerprint);
    td_tls_context_destroy(server);
    td_authority_destroy(h.authority);
    td_authority_destroy(other.authority);
}

static void test_first_contact_ends_when_nobody_answers(void **state) {
    (void)state;
    TD_AUTO_BUF got;
    int fds[2];
    td_buf_init(&got, TD_TLS_PEM_MAX);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_fails(td_tls_first_contact(fds[1], "here.example", "00", 50 * TD_NS_PER_MS, &got),
                 TD_DEADLINE_EXCEEDED, "no TLS handshake in time");
    close(fds[0]);
    close(fds[1]);
}

static uint8_t at(size_t i) {
    return (uint8_t)(i * 31 + i / 251);
}

static void test_bytes_come_whole_when_writes_are_taken_in_parts(void **state) {
    enum { ALL = 3 << 20, PIECE = 100000 };
    static uint8_t in[PIECE], out[PIECE], moved[PIECE];
    struct home h = make_home(*state, "a-");
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    struct td_tls_context *server = context_of(TD_TLS_SERVER, path_of(&h, "ca.pem"), &h, "server");
    struct td_tls_context *client = context_of(TD_TLS_CLIENT, path_of(&h, "ca.pem"), &h, NULL);
    struct link l = shake(server, client, NULL);
    size_t sent = 0, got = 0, refused = 0;
    ssize_t n;
    while (got < ALL) {
        size_t piece = TD_MIN((size_t)PIECE, ALL - sent);
        uint8_t *from = refused % 2 ? moved : out; // what was refused goes on from another place
        for (size_t i = 0; i < piece; i++) {
            from[i] = at(sent + i);
        }
        n = piece ? td_tls_session_send(l.client, from, piece) : 0;
        if (n > 0) sent += (size_t)n;
        if (n >= 0 && piece) continue;
        if (piece) assert_int_equal(errno, EAGAIN);
        refused++;
        while ((n = td_tls_session_recv(l.server, in, sizeof in)) > 0) {
            for (size_t i = 0; i < (size_t)n; i++) {
                if (in[i] != at(got + i)) fail_msg("byte %zu differs", got + i);
            }
            got += (size_t)n;
        }
        assert_true(n < 0 && errno == EAGAIN);
    }
    assert_true(refused > 3);
    td_tls_session_close(l.client);
    assert_int_equal(td_tls_session_recv(l.server, in, sizeof in), 0);
    finish(&l);
    td_tls_context_destroy(server);
    td_tls_context_destroy(client);
    td_authority_destroy(h.authority);
}

static td_status make_and_drop(void *arg) {
    struct home *h = arg;
    const struct td_tls_paths paths = {path_of(h, "ca.pem"), path_of(h, "server.pem"),
                                       path_of(h, "server.key")};
    TD_AUTO(td_tls_context) *c = NULL;
    return td_tls_context_create(TD_TLS_SERVER, &paths, &c);
}

static void test_context_fails_cleanly_when_memory_is_out(void **state) {
    struct home h = make_home(*state, "a-");
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    td_test_failing_allocations(make_and_drop, &h);
    td_authority_destroy(h.authority);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_peer_is_known_when_its_certificate_is_good),
        test_in_scratch(test_client_is_refused_when_its_certificate_is_of_another_ca),
        test_in_scratch(test_other_end_is_refused_when_the_host_is_another),
        test_in_scratch(test_client_is_refused_when_its_certificate_ended_meanwhile),
        test_in_scratch(test_guest_is_judged_by_the_servers_rules),
        cmocka_unit_test(test_revoked_serials_are_bounded_and_the_oldest_goes),
        test_in_scratch(test_ca_is_found_by_its_fingerprint_alone),
        cmocka_unit_test(test_first_contact_ends_when_nobody_answers),
        test_in_scratch(test_bytes_come_whole_when_writes_are_taken_in_parts),
        test_in_scratch(test_context_fails_cleanly_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
