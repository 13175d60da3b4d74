#ifndef TRAIND_LIB_TLS_CERTIFICATE_H
#define TRAIND_LIB_TLS_CERTIFICATE_H

// Keys, requests for certificates, and what a certificate says. Pure but for the random numbers of
// a new key and the clock that validity is judged by. Any thread.

#include "lib/tls/tls.h"

// Appends a new private key, which nobody else may read. INTERNAL: OpenSSL fails.
TD_MUST_USE td_status td_tls_key_make(struct td_buf *out_key);
// Appends a request, signed with the key, for a certificate of that name.
// Errors: INVALID_ARGUMENT: no such key, or a name above 64 bytes.
TD_MUST_USE td_status td_tls_request_make(const char *key_pem, const char *name,
                                          struct td_buf *out_request);

// Reads the first certificate of the text. INVALID_ARGUMENT: there is none.
TD_MUST_USE td_status td_certificate_read(const char *pem, struct td_certificate *out_certificate);
// Hexadecimal as in struct td_certificate, or "".
bool td_certificate_is_serial(const char *text);
// Judges a certificate: issued by that CA, within its time, good for that use, and, unless host is
// NULL, for that name or address. FAILED_PRECONDITION CERTIFICATE_REFUSED says what is wrong and
// what to do; a time that is over, or has not come, is shown beside this machine's.
TD_MUST_USE td_status td_certificate_verify(const char *ca_pem, const char *pem,
                                            enum td_tls_use use, const char *host);
// The key is the certificate's. FAILED_PRECONDITION CERTIFICATE_REFUSED: it is another's.
TD_MUST_USE td_status td_certificate_fits(const char *pem, const char *key_pem);

#endif
