// The texts of refusals are here, so that a handshake and a check of files say the same.

#include "lib/tls/x509.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "lib/base/clock.h"
#include "lib/tls/error.h"

X509 *td_x509_parse(const char *pem) {
    TD_AUTO(bio_st) *bio = BIO_new_mem_buf(pem, -1);
    return bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
}

// Never asks a terminal for a pass phrase.
static int no_phrase(char *out, int bytes, int writing, void *arg) {
    (void)out, (void)bytes, (void)writing, (void)arg;
    return 0;
}

EVP_PKEY *td_x509_key_parse(const char *pem) {
    TD_AUTO(bio_st) *bio = BIO_new_mem_buf(pem, -1);
    return bio ? PEM_read_bio_PrivateKey(bio, NULL, no_phrase, NULL) : NULL;
}

td_status td_x509_append(BIO *bio, struct td_buf *out) {
    char *data;
    long bytes = BIO_get_mem_data(bio, &data);
    return td_buf_append(out, data, bytes > 0 ? (size_t)bytes : 0);
}

td_status td_x509_write(const X509 *x, struct td_buf *out) {
    TD_AUTO(bio_st) *bio = BIO_new(BIO_s_mem());
    if (!bio || !PEM_write_bio_X509(bio, x)) return td_tls_fail(TD_INTERNAL, "write a certificate");
    return td_x509_append(bio, out);
}

static int64_t now_s(void) {
    return td_real_now().ns / TD_NS_PER_S;
}

static int64_t seconds_of(const ASN1_TIME *t) {
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static void write_hex(const uint8_t *data, size_t bytes, char *out, size_t out_bytes) {
    for (size_t i = 0; i < bytes && 2 * i + 2 < out_bytes; i++) {
        snprintf(out + 2 * i, out_bytes - 2 * i, "%02X", data[i]);
    }
}

void td_x509_describe(const X509 *x, struct td_certificate *out_certificate) {
    struct td_certificate c = {0};
    const ASN1_INTEGER *serial = X509_get0_serialNumber(x);
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, c.name, sizeof c.name);
    write_hex(ASN1_STRING_get0_data(serial), (size_t)ASN1_STRING_length(serial), c.serial,
              sizeof c.serial);
    if (X509_digest(x, EVP_sha256(), digest, &n)) {
        write_hex(digest, n, c.fingerprint, sizeof c.fingerprint);
    }
    c.valid_from_s = seconds_of(X509_get0_notBefore(x));
    c.valid_until_s = seconds_of(X509_get0_notAfter(x));
    c.left_s = c.valid_until_s - now_s();
    *out_certificate = c;
}

static void write_time(int64_t s, char out[32]) {
    time_t t = (time_t)s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S UTC", &tm)) out[0] = '\0';
}

static td_status refused_for_time(const struct td_certificate *c, bool early) {
    char edge[32], now[32];
    write_time(early ? c->valid_from_s : c->valid_until_s, edge);
    write_time(now_s(), now);
    return td_fail(TD_FAILED_PRECONDITION,
                   "the certificate of '%s' %s %s, and the clock here says %s: set the clock that "
                   "is wrong, or have a new one made",
                   c->name, early ? "is not valid before" : "has expired on", edge, now);
}

td_status td_x509_refusal(int code, const X509 *x) {
    struct td_certificate c = {0};
    td_status s;
    if (x) td_x509_describe(x, &c);
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        s = refused_for_time(&c, code == X509_V_ERR_CERT_NOT_YET_VALID);
        break;
    case X509_V_ERR_CERT_REVOKED:
        s = td_fail(TD_FAILED_PRECONDITION, "the certificate of '%s' was revoked (serial %s)",
                    c.name, c.serial);
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        s = td_fail(TD_FAILED_PRECONDITION, "the certificate of '%s' was issued by another CA: %s",
                    c.name, X509_verify_cert_error_string(code));
        break;
    default:
        s = td_fail(TD_FAILED_PRECONDITION, "the certificate of '%s' is refused: %s", c.name,
                    X509_verify_cert_error_string(code));
    }
    return td_status_with_reason(s, "CERTIFICATE_REFUSED");
}
