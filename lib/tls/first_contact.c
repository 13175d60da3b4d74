// A handshake whose verdict is not OpenSSL's: the chain is judged by the CA in it that has the
// fingerprint, in the words of certificate.h. That is within the handshake, so that the other end
// learns by an alert that it was refused, counts it and says so in its log.

#include "lib/tls/first_contact.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "lib/base/clock.h"
#include "lib/tls/certificate.h"
#include "lib/tls/error.h"
#include "lib/tls/records.h"
#include "lib/tls/x509.h"

TD_DEFINE_AUTO(ssl_st, SSL_free);
TD_DEFINE_AUTO(ssl_ctx_st, SSL_CTX_free);

static td_status wait_for(int fd, int kind, struct td_mono due) {
    struct pollfd p = {.fd = fd, .events = kind == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
    for (;;) {
        int64_t left_ns = due.ns - td_mono_now().ns;
        if (left_ns <= 0) {
            return td_fail(TD_DEADLINE_EXCEEDED, "no TLS handshake in time; does traind listen "
                                                 "there, beyond loopback?");
        }
        int n = poll(&p, 1, (int)(left_ns / TD_NS_PER_MS + 1));
        if (n > 0) return TD_OK;
        if (n < 0 && errno != EINTR) return td_fail_errno(TD_UNAVAILABLE, "wait for a handshake");
    }
}

static td_status shake_hands(struct td_tls_records *r, int fd, struct td_mono due) {
    for (;;) {
        int kind = td_tls_records_handshake(r);
        if (kind == SSL_ERROR_NONE) return TD_OK;
        TD_TRY(td_tls_records_refusal(r));
        if (kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
            return td_tls_fail(TD_UNAVAILABLE, "the handshake of TLS 1.3 failed; does traind "
                                               "listen there, beyond loopback?");
        }
        TD_TRY(wait_for(fd, kind, due));
    }
}

static bool is_it(const X509 *x, const char *fingerprint) {
    struct td_certificate c;
    td_x509_describe(x, &c);
    return strcasecmp(c.fingerprint, fingerprint) == 0;
}

struct meeting {
    const char *host, *fingerprint;
    struct td_buf *ca;
    td_status refusal;
};

static td_status judge(X509_STORE_CTX *shown, const struct meeting *m) {
    const char *host = m->host, *fingerprint = m->fingerprint;
    STACK_OF(X509) *chain = X509_STORE_CTX_get0_untrusted(shown);
    const X509 *ca = NULL;
    for (int i = 0; chain && i < sk_X509_num(chain) && !ca; i++) {
        if (is_it(sk_X509_value(chain, i), fingerprint)) ca = sk_X509_value(chain, i);
    }
    if (!ca) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED,
                    "'%.253s' does not show the CA that the token names (SHA-256 %.16s...): the "
                    "token is of another cluster, or somebody answers in its place; nothing was "
                    "sent there. Ask for a token of this cluster (`trainctl node token`)",
                    host, fingerprint),
            "CLUSTER_WRONG");
    }
    TD_AUTO_BUF ca_pem, pem;
    td_buf_init(&ca_pem, TD_TLS_PEM_MAX);
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    TD_TRY(td_x509_write(ca, &ca_pem));
    TD_TRY(td_x509_write(X509_STORE_CTX_get0_cert(shown), &pem));
    TD_TRY_CTX(td_certificate_verify(td_buf_cstr(&ca_pem), td_buf_cstr(&pem), TD_TLS_SERVER, host),
               "'%.253s'", host);
    return td_buf_append(m->ca, ca_pem.data, ca_pem.len);
}

static int on_shown(X509_STORE_CTX *shown, void *arg) {
    struct meeting *m = arg;
    if (!m->refusal) m->refusal = judge(shown, m);
    X509_STORE_CTX_set_error(shown, m->refusal ? X509_V_ERR_APPLICATION_VERIFICATION : X509_V_OK);
    return !m->refusal;
}

td_status td_tls_first_contact(int fd, const char *host, const char *fingerprint,
                               int64_t timeout_ns, struct td_buf *out_ca) {
    static const unsigned char h2[] = {2, 'h', '2'};
    struct td_mono due = td_mono_add(td_mono_now(), timeout_ns);
    TD_AUTO_BUF ca;
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    struct meeting m = {host, fingerprint, &ca, TD_OK};
    TD_AUTO(ssl_ctx_st) *ctx = SSL_CTX_new(TLS_client_method());
    if (ctx) SSL_CTX_set_cert_verify_callback(ctx, on_shown, &m);
    struct td_tls_records records;
    TD_AUTO(ssl_st) *ssl = ctx ? SSL_new(ctx) : NULL;
    if (!ssl || !SSL_set_min_proto_version(ssl, TLS1_3_VERSION) ||
        SSL_set_alpn_protos(ssl, h2, sizeof h2) != 0 || !td_tls_records_init(&records, ssl, fd)) {
        return td_tls_fail(TD_RESOURCE_EXHAUSTED, "begin a TLS connection");
    }
    SSL_set_connect_state(ssl);
    SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    td_status failed = shake_hands(&records, fd, due);
    td_tls_records_finish(&records);
    if (!failed) (void)SSL_shutdown(ssl);
    ERR_clear_error();
    if (m.refusal) {
        td_status_free(failed); // it only says that we refused
        return m.refusal;
    }
    TD_TRY_CTX(failed, "'%.253s'", host);
    return td_buf_append(out_ca, ca.data, ca.len);
}
