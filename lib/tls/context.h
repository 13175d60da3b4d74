#ifndef TRAIND_LIB_TLS_CONTEXT_H
#define TRAIND_LIB_TLS_CONTEXT_H

// What one end of connections brings to its handshakes: its certificate and key, the CA that judges
// the other end's, TLS 1.3 and nothing older. A server asks clients for a certificate, and takes
// those that have none; one that is shown has to be good. Sessions are not resumed, so each
// connection is judged by what holds when it comes.
//
// The three files may be replaced at any time. Whoever is about to use the context refreshes it:
// the files are looked at, at most once a second, and read again if one of them changed. So nothing
// wakes up for that. What cannot be used, such as a certificate whose key is not written yet,
// leaves the context as it was. A server shows its CA, too (first_contact.h). One thread at a time.

#include "lib/tls/tls.h"

struct td_tls_context;
struct td_tls_guests;
struct ssl_ctx_st;

// Paths of PEM files; strings are copied. certificate and key may be NULL for TD_TLS_CLIENT.
struct td_tls_paths {
    const char *ca, *certificate, *key;
};

// Errors: FAILED_PRECONDITION: a file is missing or holds something else, or the certificate is
// refused by its own CA (certificate.h says why).
TD_MUST_USE td_status td_tls_context_create(enum td_tls_use use, const struct td_tls_paths *paths,
                                            struct td_tls_context **out_context);
void td_tls_context_destroy(struct td_tls_context *c);
TD_DEFINE_AUTO(td_tls_context, td_tls_context_destroy);

// Of TD_TLS_SERVER, before its first session: rules for what clients show. What it borrows has to
// outlive the context.
void td_tls_context_set_guests(struct td_tls_context *c, const struct td_tls_guests *guests);
const struct td_tls_guests *td_tls_context_guests(const struct td_tls_context *c);

// Looks at the files. *out_changed: they were read again, and hold from now on. An error means that
// they changed and cannot be used; it comes once per change.
TD_MUST_USE td_status td_tls_context_refresh(struct td_tls_context *c, bool *out_changed);
// Its own certificate's end, by this machine's clock; INT64_MAX without a certificate.
int64_t td_tls_context_left_s(const struct td_tls_context *c);

// OpenSSL's object, for session.c. Dies with the context or its next refresh.
struct ssl_ctx_st *td_tls_context_borrow(const struct td_tls_context *c);
enum td_tls_use td_tls_context_use(const struct td_tls_context *c);

#endif
