#ifndef TRAIND_LIB_TLS_X509_H
#define TRAIND_LIB_TLS_X509_H

// OpenSSL's objects to and from PEM, and why a certificate was refused, for the files of this
// folder. Private to lib/tls.

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "lib/tls/tls.h"

TD_DEFINE_AUTO(x509_st, X509_free);
TD_DEFINE_AUTO(evp_pkey_st, EVP_PKEY_free);
TD_DEFINE_AUTO(X509_req_st, X509_REQ_free);
TD_DEFINE_AUTO(bio_st, BIO_free_all);

// NULL: the text holds none.
X509 *td_x509_parse(const char *pem);
EVP_PKEY *td_x509_key_parse(const char *pem);
// Appends what was written to a BIO of memory.
TD_MUST_USE td_status td_x509_append(BIO *bio, struct td_buf *out);
// Appends the certificate. INTERNAL: OpenSSL fails.
TD_MUST_USE td_status td_x509_write(const X509 *x, struct td_buf *out);
void td_x509_describe(const X509 *x, struct td_certificate *out_certificate);
// What a verification that ended with `code` is to people. x may be NULL.
TD_MUST_USE td_status td_x509_refusal(int code, const X509 *x);

#endif
