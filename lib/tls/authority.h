#ifndef TRAIND_LIB_TLS_AUTHORITY_H
#define TRAIND_LIB_TLS_AUTHORITY_H

// A CA of one cluster: a certificate that clients and nodes are given, and a key that stays in the
// coordinator's state directory. It issues certificates for requests; a request proves that its
// sender has the key. What a certificate says comes from the CA's caller, never from the request.

#include "lib/tls/secret.h"
#include "lib/tls/tls.h"

struct td_authority;

// Appends a new CA's certificate, valid for 10 years, and its key.
TD_MUST_USE td_status td_authority_make(const char *name, struct td_buf *out_ca,
                                        struct td_buf *out_key);
// Errors: INVALID_ARGUMENT: no certificate, or no key; FAILED_PRECONDITION CERTIFICATE_REFUSED: the
// key is another's.
TD_MUST_USE td_status td_authority_open(const char *ca_pem, const char *key_pem,
                                        struct td_authority **out_authority);
void td_authority_destroy(struct td_authority *a);
TD_DEFINE_AUTO(td_authority, td_authority_destroy);

// The name that a request asks for; "" without one. INVALID_ARGUMENT REQUEST_INVALID.
TD_MUST_USE td_status td_authority_request_name(const char *request_pem,
                                                char out_name[TD_TLS_NAME_BYTES]);
// SHA-256 of a request's key and of a text, which so belong together. INVALID_ARGUMENT
// REQUEST_INVALID.
TD_MUST_USE td_status td_authority_request_digest(const char *request_pem, const char *text,
                                                  uint8_t out_digest[TD_TLS_DIGEST_BYTES]);

struct td_authority_terms {
    enum td_tls_use use;
    const char *name; // common name, at most 64 bytes
    // Names and addresses that a client may dial; for TD_TLS_SERVER.
    const char *const *hosts;
    size_t n_hosts;
    int64_t lifetime_s; // it begins an hour ago, for clocks that are a little late
};

// Appends a certificate for a request. Errors: INVALID_ARGUMENT REQUEST_INVALID: the request is no
// request, its signature is wrong, or its key is not EC P-256; or a host cannot be in a
// certificate.
TD_MUST_USE td_status td_authority_issue(const struct td_authority *a, const char *request_pem,
                                         const struct td_authority_terms *terms,
                                         struct td_buf *out_certificate);

#endif
