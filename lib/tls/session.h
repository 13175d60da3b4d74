#ifndef TRAIND_LIB_TLS_SESSION_H
#define TRAIND_LIB_TLS_SESSION_H

// One TLS connection over a non-blocking socket. The caller waits for the socket; a session only
// says for what. After the handshake it is read and written as a socket is, with the same results
// and errno.
//
// Encrypted bytes may wait inside when the socket has nothing more: after the handshake, read until
// EAGAIN before waiting. One call does a bounded amount of work, whatever the other end sends, and
// may therefore return less than there is. A write that took only a part is gone on with from
// there, with the same bytes. The socket stays the caller's and must outlive the session. One
// thread at a time.

#include <sys/types.h>

#include "lib/tls/certificate.h"

struct td_tls_context;
struct td_tls_session;

// host: whom a TD_TLS_CLIENT expects, a name or an address; NULL for a server.
TD_MUST_USE td_status td_tls_session_create(const struct td_tls_context *context, int fd,
                                            const char *host, struct td_tls_session **out_session);
void td_tls_session_destroy(struct td_tls_session *s);
TD_DEFINE_AUTO(td_tls_session, td_tls_session_destroy);

enum td_tls_step { TD_TLS_DONE, TD_TLS_WANTS_READ, TD_TLS_WANTS_WRITE };
// Goes on with the handshake. Errors:
//   UNAVAILABLE TLS_CLOSED    the other end went away, of a client before it said anything
//   UNAVAILABLE TLS_LEFT      a client did so in the middle: some refuse a certificate like that
//   FAILED_PRECONDITION CERTIFICATE_REFUSED   its certificate; certificate.h says why
//   RESOURCE_EXHAUSTED TLS_FLOOD   more records than any handshake has
//   INVALID_ARGUMENT TLS      anything else: another version, an alert of the other end
TD_MUST_USE td_status td_tls_session_handshake(struct td_tls_session *s,
                                               enum td_tls_step *out_step);

// As recv and send do. A connection that is broken reads as ended.
ssize_t td_tls_session_recv(struct td_tls_session *s, void *out, size_t bytes);
// RESOURCE_EXHAUSTED TLS_FLOOD if that end is because of records without data (KeyUpdate, warnings,
// empty ones), of which there were more than anybody needs; NULL: it is not.
TD_MUST_USE td_status td_tls_session_refusal(const struct td_tls_session *s);
ssize_t td_tls_session_send(struct td_tls_session *s, const void *data, size_t bytes);
// Says that nothing more will be sent, if the socket takes it now. Not while a write waits.
void td_tls_session_close(struct td_tls_session *s);
// The other end has said so: it did not just go.
bool td_tls_session_was_closed(const struct td_tls_session *s);
// Its other end's certificate. False: it showed none.
bool td_tls_session_peer(const struct td_tls_session *s, struct td_certificate *out_certificate);

#endif
