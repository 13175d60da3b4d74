#ifndef TRAIND_DAEMON_COORDINATOR_API_ISSUE_H
#define TRAIND_DAEMON_COORDINATOR_API_ISSUE_H

// Certificates that the coordinator gives for requests: to nodes (join.c) and to people (tokens.c).
// What one says comes from here: its name is the caller's choice, and its use is to dial. The CA's
// key is read when it is needed, so `traind init` may be run before or after the start.

#include "daemon/coordinator/shell/shell.h"
#include "lib/tls/tls.h"

// FAILED_PRECONDITION NO_TLS: the coordinator listens on loopback alone, where nobody can show one.
TD_MUST_USE td_status td_issue_check_tls(const struct td_coordinator *c);
// Reads a file of tls/ in the state directory. FAILED_PRECONDITION NO_TLS: there is none.
TD_MUST_USE td_status td_issue_read(const struct td_coordinator *c, const char *file,
                                    struct td_buf *out_pem);
// td_authority_issue for a client, and what the certificate says.
TD_MUST_USE td_status td_issue_sign(const struct td_coordinator *c, const char *request,
                                    const char *name, int64_t lifetime_s, struct td_buf *out_pem,
                                    struct td_certificate *out_certificate);

#endif
