// Another end that sends records without data, or tiny ones, for as long as one reads: what one
// call does of it, and when it is too much. The other end is OpenSSL itself.

#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "lib/tls/records.h"
#include "lib/tls/session.h"
#include "tests/unit/rpc/tls_rig.h"

// What it writes waits in `out`.
struct other {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *out;
    int fd;
};

static struct other make_other(const struct home *h, const char *server, int fd) {
    struct other o = {.ctx = SSL_CTX_new(TLS_method()), .fd = fd};
    static const unsigned char h2[] = {2, 'h', '2'};
    char pem[64], key[64];
    snprintf(pem, sizeof pem, "%s.pem", server ? server : "");
    snprintf(key, sizeof key, "%s.key", server ? server : "");
    if (server) {
        assert_int_equal(SSL_CTX_use_certificate_file(o.ctx, path_of(h, pem), SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(o.ctx, path_of(h, key), SSL_FILETYPE_PEM), 1);
    }
    o.ssl = SSL_new(o.ctx);
    o.out = BIO_new(BIO_s_mem());
    assert_int_equal(SSL_set_alpn_protos(o.ssl, h2, sizeof h2), 0);
    SSL_set_bio(o.ssl, BIO_new_socket(fd, BIO_NOCLOSE), o.out);
    if (server) {
        SSL_set_accept_state(o.ssl);
    } else {
        SSL_set_connect_state(o.ssl);
    }
    return o;
}

static void drop_other(struct other *o) {
    SSL_free(o->ssl);
    SSL_CTX_free(o->ctx);
}

static void put(const struct other *o, const void *data, size_t bytes) {
    assert_int_equal(send(o->fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static void flush(const struct other *o) {
    char *data;
    long bytes = BIO_get_mem_data(o->out, &data);
    if (bytes > 0) put(o, data, (size_t)bytes);
    (void)BIO_reset(o->out);
}

// The first record of what waits, in records of one byte each.
static void flush_in_bytes(const struct other *o) {
    const uint8_t *data;
    assert_true(BIO_get_mem_data(o->out, &data) > TD_TLS_RECORD_HEADER_BYTES);
    size_t bytes = (size_t)data[3] << 8 | data[4];
    TD_AUTO_BUF all;
    td_buf_init(&all, 64 << 10);
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t record[] = {data[0], data[1], data[2], 0, 1, data[5 + i]};
        assert_ok(td_buf_append(&all, record, sizeof record));
    }
    put(o, all.data, all.len);
}

static void send_updates(const struct other *o, int n) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(SSL_key_update(o->ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(o->ssl), 1);
    }
    flush(o);
}

static void send_data(const struct other *o, const void *data, int bytes) {
    assert_int_equal(SSL_write(o->ssl, data, bytes), bytes);
    flush(o);
}

// A server's session, and a client's side of it that is not ours.
struct meeting {
    struct home h;
    struct td_tls_context *context;
    struct td_tls_session *session;
    struct other other;
    int fds[2];
};

static struct meeting meet(const char *dir) {
    struct meeting m = {.h = make_home(dir, "a-")};
    enum td_tls_step got = TD_TLS_WANTS_READ;
    issue(&m.h, "server", TD_TLS_SERVER, HOUR_S);
    m.context = context_of(TD_TLS_SERVER, path_of(&m.h, "ca.pem"), &m.h, "server");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, m.fds), 0);
    assert_ok(td_tls_session_create(m.context, m.fds[0], NULL, &m.session));
    m.other = make_other(&m.h, NULL, m.fds[1]);
    for (int i = 0; i < 3; i++) {
        (void)SSL_do_handshake(m.other.ssl);
        flush(&m.other);
        assert_ok(td_tls_session_handshake(m.session, &got));
    }
    assert_int_equal(got, TD_TLS_DONE);
    return m;
}

static void part(struct meeting *m) {
    td_tls_session_destroy(m->session);
    drop_other(&m->other);
    td_tls_context_destroy(m->context);
    td_authority_destroy(m->h.authority);
    close(m->fds[0]);
    close(m->fds[1]);
}

static void expect_flood(ssize_t n, const struct td_tls_session *s, const char *text) {
    td_status why = td_tls_session_refusal(s);
    assert_int_equal(n, 0);
    assert_string_equal(td_status_reason(why), "TLS_FLOOD");
    assert_fails(why, TD_RESOURCE_EXHAUSTED, text);
}

static void test_reading_ends_when_records_without_data_come_in_a_row(void **state) {
    struct meeting m = meet(*state);
    char in[64];
    send_updates(&m.other, TD_TLS_IDLE_IN_A_ROW_MAX);
    send_data(&m.other, "abc", 3);
    assert_int_equal(td_tls_session_recv(m.session, in, sizeof in), 3);
    assert_true(td_tls_session_recv(m.session, in, sizeof in) < 0 && errno == EAGAIN);
    send_updates(&m.other, 100);
    send_data(&m.other, "abc", 3);
    for (int again = 0; again < 2; again++) { // what follows is never read
        expect_flood(td_tls_session_recv(m.session, in, sizeof in), m.session,
                     "more than 16 TLS records without data in a row");
    }
    part(&m);
}

static void test_reading_ends_when_records_without_data_are_many_for_the_data(void **state) {
    enum { MIBS = 3, PIECE = 64 << 10, ROW = 8 };
    static char in[PIECE], piece[PIECE];
    struct meeting m = meet(*state);
    for (int n = 0; n < TD_TLS_IDLE_RECORDS_MAX; n += ROW) {
        send_updates(&m.other, ROW);
        send_data(&m.other, "abc", 3);
        assert_int_equal(td_tls_session_recv(m.session, in, sizeof in), 3);
    }
    for (size_t got = 0; got < MIBS << 20;) { // pays for one each
        send_data(&m.other, piece, PIECE);
        ssize_t n;
        while ((n = td_tls_session_recv(m.session, in, sizeof in)) > 0) {
            got += (size_t)n;
        }
        assert_int_equal(errno, EAGAIN);
    }
    send_updates(&m.other, MIBS);
    assert_true(td_tls_session_recv(m.session, in, sizeof in) < 0 && errno == EAGAIN);
    send_updates(&m.other, 1);
    expect_flood(td_tls_session_recv(m.session, in, sizeof in), m.session,
                 "more than 64 and one for each MiB of data");
    part(&m);
}

static void test_one_call_reads_few_records_when_they_are_tiny(void **state) {
    enum { N = 1000 };
    char in[N];
    struct meeting m = meet(*state);
    ssize_t n, got = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(SSL_write(m.other.ssl, "a", 1), 1);
    }
    flush(&m.other);
    while ((n = td_tls_session_recv(m.session, in, sizeof in)) > 0) {
        assert_in_range(n, 1, 64);
        got += n;
    }
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(got, N);
    part(&m);
}

// A socket of packets gives each piece by itself, as a slow network does.
static void test_record_is_read_when_it_comes_in_many_pieces(void **state) {
    enum { BYTES = 16000, PIECE = 100 };
    static char in[BYTES], sent[BYTES];
    struct meeting m = meet(*state);
    int packets[2];
    char *data;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, packets), 0);
    for (size_t i = 0; i < TD_COUNTOF(packets); i++) {
        assert_true(dup2(packets[i], m.fds[i]) >= 0);
        close(packets[i]);
    }
    assert_int_equal(SSL_write(m.other.ssl, sent, BYTES), BYTES);
    const long bytes = BIO_get_mem_data(m.other.out, &data);
    for (long at = 0; at < bytes; at += PIECE) {
        put(&m.other, data + at, (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
    }
    assert_int_equal(td_tls_session_recv(m.session, in, BYTES), BYTES);
    part(&m);
}

static void test_handshake_fails_when_it_comes_in_tiny_records(void **state) {
    struct home h = make_home(*state, "a-");
    int fds[2];
    issue(&h, "server", TD_TLS_SERVER, HOUR_S);
    static const enum td_tls_use uses[] = {TD_TLS_SERVER, TD_TLS_CLIENT};
    for (size_t i = 0; i < TD_COUNTOF(uses); i++) {
        bool serves = uses[i] == TD_TLS_SERVER;
        struct td_tls_context *context =
            context_of(uses[i], path_of(&h, "ca.pem"), &h, serves ? "server" : NULL);
        enum td_tls_step got;
        struct td_tls_session *s;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                         0);
        struct other o = make_other(&h, serves ? NULL : "server", fds[1]);
        assert_ok(td_tls_session_create(context, fds[0], serves ? NULL : "here.example", &s));
        if (!serves) assert_ok(td_tls_session_handshake(s, &got));
        (void)SSL_do_handshake(o.ssl);
        flush_in_bytes(&o);
        td_status failed = td_tls_session_handshake(s, &got);
        assert_string_equal(td_status_reason(failed), "TLS_FLOOD");
        assert_fails(failed, TD_RESOURCE_EXHAUSTED, "more than 64 TLS records in one handshake");
        td_tls_session_destroy(s);
        td_tls_context_destroy(context);
        drop_other(&o);
        close(fds[0]);
        close(fds[1]);
    }
    td_authority_destroy(h.authority);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_reading_ends_when_records_without_data_come_in_a_row),
        test_in_scratch(test_reading_ends_when_records_without_data_are_many_for_the_data),
        test_in_scratch(test_one_call_reads_few_records_when_they_are_tiny),
        test_in_scratch(test_record_is_read_when_it_comes_in_many_pieces),
        test_in_scratch(test_handshake_fails_when_it_comes_in_tiny_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
