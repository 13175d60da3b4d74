#ifndef TRAIND_LIB_TLS_REVOKED_H
#define TRAIND_LIB_TLS_REVOKED_H

// Serial numbers of certificates that are let in no more: taken back before their end, or ended and
// of a kind that is not excused. And how long all others that ended are let in all the same.
// Handshakes look here, so a revoked certificate is refused with TLS's own alert. Any thread: it is
// filled by one and asked by others.
//
// Bound: TD_TLS_REVOKED_MAX serials; the oldest gives way. Whoever judges calls must know them all.

#include "lib/tls/tls.h"

enum { TD_TLS_REVOKED_MAX = 8192 };

struct td_tls_revoked;

// Of a server's context: the certificates that clients show.
struct td_tls_guests {
    const struct td_tls_revoked *revoked; // borrowed; NULL: none is
    int64_t excuse_s; // an end that is so long ago at most is no reason to refuse, but of those
                      // that are revoked; 0: it always is
};

TD_MUST_USE td_status td_tls_revoked_create(struct td_tls_revoked **out_revoked);
void td_tls_revoked_destroy(struct td_tls_revoked *r);
TD_DEFINE_AUTO(td_tls_revoked, td_tls_revoked_destroy);

// As in struct td_certificate; "" and one that is there already change nothing.
void td_tls_revoked_add(struct td_tls_revoked *r, const char *serial);
bool td_tls_revoked_has(const struct td_tls_revoked *r, const char *serial);

#endif
