#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_ACCESS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_ACCESS_H

// Whose call it is, whether he may make it, and until when.
//
// Before a call reaches its handler, its token is judged. It names a caller, and the row of the
// method in the table of its service (api/) says which role is needed. The owner's token, a file in
// the state directory, is admin and node in one. A node that joined has a certificate instead of a
// token; one that is over is good for one method alone, which gives it another. A person may have
// one, too: it is a credential like a token, and a serial number says which of the two a
// certificate is. What a role alone cannot say, whose job it is, the handlers ask here. A
// credential that is revoked or expires takes its open calls with it, streams and sessions of nodes
// too. What changes something, and what is refused, becomes a line of the audit log.
//
// The loop's thread owns all of it.
//
// The room, in reading order:
//
//   role.h                what a credential may do, as a table
//   credentials.h         by what calls come: one table
//   tokens.h              those that were given out
//   members.h             the nodes that joined, and their certificates
//   caller.h              who calls
//   caps.h                how many calls may be open, by whose (caps.def)
//   audit.h audit_file.h  the file that says who did what

#include "daemon/coordinator/shell/access/caller.h"
#include "daemon/coordinator/shell/access/credentials.h"
#include "daemon/coordinator/shell/shell.h"

struct td_access;
struct td_peer_identity;
struct td_tls_guests;

// Before the server is created; it needs c->store for what is loaded. Destroy comes after the
// server's.
TD_MUST_USE td_status td_access_create(struct td_coordinator *c, struct td_access **out_access);
void td_access_destroy(struct td_access *a);
// Reads the credentials. salvage: a row that is none is left out and logged, else it is DATA_LOSS.
TD_MUST_USE td_status td_access_load(struct td_coordinator *c, bool salvage);

// td_rpc_server_add for rows of ours. INTERNAL: one names no role.
TD_MUST_USE td_status td_access_add_rows(struct td_coordinator *c, const struct td_rpc_method *rows,
                                         size_t n_rows);
// Of the server's options; ctx is the coordinator.
td_status td_access_authorize(struct td_str token, const struct td_rpc_method *row, void *ctx,
                              uint64_t *out_identity);
td_status td_access_authorize_peer(const struct td_peer_identity *peer,
                                   const struct td_rpc_method *row, void *ctx,
                                   uint64_t *out_identity);
// The rules of its handshakes; what they borrow lives as long as a.
struct td_tls_guests td_access_guests(const struct td_access *a);
// Is there room for the call (caps.h)? The seat comes back with leave.
td_status td_access_enter(const struct td_rpc_call *call, void *ctx, void **out_seat);
void td_access_leave(const struct td_rpc_call *call, void *seat, void *ctx);
void td_access_answered(const struct td_rpc_call *call, td_status borrow_status, void *ctx);

struct td_caller td_access_caller(const struct td_coordinator *c, const struct td_rpc_call *call);
// The call is about this job, which is named in the audit log. A submitter changes jobs of its own
// name. PERMISSION_DENIED NOT_THE_OWNER.
TD_MUST_USE td_status td_access_may_change(const struct td_coordinator *c, struct td_rpc_call *call,
                                           const struct td_job *j);
// The call reads checkpoints of this job. A node does so for attempts that it holds.
// PERMISSION_DENIED NOT_THE_HOLDER.
TD_MUST_USE td_status td_access_may_read_checkpoints(const struct td_coordinator *c,
                                                     const struct td_rpc_call *call,
                                                     const struct td_job *j);
// A line of the audit log now, for a call that goes on.
void td_access_note(struct td_coordinator *c, const struct td_rpc_call *call);
// A line of what this call has changed, which is on disk when the records are that are gathered.
void td_access_note_change(struct td_coordinator *c, struct td_rpc_call *call);

struct td_credential_table *td_access_borrow_credentials(struct td_coordinator *c);
// With which the call came, if it is of that kind; NULL: it is not, or it is the owner's.
const struct td_credential *td_access_credential(const struct td_coordinator *c,
                                                 const struct td_rpc_call *call,
                                                 enum td_credential_kind kind);
// Credentials changed: their rows go to the store, and what must happen by time is looked at again.
void td_access_changed(struct td_coordinator *c);
// It was revoked: its certificates are refused, and its calls end, all but this one.
void td_access_cut(struct td_coordinator *c, const struct td_credential *credential,
                   const struct td_rpc_call *except);

#endif
