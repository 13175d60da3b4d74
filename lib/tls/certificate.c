// Keys and requests are made here, certificates only read: who may issue one is authority.c's.

#include "lib/tls/certificate.h"

#include <string.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "lib/tls/error.h"
#include "lib/tls/x509.h"

td_status td_tls_key_make(struct td_buf *out_key) {
    TD_AUTO(evp_pkey_st) *key = EVP_EC_gen("P-256");
    TD_AUTO(bio_st) *bio = BIO_new(BIO_s_mem());
    if (!key || !bio || !PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) {
        return td_tls_fail(TD_INTERNAL, "make a key");
    }
    return td_x509_append(bio, out_key);
}

td_status td_tls_request_make(const char *key_pem, const char *name, struct td_buf *out_request) {
    if (strlen(name) >= TD_TLS_NAME_BYTES) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "a certificate's name has at most %d bytes, not '%.80s'",
                       TD_TLS_NAME_BYTES - 1, name);
    }
    TD_AUTO(evp_pkey_st) *key = td_x509_key_parse(key_pem);
    if (!key) return td_tls_fail(TD_INVALID_ARGUMENT, "read a private key");
    TD_AUTO(X509_req_st) *request = X509_REQ_new();
    TD_AUTO(bio_st) *bio = BIO_new(BIO_s_mem());
    bool ok = request && bio && X509_REQ_set_pubkey(request, key) &&
              X509_NAME_add_entry_by_NID(X509_REQ_get_subject_name(request), NID_commonName,
                                         MBSTRING_UTF8, (const void *)name, -1, -1, 0) &&
              X509_REQ_sign(request, key, EVP_sha256()) && PEM_write_bio_X509_REQ(bio, request);
    if (!ok) return td_tls_fail(TD_INTERNAL, "make a request for a certificate");
    return td_x509_append(bio, out_request);
}

bool td_certificate_is_serial(const char *text) {
    return strlen(text) < TD_TLS_SERIAL_BYTES && strspn(text, "0123456789ABCDEF") == strlen(text);
}

td_status td_certificate_read(const char *pem, struct td_certificate *out_certificate) {
    TD_AUTO(x509_st) *x = td_x509_parse(pem);
    if (!x) return td_tls_fail(TD_INVALID_ARGUMENT, "read a certificate");
    td_x509_describe(x, out_certificate);
    return TD_OK;
}

TD_DEFINE_AUTO(x509_store_st, X509_STORE_free);
TD_DEFINE_AUTO(x509_store_ctx_st, X509_STORE_CTX_free);

static bool is_address(const char *host) {
    ASN1_OCTET_STRING *ip = a2i_IPADDRESS(host);
    ASN1_OCTET_STRING_free(ip);
    return ip;
}

static td_status ask_for(X509_STORE_CTX *ctx, enum td_tls_use use, const char *host) {
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
    bool ok = X509_VERIFY_PARAM_set_purpose(param, use == TD_TLS_SERVER ? X509_PURPOSE_SSL_SERVER
                                                                        : X509_PURPOSE_SSL_CLIENT);
    if (host && is_address(host)) {
        ok = ok && X509_VERIFY_PARAM_set1_ip_asc(param, host);
    } else if (host) {
        ok = ok && X509_VERIFY_PARAM_set1_host(param, host, 0);
    }
    return ok ? TD_OK : td_tls_fail(TD_INVALID_ARGUMENT, "judge a certificate for that host");
}

td_status td_certificate_verify(const char *ca_pem, const char *pem, enum td_tls_use use,
                                const char *host) {
    TD_AUTO(x509_st) *ca = td_x509_parse(ca_pem);
    if (!ca) return td_tls_fail(TD_INVALID_ARGUMENT, "read the CA's certificate");
    TD_AUTO(x509_st) *x = td_x509_parse(pem);
    if (!x) return td_tls_fail(TD_INVALID_ARGUMENT, "read a certificate");
    TD_AUTO(x509_store_st) *store = X509_STORE_new();
    TD_AUTO(x509_store_ctx_st) *ctx = X509_STORE_CTX_new();
    if (!store || !ctx || !X509_STORE_add_cert(store, ca) ||
        !X509_STORE_CTX_init(ctx, store, x, NULL)) {
        return td_tls_fail(TD_INTERNAL, "judge a certificate");
    }
    TD_TRY(ask_for(ctx, use, host));
    if (X509_verify_cert(ctx) == 1) return TD_OK;
    return td_x509_refusal(X509_STORE_CTX_get_error(ctx), x);
}

td_status td_certificate_fits(const char *pem, const char *key_pem) {
    TD_AUTO(x509_st) *x = td_x509_parse(pem);
    if (!x) return td_tls_fail(TD_INVALID_ARGUMENT, "read a certificate");
    TD_AUTO(evp_pkey_st) *key = td_x509_key_parse(key_pem);
    if (!key) return td_tls_fail(TD_INVALID_ARGUMENT, "read a private key");
    if (X509_check_private_key(x, key) == 1) return TD_OK;
    return td_status_with_reason(
        td_tls_fail(TD_FAILED_PRECONDITION, "the key is not the certificate's"),
        "CERTIFICATE_REFUSED");
}
