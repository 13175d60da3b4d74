#ifndef TRAIND_LIB_TLS_CERTIFICATE_H
#define TRAIND_LIB_TLS_CERTIFICATE_H

// Keys, requests for certificates, and what a certificate says. Pure but for the random numbers of
// a new key and the clock that validity is judged by. Any thread.

#include "lib/tls/tls.h"

// What people and programs ask of a certificate. Times are seconds since 1970, for display and for
// the choice of a time to renew.
struct td_certificate {
    char name[TD_TLS_NAME_BYTES];     // common name; "" without one
    char serial[TD_TLS_SERIAL_BYTES]; // upper-case hexadecimal
    char fingerprint[TD_TLS_FINGERPRINT_HEX];
    int64_t valid_from_s, valid_until_s;
    int64_t left_s; // until it ends, by this machine's clock; negative: it has ended
};

// Appends a new private key, which nobody else may read. INTERNAL: OpenSSL fails.
TD_MUST_USE td_status td_tls_key_make(struct td_buf *out_key);
// Appends a request, signed with the key, for a certificate of that name.
// Errors: INVALID_ARGUMENT: no such key, or a name above 64 bytes.
TD_MUST_USE td_status td_tls_request_make(const char *key_pem, const char *name,
                                          struct td_buf *out_request);

// Reads the first certificate of the text. INVALID_ARGUMENT: there is none.
TD_MUST_USE td_status td_certificate_read(const char *pem, struct td_certificate *out_certificate);
// Judges a certificate: issued by that CA, within its time, good for that use, and, unless host is
// NULL, for that name or address. FAILED_PRECONDITION CERTIFICATE_REFUSED says what is wrong and
// what to do; a time that is over, or has not come, is shown beside this machine's.
TD_MUST_USE td_status td_certificate_verify(const char *ca_pem, const char *pem,
                                            enum td_tls_use use, const char *host);
// The key is the certificate's. FAILED_PRECONDITION CERTIFICATE_REFUSED: it is another's.
TD_MUST_USE td_status td_certificate_fits(const char *pem, const char *key_pem);

#endif
