// A changed file is seen by its inode, size and time of change, which differ after a rename over it
// as well as after a write into it.

#include "lib/tls/context.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/ssl.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/tls/certificate.h"
#include "lib/tls/error.h"
#include "lib/tls/revoked.h"
#include "lib/tls/x509.h"

enum { N_FILES = 3 };
static const int64_t look_every_ns = TD_NS_PER_S;

struct look {
    struct {
        ino_t inode;
        off_t bytes;
        struct timespec changed;
    } files[N_FILES];
};

struct td_tls_context {
    enum td_tls_use use;
    char *paths[N_FILES]; // ca, certificate, key; the last two may be NULL
    struct td_tls_guests guests;
    struct look seen;
    struct td_mono looked;
    SSL_CTX *ssl;
    int64_t valid_until_s; // INT64_MAX: no certificate
};

TD_DEFINE_AUTO(ssl_ctx_st, SSL_CTX_free);

// Of what a client offers, in its order, "h2" and nothing else.
static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                     const unsigned char *in, unsigned in_bytes, void *arg) {
    (void)ssl, (void)arg;
    for (unsigned at = 0; at < in_bytes; at += 1U + in[at]) {
        if (in[at] != 2 || at + 3 > in_bytes || memcmp(in + at + 1, "h2", 2) != 0) continue;
        *out = in + at + 1;
        *out_bytes = 2;
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool set_rules(SSL_CTX *ssl, enum td_tls_use use) {
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    if (use == TD_TLS_SERVER) SSL_CTX_set_alpn_select_cb(ssl, choose_h2, NULL);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(ssl, 0) &&
           SSL_CTX_set_alpn_protos(ssl, h2, sizeof h2) == 0;
}

static td_status read_file(const char *path, struct td_buf *out) {
    td_status s = td_fs_read(path, TD_TLS_PEM_MAX, out);
    if (td_status_code(s) != TD_NOT_FOUND) return s;
    td_status missing = td_fail(TD_FAILED_PRECONDITION, "%s", td_status_message(s));
    td_status_free(s);
    return missing;
}

static td_status use_certificate(struct td_tls_context *c, SSL_CTX *ssl, const char *ca,
                                 int64_t *out_until_s) {
    TD_AUTO_BUF pem, key;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    td_buf_init(&key, TD_TLS_PEM_MAX);
    TD_TRY(read_file(c->paths[1], &pem));
    TD_TRY(read_file(c->paths[2], &key));
    const char *text = td_buf_cstr(&pem), *secret = td_buf_cstr(&key);
    TD_TRY_CTX(td_certificate_verify(ca, text, c->use, NULL), "'%s'", c->paths[1]);
    TD_TRY_CTX(td_certificate_fits(text, secret), "'%s'", c->paths[2]);
    struct td_certificate facts;
    TD_TRY(td_certificate_read(text, &facts));
    TD_AUTO(x509_st) *x = td_x509_parse(text);
    TD_AUTO(evp_pkey_st) *k = td_x509_key_parse(secret);
    if (!x || !k || SSL_CTX_use_certificate(ssl, x) != 1 || SSL_CTX_use_PrivateKey(ssl, k) != 1) {
        return td_tls_fail(TD_FAILED_PRECONDITION, "use the certificate '%s'", c->paths[1]);
    }
    *out_until_s = facts.valid_until_s;
    return TD_OK;
}

static td_status load(struct td_tls_context *c) {
    TD_AUTO_BUF ca_pem;
    td_buf_init(&ca_pem, TD_TLS_PEM_MAX);
    TD_TRY(read_file(c->paths[0], &ca_pem));
    TD_AUTO(x509_st) *ca = td_x509_parse(td_buf_cstr(&ca_pem));
    if (!ca) {
        return td_tls_fail(TD_FAILED_PRECONDITION, "read the CA's certificate '%s'", c->paths[0]);
    }
    TD_AUTO(ssl_ctx_st) *ssl =
        SSL_CTX_new(c->use == TD_TLS_SERVER ? TLS_server_method() : TLS_client_method());
    if (!ssl || !set_rules(ssl, c->use) || !X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), ca) ||
        (c->use == TD_TLS_SERVER && !SSL_CTX_add_client_CA(ssl, ca))) {
        return td_tls_fail(TD_INTERNAL, "prepare TLS");
    }
    int64_t until_s = INT64_MAX;
    if (c->paths[1]) TD_TRY(use_certificate(c, ssl, td_buf_cstr(&ca_pem), &until_s));
    if (c->use == TD_TLS_SERVER && SSL_CTX_add1_chain_cert(ssl, ca) != 1) {
        return td_tls_fail(TD_INTERNAL, "show the CA");
    }
    SSL_CTX_free(c->ssl);
    c->ssl = td_steal(ssl);
    c->valid_until_s = until_s;
    return TD_OK;
}

static struct look look_at(const struct td_tls_context *c) {
    struct look l = {0};
    for (int i = 0; i < N_FILES; i++) {
        struct stat st;
        if (!c->paths[i] || stat(c->paths[i], &st) != 0) continue;
        l.files[i].inode = st.st_ino;
        l.files[i].bytes = st.st_size;
        l.files[i].changed = st.st_ctim;
    }
    return l;
}

static bool same_look(const struct look *a, const struct look *b) {
    for (int i = 0; i < N_FILES; i++) {
        if (a->files[i].inode != b->files[i].inode || a->files[i].bytes != b->files[i].bytes ||
            a->files[i].changed.tv_sec != b->files[i].changed.tv_sec ||
            a->files[i].changed.tv_nsec != b->files[i].changed.tv_nsec) {
            return false;
        }
    }
    return true;
}

td_status td_tls_context_create(enum td_tls_use use, const struct td_tls_paths *paths,
                                struct td_tls_context **out_context) {
    TD_CHECK(paths->ca && !paths->certificate == !paths->key);
    TD_CHECK(use == TD_TLS_CLIENT || paths->certificate);
    TD_AUTO(td_tls_context) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->use = use;
    const char *const names[] = {paths->ca, paths->certificate, paths->key};
    for (int i = 0; i < N_FILES; i++) {
        if (names[i] && !(self->paths[i] = td_strdup(names[i]))) return td_fail_oom();
    }
    self->seen = look_at(self);
    self->looked = td_mono_now();
    TD_TRY(load(self));
    *out_context = td_steal(self);
    return TD_OK;
}

void td_tls_context_destroy(struct td_tls_context *c) {
    if (!c) return;
    for (int i = 0; i < N_FILES; i++) {
        free(c->paths[i]);
    }
    SSL_CTX_free(c->ssl);
    free(c);
}

td_status td_tls_context_refresh(struct td_tls_context *c, bool *out_changed) {
    struct td_mono now = td_mono_now();
    *out_changed = false;
    if (now.ns - c->looked.ns < look_every_ns) return TD_OK;
    c->looked = now;
    struct look l = look_at(c);
    if (same_look(&l, &c->seen)) return TD_OK;
    c->seen = l;
    TD_TRY(load(c));
    *out_changed = true;
    return TD_OK;
}

int64_t td_tls_context_left_s(const struct td_tls_context *c) {
    if (c->valid_until_s == INT64_MAX) return INT64_MAX;
    return c->valid_until_s - td_real_now().ns / TD_NS_PER_S;
}

SSL_CTX *td_tls_context_borrow(const struct td_tls_context *c) {
    return c->ssl;
}

enum td_tls_use td_tls_context_use(const struct td_tls_context *c) {
    return c->use;
}

void td_tls_context_set_guests(struct td_tls_context *c, const struct td_tls_guests *guests) {
    TD_CHECK(c->use == TD_TLS_SERVER);
    c->guests = *guests;
}

const struct td_tls_guests *td_tls_context_guests(const struct td_tls_context *c) {
    return &c->guests;
}
