// A BIO of our own between the socket and OpenSSL. It reads the five bytes of each record's header
// as they pass, and gives nothing after the end of a record until it is asked for the next one.
//
// Rejected: to switch SSL_MODE_AUTO_RETRY and read-ahead off. OpenSSL then reads each record with
// two calls of the kernel, and still goes on over what it skips without a message, such as empty
// records.

#include "lib/tls/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>

enum { READ_AHEAD = 128 << 10 };

// ---- the BIO ------------------------------------------------------------------------------------
static void pass(struct td_tls_records *r, uint8_t *out, size_t bytes) {
    memcpy(out, r->ahead + r->at, bytes);
    r->at += bytes;
    if (r->n_header < sizeof r->header) {
        memcpy(r->header + r->n_header, out, bytes);
        r->n_header += bytes;
        if (r->n_header < sizeof r->header) return;
        r->n_left = (size_t)r->header[3] << 8 | r->header[4];
    } else {
        r->n_left -= bytes;
    }
    r->open = r->n_left > 0;
}

static int on_read(BIO *bio, char *out, size_t bytes, size_t *out_n) {
    struct td_tls_records *r = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!r->open || (r->at == r->end && !r->ended)) {
        BIO_set_retry_read(bio);
        return -1;
    }
    errno = r->err;
    if (r->at == r->end) return r->err ? -1 : 0;
    bool in_header = r->n_header < sizeof r->header;
    size_t most = in_header ? sizeof r->header - r->n_header : r->n_left;
    *out_n = TD_MIN(bytes, TD_MIN(most, r->end - r->at));
    pass(r, (uint8_t *)out, *out_n);
    return 1;
}

static long on_ctrl(BIO *bio, int what, long number, void *pointer) {
    (void)number, (void)pointer;
    const struct td_tls_records *r = BIO_get_data(bio);
    return what == BIO_CTRL_EOF ? r->ended && !r->err && r->at == r->end : 0;
}

static CRYPTO_ONCE once = CRYPTO_ONCE_STATIC_INIT;
static BIO_METHOD *method; // as long as the process

static void make_method(void) {
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "records of a socket");
    if (!method) return;
    BIO_meth_set_read_ex(method, on_read);
    BIO_meth_set_ctrl(method, on_ctrl);
}

bool td_tls_records_init(struct td_tls_records *r, SSL *ssl, int fd) {
    *r = (struct td_tls_records){.ssl = ssl, .fd = fd};
    if (!CRYPTO_THREAD_run_once(&once, make_method) || !method) return false;
    BIO *in = BIO_new(method), *out = BIO_new_socket(fd, BIO_NOCLOSE);
    if (!in || !out) {
        BIO_free(in);
        BIO_free(out);
        return false;
    }
    BIO_set_data(in, r);
    BIO_set_init(in, 1);
    SSL_set_bio(ssl, in, out);
    return true;
}

void td_tls_records_finish(struct td_tls_records *r) {
    free(td_steal(r->ahead));
    r->at = r->end = 0;
}

// ---- records ------------------------------------------------------------------------------------
// False: the socket has nothing.
static bool fill(struct td_tls_records *r) {
    if (r->at < r->end || r->ended) return true;
    if (!r->ahead) r->ahead = malloc(READ_AHEAD);
    ssize_t n = -1;
    errno = ENOMEM;
    while (r->ahead && (n = recv(r->fd, r->ahead, READ_AHEAD, MSG_DONTWAIT)) < 0 &&
           errno == EINTR) {}
    r->at = 0;
    r->end = n > 0 ? (size_t)n : 0;
    if (n > 0) return true;
    free(td_steal(r->ahead));
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    r->ended = true;
    r->err = n < 0 ? errno : 0;
    return true;
}

// Lets OpenSSL go on with its record, or with the next one. False: the socket has nothing.
static bool go_on(struct td_tls_records *r) {
    if (!fill(r)) return false;
    if (!r->open) r->n_header = r->n_left = 0;
    r->open = true;
    return true;
}

static bool are_too_many(const struct td_tls_records *r) {
    return r->n_idle_in_a_row > TD_TLS_IDLE_IN_A_ROW_MAX ||
           r->n_idle > TD_TLS_IDLE_RECORDS_MAX + (r->n_data_bytes >> 20);
}

int td_tls_records_handshake(struct td_tls_records *r) {
    for (;;) {
        ERR_clear_error();
        errno = 0;
        int done = SSL_do_handshake(r->ssl);
        int kind = done == 1 ? SSL_ERROR_NONE : SSL_get_error(r->ssl, done);
        if (kind != SSL_ERROR_WANT_READ) return kind;
        bool whole = !r->open && r->n_header;
        if (whole && ++r->n_handshake > TD_TLS_HANDSHAKE_RECORDS_MAX) return SSL_ERROR_SSL;
        if (!go_on(r)) return SSL_ERROR_WANT_READ;
    }
}

int td_tls_records_read(struct td_tls_records *r, void *out, size_t bytes, size_t *out_n) {
    *out_n = 0;
    if (are_too_many(r)) return SSL_ERROR_SSL;
    if (SSL_pending(r->ssl) == 0 && !go_on(r)) return SSL_ERROR_WANT_READ;
    ERR_clear_error();
    int done = SSL_read_ex(r->ssl, out, bytes, out_n);
    if (done == 1) {
        r->n_idle_in_a_row = 0;
        r->n_data_bytes += *out_n;
        return SSL_ERROR_NONE;
    }
    int kind = SSL_get_error(r->ssl, done);
    if (kind != SSL_ERROR_WANT_READ) return kind;
    if (r->open) return SSL_ERROR_NONE; // the rest of it is not here
    r->n_idle++;
    r->n_idle_in_a_row++;
    return are_too_many(r) ? SSL_ERROR_SSL : SSL_ERROR_NONE;
}

td_status td_tls_records_refusal(const struct td_tls_records *r) {
    td_status why = TD_OK;
    if (r->n_handshake > TD_TLS_HANDSHAKE_RECORDS_MAX) {
        why = td_fail(TD_RESOURCE_EXHAUSTED, "more than %d TLS records in one handshake",
                      TD_TLS_HANDSHAKE_RECORDS_MAX);
    } else if (are_too_many(r)) {
        why = td_fail(TD_RESOURCE_EXHAUSTED,
                      "more than %d TLS records without data in a row, or more than %d and one for "
                      "each MiB of data",
                      TD_TLS_IDLE_IN_A_ROW_MAX, TD_TLS_IDLE_RECORDS_MAX);
    }
    return why ? td_status_with_reason(why, "TLS_FLOOD") : TD_OK;
}
