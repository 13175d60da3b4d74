// OpenSSL's SSL object, one record at a time. Reads are gathered until the caller's buffer is full,
// because each costs the relay a write, or until there were RECORDS_PER_CALL: tiny ones would
// otherwise keep the thread for long. So would records that come in tiny pieces: with data in hand,
// no more than PIECES_PER_CALL are read.

#include "lib/tls/session.h"

#include <errno.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "lib/tls/context.h"
#include "lib/tls/error.h"
#include "lib/tls/records.h"
#include "lib/tls/revoked.h"
#include "lib/tls/x509.h"

enum { RECORDS_PER_CALL = 32, PIECES_PER_CALL = 128 };
_Static_assert(RECORDS_PER_CALL > (int)TD_TLS_IDLE_IN_A_ROW_MAX,
               "a call has data, or its socket is empty");

struct td_tls_session {
    SSL *ssl;
    struct td_tls_records records; // of the other end
    struct td_tls_guests guests;
    X509 *refused; // of the other end; a session that failed does not keep it
};

// What the owner of a server says of clients' certificates, beyond what X.509 says. OpenSSL asks
// for each fault, and once more for a certificate without any.
static int judge_guest(const struct td_tls_session *s, int good, X509_STORE_CTX *ctx) {
    const X509 *x = X509_STORE_CTX_get_current_cert(ctx);
    struct td_certificate c;
    if (X509_STORE_CTX_get_error_depth(ctx) != 0 || !x) return good;
    td_x509_describe(x, &c);
    bool listed = s->guests.revoked && td_tls_revoked_has(s->guests.revoked, c.serial);
    bool ended = !good && X509_STORE_CTX_get_error(ctx) == X509_V_ERR_CERT_HAS_EXPIRED;
    if (ended && !listed && c.left_s >= -s->guests.excuse_s) {
        X509_STORE_CTX_set_error(ctx, X509_V_OK);
        good = 1;
    }
    if (good && listed) {
        X509_STORE_CTX_set_error(ctx, X509_V_ERR_CERT_REVOKED);
        good = 0;
    }
    return good;
}

static int on_verdict(int good, X509_STORE_CTX *ctx) {
    SSL *ssl = X509_STORE_CTX_get_ex_data(ctx, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct td_tls_session *s = SSL_get_app_data(ssl);
    X509 *x = X509_STORE_CTX_get_current_cert(ctx);
    if (SSL_is_server(ssl)) good = judge_guest(s, good, ctx);
    // Another CA is shown as a self-signed certificate of the chain: whom it speaks for is the
    // first.
    if (X509_STORE_CTX_get_error(ctx) == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN) {
        x = X509_STORE_CTX_get0_cert(ctx);
    }
    if (!good && !s->refused && x && X509_up_ref(x)) s->refused = x;
    return good;
}

static bool expect(SSL *ssl, const char *host) {
    ASN1_OCTET_STRING *ip = a2i_IPADDRESS(host);
    ASN1_OCTET_STRING_free(ip);
    if (ip) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

td_status td_tls_session_create(const struct td_tls_context *context, int fd, const char *host,
                                struct td_tls_session **out_session) {
    TD_AUTO(td_tls_session) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->ssl = SSL_new(td_tls_context_borrow(context));
    if (!self->ssl || !td_tls_records_init(&self->records, self->ssl, fd) ||
        (host && !expect(self->ssl, host))) {
        return td_tls_fail(TD_RESOURCE_EXHAUSTED, "begin a TLS connection");
    }
    self->guests = *td_tls_context_guests(context);
    SSL_set_app_data(self->ssl, self);
    SSL_set_verify(self->ssl, SSL_VERIFY_PEER, on_verdict); // a server: if the client shows one
    if (td_tls_context_use(context) == TD_TLS_SERVER) {
        SSL_set_accept_state(self->ssl);
    } else {
        SSL_set_connect_state(self->ssl);
    }
    *out_session = td_steal(self);
    return TD_OK;
}

void td_tls_session_destroy(struct td_tls_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    td_tls_records_finish(&s->records);
    X509_free(s->refused);
    free(s);
}

static td_status why_failed(struct td_tls_session *s, int kind, int err) {
    TD_TRY(td_tls_records_refusal(&s->records));
    long verdict = SSL_get_verify_result(s->ssl);
    if (verdict != X509_V_OK) {
        ERR_clear_error();
        return td_x509_refusal((int)verdict, s->refused);
    }
    bool ended = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (kind == SSL_ERROR_SYSCALL || kind == SSL_ERROR_ZERO_RETURN || ended) {
        ERR_clear_error();
        if (SSL_is_server(s->ssl) && BIO_number_read(SSL_get_rbio(s->ssl)) > 0) {
            return td_status_with_reason(
                td_fail(TD_UNAVAILABLE,
                        "it left when it was shown this server's certificate: it may "
                        "trust another CA, or dial a host that is not in it"),
                "TLS_LEFT");
        }
        errno = err;
        td_status gone = err && !ended ? td_fail_errno(TD_UNAVAILABLE, "it broke in the handshake")
                                       : td_fail(TD_UNAVAILABLE, "it ended in the handshake");
        return td_status_with_reason(gone, "TLS_CLOSED");
    }
    bool unreadable = ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_ASN1; // the cause is the oldest
    return td_tls_fail(TD_INVALID_ARGUMENT, "%s",
                       unreadable ? "what it shows as its certificate cannot be read"
                                  : "the handshake of TLS 1.3 failed");
}

td_status td_tls_session_handshake(struct td_tls_session *s, enum td_tls_step *out_step) {
    int kind = td_tls_records_handshake(&s->records), err = errno;
    if (kind == SSL_ERROR_NONE) {
        *out_step = TD_TLS_DONE;
        return TD_OK;
    }
    if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
        return why_failed(s, kind, err);
    }
    *out_step = kind == SSL_ERROR_WANT_READ ? TD_TLS_WANTS_READ : TD_TLS_WANTS_WRITE;
    return TD_OK;
}

// -1 with EAGAIN, or the end.
static ssize_t result_of(int kind, ssize_t at_end) {
    ERR_clear_error();
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    errno = ECONNRESET;
    return at_end;
}

ssize_t td_tls_session_recv(struct td_tls_session *s, void *out, size_t bytes) {
    size_t at = 0;
    int n_records = 0, n_pieces = 0;
    while (n_records < RECORDS_PER_CALL && at < bytes && (n_pieces < PIECES_PER_CALL || !at)) {
        size_t n;
        int kind = td_tls_records_read(&s->records, (char *)out + at, bytes - at, &n);
        if (kind != SSL_ERROR_NONE) return at ? (ssize_t)at : result_of(kind, 0);
        at += n;
        n_records += !s->records.open;
        n_pieces++;
    }
    return (ssize_t)at;
}

td_status td_tls_session_refusal(const struct td_tls_session *s) {
    return td_tls_records_refusal(&s->records);
}

ssize_t td_tls_session_send(struct td_tls_session *s, const void *data, size_t bytes) {
    size_t n = 0;
    ERR_clear_error();
    int done = SSL_write_ex(s->ssl, data, bytes, &n);
    return done == 1 ? (ssize_t)n : result_of(SSL_get_error(s->ssl, done), -1);
}

void td_tls_session_close(struct td_tls_session *s) {
    ERR_clear_error();
    if (SSL_is_init_finished(s->ssl)) (void)SSL_shutdown(s->ssl);
    ERR_clear_error();
}

bool td_tls_session_was_closed(const struct td_tls_session *s) {
    return SSL_get_shutdown(s->ssl) & SSL_RECEIVED_SHUTDOWN;
}

bool td_tls_session_peer(const struct td_tls_session *s, struct td_certificate *out_certificate) {
    X509 *x = SSL_get0_peer_certificate(s->ssl);
    if (x) td_x509_describe(x, out_certificate);
    return x;
}
