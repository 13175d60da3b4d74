#ifndef TRAIND_LIB_TLS_FIRST_CONTACT_H
#define TRAIND_LIB_TLS_FIRST_CONTACT_H

// The CA of a server that nobody here trusts yet. Who wants to join has its fingerprint from a safe
// place. The server shows its CA with its certificate; whatever else came in between cannot show
// one with that fingerprint. Nothing is sent but the handshake, and what is learned is only the CA:
// everything after it goes over a new connection that is judged by it.

#include "lib/tls/tls.h"

// Shakes hands on a connected, non-blocking socket, which stays the caller's, and appends the CA.
// host: whom the caller dialled. Blocks for timeout_ns at most. Errors:
//   UNAUTHENTICATED CLUSTER_WRONG              it shows another CA, or none
//   FAILED_PRECONDITION CERTIFICATE_REFUSED    its certificate is not of that CA, not for that
//                                              host, or not valid by the clock here
//   UNAVAILABLE; INVALID_ARGUMENT TLS          as td_tls_session_handshake
//   DEADLINE_EXCEEDED
TD_MUST_USE td_status td_tls_first_contact(int fd, const char *host, const char *fingerprint,
                                           int64_t timeout_ns, struct td_buf *out_ca);

#endif
