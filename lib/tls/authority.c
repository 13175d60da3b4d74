// Serial numbers are 127 random bits, so that no counter has to survive. A lifetime never exceeds
// the CA's own.

#include "lib/tls/authority.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "lib/tls/certificate.h"
#include "lib/tls/error.h"
#include "lib/tls/x509.h"

enum { td_authority_magic = 0x74646361, EARLY_S = 3600, SERIAL_BYTES = 16, DAY_S = 86400 };
static const int64_t ca_days = 3652;

struct td_authority {
    uint32_t magic;
    X509 *ca;
    EVP_PKEY *key;
};

TD_DEFINE_AUTO(bignum_st, BN_free);
TD_DEFINE_AUTO(X509_extension_st, X509_EXTENSION_free);

static bool set_serial(X509 *x) {
    uint8_t bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
    bytes[0] = (uint8_t)((bytes[0] & 0x7f) | 0x40); // positive, and always as long
    TD_AUTO(bignum_st) *n = BN_bin2bn(bytes, sizeof bytes, NULL);
    return n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    TD_AUTO(X509_extension_st) *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    return e && X509_add_ext(x, e, -1);
}

// What every certificate has. issuer is x itself for a CA.
static bool begin(X509 *x, X509 *issuer, const char *name, EVP_PKEY *key, int64_t lifetime_s) {
    X509_NAME *subject = X509_get_subject_name(x);
    return X509_set_version(x, 2) && set_serial(x) &&
           X509_time_adj_ex(X509_getm_notBefore(x), 0, -EARLY_S, NULL) &&
           X509_time_adj_ex(X509_getm_notAfter(x), (int)(lifetime_s / DAY_S),
                            (long)(lifetime_s % DAY_S), NULL) &&
           X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, (const void *)name,
                                      -1, -1, 0) &&
           X509_set_issuer_name(x, X509_get_subject_name(issuer)) && X509_set_pubkey(x, key) &&
           add_extension(x, issuer, NID_subject_key_identifier, "hash");
}

td_status td_authority_make(const char *name, struct td_buf *out_ca, struct td_buf *out_key) {
    TD_AUTO_BUF key_pem;
    td_buf_init(&key_pem, TD_TLS_PEM_MAX);
    TD_TRY(td_tls_key_make(&key_pem));
    TD_AUTO(evp_pkey_st) *key = td_x509_key_parse(td_buf_cstr(&key_pem));
    TD_AUTO(x509_st) *x = X509_new();
    bool ok = key && x && begin(x, x, name, key, ca_days * DAY_S) &&
              add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
              add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
              X509_sign(x, key, EVP_sha256());
    if (!ok) return td_tls_fail(TD_INTERNAL, "make a CA");
    TD_TRY(td_x509_write(x, out_ca));
    return td_buf_append(out_key, key_pem.data, key_pem.len);
}

td_status td_authority_open(const char *ca_pem, const char *key_pem,
                            struct td_authority **out_authority) {
    TD_TRY(td_certificate_fits(ca_pem, key_pem));
    TD_AUTO(td_authority) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_authority_magic;
    self->ca = td_x509_parse(ca_pem);
    self->key = td_x509_key_parse(key_pem);
    if (!self->ca || !self->key) return td_fail_oom(); // both were read a moment ago
    *out_authority = td_steal(self);
    return TD_OK;
}

void td_authority_destroy(struct td_authority *a) {
    if (!a) return;
    X509_free(a->ca);
    EVP_PKEY_free(a->key);
    a->magic = 0;
    free(a);
}

static td_status bad_request(const char *why) {
    return td_status_with_reason(td_tls_fail(TD_INVALID_ARGUMENT, "%s", why), "REQUEST_INVALID");
}

static td_status parse_request(const char *request_pem, X509_REQ **out_request) {
    TD_AUTO(bio_st) *bio = BIO_new_mem_buf(request_pem, -1);
    *out_request = bio ? PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL) : NULL;
    return *out_request ? TD_OK : bad_request("read a request for a certificate");
}

td_status td_authority_request_name(const char *request_pem, char out_name[TD_TLS_NAME_BYTES]) {
    TD_AUTO(X509_req_st) *request = NULL;
    TD_TRY(parse_request(request_pem, &request));
    if (X509_NAME_get_text_by_NID(X509_REQ_get_subject_name(request), NID_commonName, out_name,
                                  TD_TLS_NAME_BYTES) < 0) {
        out_name[0] = '\0';
    }
    return TD_OK;
}

td_status td_authority_request_digest(const char *request_pem, const char *text,
                                      uint8_t out_digest[TD_TLS_DIGEST_BYTES]) {
    TD_AUTO(X509_req_st) *request = NULL;
    TD_AUTO_BUF both;
    td_buf_init(&both, TD_TLS_PEM_MAX);
    TD_TRY(parse_request(request_pem, &request));
    uint8_t *key = NULL;
    int n = i2d_X509_PUBKEY(X509_REQ_get_X509_PUBKEY(request), &key);
    if (n <= 0) return bad_request("read the key of a request");
    td_status s = td_buf_append(&both, key, (size_t)n);
    OPENSSL_free(key);
    if (!s) s = td_buf_str(&both, text);
    if (!s) s = td_tls_secret_digest((struct td_str){both.data, both.len}, out_digest);
    return s;
}

static td_status key_of(const char *request_pem, EVP_PKEY **out_key) {
    TD_AUTO(X509_req_st) *request = NULL;
    TD_TRY(parse_request(request_pem, &request));
    EVP_PKEY *key = X509_REQ_get0_pubkey(request);
    char group[32] = "";
    size_t n;
    if (!key || !EVP_PKEY_is_a(key, "EC") ||
        !EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof group, &n) ||
        strcmp(group, "prime256v1") != 0) {
        return bad_request("the key of a request is not EC P-256");
    }
    if (X509_REQ_verify(request, key) != 1) {
        return bad_request("a request is not signed with its own key");
    }
    EVP_PKEY_up_ref(key);
    *out_key = key;
    return TD_OK;
}

// "DNS:a,IP:10.0.0.1". A comma in a name would make two of it.
static td_status add_hosts(X509 *x, const struct td_authority *a,
                           const struct td_authority_terms *terms) {
    TD_AUTO_BUF list;
    td_buf_init(&list, TD_TLS_PEM_MAX);
    for (size_t i = 0; i < terms->n_hosts; i++) {
        const char *host = terms->hosts[i];
        ASN1_OCTET_STRING *ip = a2i_IPADDRESS(host);
        ASN1_OCTET_STRING_free(ip);
        bool is_name = host[0] && strlen(host) <= 253 &&
                       host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789-._*")] == '\0';
        if (!ip && !is_name) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "'%.100s' is neither a host name nor an address; write it as clients "
                           "dial it, without a port",
                           host);
        }
        TD_TRY(td_buf_printf(&list, "%s%s:%s", i ? "," : "", ip ? "IP" : "DNS", host));
    }
    if (!list.len || add_extension(x, a->ca, NID_subject_alt_name, td_buf_cstr(&list))) {
        return TD_OK;
    }
    return td_tls_fail(TD_INVALID_ARGUMENT, "write the hosts of a certificate");
}

td_status td_authority_issue(const struct td_authority *a, const char *request_pem,
                             const struct td_authority_terms *terms,
                             struct td_buf *out_certificate) {
    TD_AUTO(evp_pkey_st) *key = NULL;
    TD_TRY(key_of(request_pem, &key));
    struct td_certificate ca;
    td_x509_describe(a->ca, &ca);
    int64_t lifetime_s = TD_MIN(terms->lifetime_s, ca.left_s);
    bool serves = terms->use == TD_TLS_SERVER;
    TD_AUTO(x509_st) *x = X509_new();
    bool ok = x && begin(x, a->ca, terms->name, key, lifetime_s) &&
              add_extension(x, a->ca, NID_authority_key_identifier, "keyid") &&
              add_extension(x, a->ca, NID_basic_constraints, "critical,CA:FALSE") &&
              add_extension(x, a->ca, NID_key_usage, "critical,digitalSignature") &&
              add_extension(x, a->ca, NID_ext_key_usage, serves ? "serverAuth" : "clientAuth");
    if (!ok) return td_tls_fail(TD_INTERNAL, "make a certificate for '%.64s'", terms->name);
    TD_TRY(add_hosts(x, a, terms));
    if (!X509_sign(x, a->key, EVP_sha256())) return td_tls_fail(TD_INTERNAL, "sign a certificate");
    return td_x509_write(x, out_certificate);
}
